"""Snapshots in the real commands: list, revert, read an earlier one, keep some, and edit the rules of a run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.runs import snapshots
from plogicnet.runs.directory import current_name, snapshot_names
from plogicnet.training.hooks import Hooks
from small import SMALL, small_graph
from stopping import StoppedError, files_of, leftovers, stop_at, tree_of

ONE_RULE = "=0.5: husband(X, Y) => wife(Y, X)\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    PLogicNet(Config().with_values(SMALL)).fit(small_graph(), out=out)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run with one snapshot."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def refitted(run: Path) -> Path:
    """A run with two snapshots: 0001 as trained, and 0002 with one rule."""
    PLogicNet.load(run).refit(ONE_RULE, run)
    return run


def error_message(call: Call, *arguments: object) -> str:
    code, out, stderr = call(*arguments)
    assert (code, out) == (2, "")
    return stderr


def test_list_shows_every_snapshot(call: Call, refitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call("runs", "revert", refitted, "0001")[0] == 0
    found = call_json(call, "runs", "list", refitted)
    assert set(found) == {"current", "unfinished_training", "snapshots"}
    assert (found["current"], found["unfinished_training"]) == ("0003", False)
    rows = found["snapshots"]
    assert set(rows[0]) == {"name", "current", "published", "command", "rules", "split", "mrr", "bytes"}
    columns = ("name", "current", "command", "split")
    assert [tuple(row[c] for c in columns) for row in rows] == [
        ("0001", False, "train", "test"),
        ("0002", False, "refit", "test"),
        ("0003", True, "revert 0001", "test"),
    ]
    for row in rows:
        model = PLogicNet.load(refitted, snapshot=row["name"])
        files = (refitted / "snapshots" / row["name"]).iterdir()
        assert (row["rules"], row["mrr"]) == (len(model.rules), model.metrics["test"]["plogicnet*"]["mrr"])
        assert row["bytes"] == sum(file.stat().st_size for file in files)
    code, out, _ = call("runs", "list", refitted)
    assert code == 0
    assert "3 snapshots" in out
    assert max(map(len, out.splitlines())) <= 80
    for row in rows:
        (line,) = [line for line in out.splitlines() if line.strip().startswith(row["name"])]
        assert ("*" in line) == row["current"]
        for text in (row["published"][:16].replace("T", " "), row["command"], f"{row['mrr']:.3f} (test)"):
            assert text in line


def test_list_shows_a_damaged_snapshot_and_needs_a_run(call: Call, refitted: Path, tmp_path: Path) -> None:
    (refitted / "snapshots" / "0001" / "metrics.json").unlink()
    (refitted / "work" / "timings.json").write_text("damaged")
    damaged, current = call_json(call, "runs", "list", refitted)["snapshots"]
    assert (damaged["mrr"], damaged["command"], current["command"]) == (None, None, None)
    assert current["mrr"] > 0
    assert call("runs", "list", refitted)[0] == 0
    assert "no run at" in error_message(call, "runs", "list", tmp_path / "nowhere")
    assert "contains no complete run" in error_message(call, "runs", "list", tmp_path)


def test_revert_publishes_the_earlier_content_again(call: Call, run: Path) -> None:
    before = files_of(run)
    PLogicNet.load(run).refit(ONE_RULE, run)
    assert files_of(run) != before
    code, out, _ = call("runs", "revert", run, "0001")
    assert (code, out) == (0, f"Snapshot 0003 of {run} is the current one, with the content of 0001.\n")
    assert files_of(run) == before
    assert call("runs", "revert", run, "0003")[:2] == (0, "Snapshot 0003 is the current one.\n")
    assert call_json(call, "runs", "revert", run, "0002") == {"run": str(run), "current": "0004"}
    assert len(call_json(call, "rules", run)["rules"]) == 1


def test_revert_discards_an_unfinished_training(call: Call, run: Path) -> None:
    before = files_of(run)
    with pytest.raises(StoppedError):
        PLogicNet.resume(run, {"em.iterations": 3}, Hooks(stop_at("training")))
    assert call_json(call, "runs", "list", run)["unfinished_training"] is True
    assert f"unfinished training. Continue with: plogicnet resume {run}" in call("runs", "list", run)[1]
    assert f"discard it with `plogicnet runs revert {run} 0001`" in error_message(call, "refit", run)
    code, _, stderr = call("runs", "revert", run, "0001")
    assert (code, "the unfinished training is discarded" in stderr) == (0, True)
    assert leftovers(run) == []
    assert (files_of(run), snapshot_names(run)) == (before, ["0001"])
    assert call("refit", run)[0] == 0


@pytest.mark.parametrize("name", ["0003", "1", "../0001", "", "9" * 100])
def test_an_unknown_snapshot_is_refused_with_the_names_of_all(call: Call, refitted: Path, name: str) -> None:
    before = tree_of(refitted)
    for arguments in (("runs", "revert", refitted, name), ("rules", refitted, "--snapshot", name)):
        stderr = error_message(call, *arguments)
        assert stderr == f"plogicnet: {refitted} has no snapshot {name[:40]!r}. It has: 0001, 0002.\n"
    assert tree_of(refitted) == before


def test_revert_refuses_a_damaged_snapshot(call: Call, refitted: Path) -> None:
    (refitted / "snapshots" / "0001" / "neural.safetensors").unlink()
    before = tree_of(refitted)
    assert "its file neural.safetensors is missing" in error_message(call, "runs", "revert", refitted, "0001")
    assert tree_of(refitted) == before


READING: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "evaluate": lambda _: ("--json",),
    "predict": lambda _: ("--head", "woman0", "--relation", "wife", "--json"),
    "explain": lambda _: ("woman0", "wife", "man0", "--json"),
    "rules": lambda _: ("--json",),
    "report": lambda out: ("--out", out / "report.html"),
    "export": lambda out: ("--out", out / "exported", "--parts", "rules,predictions"),
    "doctor": lambda _: ("--json",),
}


@pytest.mark.parametrize("command", READING)
def test_every_reading_command_can_read_an_earlier_snapshot(
    call: Call, run: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out"

    def read(*options: object) -> tuple[str, dict[str, bytes]]:
        """Return what the command prints and writes."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        code, printed, stderr = call(command, run, *READING[command](out), *options)
        assert code == 0, stderr
        return printed, tree_of(out)

    before = read()
    PLogicNet.load(run).refit(ONE_RULE, run)
    assert read("--snapshot", "0001") == before
    assert read() == read("--snapshot", "0002") != before
    unknown = (command, run, *READING[command](out), "--snapshot", "0007")
    assert "has no snapshot '0007'. It has: 0001, 0002." in error_message(call, *unknown)


