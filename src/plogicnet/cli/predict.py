"""The commands `predict`, `explain` and `export`."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from plogicnet.cli import options, show
from plogicnet.cli.settings import duration, load_run, print_json, require_folder
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.progress import for_stderr, no_progress

if TYPE_CHECKING:
    from plogicnet.graph import IntArray, KnowledgeGraph
    from plogicnet.inference.fitted import Prediction, PredictionBatch
    from plogicnet.inference.pool import Effort
    from plogicnet.model import PLogicNet

    Batches = Iterator[tuple[IntArray | None, PredictionBatch]]

N_SHOWN = 10
"""Default number of predictions to print."""
CHUNK_TRIPLES = 1 << 16
"""Number of triples to predict at once."""
REQUESTS = "two of --head, --relation and --tail, or one entity, or --queries FILE, or --triples FILE, or --complete"
"""The requests that `predict` can answer."""
Queries = Annotated[
    Path | None, Option("--queries", help="File of queries: triples in which the missing part is ? or empty.")
]
Triples = Annotated[Path | None, Option("--triples", help="File of triples. Predict the probability of each.")]
Complete = Annotated[
    bool, Option("--complete", help="Find all missing facts with a probability of at least --min-probability.")
]
MinProbability = Annotated[
    float | None,
    Option("--min-probability", min=0, max=1, help="Minimum probability. Default: 0.5 with --complete, else 0."),
]
AllPairs = Annotated[
    bool,
    Option("--all-pairs", help="With --complete: try all pairs of entities, also implausible ones."),
]
Recall = Annotated[
    float | None,
    Option(
        "--recall",
        min=0,
        max=1,
        help="Share of the missing facts to find among the candidates, measured on valid, for missing facts."
        " Default: 0.9.",
    ),
]
Top = Annotated[
    int | None,
    Option(
        "--top",
        min=1,
        help="Maximum number of predictions. Default: 10, or all with --triples or --complete --out.",
    ),
]
IncludeKnown = Annotated[bool, Option("--include-known", help="Include training triples in the answers.")]
Out = Annotated[Path | None, Option("--out", help="Output file: .tsv, .csv, .jsonl (also .gz), .parquet or .nt.")]
FileFormat = Annotated[
    str | None, Option("--format", help="tsv, csv, jsonl, parquet or nt. Default: by file extension.")
]
Premises = Annotated[
    int | None,
    Option(
        "--premises",
        min=0,
        help="Maximum number of groundings to show per rule, each with its premises. Default: 3, or 100 in JSON.",
    ),
]
Parts = Annotated[
    str, Option("--parts", help="Parts to write: vectors, rules, predictions. Default: all.", show_default=False)
]
ExportMinProbability = Annotated[
    float, Option("--min-probability", min=0, max=1, help="Minimum probability of predictions.")
]
FixedWeights = Annotated[
    bool, Option("--fixed-weights", help="Mark the exported rule weights as fixed. `train --rules` then keeps them.")
]


class Format(StrEnum):
    """Output formats of an explanation."""

    tree = "tree"
    text = "text"
    json = "json"


def predict(
    run: options.Run,
    head: Annotated[str | None, Option("--head", help="Name of the head entity.")] = None,
    relation: Annotated[str | None, Option("--relation", help="Name of the relation.")] = None,
    tail: Annotated[str | None, Option("--tail", help="Name of the tail entity.")] = None,
    queries: Queries = None,
    triples: Triples = None,
    complete: Complete = False,
    min_probability: MinProbability = None,
    all_pairs: AllPairs = False,
    recall: Recall = None,
    top: Top = None,
    include_known: IncludeKnown = False,
    facts: options.FactsFile = None,
    out: Out = None,
    file_format: FileFormat = None,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Answer queries, predict the probability of triples, or complete the graph."""
    from plogicnet.graph import read_queries
    from plogicnet.inference.prediction import RECALL, query_of

    given = 3 - (names := (head, relation, tail)).count(None)
    if [given > 0, queries is not None, triples is not None, complete].count(True) != 1 or not _is_request(names):
        requests = {"--head": head, "--relation": relation, "--tail": tail, "--queries": queries, "--triples": triples}
        used = [option for option, value in requests.items() if value is not None] + ["--complete"] * complete
        raise InputError(f"expected {REQUESTS}, got {', '.join(used) or 'none of them'}")
    if all_pairs and not complete:
        raise InputError("--all-pairs needs --complete")
    if recall is not None and (all_pairs or not (complete or given == 1)):
        raise InputError("--recall needs --complete, or --head or --tail alone, and does not apply to --all-pairs")
    if include_known and (complete or triples is not None or given == 1):
        raise InputError(
            "--include-known works only with queries. --triples always includes known triples. Missing facts, by"
            " --complete or by --head or --tail alone, never do."
        )
    _check_output(out, file_format)
    share = RECALL if recall is None else recall
    model, query_array, written = load_run(run, device, threads, snapshot, facts), None, None
    graph = model.fitted.graph
    if triples is not None:
        batches = _at_least(_predict_file(model, triples, top), min_probability)
    elif complete:
        batches = _complete(model, min_probability, top or (N_SHOWN if out is None else None), all_pairs, share)
    elif given == 1:
        batches = _at_least(_about(model, head, tail, top or N_SHOWN, share), min_probability)
    else:
        query_array = query_of(graph, *names) if queries is None else read_queries(queries, graph)
        progress = no_progress if queries is None else for_stderr()
        batches = _at_least(model.iter_answers(query_array, top or N_SHOWN, include_known, progress), min_probability)
    if out is not None:
        written, best = _write(batches, model, out, file_format, queries is not None)
        batches, query_array = iter([(None, best)]), None
    shown = _with_names(batches, graph)
    if as_json:
        rows = [p.to_json() | ({"query": query} if query and queries else {}) for query, p in shown]
        print_json({"predictions": rows} | ({} if out is None else {"out": str(out), "written": written}))
        return
    _show(shown, query_array, graph, include_known, written)
    if out is not None:
        print(f"{pluralize(written or 0, 'prediction')} written to {out}.")
    elif complete and len(shown) == (top or N_SHOWN):
        print("Only the most probable facts are shown. Use --top N for more, or --out FILE for all.", file=sys.stderr)


