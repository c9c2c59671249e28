"""What the files of a run hold: its graph, and what training left behind."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.config import Config
from plogicnet.graph import COLUMNS, SPLITS, KnowledgeGraph, Vocabulary, quoted, read_labels, read_parquet
from plogicnet.neural.protocol import make_model
from plogicnet.rules import RuleTable
from plogicnet.runs.directory import BEGUN, GRAPH, HIDDEN, HISTORY, NEURAL, OUTCOME, RULES, TIMINGS
from plogicnet.runs.integrity import damage_as_input_error, read_json, read_sealed, require_whole
from plogicnet.support.errors import InputError
from plogicnet.support.files import replacing, write_text
from plogicnet.systems.system import system_of
from plogicnet.training.state import Iteration, Outcome


def write_graph(path: Path, graph: KnowledgeGraph) -> None:
    """Writes the vocabularies as `number⇥name` and the splits as numbers, so that a run needs no other file."""
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


def read_graph(path: Path) -> KnowledgeGraph:
    """Reads what `write_graph` wrote, checked by the checksums in run.json."""
    require_whole(path, read_sealed(path / BEGUN)[1], GRAPH)
    entities, relations = _read_names(path, "entities.tsv"), _read_names(path, "relations.tsv")
    table = read_parquet(path / "graph.parquet")
    split = np.array(table["split"].to_pylist(), dtype=object)
    triples = np.stack([table[c].to_numpy().astype(np.int64) for c in COLUMNS], axis=1)
    if not np.all((triples >= 0) & (triples < [len(entities), len(relations), len(entities)])):
        # compiled code does not look again
        raise InputError(f"{path / 'graph.parquet'} is damaged: it has numbers that entities.tsv or relations.tsv lack")
    return KnowledgeGraph(
        entities=Vocabulary("entity", entities),
        relations=Vocabulary("relation", relations),
        labels=read_labels(path / "labels.tsv") if (path / "labels.tsv").is_file() else {},
        **{s: triples[split == s] for s in SPLITS},
        **json.loads(table.schema.metadata[b"plogicnet"]),
    )


def _read_names(path: Path, name: str) -> tuple[str, ...]:
    table = csv.read_csv(
        path / name,
        read_options=csv.ReadOptions(column_names=["number", "name"]),
        parse_options=csv.ParseOptions(delimiter="\t", newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types={"name": pa.string()}, strings_can_be_null=False),
    )
    return tuple(table["name"].to_pylist())


def write_outcome(folder: Path, graph: KnowledgeGraph, outcome: Outcome) -> None:
    """Writes what training left behind: rules, hidden triples, the neural model, history."""
    model = outcome.rule_model
    model.rules.joined(model.constraints).write(folder / RULES)
    _write_hidden(folder / HIDDEN, graph, outcome)
    if outcome.neural is None:
        (folder / NEURAL).unlink(missing_ok=True)
    else:
        outcome.neural.save(folder / NEURAL)
    write_text(folder / HISTORY, "".join(json.dumps(line.to_json()) + "\n" for line in outcome.history))


def _write_hidden(file: Path, graph: KnowledgeGraph, outcome: Outcome) -> None:
    """Writes each hidden triple in names with q, p_w, whether accepted, and whether the last M-step assumed it true."""
    model = outcome.rule_model
    numbered = zip(COLUMNS, (graph.entities, graph.relations, graph.entities), model.hidden.T, strict=True)
    columns = {column: pa.array(names.take(numbers), pa.string()) for column, names, numbers in numbered}
    columns |= {"q": outcome.hidden_q, "p_w": model.hidden_p_w, "accepted": outcome.accepted}
    table = pa.table(columns | {"assumed": model.truth[~model.observed]})
    with replacing(file) as beside:
        pq.write_table(table, beside, compression="zstd")


def read_outcome(
    folder: Path, seal: Path, config: Config, graph: KnowledgeGraph, names: Sequence[str] = OUTCOME
) -> tuple[Outcome, dict[str, Any]]:
    """Reads what `write_outcome` wrote, and the content of the file with its checksums.

    Args:
        folder: where the files are.
        seal: the file with their checksums, λ and the number of the iteration.
        config: the settings of the run.
        graph: its graph.
        names: the files whose checksums must match.
    """
    about, sums = read_sealed(seal)
    require_whole(folder, sums, names)
    hidden, lines = read_parquet(folder / HIDDEN), (folder / HISTORY).read_text(encoding="utf-8").splitlines()
    history = tuple(Iteration.of_json(json.loads(line)) for line in lines)
    lambda_, iteration = about["lambda"], about["iteration"]
    if type(iteration) is not int or not 0 <= iteration <= len(history):
        raise InputError(f"{folder} is damaged: its iteration is {iteration!r}, and {HISTORY} has {len(history)}")
    if type(lambda_) not in (int, float) or not 0 <= lambda_ < float("inf"):
        raise InputError(f"{folder} is damaged: λ is {lambda_!r}")
    table, assumed = RuleTable.read(folder / RULES), hidden["assumed"].to_numpy()
    rules, constraints = table.take(~table.constraints), table.take(table.constraints)
    model = system_of(config).rule_model(graph, config, rules, constraints, assumed if assumed.any() else None)
    neural = make_model(graph, config) if config.em.neural else None
    if neural is not None:
        neural.load(folder / NEURAL)
    q, accepted = hidden["q"].to_numpy(), hidden["accepted"].to_numpy()
    return Outcome(neural, model, q, accepted, lambda_, history, iteration), about


def write_timings(path: Path, seconds: Mapping[str, float]) -> None:
    """Writes the seconds that each part of a training took."""
    write_text(path / TIMINGS, json.dumps({part: round(s, 3) for part, s in seconds.items()}, indent=1) + "\n")


def read_timings(path: Path) -> dict[str, float]:
    """Reads the seconds that each part of a training took; none where the file is missing."""
    with damage_as_input_error(path / TIMINGS):
        return {part: float(s) for part, s in read_json(path / TIMINGS).items()} if (path / TIMINGS).is_file() else {}