@pytest.mark.parametrize("name", ["my.rules", "my.tsv"])
def test_the_rules_of_a_run_can_be_written_edited_and_used(call: Call, run: Path, tmp_path: Path, name: str) -> None:
    PLogicNet.load(run).refit(ONE_RULE + "wife(X, Y) => husband(Y, X)\n2: parent(X, Y) => child(Y, X)\n", run)
    rows, file = call_json(call, "rules", run)["rules"], tmp_path / name
    code, out, _ = call("rules", run, "--out", file)
    assert (code, out) == (0, f"3 rules written to {file}. Next: plogicnet refit {run} --rules {file}\n")
    call_json(call, "refit", run, "--rules", file)
    again = call_json(call, "rules", run)["rules"]
    for row, expected in zip(again, rows, strict=True):
        assert row == pytest.approx(expected, abs=1e-4)
    assert [row["weight"] for row in again if row["standard_error"] is None] == [0.5], "the weight is still fixed"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "wife(X, Y) => husband(Y, X)" not in line))
    call_json(call, "refit", run, "--rules", file)
    assert {row["rule"] for row in call_json(call, "rules", run)["rules"]} == {
        "husband(X, Y) => wife(Y, X)",
        "parent(X, Y) => child(Y, X)",
    }
    assert call_json(call, "rules", run, "--snapshot", "0001", "--top", 1, "--out", file)["rules"]
    call_json(call, "refit", run, "--rules", file)
    assert len(call_json(call, "rules", run)["rules"]) == 1


def test_rules_are_written_only_to_a_file_in_an_existing_directory(call: Call, run: Path, tmp_path: Path) -> None:
    for out in (tmp_path / "no" / "my.rules", tmp_path):
        assert str(out) in error_message(call, "rules", run, "--out", out)
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


@pytest.mark.parametrize(("options", "left"), [((), 2), (("--keep", 1), 1), (("--keep", 3), 3)])
def test_old_snapshots_are_removed(
    call: Call, run: Path, options: tuple[object, ...], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, 5):
        assert call("refit", run, "--keep", 1)[0] == 0
        assert current_name(run) == f"{number:04d}"
    assert snapshot_names(run) == ["0001", "0002", "0003", "0004"], "young snapshots are kept"
    monkeypatch.setattr(snapshots, "MIN_AGE_SECONDS", -1)
    for command in (("refit",), ("runs", "revert"), ("resume",)):
        words = {"revert": (run, snapshot_names(run)[0]), "resume": (run, "--set", "em.iterations=3")}
        assert call(*command, *words.get(command[-1], (run,)), *options)[0] == 0
        if options or command[-1] != "revert":  # `revert` keeps all snapshots by default
            assert len(snapshot_names(run)) == left
        assert call("evaluate", run)[0] == 0
