"""A training that is stopped anywhere and resumed gives the same files; what cannot be resumed is an error."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.runs.checkpoints import saved_iterations
from plogicnet.runs.directory import CHECKPOINT_DIR, START_DIR, snapshot_folder
from plogicnet.runs.snapshots import read_rules
from plogicnet.support.errors import InputError
from plogicnet.support.files import write_text
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Iteration
from small import SMALL, family_rows, small_graph
from stopping import StoppedError, different, files_of, leftovers, overwrite, stop_at

WRITTEN = "=1.5: husband(X, Y) => wife(Y, X)\n0.25: parent(X, Y) & sibling(Y, Z) => parent(X, Z)\n"
SOFTMAX = {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}
VARIANTS: dict[str, tuple[dict[str, object], str | None]] = {
    "sampled": ({}, None),
    "one_vs_all, early stopping": (SOFTMAX | {"neural.validate_every": 30, "neural.patience": 1}, None),
    "warm": ({"em.warm_start": True}, None),
    "sampled premises, soft": ({"mln.hidden_premises": "sampled", "em.targets": "soft"}, None),
    "written, explicit negatives": ({"em.hidden_negatives": "explicit"}, WRITTEN),
    "warm softmax with patience": (SOFTMAX | {"em.warm_start": True, "em.patience": 1, "em.iterations": 3}, WRITTEN),
    "rules alone": ({"em.neural": False}, None),
    "neural model alone": ({"em.rules": False}, None),
    "rules proposed by paths": (
        {"rules.propose": "paths", "neural.model": "Paths", "neural.paths.dim": 8, "neural.paths.layers": 3}
        | {"neural.learning_rate": "auto", "rules.min_precision.chain": 0.9},
        None,
    ),
}
STOPPED_EVERYWHERE = ("sampled", "one_vs_all, early stopping", "warm softmax with patience")
"""These variants are stopped at every step, the others only at the main ones."""
MAIN_STEPS = ("while mining", "before iteration 1 is saved", "in E-step 2, by Ctrl-C", "while finishing")


def trained(
    out: Path,
    values: dict[str, object] | None = None,
    rules: str | None = None,
    hooks: Hooks | None = None,
    graph: KnowledgeGraph | None = None,
) -> PLogicNet:
    config = Config().with_values(SMALL | {"neural.steps": 70} | (values or {}))
    return PLogicNet(config).fit(graph or small_graph(), rules, out, hooks)


def stop_after(iteration: int) -> Callable[[Iteration], None]:
    def on_iteration(line: Iteration) -> None:
        if line.iteration == iteration:
            raise StoppedError

    return on_iteration


def stops(values: dict[str, object]) -> dict[str, Hooks]:
    """Return hooks that stop this training, by the step at which they stop it."""
    steps = {
        "while validating": Hooks(stop_at("ranking valid")),
        "before iteration 1 is saved": Hooks(on_iteration=stop_after(1)),
        "while finishing": Hooks(stop_at("ranking test")),
    }
    if values.get("em.rules", True):
        steps["while mining"] = Hooks(stop_at("mining"))
    if values.get("em.neural", True):
        steps["as E-step 1 starts"] = Hooks(stop_at("training"))
        steps["in E-step 1, by Ctrl-C"] = Hooks(stop_at("training", 1, 50, KeyboardInterrupt))
    if values.get("em.rules", True) and values.get("em.neural", True):
        steps["in E-step 2"] = Hooks(stop_at("training", 2, 50))
        steps["in E-step 2, by Ctrl-C"] = Hooks(stop_at("training", 2, 50, KeyboardInterrupt))
        steps["before iteration 2 is saved"] = Hooks(on_iteration=stop_after(2))
    if values.get("em.iterations") == 3:
        steps["in E-step 3, by Ctrl-C"] = Hooks(stop_at("training", 3, 50, KeyboardInterrupt))
    return steps


@pytest.mark.parametrize("name", VARIANTS)
def test_a_stopped_and_resumed_training_gives_the_same_files(name: str, tmp_path: Path) -> None:
    values, rules = VARIANTS[name]
    trained(tmp_path / "whole", values, rules)
    for number, (step, hooks) in enumerate(stops(values).items()):
        if name not in STOPPED_EVERYWHERE and step not in MAIN_STEPS:
            continue
        run = tmp_path / str(number)
        with pytest.raises((StoppedError, KeyboardInterrupt)):
            trained(run, values, rules, hooks)
        with pytest.raises(InputError, match="plogicnet resume"):
            PLogicNet.load(run)
        PLogicNet.resume(run)
        assert different(tmp_path / "whole", run) == [], step
        assert leftovers(run) == [], step


def test_a_training_can_be_stopped_and_resumed_several_times(tmp_path: Path) -> None:
    values, rules = VARIANTS["warm softmax with patience"]
    trained(tmp_path / "whole", values, rules)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", values, rules, Hooks(stop_at("training", 1, 50, KeyboardInterrupt)))
    for progress in (stop_at("ranking"), stop_at("training", 2, 50), stop_at("training", 1, 50, KeyboardInterrupt)):
        with pytest.raises((StoppedError, KeyboardInterrupt)):
            PLogicNet.resume(tmp_path / "run", hooks=Hooks(progress))
    for iteration in (2, 3):
        with pytest.raises(StoppedError):
            PLogicNet.resume(tmp_path / "run", hooks=Hooks(stop_at("ranking test"), on_iteration=stop_after(iteration)))
    PLogicNet.resume(tmp_path / "run")
    assert different(tmp_path / "whole", tmp_path / "run") == []


def test_partial_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    trained(tmp_path / "whole")
    run = tmp_path / "run"
    with pytest.raises(StoppedError):
        trained(run, hooks=Hooks(on_iteration=stop_after(2)))
    for name in (
        "snapshots/.0001.123.part/.rules.tsv.123.part",
        "work/.timings.json.123.part",
        f"{CHECKPOINT_DIR}/.2.123.part/.history.jsonl.123.part",
        f"{CHECKPOINT_DIR}/.e_step.safetensors.1.part",
    ):
        (run / name).mkdir(parents=True)
        (run / name / ".tmp123456").write_text("partial")
    (run / CHECKPOINT_DIR / "2").mkdir()  # without a manifest
    (run / CHECKPOINT_DIR / "2" / "rules.tsv").write_text("partial")
    PLogicNet.resume(run)
    assert different(tmp_path / "whole", run) == []
    assert leftovers(run) == []


def test_a_partial_current_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    model = trained(tmp_path / "run", {"em.iterations": 1})
    (tmp_path / "run" / ".CURRENT.123.part").mkdir()
    model.save(tmp_path / "run")
    assert leftovers(tmp_path / "run") == []


def test_a_training_that_is_killed_before_it_is_current_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is complete, but CURRENT is not written."""
    trained(tmp_path / "whole", rules=WRITTEN)
    run = tmp_path / "run"

    def write_all_but_current(file: Path, text: str) -> None:
        if file.name == "CURRENT":
            raise StoppedError
        write_text(file, text)

    with monkeypatch.context() as patch:
        patch.setattr("plogicnet.runs.snapshots.write_text", write_all_but_current)
        patch.setattr("plogicnet.runs.snapshots.remove_directory", lambda _: None)  # as after a kill
        with pytest.raises(StoppedError):
            trained(run, rules=WRITTEN)
    assert (run / "snapshots" / "0001" / "manifest.json").is_file()
    with pytest.raises(InputError, match="plogicnet resume"):
        PLogicNet.load(run)
    with pytest.raises(InputError, match="plogicnet resume"):
        trained(run, rules=WRITTEN)
    PLogicNet.resume(run)
    assert different(tmp_path / "whole", run) == []
    assert leftovers(run) == []


