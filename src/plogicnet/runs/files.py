"""Functions that read and write the files of a snapshot or a checkpoint: settings, graph and trained model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.config import Config
from plogicnet.graph import (
    COLUMNS,
    SPLITS,
    FloatArray,
    KnowledgeGraph,
    Vocabulary,
    quote_tsv,
    read_labels,
    read_parquet,
)
from plogicnet.neural.registry import make_model
from plogicnet.rules import RuleTable
from plogicnet.runs.directory import (
    BASE_LOG_ODDS_KEY,
    CONFIG_FILE,
    HIDDEN_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    NEURAL_FILE,
    RULES_FILE,
)
from plogicnet.runs.integrity import (
    RESTORE_ADVICE,
    DamageError,
    read_json,
    read_manifest,
    verify_checksums,
)
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write, write_text
from plogicnet.systems.system import system_of
from plogicnet.training.state import Iteration, Outcome

EDIT_ADVICE = {
    CONFIG_FILE: (
        "Restore the file, because the run was trained with other settings. To change the device or the threads, use"
        " --device and --threads. For more EM iterations, use `plogicnet resume RUN --set em.iterations=N`. For other"
        " settings, train a new run."
    ),
    RULES_FILE: (
        "Restore the file. To change the rules, write them to a file of your own with `plogicnet rules RUN --out"
        " my.rules`, edit it, and run `plogicnet refit RUN --rules my.rules`."
    ),
}
"""What to do if a file was edited."""


def verify_files(folder: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Verify files of a directory against its manifest, and return the manifest's content.

    Args:
        folder: the directory.
        required: files that must exist.
        optional: files that can exist. Other files are ignored.
    """
    content, checksums = read_manifest(folder)
    for name in (*required, *(name for name in optional if (folder / name).exists())):
        if name not in checksums:
            raise DamageError(f"{folder} is damaged: its manifest does not list {name}. {RESTORE_ADVICE}")
    verify_checksums(folder, {n: checksums[n] for n in (*required, *optional) if n in checksums}, EDIT_ADVICE)
    return content


def write_config(folder: Path, config: Config) -> None:
    """Write the settings."""
    write_text(folder / CONFIG_FILE, config.to_yaml())


def read_config(folder: Path) -> Config:
    """Return the settings of a snapshot or a checkpoint."""
    file = folder / CONFIG_FILE
    return Config().with_yaml(file.read_text(encoding="utf-8"), str(file))


def write_graph(path: Path, graph: KnowledgeGraph) -> None:
    """Write the vocabularies as lines `id⇥name`, the splits as ids, and the labels."""
    for file, vocabulary in (("entities.tsv", graph.entities), ("relations.tsv", graph.relations)):
        lines = (f"{id_}\t{quote_tsv(name)}\n" for id_, name in enumerate(vocabulary.names))
        write_text(path / file, "".join(lines))
    if graph.labels:
        write_text(path / "labels.tsv", "".join(f"{name}\t{label}\n" for name, label in graph.labels.items()))
    triples = np.concatenate([graph.split(s) for s in SPLITS]).astype(np.int32)
    splits = np.repeat(SPLITS, [len(graph.split(s)) for s in SPLITS])
    table = pa.table({"split": splits} | {c: triples[:, i] for i, c in enumerate(COLUMNS)})
    metadata = {"name": graph.name, "duplicates": graph.duplicates, "held_out": graph.moved_to_valid}
    table = table.replace_schema_metadata({"plogicnet": json.dumps(metadata)})
    with atomic_write(path / "graph.parquet") as temporary_file:
        pq.write_table(table, temporary_file, compression="zstd")


def read_graph(path: Path) -> KnowledgeGraph:
    """Return the graph of a snapshot or a checkpoint."""
    entities, relations = _read_names(path, "entities.tsv"), _read_names(path, "relations.tsv")
    table = read_parquet(path / "graph.parquet")
    split = np.array(table["split"].to_pylist(), dtype=object)
    triples = np.stack([table[c].to_numpy().astype(np.int64) for c in COLUMNS], axis=1)
    if not np.all((triples >= 0) & (triples < [len(entities), len(relations), len(entities)])):
        # compiled code does not check the range of ids
        raise InputError(
            f"{path / 'graph.parquet'} is damaged: it contains ids that are not in entities.tsv or relations.tsv."
            f" {RESTORE_ADVICE}"
        )
    metadata = json.loads(table.schema.metadata[b"plogicnet"])
    return KnowledgeGraph(
        entities=Vocabulary("entity", entities),
        relations=Vocabulary("relation", relations),
        labels=read_labels(path / "labels.tsv") if (path / "labels.tsv").is_file() else {},
        **{s: triples[split == s] for s in SPLITS},
        name=metadata["name"],
        duplicates=metadata["duplicates"],
        moved_to_valid=metadata["held_out"],
    )


