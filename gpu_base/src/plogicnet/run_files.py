"""What the files of a run hold: its graph, and what training left behind."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from safetensors.numpy import load_file

from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.files import replacing, write_text
from plogicnet.graph import COLUMNS, SPLITS, FloatArray, KnowledgeGraph, Vocabulary, quoted, read_labels, read_parquet
from plogicnet.rules import RuleTable

if TYPE_CHECKING:
    from plogicnet.em import Outcome

VECTORS = "embeddings.safetensors"
GRAPH = ("graph.parquet", "entities.tsv", "relations.tsv", "labels.tsv")
OUTCOME = ("rules.tsv", "hidden.parquet", "history.jsonl", VECTORS)


def read_vectors(path: Path) -> dict[str, FloatArray]:
    """The tables of a run's vectors, by name; none where it has no embedding.

    Example:
        >>> read_vectors(Path("nowhere"))
        {}
    """
    file = path / VECTORS
    return dict(load_file(file)) if file.is_file() else {}


def write_graph(path: Path, graph: KnowledgeGraph) -> None:
    """Writes the vocabularies as `number⇥name`, the splits as numbers, so that a run needs no other file.

    Example:
        >>> write_graph(Path("runs/family"), graph)  # doctest: +SKIP
    """
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
    """What `write_graph` wrote.

    Example:
        >>> read_graph(Path("runs/family"))  # doctest: +SKIP
    """
    entities, relations = _read_names(path / "entities.tsv"), _read_names(path / "relations.tsv")
    table = read_parquet(path / "graph.parquet")
    about = json.loads(table.schema.metadata[b"plogicnet"])
    split = np.array(table["split"].to_pylist(), dtype=object)
    triples = np.stack([table[c].to_numpy().astype(np.int64) for c in COLUMNS], axis=1)
    sizes = [len(entities), len(relations), len(entities)]
    if not np.all((triples >= 0) & (triples < sizes)):  # compiled code does not look again
        raise InputError(f"{path / 'graph.parquet'} is damaged: it has numbers that entities.tsv or relations.tsv lack")
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


def write_outcome(folder: Path, graph: KnowledgeGraph, outcome: "Outcome") -> None:
    """Writes what training left behind: rules, hidden triples, vectors, history.

    Example:
        >>> write_outcome(Path("runs/family"), graph, outcome)  # doctest: +SKIP
    """
    model = outcome.rule_model
    model.rules.joined(model.constraints).write(folder / "rules.tsv")
    _write_hidden(folder / "hidden.parquet", graph, outcome)
    if outcome.embedding is None:
        (folder / VECTORS).unlink(missing_ok=True)
    else:
        outcome.embedding.save(folder / VECTORS)
    write_text(folder / "history.jsonl", "".join(json.dumps(line) + "\n" for line in outcome.history))


def read_outcome(
    folder: Path, config: Config, graph: KnowledgeGraph, lambda_: float, iteration: int | None
) -> "Outcome":
    """What `write_outcome` wrote; without the file of vectors, an embedding that is to be trained anew.

    Example:
        >>> read_outcome(Path("runs/family"), config, graph, 5.0, 2)  # doctest: +SKIP
    """
    from plogicnet.baselines import make_rule_model
    from plogicnet.em import Outcome, make_embedding

    table = RuleTable.read(folder / "rules.tsv")
    rules, constraints = table.take(~table.constraints), table.take(table.constraints)
    hidden = read_parquet(folder / "hidden.parquet")
    assumed = hidden["assumed"].to_numpy()
    model = make_rule_model(graph, config, rules, constraints, assumed if assumed.any() else None)
    embedding = make_embedding(graph, config) if config.em.embedding else None
    if embedding is not None and (folder / VECTORS).is_file():
        embedding.load(folder / VECTORS)
    history = tuple(json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines())
    if not all(isinstance(line, dict) for line in history):
        raise InputError(f"{folder / 'history.jsonl'} is damaged: expected a JSON object a line")
    if iteration is not None and (not isinstance(iteration, int) or not 0 <= iteration <= len(history)):
        raise InputError(f"{folder} is damaged: it is of iteration {iteration!r}, and history.jsonl has {len(history)}")
    q, accepted = hidden["q"].to_numpy(), hidden["accepted"].to_numpy()
    if isinstance(lambda_, bool) or not isinstance(lambda_, int | float) or not 0 <= lambda_ < float("inf"):
        raise InputError(f"{folder} is damaged: λ is {lambda_!r}")
    return Outcome(embedding, model, q, accepted, lambda_, history, len(history) if iteration is None else iteration)


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
