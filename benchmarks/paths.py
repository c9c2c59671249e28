"""The path model on a GPU: the time of a step and of scoring a test set, compared with lower bounds and with a peer.

    python benchmarks/paths.py check [--quick] [--out FILE]
                                                        compare the kernels with the plain layer in float64; --quick is
                                                        for compute-sanitizer
    python benchmarks/paths.py step [--data NAME]       time a step and the test set, fused and plain, in one run
    python benchmarks/paths.py profile [--data NAME]    the time of each kernel in a step
    python benchmarks/paths.py train --data NAME --seeds 0,1,2 [--preset NAME] [--set A=B] --out FILE [--runs DIR]
                                                        train and evaluate, one row with a value per seed; seeds that
                                                        FILE has are not trained again; DIR keeps the runs
    python benchmarks/paths.py train --data umls --device cpu --set em.neural=false …
                                                        the same on a CPU, and for rules, vectors or a mixture
    python benchmarks/paths.py collect FILE ...         add rows to docs/results/paths.json

The peer is the plain layer: gather and scatter operations of PyTorch, in float32, with the same parameters.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from plogicnet import Config, PLogicNet, open_graph
from plogicnet.config import parse_assignments
from plogicnet.graph import HEAD, RELATION, TAIL, Hide, IntArray, KnowledgeGraph, Side
from plogicnet.neural.paths.backend import FUSED_DIMS
from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.layer import Layer, PlainLayer
from plogicnet.neural.paths.model import PathModel
from plogicnet.neural.paths.network import initial_parameters, score_queries
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Examples
from plogicnet.support.files import write_text
from results import current_commit

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
SYSTEMS = {"": "neural", "plogicnet_star_": "plogicnet*"}
"""The systems that a row has metrics of, by the prefix of the metrics' names."""
METRICS = ("mrr", "hits_at_1", "hits_at_10")


def rounds(call: Callable[[int], object], seconds: float) -> list[float]:
    """Return the seconds per call in each of three rounds of this length. The device is synchronized around a round."""
    times, number = [], 0
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start, before = time.perf_counter(), number
        while time.perf_counter() - start < seconds:
            for _ in range(5):
                call(number)
                number += 1
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / (number - before))
    return times


def copy_bandwidth() -> float:
    """Return the bytes per second that a copy on the device reads and writes."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = min(rounds(lambda _: target.copy_(source), 0.5))
    return 2 * len(source) / best


def floor_seconds(model: PathModel, bandwidth: float) -> float:
    """Return the lower bound of a step that reads every message's state once per pass from the device's memory.

    These are 2 + 12 bytes per edge, query and dimension, in all layers but the first; see `kernels/messages.py`. Caches
    can beat it.
    """
    s = model.settings
    return 14 * len(model.edges) * s.batch * s.dim * (s.layers - 1) / bandwidth


def make(graph: KnowledgeGraph, kernels: str) -> PathModel:
    """Return a model with initial parameters."""
    model = PathModel(graph, PathSettings(kernels=kernels), "cuda")
    model.settings = replace(model.settings, steps=1)
    model.fit(Examples.of(graph.train), seed=0)
    model.settings = replace(model.settings, steps=100_000)
    return model


def distinct_test_queries(graph: KnowledgeGraph) -> list[tuple[Side, IntArray, IntArray]]:
    """Return the distinct queries of the test set: missing side, known entities, relations."""
    queries: list[tuple[Side, IntArray, IntArray]] = []
    sides: list[tuple[Side, int]] = [("tail", HEAD), ("head", TAIL)]
    for side, known in sides:
        pairs = np.unique(graph.test[:, [known, RELATION]], axis=0)
        queries.append((side, pairs[:, 0].copy(), pairs[:, 1].copy()))
    return queries


def score_test(model: PathModel, graph: KnowledgeGraph) -> float:
    """Return the seconds for scoring all entities as answers of every query of the test set."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for side, known, relations in distinct_test_queries(graph):
        for first in range(0, len(known), 1024):
            part = slice(first, first + 1024)
            model.score_all(known[part], relations[part], side)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(graph: KnowledgeGraph, kernels: str, seconds: float) -> dict[str, object]:
    """Time the steps and the test set with some kernels, and return the peak memory."""
    model = make(graph, kernels)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    stepper = model._stepper(Examples.of(graph.train), seed=0)
    for number in range(5):
        stepper.step(number)
    times = rounds(stepper.step, seconds)
    memory = torch.cuda.max_memory_allocated()
    if kernels != "plain":
        score_test(model, graph)  # compiles the kernels
    tests = [score_test(model, graph) for _ in range(ROUNDS if kernels != "plain" else 1)]
    return {
        "kernels": kernels,
        "step_ms": round(1e3 * statistics.median(times), 2),
        "step_ms_spread": [round(1e3 * t, 2) for t in times],
        "step_peak_gb": round(memory / 2**30, 2),
        "test_s": round(statistics.median(tests), 2),
        "test_s_spread": [round(t, 2) for t in tests],
    }


