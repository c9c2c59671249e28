"""Requests a second and latencies of `plogicnet serve` at FB15k-237's size, by wrk on loopback.

The run is trained briefly first, with vectors of dimension 200 and rules mined as usual: what is measured is serving,
and it does not hang on how good the vectors are. Beside predict and explain stands the floor: an answer that the
server remembers, which is what HTTP alone takes. Queries are drawn from the training triples, each asked once or
twice in a measurement, so that hardly any is remembered. Needs wrk (Debian: apt install wrk) and the extra web.
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

SETTINGS = {"kge.dim": 200, "kge.steps": 50, "em.iterations": 1, "device": "cpu"}
CONNECTIONS = (1, 16)
PATHS = 20_000
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
    """A run of FB15k-237 whose vectors are hardly trained."""
    words = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    program = [sys.executable, "-m", "plogicnet", "train", "fb15k-237", "--out", str(folder), *words]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """The real command in a child process; gives its address."""
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


def questions(graph: "KnowledgeGraph") -> dict[str, list[str]]:
    """Addresses of each kind, from random training triples."""
    rng = np.random.default_rng(0)
    rows = [[quote(name, safe="") for name in graph.names(t)] for t in rng.permutation(graph.train)[:PATHS]]
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
    """What wrk measures with so many connections at once."""
    with tempfile.TemporaryDirectory() as folder:
        listed, script = Path(folder) / "paths", Path(folder) / "script.lua"
        listed.write_text("\n".join(paths) + "\n")
        script.write_text(SCRIPT.replace("PATHS", str(listed)))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script), address]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured = json.loads(said.split("JSON ")[1])
    return {
        "requests_per_second": round(measured["requests"] / measured["seconds"], 1),
        "p50_ms": round(measured["p50_ms"], 2),
        "p99_ms": round(measured["p99_ms"], 2),
        "requests": measured["requests"],
        "errors": measured["errors"],
    }


def main() -> None:
    """Prints the table and saves docs/results/serving.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="of each measurement")
    parser.add_argument("--run", type=Path, help="an FB15k-237 run to serve instead of one trained for this")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt install wrk)")
    from plogicnet.model import PLogicNet

    figures: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        if options.run is None:
            train(run)
        model = PLogicNet.load(run)
        asked = questions(model.fitted.graph)
        about = {"graph": model.fitted.graph.name, "dim": model.config.kge.dim, "rules": len(model.rules)}
        about |= {"model": model.config.kge.model, "steps": model.config.kge.steps}
        del model
        with serving(run) as address:
            for kind, paths in asked.items():
                figures[kind] = {}
                for at, connections in enumerate(CONNECTIONS):
                    part = paths[at * len(paths) // 2 :]  # others than the last measurement asked for
                    row = figures[kind][f"{connections} at once"] = load(address, part, connections, options.seconds)
                    print(
                        f"{kind:26} {connections:3} at once: {row['requests_per_second']:8.1f} requests/s,"
                        f" p50 {row['p50_ms']:8.2f} ms, p99 {row['p99_ms']:8.2f} ms, {row['errors']:.0f} errors"
                    )
    print(save("serving", {"seconds_each": options.seconds, "served": about, "figures": figures}))


if __name__ == "__main__":
    main()
