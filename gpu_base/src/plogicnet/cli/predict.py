"""The commands that give what a run has found: predict and export."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plogicnet.cli.settings import (
    Device,
    FactsFile,
    Json,
    MemoryLimit,
    Run,
    Threads,
    duration,
    print_json,
    require_folder,
)
from plogicnet.cli.train import load_run
from plogicnet.errors import InputError, many
from plogicnet.memory import limit_memory

if TYPE_CHECKING:
    from plogicnet.fitted import Judged
    from plogicnet.graph import IntArray, KnowledgeGraph
    from plogicnet.model import PLogicNet

    Found = tuple[IntArray | None, Judged]

SHOWN = 10
JUDGE_AT_ONCE = 1 << 16
AllPairs = Annotated[
    bool, typer.Option("--all-pairs", help="Look among all pairs of entities, not only what a relation was seen with.")
]


def predict(
    run: Run,
    head: Annotated[str | None, typer.Option("--head", help="The head's name.")] = None,
    relation: Annotated[str | None, typer.Option("--relation", help="The relation's name.")] = None,
    tail: Annotated[str | None, typer.Option("--tail", help="The tail's name.")] = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="A file of triples with ? or nothing for the part that is asked.")
    ] = None,
    triples: Annotated[Path | None, typer.Option("--triples", help="A file of triples to judge.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="All missing facts of --min-probability.")] = False,
    min_probability: Annotated[
        float | None, typer.Option("--min-probability", min=0, max=1, help="Only what is so probable; 0.5 to complete.")
    ] = None,
    all_pairs: AllPairs = False,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Only the best so many; 10 answers to a query unless told.")
    ] = None,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Show training triples among the answers.")
    ] = False,
    facts: FactsFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write to this file: .tsv, .csv, .jsonl (also .gz), .parquet or .nt.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="tsv, csv, jsonl, parquet or nt; else by ending.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """The most probable answers to queries with one part left open; or judge triples; or complete the graph."""
    limit_memory(memory_limit)
    from plogicnet.graph import read_queries
    from plogicnet.output import kind_of, table_of
    from plogicnet.prediction import query_of
    from plogicnet.progress import for_stderr, silent

    named = (head, relation, tail)
    given = 3 - named.count(None)
    if sum([given > 0, queries is not None, triples is not None, complete]) != 1 or given not in (0, 2):
        kinds = "two of --head, --relation, --tail; or --queries FILE; or --triples FILE; or --complete"
        raise InputError(f"ask one thing: {kinds}")
    if all_pairs and not complete:
        raise InputError("--all-pairs goes with --complete")
    if include_known and (complete or triples is not None):
        raise InputError("--include-known is for queries; given triples are judged in any case")
    if kind is not None and out is None:
        raise InputError("--format goes with --out FILE")
    require_folder(out)
    if out is not None:
        kind_of(out, kind)
    model = load_run(run, device, threads, facts=facts)
    graph, asked = model.fitted.graph, None
    found: Iterator[Found]
    if complete:
        found = _completed(model, 0.5 if min_probability is None else min_probability, all_pairs, top, out is None)
    elif triples is not None:
        found = _likely(_judged(model, triples, top), min_probability)
    else:
        asked = query_of(graph, *named) if queries is None else read_queries(queries, graph)
        shown = silent if queries is None else for_stderr()
        found = _likely(model.answers(asked, top or SHOWN, include_known, shown), min_probability)
    several, told = queries is not None, {}
    if out is not None:
        written, best = _written(found, model, out, kind, several)
        found, asked, told = iter([(None, best)]), None, {"out": str(out), "written": written}
    tables = (table_of(judged, graph, query if several else None) for query, judged in found)
    rows = [row for table in tables for row in table.to_pylist()]
    if as_json:
        print_json({"predictions": rows} | told)
        return
    _show(rows, asked, graph, include_known, len(rows) if out is None else written)
    if out is not None:
        print(f"{many(written, 'prediction')} written to {out}")
    elif complete and len(rows) == (top or SHOWN):
        print("these are the most probable ones; --top N shows more, and --out FILE writes all", file=sys.stderr)


def _written(
    found: "Iterator[Found]", model: "PLogicNet", out: Path, kind: str | None, several: bool
) -> "tuple[int, Judged]":
    """Writes what is found to a file as it comes; gives how much that was, and the best of it."""
    from plogicnet.output import COLUMNS, QUERY, table_of, writing
    from plogicnet.prediction import most_probable

    f = model.fitted
    count, best = 0, f.nothing()
    with writing(out, (*COLUMNS, *([QUERY] if several else [])), kind) as write:
        for query, judged in found:
            write(table_of(judged, f.graph, query if several else None))
            count, best = count + len(judged), most_probable(f, [best, judged], SHOWN)
    return count, best


def _likely(found: "Iterator[Found]", least: float | None) -> "Iterator[Found]":
    """What is at least as probable as asked for."""
    for query, judged in found:
        rows = judged.probability >= (least or 0.0)
        yield None if query is None else query[rows], judged.take(rows)


def _completed(
    model: "PLogicNet", least: float, all_pairs: bool, top: int | None, to_screen: bool
) -> "Iterator[Found]":
    """The missing facts: piece by piece, or only the best of them; what it costs is said first."""
    from plogicnet.prediction import complete, ends, seconds_to_score
    from plogicnet.progress import for_stderr

    f = model.fitted
    size, seconds = sum(place.size for place in ends(f, all_pairs)), max(1.0, seconds_to_score(f, all_pairs))
    which = (
        "all pairs of entities" if all_pairs else "pairs of entities that a relation was seen with, and what rules say"
    )
    print(
        f"completing: {many(size, 'candidate')} ({which}), about {duration(seconds)} here to score",
        file=sys.stderr,
    )
    if top is None and not to_screen:
        yield from ((None, judged) for judged in model.missing(least, for_stderr(), all_pairs))
    else:
        yield None, complete(f, least, top or SHOWN, all_pairs, for_stderr())


def _judged(model: "PLogicNet", file: Path, top: int | None) -> "Iterator[Found]":
    """The triples of a file, in their order; or the most probable of them."""
    from plogicnet.graph import read_triples
    from plogicnet.prediction import most_probable
    from plogicnet.progress import for_stderr

    f = model.fitted
    triples, best = read_triples(file, f.graph), f.nothing()
    with for_stderr()("judging, triples", len(triples)) as advance:
        for start in range(0, len(triples), JUDGE_AT_ONCE):
            judged = f.judged(triples[start : start + JUDGE_AT_ONCE])
            if top is None:
                yield None, judged
            else:
                best = most_probable(f, [best, judged], top)
            advance(len(judged))
    if top is not None:
        yield None, best


def _show(
    rows: list[dict[str, Any]], asked: "IntArray | None", graph: "KnowledgeGraph", include_known: bool, of: int
) -> None:
    """A table of the best of so many; of several queries' answers, one for each, with how many are known already."""
    from itertools import groupby

    from plogicnet.cli.show import console, fact, predictions_table
    from plogicnet.graph import OPEN

    if asked is None:
        title = many(of, "triple") if len(rows) == of else f"the {len(rows):,} most probable of {many(of, 'triple')}"
        console().print(predictions_table(title, rows, graph.labels))
        return
    answers = {number: list(own) for number, own in groupby(rows, key=lambda row: row.get("query", 1))}
    for number, query in enumerate(asked, 1):
        h, r, t = query.tolist()
        names = (graph.entities.names[h], graph.relations.names[r], graph.entities.names[t])
        words = ["?" if n < 0 else name for n, name in zip((h, r, t), names, strict=True)]
        known = int(((graph.train == query) | (query == OPEN)).all(axis=1).sum())
        left_out = 0 if include_known else known
        console().print(predictions_table(fact(words), answers.get(number, []), graph.labels, left_out))


def export(
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="The directory to write into.")],
    parts: Annotated[
        str, typer.Option("--parts", help="What to write, as vectors,rules.")
    ] = "vectors,rules,predictions",
    min_probability: Annotated[
        float, typer.Option("--min-probability", min=0, max=1, help="How probable predictions are.")
    ] = 0.5,
    all_pairs: AllPairs = False,
    kind: Annotated[str, typer.Option("--format", help="Of predictions: tsv, csv, jsonl, parquet or nt.")] = "tsv",
    fixed: Annotated[
        bool, typer.Option("--fixed-weights", help="Write rules so that --rules keeps their weights.")
    ] = False,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Write vectors, rules and the completed graph as files for other programs."""
    limit_memory(memory_limit)
    from plogicnet.export import Choice
    from plogicnet.export import export as write
    from plogicnet.progress import for_stderr

    choice = Choice(tuple(part.strip() for part in parts.split(",")), min_probability, all_pairs, kind, fixed)
    model = load_run(run, device, threads)
    written = write(model.fitted, run / "embeddings.safetensors", out, choice, for_stderr())
    if as_json:
        print_json({"out": str(out), "files": sorted(p.name for p in out.iterdir())} | written)
        return
    for file in sorted(out.iterdir()):
        print(file)