def _is_request(names: tuple[str | None, str | None, str | None]) -> bool:
    """Return whether head, relation and tail are all missing, or form a query, or name one entity."""
    head, relation, tail = (name is not None for name in names)
    return head + relation + tail in (0, 2) or (head != tail and not relation)


def _about(model: "PLogicNet", head: str | None, tail: str | None, top: int, recall: float) -> "Batches":
    """Yield the most probable missing facts about a head or a tail."""
    from plogicnet.inference.prediction import about

    entity = model.fitted.graph.entities.id(head or tail or "")
    yield None, about(model.fitted, entity, "head" if head is None else "tail", top, recall)


def _check_output(out: Path | None, file_format: str | None) -> None:
    """Raise InputError if the output options are wrong, before any work is done."""
    from plogicnet.inference.output import resolve_format

    if file_format is not None and out is None:
        raise InputError("--format needs --out FILE")
    require_folder(out)
    if out is not None:
        resolve_format(out, file_format)


def _predict_file(model: "PLogicNet", file: Path, top: int | None) -> "Batches":
    """Yield predictions for the triples of a file, in their order, or only the most probable ones."""
    from plogicnet.graph import read_triples
    from plogicnet.inference.prediction import most_probable

    f = model.fitted
    triples, best = read_triples(file, f.graph), f.empty_batch()
    with for_stderr()("predicting, triples", len(triples)) as advance:
        for start in range(0, len(triples), CHUNK_TRIPLES):
            batch = f.predict_batch(triples[start : start + CHUNK_TRIPLES])
            if top is None:
                yield None, batch
            else:
                best = most_probable(f, [best, batch], top)
            advance(len(batch))
    if top is not None:
        yield None, best


def _complete(
    model: "PLogicNet", min_probability: float | None, top: int | None, all_pairs: bool, recall: float
) -> "Batches":
    """Print the cost, then yield the missing facts in batches, or only the most probable facts."""
    from plogicnet.inference.prediction import complete, forecast

    f, minimum = model.fitted, 0.5 if min_probability is None else min_probability
    expected = forecast(f, all_pairs, recall)
    effort, seconds = expected.effort, duration(max(1.0, expected.seconds))
    if effort is None:
        print(f"Completing: {expected.work:,} pairs of entities, about {seconds}.", file=sys.stderr)
    else:
        queries, answers = pluralize(expected.work, "query", "queries"), pluralize(effort.top, "answer")
        more = f" and {queries} with up to {answers} each" if expected.work else ""
        print(f"Completing: conclusions of rules{more}, about {seconds}.", file=sys.stderr)
        print(_recall_text(effort, recall), file=sys.stderr)
    if top is None:
        yield from ((None, batch) for batch in model.iter_missing(minimum, for_stderr(), all_pairs, recall))
    else:
        yield None, complete(f, minimum, top, all_pairs, recall, progress=for_stderr())


def _recall_text(effort: "Effort", recall: float) -> str:
    """Return which share of missing facts is probably among the candidates."""
    if effort.recall is None:
        return "There is no valid split to measure which share of missing facts is among these candidates."
    text = f"{effort.recall:.3f} of the facts of valid are among such candidates"
    if effort.recall >= recall:
        return f"{text}. Set --recall for more or fewer."
    return f"{text}; --recall {recall:g} cannot be reached. --all-pairs considers all pairs of entities."


def _at_least(batches: "Batches", min_probability: float | None) -> "Batches":
    """Remove predictions with less than a minimum probability."""
    for query, batch in batches:
        rows = batch.probability >= (min_probability or 0.0)
        yield None if query is None else query[rows], batch.take(rows)


