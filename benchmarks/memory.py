"""Peak memory of the real commands with `--memory-limit`, compared with the same commands without a limit.

Each command is a separate process with its own peak (ru_maxrss). If the limit is too small, the command fails and
states the required limit. Its peak is then the memory up to the error. Trainings have few steps, because their number
does not affect memory.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from results import save

LAUNCH = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
with open(sys.argv[1], "w") as out:
    out.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) + "\\n" + ended.stderr[-2000:])
sys.exit(ended.returncode)
"""
QUICK_TRAINING = [
    "--set",
    "neural.steps=10",
    "--set",
    "em.iterations=1",
    "--set",
    "neural.vectors.dim=200",
    "--device",
    "cpu",
    "--json",
]
LOW_THRESHOLDS = ["--min-precision", "composition=0.1,inverse=0.1,symmetric=0.1,subrelation=0.1", "--json"]
CASES: dict[str, tuple[list[str], list[str]]] = {
    "mine umls": (["mine", "umls", "--json"], ["150MB", "300MB"]),
    "mine wn18rr": (["mine", "wn18rr", "--json"], ["200MB", "325MB"]),
    "mine fb15k-237": (["mine", "fb15k-237", "--json"], ["250MB", "375MB"]),
    "mine fb15k, thresholds 0.1": (["mine", "fb15k", *LOW_THRESHOLDS], ["600MB", "1GB"]),
    "train umls": (["train", "umls", "--out", "{out}/umls", *QUICK_TRAINING], ["400MB", "750MB"]),
    "evaluate umls": (["evaluate", "{runs}/umls", "--json"], ["300MB", "500MB"]),
    "train fb15k-237": (["train", "fb15k-237", "--out", "{out}/fb15k-237", *QUICK_TRAINING], ["600MB", "1GB"]),
    "evaluate fb15k-237": (["evaluate", "{runs}/fb15k-237", "--json"], ["400MB", "800MB"]),
    "predict --complete fb15k-237": (
        [
            "predict",
            "{runs}/fb15k-237",
            "--complete",
            "--min-probability",
            "0.0005",
            "--out",
            "{runs}/facts.parquet",
        ],
        ["400MB", "650MB"],
    ),
}
"""Each command with two limits: one that is too small, and one that is sufficient."""


def measure(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Return a command's exit code, peak memory and stated sufficient limit."""
    report = folder / "report"
    program = [sys.executable, "-m", "plogicnet", *arguments]
    code = subprocess.run([sys.executable, "-c", LAUNCH, report, *program], check=False).returncode
    peak, _, stderr = report.read_text().partition("\n")
    sufficient = re.search(r"Raise --memory-limit to at least (\d+)MB", stderr)
    if code not in (0, 2) or (code == 2 and not sufficient):
        raise SystemExit(f"{' '.join(arguments)} failed with exit code {code}: {stderr}")
    row: dict[str, Any] = {"exit": code, "peak_mb": round(int(peak) / 2**10)}
    return row | ({"said_to_be_enough_mb": int(sufficient[1])} if sufficient else {})


def main() -> None:
    """Print the table and save docs/results/memory.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", help="run only the cases that contain this text; include the case that trains their run"
    )
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    table = Table("command", "limit", "exit", "peak MB", "sufficient limit, MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case, (arguments, limits) in CASES.items():
            if args.only not in case:
                continue
            for limit in (None, *limits):
                out = folder / "limited" if limit else folder  # later cases open the runs made without a limit
                out.mkdir(exist_ok=True)
                command = [argument.format(runs=folder, out=out) for argument in arguments]
                row = measure([*command, *(["--memory-limit", limit] if limit else [])], folder)
                if limit:
                    shutil.rmtree(out)
                rows.append({"command": case, "limit": limit} | row)
                print(rows[-1], file=sys.stderr)
                cells = (case, limit or "none", row["exit"], row["peak_mb"], row.get("said_to_be_enough_mb", ""))
                table.add_row(*map(str, cells))
            save("memory", {"measured": rows})  # save after each case, because the benchmark takes long
    Console().print(table)


if __name__ == "__main__":
    main()