# some improve with each iteration; in the last, the second of four is the best
MORE: list[dict[str, object]] = [
    {},
    {"em.warm_start": True, "mln.hidden_premises": "sampled"},
    SOFTMAX | {"em.patience": 2},
]


@pytest.mark.parametrize("values", MORE, ids=str)
@pytest.mark.parametrize("before", [1, 3])
def test_a_complete_run_can_be_resumed_with_more_iterations(
    values: dict[str, object], before: int, tmp_path: Path
) -> None:
    trained(tmp_path / "whole", values | {"em.iterations": 4}, WRITTEN)
    run = tmp_path / "run"
    trained(run, values | {"em.iterations": before}, WRITTEN)
    complete, more = files_of(run), {"em.iterations": 4}
    with pytest.raises(KeyboardInterrupt):
        PLogicNet.resume(run, more, Hooks(stop_at("training", 1, 50, KeyboardInterrupt)))
    assert files_of(run) == complete, "the run must stay readable"
    PLogicNet.load(run)
    PLogicNet.resume(run)  # the new number of iterations is stored
    assert different(tmp_path / "whole", run) == []
    assert leftovers(run) == []
    assert {f.name: f.read_bytes() for f in snapshot_folder(run, "0001").iterdir() if f.name in complete} == complete


STALLING = SOFTMAX | {"em.patience": 1, "em.iterations": 9}