def _write(
    batches: "Batches", model: "PLogicNet", out: Path, file_format: str | None, with_query: bool
) -> "tuple[int, PredictionBatch]":
    """Write predictions to a file batch by batch. Return the number of predictions and the most probable ones.

    With `with_query`, the file has a column with the number of each prediction's query.
    """
    from plogicnet.inference.output import COLUMNS, QUERY, open_table_writer, prediction_table
    from plogicnet.inference.prediction import most_probable

    f = model.fitted
    count, best = 0, f.empty_batch()
    with open_table_writer(out, [*COLUMNS, QUERY] if with_query else [*COLUMNS], file_format) as write:
        for query, batch in batches:
            write(prediction_table(batch, f.graph, query if with_query else None))
            count, best = count + len(batch), most_probable(f, [best, batch], N_SHOWN)
    return count, best


def _with_names(batches: "Batches", graph: "KnowledgeGraph") -> "list[tuple[int, Prediction]]":
    """Return all predictions with names, each with the number of its query, from 1; 0 without queries."""
    from plogicnet.inference.fitted import predictions

    rows: list[tuple[int, Prediction]] = []
    for query, batch in batches:
        numbers = [0] * len(batch) if query is None else (query + 1).tolist()
        rows += zip(numbers, predictions(batch, graph), strict=True)
    return rows


def _show(
    shown: "list[tuple[int, Prediction]]",
    queries: "IntArray | None",
    graph: "KnowledgeGraph",
    include_known: bool,
    written: int | None,
) -> None:
    """Print one table, or for queries one table per query with the number of known answers that are not shown."""
    from plogicnet.graph import MISSING

    if queries is None:
        total = len(shown) if written is None else written
        title = (
            pluralize(total, "triple")
            if len(shown) == total
            else f"The {len(shown):,} most probable of {pluralize(total, 'triple')}"
        )
        show.console().print(show.predictions_table(title, [p for _, p in shown], graph.labels))
        return
    answers = {number: [p for _, p in rows] for number, rows in groupby(shown, key=lambda row: row[0])}
    vocabularies = (graph.entities, graph.relations, graph.entities)
    for number, query in enumerate(queries, 1):
        names = ["?" if i < 0 else v.names[i] for v, i in zip(vocabularies, query.tolist(), strict=True)]
        known = 0 if include_known else int(((graph.train == query) | (query == MISSING)).all(axis=1).sum())
        table = show.predictions_table(show.fact(names), answers.get(number, []), graph.labels, known)
        show.console().print(table)


def explain(
    run: options.Run,
    head: Annotated[str, Argument(help="Name of the head entity.")],
    relation: Annotated[str, Argument(help="Name of the relation.")],
    tail: Annotated[str, Argument(help="Name of the tail entity.")],
    facts: options.FactsFile = None,
    premises: Premises = None,
    top: Annotated[int, Option("--top", min=0, help="Number of rules to show. 0: all. JSON has all in any case.")] = 5,
    output: Annotated[Format, Option("--format", help="Output format: tree, text or json.")] = Format.tree,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Explain the probability of a triple by rules, premises and the neural model."""
    from plogicnet.cli.explanation import explanation_outline

    model = load_run(run, device, threads, snapshot, facts)
    output = Format.json if as_json else output
    default = 100 if output is Format.json else 3
    explanation = model.explain(head, relation, tail, default if premises is None else premises)
    if output is Format.json:
        print_json(explanation.to_json())
        return
    outline = explanation_outline(explanation, model.fitted.graph.labels, top)
    if output is Format.tree:
        show.console().print(outline.tree())
    else:
        print(outline.text())


def export(
    run: options.Run,
    out: Annotated[Path, Option("--out", help="Directory to write to.")],
    parts: Parts = "vectors,rules,predictions",
    min_probability: ExportMinProbability = 0.5,
    all_pairs: AllPairs = False,
    recall: Recall = None,
    file_format: Annotated[
        str, Option("--format", help="Format of predictions: tsv, csv, jsonl, parquet or nt.")
    ] = "tsv",
    fixed_weights: FixedWeights = False,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Write vectors, rules and the completed graph to files for other programs."""
    from plogicnet.inference.export import ExportOptions
    from plogicnet.inference.export import export as write
    from plogicnet.inference.prediction import RECALL

    if recall is not None and all_pairs:
        raise InputError("--recall does not apply to --all-pairs")
    names, share = tuple(part.strip() for part in parts.split(",")), RECALL if recall is None else recall
    options_ = ExportOptions(names, min_probability, all_pairs, share, file_format, fixed_weights)
    written = write(load_run(run, device, threads, snapshot).fitted, out, options_, for_stderr())
    files = sorted(out.iterdir())
    if as_json:
        print_json({"out": str(out), "files": [file.name for file in files]} | written)
    else:
        print(*files, sep="\n")
