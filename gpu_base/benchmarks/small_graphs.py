"""Small graphs on a CPU, several seeds: six embeddings alone, and three of them inside pLogicNet.

Every row is made by the real commands: one EM iteration is trained (the embedding that no rule taught, with and
without the constraint), then the same run is resumed for the second.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from results import save

DATASETS = ("umls", "kinship", "codex-s")
MODELS = ("TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE")
INSIDE = ("TransE", "ComplEx", "RotatE")
FIGURES = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")


def plogicnet(*words: str) -> dict[str, Any]:
    """Runs a command and gives its JSON."""
    command = [sys.executable, "-m", "plogicnet", *words, "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measure(dataset: str, model: str, seed: int, device: str, folder: Path) -> dict[str, Any]:
    """One seed: test figures of each system, λ, and the Brier scores."""
    run = str(folder / f"{dataset}-{model}-{seed}")
    where = ("--preset", f"best/{dataset}-{model.lower()}", "--seed", str(seed), "--device", device, "--out", run)
    first = plogicnet("train", dataset, *where, "--set", "em.iterations=1")["test"]
    row = {"embedding on observed facts": first["embedding"], "the same with constraint": first["plogicnet"]}
    if model not in INSIDE:
        return {name: {k: figures[k] for k in FIGURES} for name, figures in row.items()}
    both = plogicnet("resume", run, "--set", "em.iterations=2")["test"]
    row |= {name: both[name] for name in ("embedding", "rules", "plogicnet", "plogicnet*")}
    about = {"lambda": both["lambda"], "brier": both["calibration"]["brier"]}
    about["uncalibrated brier"] = both["calibration"]["uncalibrated"]["brier"]
    curve = both["calibration"]["curve"]
    return {name: {k: figures[k] for k in FIGURES} for name, figures in row.items()} | about | {"curve": curve}


def together(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds."""
    figures: dict[str, Any] = {}
    for name, value in measured[0].items():
        if name == "curve":
            figures[name] = [m[name] for m in measured]
        elif isinstance(value, dict):
            figures[name] = {k: _spread([m[name][k] for m in measured]) for k in FIGURES}
        else:
            figures[name] = _spread([m[name] for m in measured])
    return figures


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


def main() -> None:
    """Prints the table and saves docs/results/small-graphs.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, each on one core")
    parser.add_argument("--out", type=Path, help="write the JSON here instead of docs/results/small-graphs.json")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    rows = [(d, m) for d in options.datasets.split(",") for m in options.models.split(",")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        work = {(d, m): [pool.submit(measure, d, m, s, options.device, Path(folder)) for s in seeds] for d, m in rows}
        figures: dict[str, Any] = {}
        for (dataset, model), futures in work.items():
            row = together([future.result() for future in futures])
            figures.setdefault(dataset, {})[model] = row
            shown = {k: f"{v['mrr']['mean']:.3f} ± {v['mrr']['sd']:.3f}" for k, v in row.items() if "mrr" in v}
            print(dataset, model, shown, row.get("lambda", ""), file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text(
                    json.dumps({"seeds": seeds, "device": options.device, "test": figures}, indent=1)
                )
    if not options.out:
        print(save("small-graphs", {"seeds": seeds, "device": options.device, "test": figures}))


if __name__ == "__main__":
    main()
