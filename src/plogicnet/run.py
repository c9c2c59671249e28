"""A run directory: everything needed to evaluate, predict and explain, in files that people and programs can read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.files import replacing, write_text
from plogicnet.graph import SPLITS, KnowledgeGraph, Vocabulary, quoted, read_labels
from plogicnet.rules import RuleTable

if TYPE_CHECKING:
    from plogicnet.em import Outcome

COLUMNS = ("head", "relation", "tail")
FILES = (
    *("config.yaml", "graph.parquet", "entities.tsv", "relations.tsv"),
    *("rules.tsv", "hidden.parquet", "history.jsonl", "metrics.json"),
)


def write(
    path: Path,
    config: Config,
    graph: KnowledgeGraph,
    outcome: "Outcome",
    metrics: dict[str, object],
    seconds: dict[str, float],
) -> None:
    """Writes every file of a run; metrics.json comes last and marks it as complete.

    Example:
        >>> write(Path("runs/family"), config, graph, outcome, metrics, {})  # doctest: +SKIP
    """
    path.mkdir(parents=True, exist_ok=True)
    (path / "metrics.json").unlink(missing_ok=True)
    write_text(path / "config.yaml", config.to_yaml())
    _write_graph(path, graph)
    model = outcome.rule_model
    model.rules.joined(model.constraints).write(path / "rules.tsv")
    _write_hidden(path / "hidden.parquet", graph, outcome)
    if outcome.embedding is None:
        (path / "embeddings.safetensors").unlink(missing_ok=True)
    else:
        outcome.embedding.save(path / "embeddings.safetensors")
    write_text(path / "history.jsonl", "".join(json.dumps(line) + "\n" for line in outcome.history))
    write_text(path / "timings.json", json.dumps({k: round(v, 3) for k, v in seconds.items()}, indent=1) + "\n")
    write_text(path / "metrics.json", json.dumps(metrics, indent=1) + "\n")


def read_rules(path: Path) -> RuleTable:
    """The learned rules of a complete run, strongest first, then the constraints.

    Example:
        >>> read_rules(Path("runs/family"))  # doctest: +SKIP
    """
    _require_complete(path)
    return RuleTable.read(path / "rules.tsv").by_weight()


def read(path: Path, settings: Mapping[str, object]) -> tuple[Config, KnowledgeGraph, "Outcome", dict[str, Any]]:
    """Opens a complete run; settings by dotted key override its own.

    Example:
        >>> config, graph, outcome, metrics = read(Path("runs/family"), {})  # doctest: +SKIP
    """
    from plogicnet.em import Outcome
    from plogicnet.kge import VectorModel
    from plogicnet.mln import build_rule_model

    _require_complete(path)
    config = Config().with_file(path / "config.yaml").with_values(settings)
    metrics: dict[str, Any] = json.loads((path / "metrics.json").read_text(encoding="utf-8"))
    graph = _read_graph(path)
    table = RuleTable.read(path / "rules.tsv")
    rules, constraints = table.take(~table.constraints), table.take(table.constraints)
    hidden = pq.read_table(path / "hidden.parquet")
    model = build_rule_model(graph, config, rules, constraints, hidden["assumed"].to_numpy())
    embedding = None
    if config.em.embedding:
        if not (path / "embeddings.safetensors").is_file():
            raise InputError(f"{path} is damaged: its file embeddings.safetensors is missing")
        embedding = VectorModel(len(graph.entities), len(graph.relations), config.kge, config.device)
        embedding.load(path / "embeddings.safetensors")
    history = tuple(json.loads(line) for line in (path / "history.jsonl").read_text(encoding="utf-8").splitlines())
    outcome = Outcome(
        embedding, model, hidden["q"].to_numpy(), hidden["accepted"].to_numpy(), metrics["lambda"], history
    )
    return config, graph, outcome, metrics


def _require_complete(path: Path) -> None:
    if not path.is_dir():
        raise InputError(f"no run at {path}: no such directory; `plogicnet train GRAPH --out {path}` makes one")
    if not (path / "metrics.json").is_file():
        raise InputError(f"{path} holds no complete run (there is no metrics.json); `plogicnet train` makes one")
    for name in FILES:
        if not (path / name).is_file():
            raise InputError(f"{path} is damaged: its file {name} is missing")


def _write_graph(path: Path, graph: KnowledgeGraph) -> None:
    """The vocabularies as `number⇥name`, the splits as numbers, so that a run needs no other file."""
    for file, vocabulary in (("entities.tsv", graph.entities), ("relations.tsv", graph.relations)):
        lines = (f"{number}\t{quoted(name)}\n" for number, name in enumerate(vocabulary.names))
        write_text(path / file, "".join(lines))
    if graph.labels:
        write_text(path / "labels.tsv", "".join(f"{name}\t{label}\n" for name, label in graph.labels.items()))
    triples = np.concatenate([graph.split(s) for s in SPLITS]).astype(np.int32)
    splits = np.repeat(SPLITS, [len(graph.split(s)) for s in SPLITS])
    table = pa.table({"split": splits} | {c: triples[:, i] for i, c in enumerate(COLUMNS)})
    about = {"name": graph.name, "duplicates": graph.duplicates, "held_out": graph.held_out}
    table = table.replace_schema_metadata({"plogicnet": json.dumps(about)})
    with replacing(path / "graph.parquet") as beside:
        pq.write_table(table, beside, compression="zstd")


def _read_graph(path: Path) -> KnowledgeGraph:
    entities, relations = _read_names(path / "entities.tsv"), _read_names(path / "relations.tsv")
    table = pq.read_table(path / "graph.parquet")
    about = json.loads(table.schema.metadata[b"plogicnet"])
    split = np.array(table["split"].to_pylist(), dtype=object)
    triples = np.stack([table[c].to_numpy().astype(np.int64) for c in COLUMNS], axis=1)
    return KnowledgeGraph(
        about["name"],
        Vocabulary("entity", entities),
        Vocabulary("relation", relations),
        triples[split == "train"],
        triples[split == "valid"],
        triples[split == "test"],
        about["duplicates"],
        about["held_out"],
        read_labels(path / "labels.tsv") if (path / "labels.tsv").is_file() else {},
    )


def _read_names(file: Path) -> tuple[str, ...]:
    table = csv.read_csv(
        file,
        read_options=csv.ReadOptions(column_names=["number", "name"]),
        parse_options=csv.ParseOptions(delimiter="\t", newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types={"name": pa.string()}, strings_can_be_null=False),
    )
    return tuple(table["name"].to_pylist())


def _write_hidden(file: Path, graph: KnowledgeGraph, outcome: "Outcome") -> None:
    """Every hidden triple in names with q, p_w, whether accepted, and whether the last M-step assumed it true."""
    model = outcome.rule_model
    hidden = model.groundings.hidden
    columns = {
        "head": graph.entities.take(hidden[:, 0]),
        "relation": graph.relations.take(hidden[:, 1]),
        "tail": graph.entities.take(hidden[:, 2]),
        "q": outcome.hidden_q,
        "p_w": model.hidden_p_w,
        "accepted": outcome.accepted,
        "assumed": model.truth[~model.groundings.observed],
    }
    types = {c: pa.string() for c in COLUMNS}
    table = pa.table({c: pa.array(v, type=types.get(c)) for c, v in columns.items()})
    with replacing(file) as beside:
        pq.write_table(table, beside, compression="zstd")
