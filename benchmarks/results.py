"""Benchmark results as JSON files in docs/results, with the command and the commit that produced them."""

import json
import platform
import subprocess
import sys
from pathlib import Path

from plogicnet.support.files import write_text

ROOT = Path(__file__).resolve().parent.parent


def save(name: str, results: dict[str, object]) -> Path:
    """Write docs/results/NAME.json and return its path."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    origin = {
        "command": "python " + " ".join([str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]),
        "commit": commit.stdout.strip() + (" with changes" if changed.stdout.strip() else ""),
        "python": platform.python_version(),
    }
    file = ROOT / "docs" / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(origin | results, indent=1, ensure_ascii=False) + "\n")
    return file
