"""Saved runs: a run is loaded bit-identically, and an incomplete run is an error."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleTable
from plogicnet.runs.directory import REQUIRED_FILES, snapshot_folder
from plogicnet.runs.snapshots import read_rules
from plogicnet.support.errors import InputError
from small import SMALL, family_rows, fitted
from stopping import different, files_of, leftovers, tree_of

VARIANTS: list[dict[str, object]] = [
    {},
    {"mln.hidden_premises": "sampled"},
    {"mln.blanket": "full", "mln.aggregate": "mean"},
    {"mln.solver": "gradient", "em.combine": "log_odds", "mln.unit_clauses": False},
    {"em.targets": "soft", "em.warm_start": True, "rules.counting": "paths", "em.lambda": 0.7},
    {"em.neural": False},
    {"rules.negative": ["functional"], "rules.min_precision.functional": 0.1, "mln.aggregate": "saturating"},
    {"em.rules": False},
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run; tests copy it before they change it."""
    path = tmp_path_factory.mktemp("run") / "family"
    fitted().save(path)
    return path


def assert_same_answers(a: PLogicNet, b: PLogicNet) -> None:
    splits = [s for s in ("valid", "test") if len(a.fitted.graph.split(s))]
    assert [a.evaluate(s) for s in splits] == [b.evaluate(s) for s in splits]
    names, relations = a.fitted.graph.entities.names, a.fitted.graph.relations.names
    for relation in relations:
        assert a.predict(names[0], relation, top=100) == b.predict(names[0], relation, top=100)
        assert a.predict(relation=relation, tail=names[3]) == b.predict(relation=relation, tail=names[3])
    assert a.predict(head=names[0], tail=names[1]) == b.predict(head=names[0], tail=names[1])
    assert a.complete(0.01) == b.complete(0.01)
    graph = a.fitted.graph
    hidden = a.fitted.outcome.rule_model.groundings.hidden
    for triple in np.concatenate([graph.train[:10], graph.valid[:3], hidden[:10]]):
        assert a.explain(*graph.names(triple)) == b.explain(*graph.names(triple))


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_a_loaded_run_is_identical(values: dict[str, object], tmp_path: Path) -> None:
    model = fitted(values)
    model.save(tmp_path / "run")
    loaded = PLogicNet.load(tmp_path / "run")
    assert_same_answers(model, loaded)
    assert loaded.config == model.config
    assert loaded.metrics == json.loads(json.dumps(model.metrics))
    assert loaded.history == model.history
    assert loaded.rules.rows() == model.rules.rows()
    np.testing.assert_array_equal(loaded.fitted.outcome.hidden_q, model.fitted.outcome.hidden_q)
    np.testing.assert_array_equal(loaded.fitted.outcome.accepted, model.fitted.outcome.accepted)
    np.testing.assert_array_equal(loaded.fitted.outcome.rule_model.truth, model.fitted.outcome.rule_model.truth)
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(loaded.fitted.graph.split(split), model.fitted.graph.split(split))
    assert leftovers(tmp_path / "run") == []


def test_a_loaded_run_saves_the_same_files(saved: Path, tmp_path: Path) -> None:
    PLogicNet.load(saved).save(tmp_path / "again")
    assert files_of(saved) == files_of(tmp_path / "again")


@pytest.mark.parametrize("values", [VARIANTS[0], VARIANTS[1], {"threads": 2, "neural.steps": 8}], ids=str)
def test_two_fits_give_the_same_bytes(values: dict[str, object], tmp_path: Path) -> None:
    for name in ("a", "b"):
        torch.manual_seed(ord(name))
        np.random.seed(ord(name))  # noqa: NPY002 (the global state must not matter)
        fitted(values).save(tmp_path / name)
    assert different(tmp_path / "a", tmp_path / "b") == []


def test_another_seed_gives_different_vectors(saved: Path, tmp_path: Path) -> None:
    fitted({"seed": 1}).save(tmp_path / "other")
    assert files_of(tmp_path / "other")["neural.safetensors"] != files_of(saved)["neural.safetensors"]


def test_a_run_has_the_documented_files(saved: Path) -> None:
    folder = saved / "snapshots" / "0001"
    assert (saved / "CURRENT").read_text() == "0001\n"
    assert sorted(str(p.relative_to(saved)) for p in saved.rglob("*") if p.parent != folder) == [
        "CURRENT",
        "snapshots",
        "snapshots/0001",
        "work",
        "work/lock",
        "work/log.txt",
        "work/timings.json",
    ]
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml",
        "graph.parquet",
        "entities.tsv",
        "relations.tsv",
        "rules.tsv",
        "hidden.parquet",
        "history.jsonl",
        "neural.safetensors",
        "metrics.json",
        "manifest.json",
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest) == {"format", "version", "sha256"}
    assert set(manifest["sha256"]) == {file.name for file in folder.iterdir()}
    assert "sha256" not in json.loads((folder / "metrics.json").read_text())
    [origin] = json.loads((saved / "work" / "timings.json").read_text()).items()
    assert (origin[0], origin[1]["command"]) == ("0001", "save")
    hidden = pq.read_table(folder / "hidden.parquet")
    assert {"head", "relation", "tail", "q", "p_w", "accepted"} <= set(hidden.column_names)
    model = PLogicNet.load(saved).fitted
    rows = zip(*(hidden[c].to_pylist() for c in ("head", "relation", "tail")), strict=True)
    assert list(rows) == [model.graph.names(t) for t in model.outcome.rule_model.groundings.hidden]
    assert hidden["p_w"].to_pylist() == pytest.approx(model.outcome.rule_model.hidden_p_w.tolist(), rel=1e-12)
    header = (folder / "rules.tsv").read_text(encoding="utf-8").splitlines()[0]
    report = ["standard_error", "groundings"]
    assert header.split("\t") == ["pattern", "rule", "support", "hits", "precision", "weight", *report]
    assert Config().with_file(folder / "config.yaml") == Config().with_values(SMALL).completed