def _read_names(path: Path, name: str) -> tuple[str, ...]:
    table = csv.read_csv(
        path / name,
        read_options=csv.ReadOptions(column_names=["id", "name"]),
        parse_options=csv.ParseOptions(delimiter="\t", newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types={"name": pa.string()}, strings_can_be_null=False),
    )
    return tuple(table["name"].to_pylist())


def write_outcome(folder: Path, graph: KnowledgeGraph, outcome: Outcome) -> None:
    """Write the trained model: rules, hidden triples, history, and the neural model if its file does not exist yet."""
    model = outcome.rule_model
    model.rules.concat(model.constraints).write(folder / RULES_FILE)
    _write_hidden(folder / HIDDEN_FILE, graph, outcome)
    if outcome.neural is not None and not (folder / NEURAL_FILE).exists():
        outcome.neural.save(folder / NEURAL_FILE)
    write_text(folder / HISTORY_FILE, "".join(json.dumps(line.to_json()) + "\n" for line in outcome.history))


def _write_hidden(file: Path, graph: KnowledgeGraph, outcome: Outcome) -> None:
    """Write one row per hidden triple: names, q, p_w, whether accepted, and whether the last M-step assumed it true.

    NaN is written as null.
    """
    model = outcome.rule_model
    parts = zip(COLUMNS, (graph.entities, graph.relations, graph.entities), model.hidden.T, strict=True)
    columns = {column: pa.array(vocabulary.take(ids), pa.string()) for column, vocabulary, ids in parts}
    columns |= {
        "q": pa.array(outcome.hidden_q, from_pandas=True),
        "p_w": model.hidden_p_w,
        "accepted": outcome.accepted,
    }
    table = pa.table(columns | {"assumed": model.truth[~model.observed]})
    with atomic_write(file) as temporary_file:
        pq.write_table(table, temporary_file, compression="zstd")


def read_outcome(folder: Path, config: Config, graph: KnowledgeGraph) -> tuple[Outcome, dict[str, Any]]:
    """Return a trained model and the content of its metrics.json.

    Args:
        folder: the directory of the files.
        config: the settings of the run.
        graph: the graph of the run.
    """
    content = read_json(folder / METRICS_FILE)
    hidden, lines = read_parquet(folder / HIDDEN_FILE), (folder / HISTORY_FILE).read_text(encoding="utf-8").splitlines()
    history = tuple(Iteration.from_json(json.loads(line)) for line in lines)
    lambda_, iteration = content["lambda"], content["iteration"]
    if type(iteration) is not int or not 0 <= iteration <= len(history):
        raise InputError(
            f"{folder} is damaged: its iteration is {iteration!r}, but {HISTORY_FILE} has {len(history)} lines."
            f" {RESTORE_ADVICE}"
        )
    if type(lambda_) not in (int, float) or not 0 <= lambda_ < float("inf"):
        raise InputError(
            f"{folder} is damaged: λ must be a finite number of at least 0, got {lambda_!r}. {RESTORE_ADVICE}"
        )
    table, assumed = RuleTable.read(folder / RULES_FILE), hidden["assumed"].to_numpy()
    rules, constraints = table.take(~table.constraints), table.take(table.constraints)
    model = system_of(config).rule_model(graph, config, rules, constraints, assumed if assumed.any() else None)
    if BASE_LOG_ODDS_KEY in content:
        model = model.with_base(_base_log_odds(folder, graph, content))
    neural = make_model(graph, config) if config.em.neural else None
    if neural is not None:
        neural.load(folder / NEURAL_FILE)
    q, accepted = hidden["q"].to_numpy(), hidden["accepted"].to_numpy()
    return Outcome(neural, model, q, accepted, lambda_, history, iteration), content


def _base_log_odds(folder: Path, graph: KnowledgeGraph, metrics: Mapping[str, Any]) -> FloatArray:
    values = metrics[BASE_LOG_ODDS_KEY]
    base = np.array([values[name] for name in graph.relations.names], dtype=np.float64)
    if not np.isfinite(base).all():
        raise InputError(f"{folder} is damaged: base log-odds must be finite. {RESTORE_ADVICE}")
    return base
