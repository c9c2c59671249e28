"""A short version of `make torture`, tests that it detects failures, and its page of results."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "torture"))

if sys.platform == "win32":
    pytest.skip("Windows has no SIGKILL", allow_module_level=True)

import child  # noqa: E402
import kills  # noqa: E402
import reliability  # noqa: E402

SEED = 349
"""This seed draws eight kills in one round of the kinds, with three settings."""


@pytest.mark.slow
def test_killed_and_resumed_trainings_write_the_same_files() -> None:
    """If this fails, repeat the run that it prints with `python torture/kills.py --only KIND:SEED`."""
    command = [sys.executable, str(ROOT / "torture" / "kills.py"), "--kills=1", f"--seed={SEED}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["kills"] >= len(kills.KINDS)
    assert figures["failures"] == []
    for kind, counts in figures["kinds"].items():
        assert counts["tried"] == counts["survived"] > 0, kind


def test_a_fault_occurs_once_before_the_chosen_operation(tmp_path: Path) -> None:
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    try:
        fault = child.Fault(tmp_path, {"signal": signal.SIGUSR1, "operation": 3})
        inside = (str(tmp_path / "rules.tsv"), "r", os.O_RDONLY)
        for event, args in (
            ("open", inside),
            ("open", ("/elsewhere", "r", os.O_RDONLY)),
            ("os.chmod", inside),
            ("os.remove", ("relative to a directory that is removed", 7)),
        ):
            fault(event, args)
        assert received == []
        for _ in range(2):
            fault("open", inside)
        assert received == [signal.SIGUSR1]
        assert (fault.operations, fault.renames) == (4, 0)
    finally:
        signal.signal(signal.SIGUSR1, previous_handler)


def test_a_torn_write_truncates_the_file(tmp_path: Path) -> None:
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    try:
        written = tmp_path / "written"
        written.write_bytes(b"0123456789")
        fault = child.Fault(tmp_path, {"signal": signal.SIGUSR1, "rename": 2, "share": 0.35})
        for _ in range(2):
            fault("os.rename", (str(written), str(tmp_path / "place"), -1, -1))
        assert written.read_bytes() == b"012"
        assert received == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, previous_handler)


def test_a_repeated_iteration_is_detected() -> None:
    stderr = "EM iteration {}: 3 of 4 hidden triples accepted\n"
    assert kills._last_iteration(1, stderr.format(1) + stderr.format(2)) == 2
    assert kills._last_iteration(1, "mining") == 1
    with pytest.raises(kills.LostError, match="EM iteration 1 was repeated after iteration 2"):
        kills._last_iteration(2, stderr.format(1))


def test_a_stop_without_advice_is_detected(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    advice = f"plogicnet: Stopped. To continue, run `plogicnet resume {tmp_path}`."
    kills._require_advice(kills.Ended(130, advice, True, 1.0), tmp_path, {})
    kills._require_advice(kills.Ended(-15, "", True, 1.0), tmp_path, {"run.json": b"{}"})  # had written nothing
    for code, stderr in ((130, ""), (-15, advice), (1, advice)):
        with pytest.raises(kills.LostError, match="without printing how to continue"):
            kills._require_advice(kills.Ended(code, stderr, True, 1.0), tmp_path, {})


def test_the_page_is_up_to_date() -> None:
    """If this fails, run `python torture/reliability.py`."""
    written = reliability.page(reliability.read(reliability.RESULTS), reliability.read(reliability.FUZZING))
    assert reliability.PAGE.read_text(encoding="utf-8") == written


def test_the_page_reports_failures() -> None:
    outcome = {"tried": 5, "survived": 2, "lost": 2, "different": 1, "resuming": 0}
    campaign = {
        "kills": 5,
        "runs": 4,
        "seed": 0,
        "minutes": 0.1,
        "settings": {"refit": 5},
        "left": {},
        "kinds": {"torn-write": outcome, "int-moment": outcome},
    }
    tests = {"tests/cli/test_faults.py": {"a full disk": {"tried": 1, "survived": 0, "lost": 1}}}
    text = reliability.page({"command": "c", "commit": "d", "kills": campaign, "faults": tests}, {})
    assert "| SIGINT (Ctrl-C) at a random moment | 5 | 2 | 2 | 1 | 0 |" in text
    assert "| **all** | **10** | **4** | **4** | **2** | **0** |" in text
    assert "| a full disk | 1 | 0 | 1 |" in text