def profile(graph: KnowledgeGraph) -> str:
    """Return the time of each kernel in ten steps."""
    model = make(graph, "auto")
    stepper = model._stepper(Examples.of(graph.train), seed=0)
    for number in range(5):
        stepper.step(number)
    kinds = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds) as profiler:
        for number in range(10):
            stepper.step(number)
        torch.cuda.synchronize()
    table: str = profiler.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=45)
    return table


def train(arguments: argparse.Namespace) -> dict[str, object]:
    """Train with a preset and several seeds, and return one row with the test metrics and the seconds of each seed.

    The first seed also compiles the kernels. `train_seconds` are those of the E-steps, `fit_seconds` also include
    mining, weight learning, calibration and evaluation.
    """
    graph = open_graph(arguments.data)
    preset = arguments.preset or f"best/{arguments.data}-paths"
    config = Config().with_preset(preset).with_values(parse_assignments(arguments.set))
    old = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {"seeds": []}
    with TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            if seed in old["seeds"]:
                continue
            row = {
                "dataset": arguments.data,
                "model": "Paths",
                "hide": PathModel(graph, PathSettings.of(config.neural)).hide,
                "preset": preset,
                "set": arguments.set,
                "seeds": [*old["seeds"], seed],
            }
            run = Path(arguments.runs or folder, f"{arguments.data}-{seed}")
            new = train_seed(graph, config.with_values({"seed": seed}), run)
            print(json.dumps({"seed": seed} | new), flush=True)
            row |= {name: [*old.get(name, []), value] for name, value in new.items()}
            device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
            old = row | {"device": device, "command": command(arguments)}
            if arguments.out:  # after each seed, so that a kill loses only one
                arguments.out.write_text(json.dumps(old))
    return old


