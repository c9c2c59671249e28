"""--memory-limit through the real command, in a process of its own: the same results, within the limit, or a refusal.

What the program itself takes differs from machine to machine, so limits are not written down here: the first is far too
small, and what each refusal says would be enough is tried next.
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

if sys.platform != "linux":
    pytest.skip("what a process holds is told by Linux alone", allow_module_level=True)

SIDE = 600
"""So many facts lead to the hub, and so many away from it: their product is the number of groundings."""
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
LAUNCH = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""A small process between: a child's peak is never below that of the process that it was forked from."""
TOLERANCE_MB = 16
"""How far the peak may pass a limit, besides a tenth of it."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit code, stdout, stderr, and its peak memory."""

    code: int
    out: str
    said: str
    peak_mb: float


def command(*words: object) -> Ended:
    program = [sys.executable, "-m", "plogicnet", *map(str, words)]
    with TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        ended = subprocess.run(
            [sys.executable, "-c", LAUNCH, peak, *program], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in ended.stderr
        return Ended(ended.returncode, ended.stdout, ended.stderr, int(peak.read_text()) / 2**10)


def test_what_is_not_read_does_not_count(tmp_path: Path) -> None:
    """A file that takes no space on the disk, and would take five gigabytes to read."""
    (tmp_path / "train.tsv").write_text("anna\tknows\tben\nben\tknows\tanna\n" * 3)
    with (tmp_path / "raw.tar.gz").open("wb") as file:
        file.truncate(200 << 20)
    ended = command("mine", tmp_path, "--memory-limit", "600MB")
    assert ended.code == 0, ended.said


def limited(*words: object, limit: str = "1MB", run: Path | None = None) -> tuple[str, Ended]:
    """The command within the first limit that is said to be enough and is; and that limit is kept to.

    A training that has begun is resumed: no run knows of a limit.
    """
    refusals: list[str] = []
    for _ in range(12):
        begun = run is not None and (run / "run.json").exists()
        ended = command(*(("resume", run, "--json") if begun else words), "--memory-limit", limit)
        if ended.code == 0:
            break
        assert ended.code == 2, ended.said
        refusals.append(ended.said)
        found = re.search(r"Raise --memory-limit to at least (\d+MB)", ended.said)
        assert found, ended.said
        assert found[1] != limit
        limit = found[1]
        assert ended.peak_mb <= 1.1 * int(limit[:-2]) + TOLERANCE_MB  # nothing was made that was then refused
    else:
        pytest.fail("\n".join(refusals))
    assert ended.peak_mb <= 1.1 * int(limit[:-2]) + TOLERANCE_MB, (limit, ended.peak_mb)
    return limit, ended


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub that everything leads through: a rule over it has a grounding for every two of its neighbours."""
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
    """Trained without a limit; compiled code is kept by then, for compiling takes memory once."""
    ended = command("train", graph, "--out", graph / "run", *SETTINGS, "--json")
    assert ended.code == 0, ended.said
    return graph / "run"


def counts(text: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(text).items() if key not in ("seconds", "peak_rss_mb")}


@pytest.mark.slow
def test_mining_and_grounding(graph: Path) -> None:
    words = ("mine", graph, "--min-precision", "composition=0.0001", "--json", "--out")
    whole = command(*words, graph / "whole.tsv")
    limit, within = limited(*words, graph / "within.tsv")
    assert limit != "1MB"
    assert counts(whole.out)["groundings"] > SIDE**2 // 2
    assert counts(within.out) == counts(whole.out)
    assert (graph / "within.tsv").read_bytes() == (graph / "whole.tsv").read_bytes()


@pytest.mark.slow
def test_training(graph: Path, run: Path) -> None:
    out = graph / "within"
    limited("train", graph, "--out", out, *SETTINGS, "--json", run=out)
    for file in ("rules.tsv", "hidden.parquet", "neural.safetensors", "metrics.json", "config.yaml"):
        assert (out / file).read_bytes() == (run / file).read_bytes(), file


@pytest.mark.slow
def test_evaluating_and_completing(run: Path, tmp_path: Path) -> None:
    limit, within = limited("evaluate", run, "--json")
    assert json.loads(within.out) == json.loads((run / "metrics.json").read_text())["test"]

    words = ("predict", run, "--complete", "--min-probability", "0.0001", "--json", "--out")
    limited(*words, tmp_path / "within.parquet", limit=limit)
    whole = command(*words, tmp_path / "whole.parquet")
    assert json.loads(whole.out)["written"] > SIDE**2 // 2
    assert (tmp_path / "within.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_limit_is_a_size(run: Path) -> None:
    ended = command("evaluate", run, "--memory-limit", "2000")
    assert ended.code == 2
    assert "as 2GB" in ended.said
