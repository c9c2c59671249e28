"""Requests per second and latencies of `plogicnet serve` at FB15k-237's size, compared with a cached answer.

The load generator is wrk, on loopback. The run has mined rules and vectors of dimension 200 that are trained briefly,
because their quality does not affect speed. The cached answer is the lower bound, the cost of HTTP. Queries are drawn
from the training triples. Each is sent once or twice, so that few are cached. Needs wrk (Debian: apt install wrk) and
the extra `web`.
"""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from results import save

if TYPE_CHECKING:
    from plogicnet.graph import KnowledgeGraph

SETTINGS = {"neural.vectors.dim": 200, "neural.steps": 50, "em.iterations": 1, "device": "cpu"}
CONNECTIONS = (1, 16)
MAX_PATHS = 20_000
SCRIPT = """
local paths, at = {}, 0
for line in io.lines("PATHS") do paths[#paths + 1] = line end
request = function()
  at = at % #paths + 1
  return wrk.format("GET", paths[at])
end
done = function(summary, latency)
  local errors = summary.errors.status + summary.errors.timeout + summary.errors.read + summary.errors.connect
  io.write(string.format('JSON {"requests": %d, "seconds": %.3f, "errors": %d, "p50_ms": %.3f, "p99_ms": %.3f}\\n',
    summary.requests, summary.duration / 1e6, errors, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


def train(folder: Path) -> None:
    """Train a run on FB15k-237 for a few steps."""
    options = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    program = [sys.executable, "-m", "plogicnet", "train", "fb15k-237", "--out", str(folder), *options]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """Run the real command in a child process and yield its address."""
    program = [sys.executable, "-m", "plogicnet", "serve", str(run), "--port", "0"]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        found = re.search(r"http://[^/\s]+", child.stdout.readline())
        assert found, "the server did not start"
        yield found[0]
    finally:
        child.send_signal(signal.SIGINT)
        child.wait()


def request_paths(graph: "KnowledgeGraph") -> dict[str, list[str]]:
    """Return request paths of each kind, from random training triples."""
    rng = np.random.default_rng(0)
    rows = [[quote(name, safe="") for name in graph.names(t)] for t in rng.permutation(graph.train)[:MAX_PATHS]]
    return {
        "remembered": ["/api/info"],
        "predict (h, r, ?)": [f"/api/predict?head={h}&relation={r}" for h, r, _ in rows],
        "predict (?, r, t)": [f"/api/predict?relation={r}&tail={t}" for _, r, t in rows],
        "explain a known fact": [f"/api/explain?head={h}&relation={r}&tail={t}" for h, r, t in rows],
        "explain any triple": [
            f"/api/explain?head={h}&relation={r}&tail={t}" for (h, r, _), (_, _, t) in pairwise(rows)
        ],
        "search": [f"/api/search?q={h[: 4 + at % 5]}" for at, (h, _, _) in enumerate(rows)],
        "an entity's missing facts": [f"/api/predicted?entity={h}" for h, _, _ in rows],
    }


def load(address: str, paths: list[str], connections: int, seconds: int) -> dict[str, float]:
    """Measure with wrk and a number of concurrent connections."""
    with tempfile.TemporaryDirectory() as folder:
        listed, script = Path(folder) / "paths", Path(folder) / "script.lua"
        listed.write_text("\n".join(paths) + "\n")
        script.write_text(SCRIPT.replace("PATHS", str(listed)))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script), address]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured = json.loads(output.split("JSON ")[1])
    return {
        "requests_per_second": round(measured["requests"] / measured["seconds"], 1),
        "p50_ms": round(measured["p50_ms"], 2),
        "p99_ms": round(measured["p99_ms"], 2),
        "requests": measured["requests"],
        "errors": measured["errors"],
    }


def main() -> None:
    """Print the table and save docs/results/serving.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="duration of each measurement")
    parser.add_argument("--run", type=Path, help="FB15k-237 run to serve; default: train one")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt install wrk)")
    from plogicnet.model import PLogicNet
    from plogicnet.neural.vectors.settings import VectorSettings

    results: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        if options.run is None:
            train(run)
        model = PLogicNet.load(run)
        paths_by_kind = request_paths(model.fitted.graph)
        settings = VectorSettings.of(model.config.neural)
        served = {"graph": model.fitted.graph.name, "dim": settings.dim, "rules": len(model.rules)}
        served |= {"model": settings.model, "steps": settings.steps}
        del model
        with serving(run) as address:
            for kind, paths in paths_by_kind.items():
                results[kind] = {}
                for at, connections in enumerate(CONNECTIONS):
                    part = paths[at * len(paths) // 2 :]  # different queries for each measurement
                    row = results[kind][f"{connections} at once"] = load(address, part, connections, options.seconds)
                    print(
                        f"{kind:26} {connections:3} at once: {row['requests_per_second']:8.1f} requests/s,"
                        f" p50 {row['p50_ms']:8.2f} ms, p99 {row['p99_ms']:8.2f} ms, {row['errors']:.0f} errors"
                    )
    print(save("serving", {"seconds_each": options.seconds, "served": served, "figures": results}))


if __name__ == "__main__":
    main()
