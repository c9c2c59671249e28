"""--memory-limit in the real command: the peak stays within the limit with the same results, or the command fails.

The memory of the program differs between machines, so the limits are not fixed here. The first limit is too small, and
each error names the limit to try next.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from plogicnet.runs.directory import State, state_of
from stopping import different, files_of

if sys.platform != "linux":
    pytest.skip("peak memory is measured only on Linux", allow_module_level=True)

SIDE = 600
"""Number of facts into the hub, and of facts out of it. The rule over the hub has SIDE² groundings."""
SETTINGS = [
    *("--set", "rules.min_precision.composition=0.0001", "--set", "neural.vectors.dim=32", "--set", "neural.steps=20"),
    *(
        "--set",
        "neural.batch=64",
        "--set",
        "neural.vectors.negatives=16",
        "--set",
        "em.iterations=1",
        "--device",
        "cpu",
        "--threads",
        "2",
    ),
]
LAUNCHER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""A small process that starts the command: a child's peak is never below that of the process that forked it."""
TOLERANCE_MB = 16
"""The peak can exceed the limit by 10% plus this many MB."""


@dataclass(frozen=True)
class CommandResult:
    """Exit code, stdout, stderr and peak memory of a command."""

    code: int
    out: str
    stderr: str
    peak_mb: float


def run_command(*arguments: object) -> CommandResult:
    command_line = [sys.executable, "-m", "plogicnet", *map(str, arguments)]
    with TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        result = subprocess.run(
            [sys.executable, "-c", LAUNCHER, peak, *command_line], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in result.stderr
        return CommandResult(result.returncode, result.stdout, result.stderr, int(peak.read_text()) / 2**10)


def test_files_that_are_not_read_do_not_count(tmp_path: Path) -> None:
    """The directory contains a sparse archive that is not part of the graph; reading it would take gigabytes."""
    (tmp_path / "train.tsv").write_text("anna\tknows\tben\nben\tknows\tanna\n" * 3)
    with (tmp_path / "raw.tar.gz").open("wb") as file:
        file.truncate(200 << 20)
    result = run_command("mine", tmp_path, "--memory-limit", "600MB")
    assert result.code == 0, result.stderr


def run_with_enough_memory(
    *arguments: object, limit: str = "1MB", run: Path | None = None
) -> tuple[str, CommandResult]:
    """Raise the limit as the errors advise until the command succeeds, and check the peak memory each time.

    A started training is resumed: the limit is not stored in the run.
    """
    errors: list[str] = []
    for _ in range(12):
        started = run is not None and state_of(run) is State.UNFINISHED
        result = run_command(*(("resume", run, "--json") if started else arguments), "--memory-limit", limit)
        if result.code == 0:
            break
        assert result.code == 2, result.stderr
        errors.append(result.stderr)
        match = re.search(r"Raise --memory-limit to at least (\d+MB)", result.stderr)
        assert match, result.stderr
        assert match[1] != limit
        limit = match[1]
        assert result.peak_mb <= 1.1 * int(limit[:-2]) + TOLERANCE_MB  # it failed before it allocated the memory
    else:
        pytest.fail("\n".join(errors))
    assert result.peak_mb <= 1.1 * int(limit[:-2]) + TOLERANCE_MB, (limit, result.peak_mb)
    return limit, result


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a hub: a rule over the hub has one grounding for every pair of its neighbours."""
    folder = tmp_path_factory.mktemp("hub")
    rng = np.random.default_rng(0)
    rows = [f"a{i}\tin\thub\n" for i in range(SIDE)] + [f"hub\tout\tb{i}\n" for i in range(SIDE)]
    through = {(int(i), int(j)) for i, j in rng.integers(SIDE, size=(1600, 2))}
    facts = [f"a{i}\tthrough\tb{j}\n" for i, j in sorted(through)]
    (folder / "train.txt").write_text("".join(rows + facts[:1200]))
    (folder / "valid.txt").write_text("".join(facts[1200:1400]))
    (folder / "test.txt").write_text("".join(facts[1400:]))
    return folder


@pytest.fixture(scope="module")
def run(graph: Path) -> Path:
    """A run trained without a limit. It also fills the cache of compiled code, since compiling takes memory."""
    result = run_command("train", graph, "--out", graph / "run", *SETTINGS, "--json")
    assert result.code == 0, result.stderr
    return graph / "run"


def without_measurements(text: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(text).items() if key not in ("seconds", "peak_rss_mb")}


@pytest.mark.slow
def test_mining_and_grounding_within_a_limit(graph: Path) -> None:
    arguments = ("mine", graph, "--min-precision", "composition=0.0001", "--json", "--out")
    unlimited = run_command(*arguments, graph / "unlimited.tsv")
    limit, limited = run_with_enough_memory(*arguments, graph / "limited.tsv")
    assert limit != "1MB"
    assert without_measurements(unlimited.out)["groundings"] > SIDE**2 // 2
    assert without_measurements(limited.out) == without_measurements(unlimited.out)
    assert (graph / "limited.tsv").read_bytes() == (graph / "unlimited.tsv").read_bytes()


@pytest.mark.slow
def test_training_within_a_limit(graph: Path, run: Path) -> None:
    out = graph / "limited"
    run_with_enough_memory("train", graph, "--out", out, *SETTINGS, "--json", run=out)
    assert different(out, run) == []


@pytest.mark.slow
def test_evaluation_and_completion_within_a_limit(run: Path, tmp_path: Path) -> None:
    limit, limited = run_with_enough_memory("evaluate", run, "--json")
    assert json.loads(limited.out) == json.loads(files_of(run)["metrics.json"])["test"]

    arguments = ("predict", run, "--complete", "--min-probability", "0.0001", "--json", "--out")
    run_with_enough_memory(*arguments, tmp_path / "limited.parquet", limit=limit)
    unlimited = run_command(*arguments, tmp_path / "unlimited.parquet")
    assert json.loads(unlimited.out)["written"] > SIDE**2 // 2
    assert (tmp_path / "limited.parquet").read_bytes() == (tmp_path / "unlimited.parquet").read_bytes()


def test_a_limit_needs_a_unit(run: Path) -> None:
    result = run_command("evaluate", run, "--memory-limit", "2000")
    assert result.code == 2
    assert "such as 2GB" in result.stderr
