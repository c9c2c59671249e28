"""A run as files that other programs read: vectors, rules, and the graph with what it was missing."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from plogicnet.errors import InputError
from plogicnet.files import replacing, write_text
from plogicnet.fitted import Fitted
from plogicnet.graph import SPLITS, KnowledgeGraph, TripleSet
from plogicnet.output import TRIPLE, kind_of, table_of, triples_of, write_vectors, writing
from plogicnet.prediction import completions
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable, Statement

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


def export(f: Fitted, vectors: Path, out: Path, choice: Choice, progress: Progress = silent) -> dict[str, object]:
    """Writes the chosen parts into a directory; gives what was written.

    Args:
        f: the trained model.
        vectors: the run's file of vectors; a run without an embedding has none.
        out: the directory; it is made.
        choice: what, and how.
        progress: of the completion.

    Example:
        >>> export(model.fitted, run / "embeddings.safetensors", Path("out"), Choice())  # doctest: +SKIP
    """
    for part in choice.parts:
        if part not in PARTS:
            raise InputError(f"parts: {part!r} is not allowed; any of {', '.join(PARTS)}")
    kind_of(Path("predictions"), choice.kind)
    if choice.parts == ("vectors",) and f.outcome.embedding is None:
        raise InputError("this run has no vectors to export: em.embedding is false")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror}") from None
    if any(out.iterdir()):
        raise InputError(f"{out}: the directory is not empty; name a new one")
    try:
        return _export(f, vectors, out, choice, progress)
    except BaseException:
        for file in out.iterdir():
            file.unlink()  # half of it is of no use, and stands in the way of the next try
        raise


def _export(f: Fitted, vectors: Path, out: Path, choice: Choice, progress: Progress) -> dict[str, object]:
    written: dict[str, object] = {}
    if "vectors" in choice.parts and f.outcome.embedding is not None:
        written["vectors"] = export_vectors(vectors, f.graph, out)
    if "rules" in choice.parts:
        model = f.outcome.rule_model
        written["rules"] = export_rules(
            model.rules.by_weight().joined(model.constraints), out / "rules.txt", choice.fixed
        )
    if "predictions" in choice.parts:
        written["predictions"] = export_graph(f, out, choice, progress)
    return written


def export_vectors(vectors: Path, graph: KnowledgeGraph, out: Path) -> dict[str, list[int]]:
    """Every table of a file of vectors as .npy, and those that have names as TSV too; gives their shapes.

    Example:
        >>> export_vectors(Path("runs/family/embeddings.safetensors"), graph, Path("out"))  # doctest: +SKIP
    """
    tables = load_file(vectors)
    n = len(graph.relations)
    relations = tables.pop("relation")
    named = {"entities": (tables.pop("entity"), graph.entities), "relations": (relations[:n], graph.relations)}
    if len(relations) > n:  # by which heads are asked for
        named["inverse_relations"] = (relations[n:], graph.relations)
    for name, (table, vocabulary) in named.items():
        write_vectors(table, vocabulary.names, out / name)
    for name, table in tables.items():
        with replacing(out / f"{name}.npy") as beside, beside.open("wb") as file:
            np.save(file, table, allow_pickle=False)
    every = {name: table for name, (table, _) in named.items()} | tables
    return {name: list(table.shape) for name, table in every.items()}


def export_rules(rules: RuleTable, file: Path, fixed: bool = False) -> int:
    """The rules in the rule syntax, each with its weight to start from, or to keep; gives how many there are.

    Example:
        >>> export_rules(model.rules, Path("rules.txt"))  # doctest: +SKIP
    """
    lines = []
    for row, (rule, weight) in enumerate(zip(rules.rules, rules.weight.tolist(), strict=True)):
        own = None if rule.negated or np.isnan(weight) else weight
        lines.append(f"{Statement(rule, own, own is not None and (fixed or bool(rules.fixed[row])), row + 1)}\n")
    write_text(file, "".join(lines))
    return len(rules)


def export_graph(f: Fitted, out: Path, choice: Choice, progress: Progress = silent) -> dict[str, int]:
    """Two graph files: the predictions with their probabilities, and all known triples followed by the predictions.

    Example:
        >>> export_graph(fitted, Path("out"), Choice(min_probability=0.9))  # doctest: +SKIP
    """
    graph, known = f.graph, np.concatenate([f.graph.split(s) for s in SPLITS])
    facts = TripleSet.of(known, len(graph.entities))
    counts = {"predictions": 0, "completed": len(facts)}
    with ExitStack() as files:
        predictions = files.enter_context(writing(out / f"predictions.{choice.kind}"))
        completed = files.enter_context(writing(out / f"completed.{choice.kind}", tuple(TRIPLE)))
        for start in range(0, len(facts), AT_ONCE):
            completed(triples_of(graph, facts.triples[start : start + AT_ONCE]))
        for judged in completions(f, lambda: choice.min_probability, choice.all_pairs, progress):
            predictions(table_of(judged, graph))
            new = ~facts.contains(judged.triples)
            completed(triples_of(graph, judged.triples[new]))
            counts = {
                "predictions": counts["predictions"] + len(judged),
                "completed": counts["completed"] + int(new.sum()),
            }
    return counts
