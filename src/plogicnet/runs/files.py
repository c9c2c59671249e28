"""Functions that read and write the files of a run: graph, trained model and timings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.config import Config
from plogicnet.graph import COLUMNS, SPLITS, KnowledgeGraph, Vocabulary, quote_tsv, read_labels, read_parquet
from plogicnet.neural.protocol import make_model
from plogicnet.rules import RuleTable
from plogicnet.runs.directory import (
    GRAPH_FILES,
    HIDDEN_FILE,
    HISTORY_FILE,
    NEURAL_FILE,
    OUTCOME_FILES,
    RULES_FILE,
    RUN_FILE,
    TIMINGS_FILE,
)
from plogicnet.runs.integrity import (
    RESTORE_ADVICE,
    damage_as_input_error,
    read_json,
    read_json_with_checksums,
    verify_checksums,
)
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write, write_text
from plogicnet.systems.system import system_of
from plogicnet.training.state import Iteration, Outcome


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
    """Read the graph of a run, and verify the checksums in run.json."""
    verify_checksums(path, read_json_with_checksums(path / RUN_FILE)[1], GRAPH_FILES)
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
    """Write the trained model: rules, hidden triples, neural model and history."""
    model = outcome.rule_model
    model.rules.concat(model.constraints).write(folder / RULES_FILE)
    _write_hidden(folder / HIDDEN_FILE, graph, outcome)
    if outcome.neural is None:
        (folder / NEURAL_FILE).unlink(missing_ok=True)
    else:
        outcome.neural.save(folder / NEURAL_FILE)
    write_text(folder / HISTORY_FILE, "".join(json.dumps(line.to_json()) + "\n" for line in outcome.history))


def _write_hidden(file: Path, graph: KnowledgeGraph, outcome: Outcome) -> None:
    """Write one row per hidden triple: names, q, p_w, whether accepted, and whether the last M-step assumed it true."""
    model = outcome.rule_model
    parts = zip(COLUMNS, (graph.entities, graph.relations, graph.entities), model.hidden.T, strict=True)
    columns = {column: pa.array(vocabulary.take(ids), pa.string()) for column, vocabulary, ids in parts}
    columns |= {"q": outcome.hidden_q, "p_w": model.hidden_p_w, "accepted": outcome.accepted}
    table = pa.table(columns | {"assumed": model.truth[~model.observed]})
    with atomic_write(file) as temporary_file:
        pq.write_table(table, temporary_file, compression="zstd")


def read_outcome(
    folder: Path, checksum_file: Path, config: Config, graph: KnowledgeGraph, names: Sequence[str] = OUTCOME_FILES
) -> tuple[Outcome, dict[str, Any]]:
    """Return a trained model, and the content of the file with its checksums.

    Args:
        folder: the directory of the model's files.
        checksum_file: the JSON file with the checksums of these files, λ and the number of the iteration.
        config: the settings of the run.
        graph: the graph of the run.
        names: the files to verify.
    """
    content, checksums = read_json_with_checksums(checksum_file)
    verify_checksums(folder, checksums, names)
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
    neural = make_model(graph, config) if config.em.neural else None
    if neural is not None:
        neural.load(folder / NEURAL_FILE)
    q, accepted = hidden["q"].to_numpy(), hidden["accepted"].to_numpy()
    return Outcome(neural, model, q, accepted, lambda_, history, iteration), content


def write_timings(path: Path, seconds: Mapping[str, float]) -> None:
    """Write the seconds that each part of training took."""
    write_text(path / TIMINGS_FILE, json.dumps({part: round(s, 3) for part, s in seconds.items()}, indent=1) + "\n")


def read_timings(path: Path) -> dict[str, float]:
    """Return the seconds that each part of training took, or an empty dict if the file is missing."""
    with damage_as_input_error(path / TIMINGS_FILE):
        return (
            {part: float(s) for part, s in read_json(path / TIMINGS_FILE).items()}
            if (path / TIMINGS_FILE).is_file()
            else {}
        )
