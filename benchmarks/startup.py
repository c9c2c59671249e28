"""Start-up time of `plogicnet --help` and `import plogicnet`, compared with `import torch` in the same run."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from results import save

REPEATS = 7
PROGRAM = str(Path(sys.executable).with_name("plogicnet"))
COMMANDS = {
    "plogicnet --help": [PROGRAM, "--help"],
    "import plogicnet": [sys.executable, "-c", "import plogicnet"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def median_seconds(command: list[str]) -> float:
    """Return the median wall time of several runs after one warm-up run."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    """Print each time as a fraction of `import torch` and save docs/results/startup.json."""
    seconds = {name: median_seconds(command) for name, command in COMMANDS.items()}
    shares = {name: round(value / seconds["import torch"], 3) for name, value in seconds.items()}
    for name, share in shares.items():
        print(f"{name:20} {share:.3f} × the time of import torch")
    print(save("startup", {"share_of_import_torch": shares}))


if __name__ == "__main__":
    main()
