"""The commands that give what a run has found: predict, explain and export."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from plogicnet.cli import options, show
from plogicnet.cli.settings import duration, load_run, print_json, require_folder
from plogicnet.support.errors import InputError, many
from plogicnet.support.progress import for_stderr, silent

if TYPE_CHECKING:
    from plogicnet.graph import IntArray, KnowledgeGraph
    from plogicnet.inference.fitted import Judged, Prediction
    from plogicnet.model import PLogicNet

    Found = Iterator[tuple[IntArray | None, Judged]]

SHOWN = 10
JUDGE_AT_ONCE = 1 << 16
KINDS = "two of --head, --relation, --tail; or --queries FILE; or --triples FILE; or --complete"
Queries = Annotated[
    Path | None, Option("--queries", help="A file of triples with ? or nothing for the part that is asked.")
]
MinProbability = Annotated[
    float | None,
    Option("--min-probability", min=0, max=1, help="Only what is so probable; default 0.5 with --complete."),
]
AllPairs = Annotated[
    bool, Option("--all-pairs", help="Look among all pairs of entities, not only what a relation was seen with.")
]
Top = Annotated[
    int | None, Option("--top", min=1, help="Only the most probable so many; default 10 answers to a query.")
]
IncludeKnown = Annotated[bool, Option("--include-known", help="Show training triples among the answers.")]
Out = Annotated[
    Path | None, Option("--out", help="Write to this file: .tsv, .csv, .jsonl (also .gz), .parquet or .nt.")
]
Kind = Annotated[str | None, Option("--format", help="tsv, csv, jsonl, parquet or nt; else by ending.")]
Premises = Annotated[
    int | None, Option("--premises", min=0, help="Groundings shown of each rule; default 3, in JSON 100.")
]
Parts = Annotated[str, Option("--parts", help="What to write, as vectors,rules.")]
Probable = Annotated[float, Option("--min-probability", min=0, max=1, help="How probable predictions are.")]
Fixed = Annotated[bool, Option("--fixed-weights", help="Write rules so that --rules keeps their weights.")]


class Format(StrEnum):
    """How an explanation is written."""

    tree = "tree"
    text = "text"
    json = "json"


def predict(
    run: options.Run,
    head: Annotated[str | None, Option("--head", help="The head's name.")] = None,
    relation: Annotated[str | None, Option("--relation", help="The relation's name.")] = None,
    tail: Annotated[str | None, Option("--tail", help="The tail's name.")] = None,
    queries: Queries = None,
    triples: Annotated[Path | None, Option("--triples", help="A file of triples to judge.")] = None,
    complete: Annotated[bool, Option("--complete", help="All missing facts of --min-probability.")] = False,
    min_probability: MinProbability = None,
    all_pairs: AllPairs = False,
    top: Top = None,
    include_known: IncludeKnown = False,
    facts: options.FactsFile = None,
    out: Out = None,
    kind: Kind = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """The most probable answers to queries with one part left open; or judge triples; or complete the graph."""
    from plogicnet.graph import read_queries
    from plogicnet.inference.prediction import query_of

    named = (head, relation, tail)
    given = 3 - named.count(None)
    if [given > 0, queries is not None, triples is not None, complete].count(True) != 1 or given not in (0, 2):
        raise InputError(f"ask one thing: {KINDS}")
    if all_pairs and not complete:
        raise InputError("--all-pairs goes with --complete")
    if include_known and (complete or triples is not None):
        raise InputError("--include-known is for queries; given triples are judged in any case")
    _check_output(out, kind)
    model, asked, written = load_run(run, device, threads, facts=facts), None, None
    graph = model.fitted.graph
    if triples is not None:
        found = _likely(_judged(model, triples, top), min_probability)
    elif complete:
        found = _completed(model, min_probability, top or (SHOWN if out is None else None), all_pairs)
    else:
        asked = query_of(graph, *named) if queries is None else read_queries(queries, graph)
        progress = silent if queries is None else for_stderr()
        found = _likely(model.answers(asked, top or SHOWN, include_known, progress), min_probability)
    if out is not None:
        written, best = _written(found, model, out, kind, queries is not None)
        found, asked = iter([(None, best)]), None
    shown = _named(found, graph)
    if as_json:
        rows = [p.to_json() | ({"query": query} if query and queries else {}) for query, p in shown]
        print_json({"predictions": rows} | ({} if out is None else {"out": str(out), "written": written}))
        return
    _show(shown, asked, graph, include_known, written)
    if out is not None:
        print(f"{many(written or 0, 'prediction')} written to {out}")
    elif complete and len(shown) == (top or SHOWN):
        print("these are the most probable ones; --top N shows more, and --out FILE writes all", file=sys.stderr)


def _check_output(out: Path | None, kind: str | None) -> None:
    """Raises an InputError, before any work is done, where the result could not be written."""
    from plogicnet.inference.output import kind_of

    if kind is not None and out is None:
        raise InputError("--format goes with --out FILE")
    require_folder(out)
    if out is not None:
        kind_of(out, kind)


def _judged(model: "PLogicNet", file: Path, top: int | None) -> "Found":
    """The triples of a file, in their order; or the most probable of them."""
    from plogicnet.graph import read_triples
    from plogicnet.inference.prediction import most_probable

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


def _completed(model: "PLogicNet", least: float | None, top: int | None, all_pairs: bool) -> "Found":
    """The missing facts: piece by piece, or only the best of them; the cost is printed first."""
    from plogicnet.inference.prediction import complete, ends, seconds_to_score

    f, least = model.fitted, 0.5 if least is None else least
    size, seconds = sum(place.size for place in ends(f, all_pairs)), max(1.0, seconds_to_score(f, all_pairs))
    seen = "pairs of entities that a relation was seen with, and what rules conclude"
    which = "all pairs of entities" if all_pairs else seen
    print(f"completing: {many(size, 'candidate')} ({which}), about {duration(seconds)} to score", file=sys.stderr)
    if top is None:
        yield from ((None, judged) for judged in model.missing(least, for_stderr(), all_pairs))
    else:
        yield None, complete(f, least, top, all_pairs, for_stderr())


def _likely(found: "Found", least: float | None) -> "Found":
    """What is at least as probable as asked for."""
    for query, judged in found:
        rows = judged.probability >= (least or 0.0)
        yield None if query is None else query[rows], judged.take(rows)


def _written(found: "Found", model: "PLogicNet", out: Path, kind: str | None, several: bool) -> "tuple[int, Judged]":
    """Writes what is found to a file as it comes; returns how many predictions those are, and the best of them."""
    from plogicnet.inference.output import COLUMNS, QUERY, table_of, writing
    from plogicnet.inference.prediction import most_probable

    f = model.fitted
    count, best = 0, f.nothing()
    with writing(out, [*COLUMNS, QUERY] if several else [*COLUMNS], kind) as write:
        for query, judged in found:
            write(table_of(judged, f.graph, query if several else None))
            count, best = count + len(judged), most_probable(f, [best, judged], SHOWN)
    return count, best


def _named(found: "Found", graph: "KnowledgeGraph") -> "list[tuple[int, Prediction]]":
    """Everything that is found, in names, with the number of its query from 1 on; 0 where none was asked."""
    from plogicnet.inference.fitted import predictions

    rows: list[tuple[int, Prediction]] = []
    for query, judged in found:
        numbers = [0] * len(judged) if query is None else (query + 1).tolist()
        rows += zip(numbers, predictions(judged, graph), strict=True)
    return rows


def _show(
    found: "list[tuple[int, Prediction]]",
    asked: "IntArray | None",
    graph: "KnowledgeGraph",
    include_known: bool,
    written: int | None,
) -> None:
    """A table of what is found; of several queries, one for each, with how many answers are known already."""
    from plogicnet.graph import OPEN

    if asked is None:
        of = len(found) if written is None else written
        title = many(of, "triple") if len(found) == of else f"the {len(found):,} most probable of {many(of, 'triple')}"
        show.console().print(show.predictions_table(title, [p for _, p in found], graph.labels))
        return
    answers = {number: [p for _, p in own] for number, own in groupby(found, key=lambda one: one[0])}
    kinds = (graph.entities, graph.relations, graph.entities)
    for number, query in enumerate(asked, 1):
        words = ["?" if n < 0 else kind.names[n] for kind, n in zip(kinds, query.tolist(), strict=True)]
        known = 0 if include_known else int(((graph.train == query) | (query == OPEN)).all(axis=1).sum())
        table = show.predictions_table(show.fact(words), answers.get(number, []), graph.labels, known)
        show.console().print(table)


def explain(
    run: options.Run,
    head: Annotated[str, Argument(help="The head's name.")],
    relation: Annotated[str, Argument(help="The relation's name.")],
    tail: Annotated[str, Argument(help="The tail's name.")],
    facts: options.FactsFile = None,
    premises: Premises = None,
    how: Annotated[Format, Option("--format", help="A tree, plain text, or JSON as --json.")] = Format.tree,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Why a triple is probable or not: rules with premises, the neural model, and how both make its probability."""
    from plogicnet.cli.explanation import explained

    model = load_run(run, device, threads, facts=facts)
    how = Format.json if as_json else how
    default = 100 if how is Format.json else 3
    why = model.explain(head, relation, tail, default if premises is None else premises)
    if how is Format.json:
        print_json(why.to_json())
        return
    outline = explained(why, model.fitted.graph.labels)
    if how is Format.tree:
        show.console().print(outline.tree())
    else:
        print(outline.text())


def export(
    run: options.Run,
    out: Annotated[Path, Option("--out", help="The directory to write into.")],
    parts: Parts = "vectors,rules,predictions",
    min_probability: Probable = 0.5,
    all_pairs: AllPairs = False,
    kind: Annotated[str, Option("--format", help="Of predictions: tsv, csv, jsonl, parquet or nt.")] = "tsv",
    fixed: Fixed = False,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Write vectors, rules and the completed graph as files for other programs."""
    from plogicnet.inference.export import Choice
    from plogicnet.inference.export import export as write

    choice = Choice(tuple(part.strip() for part in parts.split(",")), min_probability, all_pairs, kind, fixed)
    written = write(load_run(run, device, threads).fitted, out, choice, for_stderr())
    files = sorted(out.iterdir())
    if as_json:
        print_json({"out": str(out), "files": [file.name for file in files]} | written)
    else:
        print(*files, sep="\n")