def train_seed(graph: KnowledgeGraph, config: Config, run: Path) -> dict[str, object]:
    """Train a run, and return its metrics and costs."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    model = PLogicNet(config).fit(graph, out=run)
    seconds = time.perf_counter() - started
    timings = json.loads((run / "work" / "timings.json").read_text())
    test: dict[str, Any] = dict(model.evaluate("test"))
    valid = model.history[-1].valid
    return {
        **{f"{prefix}{metric}": test[key][metric] for prefix, key in SYSTEMS.items() for metric in METRICS},
        **{f"{prefix}valid_mrr": valid[key]["mrr"] for prefix, key in SYSTEMS.items()},
        "train_seconds": round(sum(t["seconds"]["e_step"] for t in timings.values()), 1),
        "fit_seconds": round(seconds, 1),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
        "lambda": model.history[-1].lambda_,
    }


@dataclass(frozen=True)
class Check:
    """A comparison of the kernels with the plain layer on a random graph with a hub, a loop and copies of edges."""

    dim: int
    hide: Hide
    dtype: torch.dtype
    max_piece: int

    def errors(self, n: int, n_triples: int, n_relations: int, n_queries: int) -> dict[str, float]:
        """Return the relative error of the scores, and of the gradient of each parameter, against float64."""
        rng = np.random.default_rng(0)
        ends = rng.integers(0, n - 1, (2, n_triples))
        triples = np.stack([ends[0], rng.integers(0, n_relations - 1, n_triples), ends[1]], 1)
        triples[: n_triples // 10, 0] = 0
        triples = np.concatenate([triples, triples[:2], [[0, 0, 0]]])
        edges = Edges.of(triples, n, n_relations, torch.device("cuda"))
        known, relation, answer = torch.from_numpy(triples[rng.integers(0, len(triples), n_queries)].T.copy()).cuda()
        queries = PathQueries(known, relation, answer, self.hide)
        drawn = initial_parameters(n_relations, self.dim, 3, torch.Generator().manual_seed(0))

        def compute(layer: Layer, kind: torch.dtype, wide: torch.dtype) -> dict[str, torch.Tensor]:
            parameters = {name: value.to("cuda", wide).requires_grad_() for name, value in drawn.items()}
            scores = score_queries(parameters, layer, queries, n, edges.mean_log_count, kind)
            torch.nn.functional.cross_entropy(scores, answer).backward()  # type: ignore[no-untyped-call]
            gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
            return {"scores": scores.detach(), **gradients}

        expected = compute(PlainLayer(edges), torch.float64, torch.float64)
        from plogicnet.neural.paths.kernels.layer import FusedLayer  # needs Triton

        found = compute(FusedLayer(edges, self.max_piece), self.dtype, torch.float32)
        return {name: float((found[name] - x).norm() / x.norm()) for name, x in expected.items()}


def check_kernels(quick: bool) -> dict[str, object]:
    """Compare the kernels with the plain layer for all dimensions, ways of hiding and types.

    Training uses bfloat16. In float32, the compiler needs many minutes for the products of 128 dimensions.
    """
    sizes = (40, 300, 4, 16) if quick else (2_000, 30_000, 12, 64)
    rows = []
    for dim in (32,) if quick else FUSED_DIMS:
        for hide in ("edge", "pair"):
            for dtype, bound in ((torch.float32, 1e-4), (torch.bfloat16, 0.3)):
                if dtype == torch.float32 and dim == max(FUSED_DIMS):
                    continue
                for max_piece in (7, 256):
                    errors = Check(dim, hide, dtype, max_piece).errors(*sizes)
                    worst = max(errors, key=lambda name: errors[name])
                    row: dict[str, object] = {"dim": dim, "hide": hide, "type": str(dtype)[6:], "max_piece": max_piece}
                    row |= {"scores": errors["scores"], "worst": worst, "error": errors[worst]}
                    rows.append(row | {"passed": errors[worst] < bound})
                    print(json.dumps(rows[-1]), flush=True)
    return {"passed": sum(bool(row["passed"]) for row in rows), "of": len(rows), "rows": rows}


def command(arguments: argparse.Namespace) -> str:
    """Return the command without the output files."""
    text = " ".join(["python", *sys.argv]).replace(f" --out {arguments.out}", "")
    return text.replace(f" --runs {arguments.runs}", "")


def collect(files: list[Path], commit: str) -> None:
    """Add rows to docs/results/paths.json, with their commit. A file has one row, or a list of rows.

    A row with other seeds than a row of the same training is merged with it. With the same seeds, it replaces it.
    """
    file = ROOT / "docs" / "results" / "paths.json"
    old: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    rows = {key_of(row): row for row in old}
    for path in files:
        read = json.loads(path.read_text())
        for row in read if isinstance(read, list) else [read]:
            new = {"commit": commit} | row
            before = rows.get(key_of(row))
            rows[key_of(row)] = merged(before, new) if before and not {*before["seeds"]} & {*new["seeds"]} else new
    write_text(file, json.dumps(list(rows.values()), indent=1, ensure_ascii=False) + "\n")


def key_of(row: dict[str, Any]) -> tuple[object, ...]:
    """Return what identifies the training of a row, except its seeds."""
    return (*(row[key] for key in ("dataset", "model", "hide", "preset", "device")), *row.get("set", []))


def merged(row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the seeds of both. Commits and commands that differ are joined."""
    texts = {key: "; ".join(dict.fromkeys([row[key], other[key]])) for key in ("commit", "command")}
    columns = {key: row[key] + other[key] for key in row if key != "set" and isinstance(row[key], list)}
    return row | columns | texts


def main() -> None:
    """Run a part and print its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["check", "step", "profile", "train", "collect"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--data", default="fb15k-237")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per round")
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, default=True, help="also time the peer")
    parser.add_argument("--preset", help="default: best/NAME-paths")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, help="keep the runs in this directory")
    parser.add_argument("--quick", action="store_true", help="check small graphs only")
    parser.add_argument("--commit", help="commit that collected rows belong to; default: the current one")
    arguments = parser.parse_args()
    if arguments.part == "collect":
        collect(arguments.files, arguments.commit or current_commit())
        return
    if arguments.part == "profile":
        print(profile(open_graph(arguments.data)))
        return
    if arguments.part == "train":
        print(json.dumps(train(arguments), indent=1))
        return
    result = check_kernels(arguments.quick) if arguments.part == "check" else time_steps(arguments)
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result))


def time_steps(arguments: argparse.Namespace) -> dict[str, object]:
    """Time steps and the test set with the kernels and with the peer, beside the lower bound."""
    graph, bandwidth = open_graph(arguments.data), copy_bandwidth()
    kinds = ["auto", "plain"] if arguments.plain else ["auto"]
    rows = [measure(graph, kernels, arguments.seconds) for kernels in kinds]
    model = make(graph, "auto")
    return {
        "graph": arguments.data,
        "device": torch.cuda.get_device_name(),
        "n_queries": sum(len(known) for _, known, _ in distinct_test_queries(graph)),
        "n_edges": len(model.edges),
        "bandwidth": round(bandwidth / 1e12, 2),
        "floor_ms": round(1e3 * floor_seconds(model, bandwidth), 1),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
