"""A run as files that other programs read: vectors, rules, and the graph with what it was missing."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plogicnet.graph import SPLITS, KnowledgeGraph, TripleSet
from plogicnet.inference.fitted import Fitted
from plogicnet.inference.output import TRIPLE, kind_of, table_of, triples_of, write_array, write_vectors, writing
from plogicnet.inference.prediction import completions
from plogicnet.neural.protocol import Table
from plogicnet.rules import RuleTable, Statement
from plogicnet.support.errors import InputError
from plogicnet.support.files import write_text
from plogicnet.support.progress import Progress, silent

log = logging.getLogger(__name__)
PARTS = ("vectors", "rules", "predictions")
AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Choice:
    """What is exported, and how.

    Attributes:
        parts: of vectors, rules and predictions.
        min_probability: the missing facts of at least this probability are predictions.
        all_pairs: whether they are looked for among all pairs of entities.
        kind: the format of predictions.
        fixed: whether weights are written so that `--rules` keeps them, not only starts from them.
    """

    parts: tuple[str, ...] = PARTS
    min_probability: float = 0.5
    all_pairs: bool = False
    kind: str = "tsv"
    fixed: bool = False


def export(f: Fitted, out: Path, choice: Choice, progress: Progress = silent) -> dict[str, object]:
    """Writes the chosen parts into a directory, which is made; returns what was written."""
    for part in choice.parts:
        if part not in PARTS:
            raise InputError(f"parts: {part!r} is not allowed; any of {', '.join(PARTS)}")
    kind_of(Path("predictions"), choice.kind)
    neural, vectors = f.outcome.neural, "vectors" in choice.parts
    tables = neural.tables() if neural is not None and vectors else {}
    if vectors and not tables:
        if len(choice.parts) == 1:
            raise InputError("this run has no vectors to export")
        log.warning("this run has no vectors to export; the other parts are written")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror}") from None
    if any(out.iterdir()):
        raise InputError(f"{out}: the directory is not empty; name a new one")
    try:
        written: dict[str, object] = {}
        if tables:
            written["vectors"] = export_tables(tables, f.graph, out)
        if "rules" in choice.parts:
            rules = f.outcome.rule_model.rules.by_weight().joined(f.outcome.rule_model.constraints)
            written["rules"] = export_rules(rules, out / "rules.txt", choice.fixed)
        if "predictions" in choice.parts:
            written["predictions"] = export_graph(f, out, choice, progress)
    except BaseException:
        for file in out.iterdir():
            file.unlink()  # a part of it is of no use, and would be in the way of the next attempt
        raise
    return written


def export_tables(tables: Mapping[str, Table], graph: KnowledgeGraph, out: Path) -> dict[str, list[int]]:
    """Writes every table as .npy, and those of entities and relations as TSV with names too; returns their shapes."""
    names = {"entity": graph.entities.names, "relation": graph.relations.names}
    for name, table in tables.items():
        write_array(table.values, out / f"{name}.npy")
        if table.rows is not None:
            write_vectors(table.values, names[table.rows], out / f"{name}.tsv")
    return {name: list(table.values.shape) for name, table in tables.items()}


def export_rules(rules: RuleTable, file: Path, fixed: bool = False) -> int:
    """Writes the rules in the rule syntax, each with its weight to start from, or to keep; returns their number."""
    lines = []
    for row, (rule, weight) in enumerate(zip(rules.rules, rules.weight.tolist(), strict=True)):
        own = None if rule.negated or np.isnan(weight) else weight
        lines.append(f"{Statement(rule, own, own is not None and (fixed or bool(rules.fixed[row])), row + 1)}\n")
    write_text(file, "".join(lines))
    return len(rules)


def export_graph(f: Fitted, out: Path, choice: Choice, progress: Progress = silent) -> dict[str, int]:
    """Two graph files: the predictions with their probabilities, and all known triples followed by the predictions."""
    graph, known = f.graph, np.concatenate([f.graph.split(s) for s in SPLITS])
    facts = TripleSet.of(known, len(graph.entities))
    counts = {"predictions": 0, "completed": len(facts)}
    files = (out / f"{name}.{choice.kind}" for name in counts)
    with writing(next(files)) as predictions, writing(next(files), tuple(TRIPLE)) as completed:
        for start in range(0, len(facts), AT_ONCE):
            completed(triples_of(graph, facts.triples[start : start + AT_ONCE]))
        for judged in completions(f, lambda: choice.min_probability, choice.all_pairs, progress):
            predictions(table_of(judged, graph))
            new = ~facts.contains(judged.triples)
            completed(triples_of(graph, judged.triples[new]))
            counts["predictions"] += len(judged)
            counts["completed"] += int(new.sum())
    return counts
