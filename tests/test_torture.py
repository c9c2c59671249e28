"""A short share of what `make torture` does; that it sees what it looks for; and the page of its figures."""

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
"""Draws eight kills in one round of the kinds, and three settings."""


@pytest.mark.slow
def test_killed_anywhere_and_resumed_trainings_end_with_the_same_files() -> None:
    """If this fails: what it prints names the run that `python torture/kills.py --only KIND:SEED` repeats."""
    command = [sys.executable, str(ROOT / "torture" / "kills.py"), "--kills=1", f"--seed={SEED}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["kills"] >= len(kills.KINDS)
    assert figures["failures"] == []
    for kind, of in figures["kinds"].items():
        assert of["tried"] == of["survived"] > 0, kind


def test_a_fault_strikes_once_before_the_chosen_operation(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        fault = child.Fault(tmp_path, {"signal": signal.SIGUSR1, "operation": 3})
        inside = (str(tmp_path / "rules.tsv"), "r", os.O_RDONLY)
        for event, args in (
            ("open", inside),
            ("open", ("/elsewhere", "r", os.O_RDONLY)),
            ("os.chmod", inside),
            ("os.remove", ("named from a directory that is being removed", 7)),
        ):
            fault(event, args)
        assert heard == []
        for _ in range(2):
            fault("open", inside)
        assert heard == [signal.SIGUSR1]
        assert (fault.operations, fault.renames) == (4, 0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_torn_write_leaves_a_part_of_the_file(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        written = tmp_path / "written"
        written.write_bytes(b"0123456789")
        fault = child.Fault(tmp_path, {"signal": signal.SIGUSR1, "rename": 2, "share": 0.35})
        for _ in range(2):
            fault("os.rename", (str(written), str(tmp_path / "place"), -1, -1))
        assert written.read_bytes() == b"012"
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_iteration_that_is_done_again_is_seen() -> None:
    said = "EM iteration {}: 3 of 4 hidden triples accepted\n"
    assert kills._not_gone_back(1, said.format(1) + said.format(2)) == 2
    assert kills._not_gone_back(1, "mining") == 1
    with pytest.raises(kills.LostError, match="EM iteration 1 was done again, after 2"):
        kills._not_gone_back(2, said.format(1))


def test_a_stop_without_words_is_seen(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    told = f"plogicnet: stopped; `plogicnet resume {tmp_path}` continues from here"
    kills._require_words(kills.Ended(130, told, True, 1.0), tmp_path, {})
    kills._require_words(kills.Ended(-15, "", True, 1.0), tmp_path, {"run.json": b"{}"})  # it had not begun
    for code, said in ((130, ""), (-15, told), (1, told)):
        with pytest.raises(kills.LostError, match="without a word"):
            kills._require_words(kills.Ended(code, said, True, 1.0), tmp_path, {})


def test_the_page_is_what_the_command_writes() -> None:
    """If this fails: python torture/reliability.py."""
    written = reliability.page(reliability.read(reliability.RESULTS), reliability.read(reliability.FUZZING))
    assert reliability.PAGE.read_text(encoding="utf-8") == written


def test_the_page_tells_what_was_lost() -> None:
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
