"""Exports can be read again: vectors bitwise, rules with their weights, the completed graph."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from plogicnet import PLogicNet
from plogicnet.graph import KnowledgeGraph, open_graph
from plogicnet.inference.export import ExportOptions, export
from plogicnet.rules import read_rule_file
from plogicnet.runs.directory import snapshot_folder
from plogicnet.support.errors import InputError
from small import family_rows, fitted

ONE_VS_ALL = {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}


def export_run(model: PLogicNet, folder: Path, options: ExportOptions) -> dict[str, object]:
    model.save(folder / "run")
    return export(model.fitted, folder / "out", options)


@pytest.mark.parametrize("values", [{}, ONE_VS_ALL, {"neural.model": "ConvE"}], ids=["TransE", "ComplEx", "ConvE"])
def test_vectors_are_exported_bitwise(values: dict[str, object], tmp_path: Path) -> None:
    model = fitted(values)
    graph = model.fitted.graph
    written = export_run(model, tmp_path, ExportOptions(parts=("vectors",)))
    tables = load_file(snapshot_folder(tmp_path / "run") / "neural.safetensors")
    relations = np.load(tmp_path / "out" / "relations.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "entities.npy"), tables.pop("entity"))
    all_relations = tables.pop("relation")
    np.testing.assert_array_equal(relations, all_relations[: len(graph.relations)])
    if values:
        inverse = np.load(tmp_path / "out" / "inverse_relations.npy")
        np.testing.assert_array_equal(inverse, all_relations[len(graph.relations) :])
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


def test_a_failed_export_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted({"neural.steps": 60})

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("plogicnet.inference.export.iter_missing", fail)
        with pytest.raises(InputError, match="space"):
            export_run(model, tmp_path, ExportOptions())
    assert not list((tmp_path / "out").iterdir())
    assert export_run(model, tmp_path, ExportOptions()).keys() == {"vectors", "rules", "predictions"}


@pytest.mark.parametrize("fixed", [False, True])
def test_rules_read_back_with_their_weights(fixed: bool, tmp_path: Path) -> None:
    rows = [(h, f'is {r}, "or" so', t) for h, r, t in family_rows()]
    model = fitted({"neural.steps": 60}, KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:]))
    assert export_run(model, tmp_path, ExportOptions(parts=("rules",), fixed_weights=fixed)) == {
        "rules": len(model.rules)
    }
    statements = read_rule_file(tmp_path / "out" / "rules.txt", model.fitted.graph)
    assert [s.rule for s in statements] == list(model.rules.rules)
    for statement, weight in zip(statements, model.rules.weight.tolist(), strict=True):
        if statement.rule.negated:
            assert statement.weight is None
        else:
            assert statement.weight == weight
            assert statement.fixed == fixed
    if fixed:  # the same rules with the same weights give the same predictions
        before = model.complete(0.0)
        model.refit(tmp_path / "out" / "rules.txt")
        assert [p.p_w for p in model.complete(0.0)] == pytest.approx([p.p_w for p in before], rel=1e-9)


def test_a_fixed_weight_of_a_rule_file_stays_fixed(tmp_path: Path) -> None:
    model = fitted().refit("=0.5: husband(X, Y) => wife(Y, X)\n1: wife(X, Y) => husband(Y, X)")
    export_run(model, tmp_path, ExportOptions(parts=("rules",)))
    assert "=0.5: husband(X, Y) => wife(Y, X)\n" in (tmp_path / "out" / "rules.txt").read_text()
    assert "=" not in (tmp_path / "out" / "rules.txt").read_text().replace("=>", "").replace("=0.5:", "")


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet", "jsonl", "nt"])
def test_the_completed_graph_has_the_known_and_the_predicted_triples(kind: str, tmp_path: Path) -> None:
    if kind == "nt":
        pytest.importorskip("pyoxigraph")
    model = fitted({"neural.steps": 60})
    written = export_run(model, tmp_path, ExportOptions(parts=("predictions",), min_probability=0.0, file_format=kind))
    fitted_model = model.fitted
    known = {
        fitted_model.graph.names(t) for split in ("train", "valid", "test") for t in fitted_model.graph.split(split)
    }
    predicted = {(p.head, p.relation, p.tail) for p in model.complete(0.0)}
    assert predicted
    assert not predicted & known
    graphs = {}
    for name in ("predictions", "completed"):
        graph = open_graph(tmp_path / "out" / f"{name}.{kind}")
        graphs[name] = [graph.names(t) for t in graph.train]
        assert graph.duplicates == 0
    assert set(graphs["predictions"]) == predicted
    assert set(graphs["completed"]) == known | predicted
    assert written == {"predictions": {name: len(rows) for name, rows in graphs.items()}}


def test_a_run_without_a_neural_model_is_exported_without_vectors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = fitted({"em.neural": False})
    written = export_run(model, tmp_path, ExportOptions())
    assert set(written) == {"rules", "predictions"}
    assert "no vectors, so only the other parts are exported" in caplog.text
    with pytest.raises(InputError, match="no vectors to export"):
        export(model.fitted, tmp_path / "other", ExportOptions(parts=("vectors",)))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"rules.txt", "predictions.tsv", "completed.tsv"}


def test_invalid_options_are_rejected_before_writing(tmp_path: Path) -> None:
    model = fitted()
    with pytest.raises(InputError, match=r"--parts: unknown part 'vector'\. Use vectors, rules or predictions"):
        export_run(model, tmp_path, ExportOptions(parts=("vector",)))
    with pytest.raises(InputError, match=r"--format must be one of .*, got 'ttl'"):
        export_run(model, tmp_path, ExportOptions(file_format="ttl"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="the directory is not empty"):
        export_run(model, tmp_path, ExportOptions())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot create the directory"):
        export(model.fitted, tmp_path / "file", ExportOptions())
