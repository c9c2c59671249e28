"""Peak memory of the real commands, without a limit and within some: what --memory-limit keeps to.

Each command is a process of its own, started by a small one, so that its peak (ru_maxrss) is its own. A refusal says
what would be needed; its peak is the program's until then. Trainings are of a few steps: memory does not hang on more.
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
FEW = ["--set", "kge.steps=10", "--set", "em.iterations=1", "--set", "kge.dim=200", "--device", "cpu", "--json"]
LOW = ["--min-precision", "composition=0.1,inverse=0.1,symmetric=0.1,subrelation=0.1", "--json"]
CASES: dict[str, tuple[list[str], list[str]]] = {
    "mine umls": (["mine", "umls", "--json"], ["150MB", "300MB"]),
    "mine wn18rr": (["mine", "wn18rr", "--json"], ["200MB", "325MB"]),
    "mine fb15k-237": (["mine", "fb15k-237", "--json"], ["250MB", "375MB"]),
    "mine fb15k, thresholds 0.1": (["mine", "fb15k", *LOW], ["600MB", "1GB"]),
    "train umls": (["train", "umls", "--out", "{out}/umls", *FEW], ["400MB", "750MB"]),
    "evaluate umls": (["evaluate", "{runs}/umls", "--json"], ["300MB", "500MB"]),
    "train fb15k-237": (["train", "fb15k-237", "--out", "{out}/fb15k-237", *FEW], ["600MB", "1GB"]),
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
"""Each command, and limits: one that is too small for it, and one that is enough."""


def measure(words: list[str], folder: Path) -> dict[str, Any]:
    """One command's exit code, peak, and what it says would be enough."""
    told = folder / "told"
    program = [sys.executable, "-m", "plogicnet", *words]
    code = subprocess.run([sys.executable, "-c", LAUNCH, told, *program], check=False).returncode
    peak, _, said = told.read_text().partition("\n")
    enough = re.search(r"Raise --memory-limit to at least (\d+)MB", said)
    if code not in (0, 2) or (code == 2 and not enough):
        raise SystemExit(f"{' '.join(words)} ended with {code}: {said}")
    row: dict[str, Any] = {"exit": code, "peak_mb": round(int(peak) / 2**10)}
    return row | ({"said_to_be_enough_mb": int(enough[1])} if enough else {})


def main() -> None:
    """Prints the table and saves docs/results/memory.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this; a run must have been trained for it")
    a = parser.parse_args()
    rows: list[dict[str, Any]] = []
    table = Table("command", "limit", "exit", "peak MB", "said to be enough, MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case, (words, limits) in CASES.items():
            if a.only not in case:
                continue
            for limit in (None, *limits):
                out = folder / "limited" if limit else folder  # what is made without a limit is what later cases open
                out.mkdir(exist_ok=True)
                given = [word.format(runs=folder, out=out) for word in words]
                row = measure([*given, *(["--memory-limit", limit] if limit else [])], folder)
                if limit:
                    shutil.rmtree(out)
                rows.append({"command": case, "limit": limit} | row)
                print(rows[-1], file=sys.stderr)
                cells = (case, limit or "none", row["exit"], row["peak_mb"], row.get("said_to_be_enough_mb", ""))
                table.add_row(*map(str, cells))
            save("memory", {"measured": rows})  # it takes long, and what is measured is measured
    Console().print(table)


if __name__ == "__main__":
    main()
