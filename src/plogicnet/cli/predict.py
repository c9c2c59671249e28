"""The commands that give what a run has found: predict and export."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plogicnet.cli.settings import (
    Device,
    FactsFile,
    Json,
    MemoryLimit,
    Run,
    Threads,
    duration,
    load_run,
    print_json,
    require_folder,
)
from plogicnet.support.errors import InputError, many
from plogicnet.support.memory import limit_memory

if TYPE_CHECKING:
    from plogicnet.graph import IntArray, KnowledgeGraph
    from plogicnet.inference.fitted import Judged, Prediction
    from plogicnet.model import PLogicNet

    Found = tuple[IntArray | None, Judged]

SHOWN = 10
JUDGE_AT_ONCE = 1 << 16
KINDS = "two of --head, --relation, --tail; or --queries FILE; or --triples FILE; or --complete"
Queries = Annotated[
    Path | None, typer.Option("--queries", help="A file of triples with ? or nothing for the part that is asked.")
]
MinProbability = Annotated[
    float | None,
    typer.Option("--min-probability", min=0, max=1, help="Only what is so probable; default 0.5 with --complete."),
]
AllPairs = Annotated[
    bool, typer.Option("--all-pairs", help="Look among all pairs of entities, not only what a relation was seen with.")
]
Top = Annotated[
    int | None, typer.Option("--top", min=1, help="Only the most probable so many; default 10 answers to a query.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Write to this file: .tsv, .csv, .jsonl (also .gz), .parquet or .nt.")
]


@dataclass(frozen=True)
class Question:
    """What `predict` is asked: a query, a file of queries, triples to judge, or all missing facts."""

    named: tuple[str | None, str | None, str | None]
    queries: Path | None
    triples: Path | None
    complete: bool
    min_probability: float | None
    all_pairs: bool
    top: int | None
    include_known: bool

    def __post_init__(self) -> None:
        """Raises an InputError where options contradict each other."""
        given = 3 - self.named.count(None)
        kinds = [given > 0, self.queries is not None, self.triples is not None, self.complete]
        if sum(kinds) != 1 or given not in (0, 2):
            raise InputError(f"ask one thing: {KINDS}")
        if self.all_pairs and not self.complete:
            raise InputError("--all-pairs goes with --complete")
        if self.include_known and (self.complete or self.triples is not None):
            raise InputError("--include-known is for queries; given triples are judged in any case")

    def asked(self, graph: "KnowledgeGraph") -> "IntArray | None":
        """The queries in numbers; None where no query is asked."""
        from plogicnet.graph import read_queries
        from plogicnet.inference.prediction import query_of

        if self.complete or self.triples is not None:
            return None
        return query_of(graph, *self.named) if self.queries is None else read_queries(self.queries, graph)

    def answers(self, model: "PLogicNet", asked: "IntArray | None", to_screen: bool) -> "Iterator[Found]":
        """Some of the answers at a time; to the screen, only those that are shown."""
        from plogicnet.support.progress import for_stderr, silent

        if self.triples is not None:
            return _likely(_judged(model, self.triples, self.top), self.min_probability)
        if asked is None:
            return _completed(model, self, to_screen)
        progress = silent if self.queries is None else for_stderr()
        return _likely(model.answers(asked, self.top or SHOWN, self.include_known, progress), self.min_probability)


def predict(
    run: Run,
    head: Annotated[str | None, typer.Option("--head", help="The head's name.")] = None,
    relation: Annotated[str | None, typer.Option("--relation", help="The relation's name.")] = None,
    tail: Annotated[str | None, typer.Option("--tail", help="The tail's name.")] = None,
    queries: Queries = None,
    triples: Annotated[Path | None, typer.Option("--triples", help="A file of triples to judge.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="All missing facts of --min-probability.")] = False,
    min_probability: MinProbability = None,
    all_pairs: AllPairs = False,
    top: Top = None,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Show training triples among the answers.")
    ] = False,
    facts: FactsFile = None,
    out: Out = None,
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
    named = (head, relation, tail)
    question = Question(named, queries, triples, complete, min_probability, all_pairs, top, include_known)
    _check_output(out, kind)
    model = load_run(run, device, threads, facts=facts)
    asked = question.asked(model.fitted.graph)
    found = question.answers(model, asked, to_screen=out is None)
    written = None
    if out is not None:
        written, best = _written(found, model, out, kind, queries is not None)
        found, asked = iter([(None, best)]), None
    shown = _named(found, model)
    if as_json:
        rows = [p.to_json() | ({"query": query} if query and queries else {}) for query, p in shown]
        print_json({"predictions": rows} | ({} if out is None else {"out": str(out), "written": written}))
        return
    _show(shown, asked, model.fitted.graph, include_known, written)
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


def _named(found: "Iterator[Found]", model: "PLogicNet") -> "list[tuple[int, Prediction]]":
    """Everything that is found, in names, with the number of its query from 1 on; 0 where none was asked."""
    from plogicnet.inference.fitted import predictions

    rows: list[tuple[int, Prediction]] = []
    for query, judged in found:
        numbers = [0] * len(judged) if query is None else (query + 1).tolist()
        rows += zip(numbers, predictions(judged, model.fitted.graph), strict=True)
    return rows


def _written(
    found: "Iterator[Found]", model: "PLogicNet", out: Path, kind: str | None, several: bool
) -> "tuple[int, Judged]":
    """Writes what is found to a file as it comes; returns how many predictions those are, and the best of them."""
    from plogicnet.inference.output import COLUMNS, QUERY, table_of, writing
    from plogicnet.inference.prediction import most_probable

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


def _completed(model: "PLogicNet", question: Question, to_screen: bool) -> "Iterator[Found]":
    """The missing facts: piece by piece, or only the best of them; the cost is printed first."""
    from plogicnet.inference.prediction import complete, ends, seconds_to_score
    from plogicnet.support.progress import for_stderr

    f, all_pairs = model.fitted, question.all_pairs
    least = 0.5 if question.min_probability is None else question.min_probability
    size, seconds = sum(place.size for place in ends(f, all_pairs)), max(1.0, seconds_to_score(f, all_pairs))
    seen = "pairs of entities that a relation was seen with, and what rules conclude"
    which = "all pairs of entities" if all_pairs else seen
    print(f"completing: {many(size, 'candidate')} ({which}), about {duration(seconds)} to score", file=sys.stderr)
    if question.top is None and not to_screen:
        yield from ((None, judged) for judged in model.missing(least, for_stderr(), all_pairs))
    else:
        yield None, complete(f, least, question.top or SHOWN, all_pairs, for_stderr())


def _judged(model: "PLogicNet", file: Path, top: int | None) -> "Iterator[Found]":
    """The triples of a file, in their order; or the most probable of them."""
    from plogicnet.graph import read_triples
    from plogicnet.inference.prediction import most_probable
    from plogicnet.support.progress import for_stderr

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
    found: "list[tuple[int, Prediction]]",
    asked: "IntArray | None",
    graph: "KnowledgeGraph",
    include_known: bool,
    written: int | None,
) -> None:
    """A table of what is found; of several queries, one for each, with how many answers are known already."""
    from itertools import groupby

    from plogicnet.cli.show import console, fact, predictions_table
    from plogicnet.graph import OPEN

    if asked is None:
        of = len(found) if written is None else written
        title = many(of, "triple") if len(found) == of else f"the {len(found):,} most probable of {many(of, 'triple')}"
        console().print(predictions_table(title, [p for _, p in found], graph.labels))
        return
    answers = {number: [p for _, p in own] for number, own in groupby(found, key=lambda one: one[0])}
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
    from plogicnet.inference.export import Choice
    from plogicnet.inference.export import export as write
    from plogicnet.support.progress import for_stderr

    choice = Choice(tuple(part.strip() for part in parts.split(",")), min_probability, all_pairs, kind, fixed)
    model = load_run(run, device, threads)
    written = write(model.fitted, out, choice, for_stderr())
    if as_json:
        print_json({"out": str(out), "files": sorted(p.name for p in out.iterdir())} | written)
        return
    for file in sorted(out.iterdir()):
        print(file)
