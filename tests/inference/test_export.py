"""What is exported reads back: vectors to the bit, rules with their weights, the completed graph."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from plogicnet import PLogicNet
from plogicnet.graph import KnowledgeGraph, open_graph
from plogicnet.inference.export import Choice, export
from plogicnet.rules import read_statements
from plogicnet.support.errors import InputError
from small import family_rows, fitted

ONE_VS_ALL = {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}


def exported(model: PLogicNet, folder: Path, choice: Choice) -> dict[str, object]:
    model.save(folder / "run")
    return export(model.fitted, folder / "out", choice)


@pytest.mark.parametrize("values", [{}, ONE_VS_ALL, {"neural.model": "ConvE"}], ids=["TransE", "ComplEx", "ConvE"])
def test_vectors(values: dict[str, object], tmp_path: Path) -> None:
    model = fitted(values)
    graph = model.fitted.graph
    written = exported(model, tmp_path, Choice(parts=("vectors",)))
    tables = load_file(tmp_path / "run" / "neural.safetensors")
    relations = np.load(tmp_path / "out" / "relations.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "entities.npy"), tables.pop("entity"))
    whole = tables.pop("relation")
    np.testing.assert_array_equal(relations, whole[: len(graph.relations)])
    if values:
        inverse = np.load(tmp_path / "out" / "inverse_relations.npy")
        np.testing.assert_array_equal(inverse, whole[len(graph.relations) :])
    for name, table in tables.items():
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), table)
    lines = (tmp_path / "out" / "relations.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == list(graph.relations.names)
    assert [[np.float32(x) for x in line.split("\t")[1:]] for line in lines] == relations.tolist()
    files = {p.name for p in (tmp_path / "out").iterdir()}
    named = {"entities", "relations", *(["inverse_relations"] if values else [])}
    assert files == {f"{n}.{e}" for n in named for e in ("npy", "tsv")} | {f"{n}.npy" for n in tables}
    shapes = written["vectors"]
    assert isinstance(shapes, dict)
    assert shapes["relations"] == list(relations.shape)


def test_an_export_that_fails_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted({"neural.steps": 60})

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("plogicnet.inference.export.completions", fail)
        with pytest.raises(InputError, match="space"):
            exported(model, tmp_path, Choice())
    assert not list((tmp_path / "out").iterdir())
    assert exported(model, tmp_path, Choice()).keys() == {"vectors", "rules", "predictions"}


@pytest.mark.parametrize("fixed", [False, True])
def test_rules_read_back_with_their_weights(fixed: bool, tmp_path: Path) -> None:
    rows = [(h, f'is {r}, "or" so', t) for h, r, t in family_rows()]
    model = fitted({"neural.steps": 60}, KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:]))
    assert exported(model, tmp_path, Choice(parts=("rules",), fixed=fixed)) == {"rules": len(model.rules)}
    statements = read_statements(tmp_path / "out" / "rules.txt", model.fitted.graph)
    assert [s.rule for s in statements] == list(model.rules.rules)
    for statement, weight in zip(statements, model.rules.weight.tolist(), strict=True):
        if statement.rule.negated:
            assert statement.weight is None
        else:
            assert statement.weight == weight
            assert statement.fixed == fixed
    if fixed:  # so the same rules, weights kept, judge the same
        before = model.complete(0.0)
        model.refit(tmp_path / "out" / "rules.txt")
        assert [p.p_w for p in model.complete(0.0)] == pytest.approx([p.p_w for p in before], rel=1e-9)


def test_a_weight_that_a_person_fixed_stays_fixed(tmp_path: Path) -> None:
    model = fitted().refit("=0.5: husband(X, Y) => wife(Y, X)\n1: wife(X, Y) => husband(Y, X)")
    exported(model, tmp_path, Choice(parts=("rules",)))
    assert "=0.5: husband(X, Y) => wife(Y, X)\n" in (tmp_path / "out" / "rules.txt").read_text()
    assert "=" not in (tmp_path / "out" / "rules.txt").read_text().replace("=>", "").replace("=0.5:", "")


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet", "jsonl", "nt"])
def test_the_completed_graph_is_what_is_known_and_what_is_predicted(kind: str, tmp_path: Path) -> None:
    if kind == "nt":
        pytest.importorskip("pyoxigraph")
    model = fitted({"neural.steps": 60})
    written = exported(model, tmp_path, Choice(parts=("predictions",), min_probability=0.01, kind=kind))
    f = model.fitted
    known = {f.graph.names(t) for split in ("train", "valid", "test") for t in f.graph.split(split)}
    predicted = {(p.head, p.relation, p.tail) for p in model.complete(0.01)}
    assert 0 < len(predicted - known) < len(predicted)
    graphs = {}
    for name in ("predictions", "completed"):
        graph = open_graph(tmp_path / "out" / f"{name}.{kind}")
        graphs[name] = [graph.names(t) for t in graph.train]
        assert graph.duplicates == 0
    assert set(graphs["predictions"]) == predicted
    assert set(graphs["completed"]) == known | predicted
    assert written == {"predictions": {name: len(rows) for name, rows in graphs.items()}}


def test_what_has_no_tables_is_exported_without_vectors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = fitted({"em.neural": False})
    written = exported(model, tmp_path, Choice())
    assert set(written) == {"rules", "predictions"}
    assert "no vectors to export" in caplog.text
    with pytest.raises(InputError, match="no vectors to export"):
        export(model.fitted, tmp_path / "other", Choice(parts=("vectors",)))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"rules.txt", "predictions.tsv", "completed.tsv"}


def test_what_cannot_be_exported_is_said_before_anything_is_written(tmp_path: Path) -> None:
    model = fitted()
    with pytest.raises(InputError, match="parts: 'vector' is not allowed; any of vectors, rules, predictions"):
        exported(model, tmp_path, Choice(parts=("vector",)))
    with pytest.raises(InputError, match="format: 'ttl' is not allowed"):
        exported(model, tmp_path, Choice(kind="ttl"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="the directory is not empty; name a new one"):
        exported(model, tmp_path, Choice())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        export(model.fitted, tmp_path / "file", Choice())
