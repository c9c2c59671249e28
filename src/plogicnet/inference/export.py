"""Export of a run for other programs: vectors, rules, predictions and the completed graph."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plogicnet.graph import SPLITS, KnowledgeGraph, TripleSet
from plogicnet.inference.fitted import FittedModel
from plogicnet.inference.output import (
    TRIPLE,
    open_table_writer,
    prediction_table,
    resolve_format,
    triple_table,
    write_array,
    write_vectors,
)
from plogicnet.inference.prediction import RECALL, iter_missing
from plogicnet.neural.protocol import ParameterTable
from plogicnet.rules import RuleTable, Statement
from plogicnet.support.errors import InputError
from plogicnet.support.files import write_text
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
PARTS = ("vectors", "rules", "predictions")
"""The parts of a run that can be exported."""
CHUNK_TRIPLES = 1 << 18
"""Number of triples written at once."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        parts: the parts to export, any of `PARTS`.
        min_probability: minimum probability of exported predictions.
        all_pairs: whether every pair of entities is a candidate.
        recall: otherwise, the share of missing facts to find among the candidates; see `Pool`.
        file_format: file format of the predictions: "tsv", "csv", "jsonl", "parquet" or "nt".
        fixed_weights: whether rules.txt marks all weights as fixed, so that `train --rules rules.txt` keeps them.
            Otherwise it marks only those that were fixed in the run.
    """

    parts: tuple[str, ...] = PARTS
    min_probability: float = 0.5
    all_pairs: bool = False
    recall: float = RECALL
    file_format: str = "tsv"
    fixed_weights: bool = False


def export(
    fitted: FittedModel, out: Path, options: ExportOptions, progress: Progress = no_progress
) -> dict[str, object]:
    """Write the selected parts to a new or empty directory.

    Return a summary by part: the shape of each table of vectors, the number of rules, the number of predictions, and
    the number of triples in the completed graph.
    """
    for part in options.parts:
        if part not in PARTS:
            raise InputError(f"--parts: unknown part {part!r}. Use {', '.join(PARTS[:-1])} or {PARTS[-1]}.")
    resolve_format(Path("predictions"), options.file_format)  # raises InputError for an unknown format
    neural, with_vectors = fitted.outcome.neural, "vectors" in options.parts
    tables = neural.tables() if neural is not None and with_vectors else {}
    if with_vectors and not tables:
        if len(options.parts) == 1:
            raise InputError("this run has no vectors to export. Use --parts rules,predictions.")
        log.warning("this run has no vectors, so only the other parts are exported")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot create the directory: {error.strerror}") from None
    if any(out.iterdir()):
        raise InputError(f"{out}: the directory is not empty. Use a new directory.")
    try:
        summary: dict[str, object] = {}
        if tables:
            summary["vectors"] = export_tables(tables, fitted.graph, out)
        if "rules" in options.parts:
            rules = fitted.outcome.rule_model.rules.by_weight().concat(fitted.outcome.rule_model.constraints)
            summary["rules"] = export_rules(rules, out / "rules.txt", options.fixed_weights)
        if "predictions" in options.parts:
            summary["predictions"] = export_predictions(fitted, out, options, progress)
    except BaseException:
        for file in out.iterdir():
            file.unlink()  # the next attempt needs an empty directory
        raise
    return summary


def export_tables(tables: Mapping[str, ParameterTable], graph: KnowledgeGraph, out: Path) -> dict[str, list[int]]:
    """Write every table as .npy, and tables of entities or relations also as TSV with names. Return the shapes."""
    names = {"entity": graph.entities.names, "relation": graph.relations.names}
    for name, table in tables.items():
        write_array(table.values, out / f"{name}.npy")
        if table.row_kind is not None:
            write_vectors(table.values, names[table.row_kind], out / f"{name}.tsv")
    return {name: list(table.values.shape) for name, table in tables.items()}


def export_rules(rules: RuleTable, file: Path, fixed_weights: bool = False) -> int:
    """Write the rules with their weights in the rule syntax. Return the number of rules."""
    lines = []
    for row, (rule, weight) in enumerate(zip(rules.rules, rules.weight.tolist(), strict=True)):
        value = None if np.isnan(weight) else weight
        lines.append(
            f"{Statement(rule, value, value is not None and (fixed_weights or bool(rules.fixed[row])), row + 1)}\n"
        )
    write_text(file, "".join(lines))
    return len(rules)


def export_predictions(
    fitted: FittedModel, out: Path, options: ExportOptions, progress: Progress = no_progress
) -> dict[str, int]:
    """Write two files: the predictions, and the completed graph. Return the number of triples in each file.

    The completed graph contains the triples of all splits and the predictions.
    """
    graph, known = fitted.graph, np.concatenate([fitted.graph.split(s) for s in SPLITS])
    facts = TripleSet.of(known, len(graph.entities))
    counts = {"predictions": 0, "completed": len(facts)}
    with (
        open_table_writer(out / f"predictions.{options.file_format}") as write_predictions,
        open_table_writer(out / f"completed.{options.file_format}", tuple(TRIPLE)) as write_completed,
    ):
        for start in range(0, len(facts), CHUNK_TRIPLES):
            write_completed(triple_table(graph, facts.triples[start : start + CHUNK_TRIPLES]))
        for batch in iter_missing(
            fitted, lambda: options.min_probability, options.all_pairs, options.recall, progress=progress
        ):
            write_predictions(prediction_table(batch, graph))
            write_completed(triple_table(graph, batch.triples))
            for name in counts:
                counts[name] += len(batch)
    return counts
