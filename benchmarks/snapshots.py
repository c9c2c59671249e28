"""Snapshots under use: the bytes that a refit writes, and `serve` under load while refits publish snapshots.

`refit` trains vectors of the paper's dimension on FB15k-237 for a few steps, because their quality does not affect
their size. It learns the rule weights again and counts the bytes that the process wrote.

`serve` serves a run of UMLS while another process publishes a snapshot every few seconds, with one of two sets of
rules in turn. wrk sends requests on loopback. A response must be equal, byte for byte, to the one computed from the
snapshot in its header, so a mixture of two snapshots is counted as wrong. Needs wrk (Debian: apt install wrk).
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from results import save

REFIT_SETTINGS = ("neural.steps=20", "em.iterations=1", "device=cpu")
SERVE_SETTINGS = ("neural.vectors.dim=100", "neural.steps=100", "em.iterations=1", "device=cpu")
RULES = ("=1.0: isa(X, Y) & isa(Y, Z) => isa(X, Z)\n", "=2.0: affects(X, Y) & isa(Y, Z) => affects(X, Z)\n")
"""Two sets of rules. Snapshots with even numbers have the first one, and those with odd numbers the second."""
N_TRIPLES, CONNECTIONS = 120, 16
WARM_UP_SECONDS = 60
SCRIPT = """
local paths, expected, at = {}, {{}, {}}, 0
for line in io.lines("PATHS") do paths[#paths + 1] = line end
for turn = 1, 2 do
  for line in io.lines("BODIES" .. turn) do expected[turn][line] = true end
end
wrong, failed, answers = 0, 0, {0, 0}
request = function()
  at = at % #paths + 1
  return wrk.format("GET", paths[at])
end
response = function(status, headers, body)
  if status ~= 200 then
    failed = failed + 1
    if failed < 5 then print("status " .. status .. ": " .. body:sub(1, 200)) end
    return
  end
  local turn = tonumber(headers["plogicnet-snapshot"]) % 2 + 1
  answers[turn] = answers[turn] + 1
  if not expected[turn][body] then
    wrong = wrong + 1
    if wrong < 5 then print("wrong, " .. headers["plogicnet-snapshot"] .. ": " .. body:sub(1, 300)) end
  end
end
local threads = {}
setup = function(thread) threads[#threads + 1] = thread end
done = function(summary, latency)
  local wrong, failed, first, second = 0, 0, 0, 0
  for _, thread in ipairs(threads) do
    wrong, failed = wrong + thread:get("wrong"), failed + thread:get("failed")
    local answers = thread:get("answers")
    first, second = first + answers[1], second + answers[2]
  end
  local e = summary.errors
  io.write(string.format('JSON {"requests": %d, "seconds": %.1f, "not_200": %d, "wrong": %d, "first": %d, "second": %d,'
    .. ' "connect": %d, "read": %d, "write": %d, "timeout": %d, "p50_ms": %.2f, "p99_ms": %.2f, "max_ms": %.2f}\\n',
    summary.requests, summary.duration / 1e6, failed, wrong, first, second,
    e.connect, e.read, e.write, e.timeout, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3))
end
"""


def train(graph: str, out: Path, settings: Sequence[str], preset: str | None = None) -> None:
    """Train a run with the real command."""
    options = [*(f"--set={s}" for s in settings), *(["--preset", preset] if preset else [])]
    command = [sys.executable, "-m", "plogicnet", "train", graph, "--out", str(out), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def written_bytes() -> int:
    """Return the number of bytes that this process has written with system calls."""
    found = re.search(r"^wchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def measure_refit(folder: Path, preset: str, dim: int) -> dict[str, object]:
    """Return the bytes of a run with vectors of one dimension, and the bytes that a refit writes."""
    from plogicnet.model import PLogicNet

    run = folder / f"run-{dim}"
    train("fb15k-237", run, (*REFIT_SETTINGS, f"neural.vectors.dim={dim}"), preset)
    whole = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    model = PLogicNet.load(run)
    before = written_bytes()
    model.refit(out=run)
    written = written_bytes() - before
    assert model.snapshot is not None
    new = {file.name: file.stat().st_size for file in model.snapshot.folder.iterdir() if file.stat().st_nlink == 1}
    row = {"dim": dim, "run_bytes": whole, "written_bytes": written, "share": round(written / whole, 4)}
    print(f"dimension {dim}: {written:,} of {whole:,} bytes ({written / whole:.1%})", flush=True)
    return row | {"new_files": dict(sorted(new.items(), key=lambda item: -item[1]))}


def request_paths(run: Path) -> list[str]:
    """Return requests whose answers depend on the rules, from training triples."""
    from plogicnet.model import PLogicNet

    graph = PLogicNet.load(run).fitted.graph
    rows = [[quote(name, safe="") for name in graph.names(t)] for t in graph.train[:: len(graph.train) // N_TRIPLES]]
    explain = [f"/api/explain?head={h}&relation={r}&tail={t}" for h, r, t in rows]
    return [
        *("/api/rules", "/api/metrics", "/api/rule?number=0"),
        *explain,
        *[f"/api/predict?head={h}&relation={r}" for h, r, _ in rows],
        *[f"/api/predicted?entity={h}" for h, _, _ in rows[::4]],
    ]


def expected_bodies(run: Path, name: str, paths: Sequence[str]) -> list[str]:
    """Return the responses to these requests from one snapshot, computed in this process."""
    from plogicnet.model import PLogicNet
    from plogicnet.support.records import to_jsonable
    from plogicnet.web.service import ModelService

    service, bodies = ModelService(PLogicNet.load(run, snapshot=name)), []
    for path in paths:
        parts = urlsplit(path)
        values: dict[str, Any] = dict(parse_qsl(parts.query))
        values |= {"number": int(values["number"])} if "number" in values else {}
        answer = getattr(service, parts.path.removeprefix("/api/"))(**values)
        bodies.append(json.dumps(to_jsonable(answer), ensure_ascii=False, allow_nan=False))
    return bodies


def publish_in_turn(run: Path, seconds: float, stopped: threading.Event, published: list[str]) -> None:
    """Publish a snapshot every few seconds, with the two sets of rules in turn."""
    from plogicnet.model import PLogicNet

    model, next_at = PLogicNet.load(run), time.monotonic() + seconds
    while not stopped.wait(max(0.0, next_at - time.monotonic())):
        next_at += seconds
        assert model.snapshot is not None
        model.refit(RULES[(int(model.snapshot.name) + 1) % 2], out=run)
        published.append(model.snapshot.name)


def measure_memory(pid: int, stopped: threading.Event, samples: list[tuple[float, float]]) -> None:
    """Sample the resident memory of a process every second: seconds since the start, and MB."""
    start = time.monotonic()
    while not stopped.wait(1.0):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert found
        samples.append((time.monotonic() - start, int(found[1]) / 1024))


def measure_serving(folder: Path, minutes: float, every: float) -> dict[str, object]:
    """Return what wrk measured, the number of published snapshots, and the memory of the server by minute."""
    from plogicnet.model import PLogicNet

    run = folder / "run"
    train("umls", run, SERVE_SETTINGS)
    model = PLogicNet.load(run)
    for turn in (0, 1):  # 0002 has the first set of rules, and 0003 the second
        model.refit(RULES[turn], out=run)
    paths = request_paths(run)
    (folder / "paths").write_text("\n".join(paths) + "\n")
    for turn, name in enumerate(("0002", "0003"), 1):
        (folder / f"bodies{turn}").write_text("\n".join(expected_bodies(run, name, paths)) + "\n")
    script = folder / "script.lua"
    script.write_text(SCRIPT.replace("PATHS", str(folder / "paths")).replace("BODIES", str(folder / "bodies")))
    command = [sys.executable, "-m", "plogicnet", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://[^/\s]+", server.stdout.readline())
        assert found, "the server did not start"
        stopped, samples, published = threading.Event(), list[tuple[float, float]](), list[str]()
        threads = [
            threading.Thread(target=measure_memory, args=(server.pid, stopped, samples)),
            threading.Thread(target=publish_in_turn, args=(run, every, stopped, published)),
        ]
        for thread in threads:
            thread.start()
        wrk = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{round(60 * minutes)}s", "--timeout", "30s"]
        output = subprocess.run([*wrk, "-s", str(script), found[0]], capture_output=True, text=True, check=True).stdout
        stopped.set()
        for thread in threads:
            thread.join()
        server.terminate()
    text, _, measured = output.partition("JSON ")
    print(text)
    by_minute = [round(sum(part) / len(part), 1) for part in _minutes(samples)]
    steady = [mb for second, mb in samples if second >= WARM_UP_SECONDS]
    return {
        **json.loads(measured),
        "published": len(published),
        "memory_mb_by_minute": by_minute,
        "memory_growth": round(by_minute[-1] / by_minute[min(1, len(by_minute) - 1)] - 1, 4),
        "memory_mb_range": [round(min(steady), 1), round(max(steady), 1)] if steady else [],
    }


def _minutes(samples: Sequence[tuple[float, float]]) -> list[list[float]]:
    last = int(samples[-1][0] // 60)
    parts = [[mb for second, mb in samples if int(second // 60) == minute] for minute in range(last + 1)]
    return [part for part in parts if len(part) > 30 or len(parts) == 1]


def main() -> None:
    """Run one measurement, print it, and save it in docs/results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurement", choices=("refit", "serve"))
    parser.add_argument("--minutes", type=float, default=15, help="Duration of the load on the server.")
    parser.add_argument("--every", type=float, default=10, help="Seconds between two snapshots.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.measurement == "refit":
            rows = [measure_refit(Path(folder), "paper/fb15k-237-transe", dim) for dim in (1000, 200)]
            print(save("snapshots-refit", {"graph": "fb15k-237", "model": "TransE", "rows": rows}))
            return
        if shutil.which("wrk") is None:
            parser.error("wrk is not installed (Debian: apt install wrk)")
        figures = measure_serving(Path(folder), options.minutes, options.every)
    print(json.dumps(figures, indent=1))
    print(save("snapshots-serve", {"graph": "umls", "connections": CONNECTIONS, "every_s": options.every} | figures))
    sys.exit(bool(figures["not_200"] or figures["wrong"]))


if __name__ == "__main__":
    main()