def test_patience_keeps_the_best_iteration(tmp_path: Path) -> None:
    """The iteration after the best one ends the training and remains only in the history."""
    model = trained(tmp_path / "run", STALLING)
    kept = model.fitted.outcome.iteration
    mrrs = [line.validation_mrr for line in model.history]
    assert len(mrrs) == kept + 1 < 9
    assert mrrs.index(max(mrrs)) + 1 == kept
    best = trained(tmp_path / "best", SOFTMAX | {"em.iterations": kept})
    assert list(model.history[:kept]) == list(best.history)
    assert different(tmp_path / "run", tmp_path / "best") == ["config.yaml", "history.jsonl"]
    loaded = PLogicNet.load(tmp_path / "run").fitted.outcome
    assert (loaded.iteration, loaded.validation_mrr) == (kept, mrrs[kept - 1])


def test_the_best_vectors_survive_a_stop(tmp_path: Path) -> None:
    """If the best iteration is the last one when training stops, resuming must not train its vectors further."""
    kept = trained(tmp_path / "whole", STALLING).fitted.outcome.iteration
    with pytest.raises(StoppedError):
        trained(tmp_path / "run", STALLING, hooks=Hooks(stop_at("training", kept + 1)))
    assert saved_iterations(tmp_path / "run") == [i for i in (kept - 1, kept) if i]
    PLogicNet.resume(tmp_path / "run")
    assert different(tmp_path / "whole", tmp_path / "run") == []


def stopped_after_one(run: Path, values: dict[str, object]) -> Path:
    with pytest.raises(StoppedError):
        trained(run, values, hooks=Hooks(stop_at("training", 2)))
    return run / CHECKPOINT_DIR / "1" / "neural.safetensors"


def test_an_iteration_without_its_neural_model_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path / "whole")
    stopped_after_one(tmp_path / "run", {}).unlink()
    shutil.copytree(tmp_path / "run", tmp_path / "saved")
    PLogicNet.resume(tmp_path / "run")
    assert "its file neural.safetensors is missing" in caplog.text
    assert "resuming the training from the beginning" in caplog.text
    assert different(tmp_path / "whole", tmp_path / "run") == []
    (tmp_path / "saved" / START_DIR / "written.rules").unlink()
    with pytest.raises(InputError, match=r"start is damaged: its file written\.rules is missing"):
        PLogicNet.resume(tmp_path / "saved")


def test_a_directory_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run at .*nowhere: the directory does not exist"):
        PLogicNet.resume(tmp_path / "nowhere")
    with pytest.raises(InputError, match="contains no run, or its training stopped before anything was saved"):
        PLogicNet.resume(tmp_path)
    stopped_after_one(tmp_path / "run", {})
    (tmp_path / "run" / START_DIR / "manifest.json").unlink()  # written after everything that `resume` needs
    with pytest.raises(InputError, match="before anything was saved"):
        PLogicNet.resume(tmp_path / "run")


def test_a_run_of_a_newer_version_is_an_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, {"em.iterations": 1})
    overwrite(snapshot_folder(run) / "manifest.json", json.dumps({"format": 2, "version": "9.9"}))
    for call in (PLogicNet.load, PLogicNet.resume, read_rules):
        with pytest.raises(
            InputError, match=r"manifest\.json has a newer format, written by plogicnet 9\.9\. This version"
        ):
            call(run)


def test_train_rejects_a_complete_run_and_save_publishes_a_snapshot_in_it(tmp_path: Path) -> None:
    run, rows = tmp_path / "run", family_rows()
    labelled = KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:], "other")
    labelled = KnowledgeGraph(
        *("other", labelled.entities, labelled.relations, labelled.train, labelled.valid, labelled.test),
        labels={"man0": "the first man"},
    )
    trained(run, {"em.iterations": 1}, graph=labelled)
    with pytest.raises(InputError, match="contains a complete run"):
        trained(run)
    trained(tmp_path / "whole").save(run)
    assert different(tmp_path / "whole", run) == []


def test_a_resumed_run_keeps_the_triples_moved_to_valid(tmp_path: Path) -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names(rows[:100], [], rows[100:], "small")
    trained(tmp_path / "whole", graph=graph)
    with pytest.raises(StoppedError):
        trained(tmp_path / "run", hooks=Hooks(stop_at("training", 2)), graph=graph)
    resumed = PLogicNet.resume(tmp_path / "run")
    assert resumed.fitted.graph.moved_to_valid == 5
    assert different(tmp_path / "whole", tmp_path / "run") == []


def test_a_copy_of_a_stopped_run_can_be_resumed(tmp_path: Path) -> None:
    """A run directory needs no other file and does not contain its path."""
    stopped_after_one(tmp_path / "a", {})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    a, b = (PLogicNet.resume(tmp_path / name) for name in "ab")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    np.testing.assert_array_equal(a.fitted.outcome.hidden_q, b.fitted.outcome.hidden_q)
