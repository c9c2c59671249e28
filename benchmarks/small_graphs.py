"""Test metrics on small graphs over several seeds: pLogicNet with three neural models, compared with six models alone.

The real commands produce every row. The first EM iteration trains the neural model on observed facts only, and is
evaluated with and without the constraint. The same run is then resumed for the second iteration.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from plogicnet.evaluation.results import SplitMetrics
from plogicnet.evaluation.seeds import mean_and_sd
from results import save

DATASETS = ("umls", "kinship", "codex-s")
MODELS = ("TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE")
WITH_RULES = ("TransE", "ComplEx", "RotatE")


def plogicnet(*arguments: str) -> SplitMetrics:
    """Run a command and return its metrics on test."""
    command = [sys.executable, "-m", "plogicnet", *arguments, "--threads", "1", "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{' '.join(command)}\n{finished.stderr}")
    return SplitMetrics.from_json(json.loads(finished.stdout)["test"])


def measure(dataset: str, model: str, seed: int, device: str, folder: Path) -> dict[str, Any]:
    """Return one seed's test metrics of each system, λ and the Brier scores."""
    run = str(folder / f"{dataset}-{model}-{seed}")
    options = ("--preset", f"best/{dataset}-{model.lower()}", "--seed", str(seed), "--device", device, "--out", run)
    first = plogicnet("train", dataset, *options, "--set", "em.iterations=1").rankings
    row = {"neural model on observed facts": first["neural"], "the same with constraint": first["plogicnet"]}
    if model not in WITH_RULES:
        return {name: metrics.overall for name, metrics in row.items()}
    both = plogicnet("resume", run, "--set", "em.iterations=2")
    quality = both.calibration.to_json()
    quality_row = {
        "lambda": both.lambda_,
        "brier": quality["brier"],
        "uncalibrated brier": quality["uncalibrated"]["brier"],
    }
    row |= both.rankings
    return {name: metrics.overall for name, metrics in row.items()} | quality_row | {"curve": quality["curve"]}


def aggregate(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over seeds."""
    results: dict[str, Any] = {}
    for name, value in measured[0].items():
        if name == "curve":
            results[name] = [m[name] for m in measured]
        elif isinstance(value, dict):
            results[name] = {k: mean_and_sd([m[name][k] for m in measured]) for k in value}
        else:
            results[name] = mean_and_sd([m[name] for m in measured])
    return results


def main() -> None:
    """Print each row and save docs/results/small-graphs.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2, help="parallel trainings, each on one core")
    parser.add_argument("--out", type=Path, help="JSON file to write instead of docs/results/small-graphs.json")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    rows = [(d, m) for d in options.datasets.split(",") for m in options.models.split(",")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        work = {(d, m): [pool.submit(measure, d, m, s, options.device, Path(folder)) for s in seeds] for d, m in rows}
        results: dict[str, Any] = {}
        for (dataset, model), futures in work.items():
            row = aggregate([future.result() for future in futures])
            results.setdefault(dataset, {})[model] = row
            shown = {k: f"{v['mrr']['mean']:.3f} ± {v['mrr']['sd']:.3f}" for k, v in row.items() if "mrr" in v}
            print(dataset, model, shown, row.get("lambda", ""), file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text(
                    json.dumps({"seeds": seeds, "device": options.device, "test": results}, indent=1)
                )
    if not options.out:
        print(save("small-graphs", {"seeds": seeds, "device": options.device, "test": results}))


if __name__ == "__main__":
    main()