def test_read_rules_sorts_by_weight(saved: Path) -> None:
    table = read_rules(saved)
    assert table.rows() == PLogicNet.load(saved).rules.rows()
    weights = table.weight[~table.constraints].tolist()
    assert weights == sorted(weights, reverse=True)


def test_settings_can_be_overridden_on_load(saved: Path) -> None:
    assert PLogicNet.load(saved, {"evaluation.batch_memory_mb": 1}).config.evaluation.batch_memory_mb == 1
    with pytest.raises(InputError, match="shape"):
        PLogicNet.load(saved, {"neural.vectors.dim": 9})


def test_a_directory_without_a_run_is_an_input_error(tmp_path: Path) -> None:
    for call in (PLogicNet.load, read_rules):
        with pytest.raises(InputError, match="no run"):
            call(tmp_path / "nowhere")
        with pytest.raises(InputError, match="complete"):
            call(tmp_path)


@pytest.mark.parametrize("name", [*REQUIRED_FILES, "neural.safetensors", "manifest.json"])
def test_a_run_with_a_missing_file_is_an_input_error(name: str, saved: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(saved, tmp_path / "run"))
    (snapshot_folder(run) / name).unlink()
    with pytest.raises(InputError, match=rf"0001 is damaged: its file {re.escape(name)} is missing"):
        PLogicNet.load(run)


def test_a_failed_save_leaves_the_previous_snapshot(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(saved, tmp_path / "run"))
    model, before = fitted({"seed": 1}), tree_of(run)

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    for function in ("neural.parameters.save_file", "runs.files._write_hidden", "runs.snapshots.write_manifest"):
        with monkeypatch.context() as patch:
            patch.setattr(f"plogicnet.{function}", fail)
            for path in (run, tmp_path / "new"):
                with pytest.raises(OSError, match="space"):
                    model.save(path)
        assert tree_of(run) == before
        assert tree_of(tmp_path / "new") == {}
        assert leftovers(run) == leftovers(tmp_path / "new") == []
        with pytest.raises(InputError, match="contains no complete run"):
            PLogicNet.load(tmp_path / "new")
    for path in (run, tmp_path / "new"):
        model.save(path)
    assert different(run, tmp_path / "new") == []
    assert_same_answers(model, PLogicNet.load(run))


def test_saving_over_a_run_publishes_another_snapshot(saved: Path, tmp_path: Path) -> None:
    """The previous one, of another model and another graph, is kept."""
    run = Path(shutil.copytree(saved, tmp_path / "run"))
    rows = family_rows()[:100]
    model = fitted({"em.neural": False}, KnowledgeGraph.from_names(rows[:80], rows[80:90], rows[90:], "other"))
    model.save(run)
    assert_same_answers(model, PLogicNet.load(run))
    model.save(tmp_path / "alone")
    assert different(tmp_path / "alone", run) == []
    assert "neural.safetensors" not in files_of(run)
    assert_same_answers(PLogicNet.load(saved), PLogicNet.load(run, snapshot="0001"))


def with_odd_names(word: str) -> KnowledgeGraph:
    """Return the small graph with the word in the names of an entity and a relation."""
    rows = [
        (h + (word if h == "man0" else ""), r + (word if r == "parent" else ""), t + (word if t == "man0" else ""))
        for h, r, t in family_rows()
    ]
    return KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:], "odd")


@pytest.mark.parametrize(
    "word",
    [
        " ",
        "\t",
        '"',
        "\\",
        "\\n",
        "'",
        "(x, y)",
        " => ",
        "#",
        "é",
        "\u2028",
        "\x0b",
        "\x85",
        "\r",
        "\r\n",
        "\n",
        ":",
        ",",
    ],
    ids=ascii,
)
def test_odd_names_are_restored_or_rejected(word: str, tmp_path: Path) -> None:
    try:
        model = fitted({"neural.steps": 2, "em.iterations": 1}, with_odd_names(word))
        model.save(tmp_path / "run")
    except InputError:
        return
    loaded = PLogicNet.load(tmp_path / "run")
    assert loaded.fitted.graph.entities.names == model.fitted.graph.entities.names
    assert loaded.fitted.graph.relations.names == model.fitted.graph.relations.names
    assert loaded.rules.rows() == model.rules.rows()


def test_a_run_without_valid_test_and_rules_can_be_loaded(tmp_path: Path) -> None:
    rows = [(f"a{i}", f"r{i}", f"b{i}") for i in range(30)]
    model = fitted({}, KnowledgeGraph.from_names(rows))
    model.save(tmp_path / "run")
    loaded = PLogicNet.load(tmp_path / "run")
    assert loaded.fitted.graph.moved_to_valid == model.fitted.graph.moved_to_valid > 0
    assert loaded.evaluate("valid") == model.evaluate("valid")
    assert loaded.rules.rows() == model.rules.rows()
    assert len(RuleTable.read(snapshot_folder(tmp_path / "run") / "rules.tsv").take(~loaded.rules.constraints)) == 0


def test_the_file_of_the_neural_model_contains_its_tables(saved: Path) -> None:
    neural = PLogicNet.load(saved).fitted.outcome.neural
    assert neural is not None
    stored = {table.tobytes() for table in load_file(snapshot_folder(saved) / "neural.safetensors").values()}
    assert {np.ascontiguousarray(table.values).tobytes() for table in neural.tables().values()} <= stored
