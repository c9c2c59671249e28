"""A short version of `make torture`, tests that it detects failures, and its page of results."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plogicnet.runs.directory import BASE_KEY, START_DIR
from plogicnet.runs.integrity import write_manifest
from stopping import tree_of

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "torture"))

if sys.platform == "win32":
    pytest.skip("Windows has no SIGKILL", allow_module_level=True)

import child  # noqa: E402
import kills  # noqa: E402
import reliability  # noqa: E402

SEED = 2549
"""This seed draws eight kills in one round of the kinds, with five settings: two trainings, refit, save and revert."""


@pytest.mark.slow
def test_killed_commands_leave_the_old_or_the_new_state_and_can_be_continued() -> None:
    """If this fails, repeat the run that it prints with `python torture/kills.py --only KIND:SEED`."""
    command = [sys.executable, str(ROOT / "torture" / "kills.py"), "--kills=1", f"--seed={SEED}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["kills"] >= len(kills.KINDS)
    assert figures["failures"] == []
    for kind, counts in figures["kinds"].items():
        assert counts["tried"] == counts["survived"] > 0, kind


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """Collect the signals SIGUSR1 that this process receives."""
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        signal.signal(signal.SIGUSR1, previous_handler)


def test_a_fault_occurs_once_before_the_chosen_operation(tmp_path: Path) -> None:
    inside, elsewhere = str(tmp_path / "run" / "rules.tsv"), str(tmp_path / "elsewhere")
    request = {"signal": signal.SIGUSR1, "operation": 5, "started": tmp_path / "started"}
    fault = child.Fault(tmp_path / "run", request)
    with received_signals() as received:
        fault("open", (inside, "r", os.O_RDONLY))
        fault("open", (elsewhere, "w", os.O_WRONLY))
        fault("os.chmod", (inside, 0o600, -1))
        assert not (tmp_path / "started").exists()
        fault("open", (inside, "w", os.O_WRONLY))
        fault("open", (inside, None, os.O_RDONLY))  # before fsync
        fault("os.link", (elsewhere, inside, -1, -1))
        fault("os.remove", ("relative to a directory that is removed", 7))
        assert (tmp_path / "started").exists()
        assert received == []
        for _ in range(2):
            fault("os.mkdir", (inside, 0o700, -1))
        assert received == [signal.SIGUSR1]
    assert (fault.operations, fault.renames) == (6, 0)


def test_a_torn_write_truncates_the_file_or_a_new_file_of_the_directory(tmp_path: Path) -> None:
    kept, part = tmp_path / "kept", tmp_path / ".0002.17.part"
    part.mkdir()
    kept.write_bytes(b"0123456789")
    (part / "a").hardlink_to(kept)
    (part / "b").write_bytes(b"0123456789")
    (part / "b").chmod(0o400)
    with received_signals() as received:
        fault = child.Fault(tmp_path, {"signal": signal.SIGUSR1, "rename": 1, "share": 0.35})
        fault("os.rename", (str(tmp_path / "0001"), str(tmp_path / ".0001.17.part"), -1, -1))  # before it is removed
        assert received == []
        fault("os.rename", (str(part), str(tmp_path / "0002"), -1, -1))
        assert received == [signal.SIGUSR1]
    assert kept.read_bytes() == b"0123456789"
    assert (part / "b").read_bytes() == b"012"
    child.truncate_written(kept, 0.5)
    assert kept.read_bytes() == b"01234"


def test_a_repeated_iteration_is_detected() -> None:
    stderr = "EM iteration {}: 3 of 4 hidden triples accepted\n"
    assert kills._last_iteration(1, stderr.format(1) + stderr.format(2)) == 2
    assert kills._last_iteration(1, "mining") == 1
    with pytest.raises(kills.LostError, match="EM iteration 1 was repeated after iteration 2"):
        kills._last_iteration(2, stderr.format(1))


def test_a_stop_without_advice_is_detected(tmp_path: Path) -> None:
    start = tmp_path / START_DIR
    start.mkdir(parents=True)
    write_manifest(start, {BASE_KEY: ""})
    advice = f"plogicnet: Stopped. To continue, run `plogicnet resume {tmp_path}`."
    kills._require_advice(kills.Ended(130, "", advice, True, 1.0), tmp_path, {})
    kills._require_advice(kills.Ended(-15, "", "", True, 1.0), tmp_path, tree_of(tmp_path))  # had written nothing
    for code, stderr in ((130, ""), (-15, advice), (1, advice)):
        with pytest.raises(kills.LostError, match="without printing how to continue"):
            kills._require_advice(kills.Ended(code, "", stderr, True, 1.0), tmp_path, {})


def test_a_mixture_of_two_states_is_detected() -> None:
    old, new, mixture = (kills.Content({"a": a, "b": b}, ()) for a, b in ((b"1", b"1"), (b"2", b"2"), (b"1", b"2")))
    assert kills._require_old_or_new(old, old, new) == old
    assert kills._require_old_or_new(new, old, new) == new
    with pytest.raises(kills.DifferentError, match="different from old: b; new: a"):
        kills._require_old_or_new(mixture, old, new)
    with pytest.raises(kills.DifferentError):
        kills._require_old_or_new(old, new, new)  # went back
    with pytest.raises(kills.LostError, match="no longer complete"):
        kills._require_old_or_new(None, old, new)


def test_a_result_with_leftovers_or_without_the_old_state_is_detected(tmp_path: Path) -> None:
    def write(name: str, content: bytes) -> dict[str, bytes]:
        (tmp_path / "run/snapshots" / name).mkdir(parents=True)
        (tmp_path / "run/snapshots" / name / "rules.tsv").write_bytes(content)
        return {"rules.tsv": content}

    run, setting = tmp_path / "run", kills.SETTINGS["refit"]
    old, new = (kills.Content(write(name, content), ()) for name, content in (("0001", b"1"), ("0002", b"2")))
    (tmp_path / "sampled/snapshots").mkdir(parents=True)
    reference = kills.Reference(tmp_path / "refit", old, new, 1.0, 1, 1)
    (run / "CURRENT").write_text("0002\n")
    kills._require_result(run, setting, reference, old)
    write("0003", b"3")
    with pytest.raises(kills.DifferentError, match="snapshots with other content: 0003"):
        kills._require_result(run, setting, reference, old)
    for name in ("0001", "0003"):
        shutil.rmtree(run / "snapshots" / name)
    kills._require_result(run, setting, reference, new)
    with pytest.raises(kills.DifferentError, match="the state before the command was removed"):
        kills._require_result(run, setting, reference, old)
    (run / ".CURRENT.17.part").mkdir()
    with pytest.raises(kills.DifferentError, match=r"leftovers: \.CURRENT\.17\.part"):
        kills._require_result(run, setting, reference, new)


def test_the_page_is_up_to_date() -> None:
    """If this fails, run `python torture/reliability.py`."""
    written = reliability.page(reliability.read(reliability.RESULTS), reliability.read(reliability.FUZZING))
    assert reliability.PAGE.read_text(encoding="utf-8") == written


def test_the_page_reports_failures() -> None:
    outcome = {"tried": 5, "survived": 2, "lost": 2, "different": 1, "again": 0}
    campaign = {
        "kills": 5,
        "runs": 4,
        "seed": 0,
        "minutes": 0.1,
        "settings": {"save": 5},
        "left": {},
        "kinds": {"torn-write": outcome, "int-moment": outcome},
    }
    tests = {"tests/cli/test_faults.py": {"a full disk": {"tried": 1, "survived": 0, "lost": 1}}}
    crashes = {
        "recorded": {"refit": 61},
        "states": 1200,
        "opened": {"old": 1199, "new": 1},
        "failures": [{"command": "refit", "message": "a mixture", "states": 1}],
    }
    results = {"command": "c", "commit": "d", "kills": campaign, "crash_states": crashes, "faults": tests}
    text = reliability.page(results, {})
    assert "| `PLogicNet.save` over a complete run | 5 |" in text
    assert "| **all** | **61** | **1,200** |" in text
    assert "| the old state | 1,199 |" in text
    assert "| `refit`: a mixture | 1 |" in text
    assert "| SIGINT (Ctrl-C) at a random moment | 5 | 2 | 2 | 1 | 0 |" in text
    assert "| **all** | **10** | **4** | **4** | **2** | **0** |" in text
    assert "| a full disk | 1 | 0 | 1 |" in text
