"""Many processes on one run: a reader gets one snapshot, never a mixture, and one writer at a time publishes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plogicnet.runs.directory import snapshot_names
from small import fitted
from stopping import leftovers

SCRIPT = Path(__file__).with_name("reading_and_writing.py")


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_readers_beside_writers_see_one_snapshot(rounds: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fitted().refit("husband(X, Y) => wife(Y, X)", out=run)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, str(SCRIPT), str(run), str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | one_thread, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["failures"] == []
    assert result["rounds"] >= rounds
    assert result["reads"] >= rounds
    assert len(snapshot_names(run)) == 1
    assert leftovers(run) == []
    print(result)
