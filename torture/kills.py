"""Kill real training runs at random points, resume them, and compare their results with uninterrupted runs.

`python torture/kills.py --kills 300 --write` writes docs/results/reliability.json and docs/reliability.md.
`--only KIND:SEED` repeats one run. A random moment is reproduced only approximately.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from plogicnet.support.progress import for_stderr  # noqa: E402
from stopping import different, files_of  # noqa: E402

KINDS = {
    f"{name}-{place}": (number, place)
    for place in ("moment", "operation")
    for name, number in (("kill", signal.SIGKILL), ("term", signal.SIGTERM), ("int", signal.SIGINT))
} | {"torn-write": (signal.SIGKILL, "rename")}
"""Kinds of fault: the signal, and the unit in which its time is drawn."""
RULES = "=1.5: husband(X, Y) => wife(Y, X)\n0.25: parent(X, Y) & sibling(Y, Z) => parent(X, Z)\n"
SMALL = (
    *(
        "device=cpu",
        "threads=1",
        "neural.vectors.dim=8",
        "neural.vectors.gamma=6",
        "neural.steps=150",
        "neural.batch=32",
        "neural.vectors.negatives=8",
    ),
    *("neural.vectors.share_negatives=8", "neural.learning_rate=0.05"),
)
SOFTMAX = (
    *(
        "neural.model=ComplEx",
        "neural.vectors.recipe=one_vs_all",
        "neural.learning_rate=0.1",
        "neural.validate_every=30",
        "neural.patience=2",
    ),
    *("em.warm_start=true", "em.patience=1", "em.iterations=3"),
)
NOT_SAVED = r"(anything|nothing) (was|is) saved|(no such directory|does not exist).*`plogicnet train"
"""Message of `resume` if training was stopped before its first checkpoint."""
MAX_DELAY = 2.0
"""Seconds that a program can run on after a signal, if it then ends normally."""
Arguments = tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A command to kill, with its arguments. `starts_from` names the setting that provides a complete run, if any."""

    command: str
    arguments: Arguments
    starts_from: str | None = None


def _train(*assignments: str, rules: bool = False) -> Setting:
    rules_option = ("--rules", "given.rules") if rules else ()
    return Setting("train", ("graph", *rules_option, *(f"--set={a}" for a in (*SMALL, *assignments)), "--out"))


SETTINGS = {
    "sampled": _train("mln.hidden_premises=sampled"),
    "softmax": _train(*SOFTMAX, rules=True),
    "rules alone": _train("em.neural=false", rules=True),
    "explicit negatives": _train("em.hidden_negatives=explicit", rules=True),
    "one iteration more": Setting("resume", ("--set=em.iterations=3",), "sampled"),
    "refit": Setting("refit", ("--rules", "given.rules"), "sampled"),
}
SHARES = (4, 4, 2, 2, 1, 1)
"""Relative frequency of each setting."""


class LostError(Exception):
    """A run that cannot be read or resumed, or that has lost saved work."""


class DifferentError(Exception):
    """A run whose files differ from those of the uninterrupted run."""


@dataclass(frozen=True)
class Ended:
    """The result of a child process.

    Attributes:
        code: its exit code.
        stderr: its stderr.
        fault_occurred: whether the fault occurred before its end.
        seconds: since the run directory existed.
    """

    code: int
    stderr: str
    fault_occurred: bool
    seconds: float


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run, with its duration and its number of file operations and renames."""

    whole: Path
    moment: float
    operation: int
    rename: int

    def draw(self, place: str, draw: random.Random, shorter: int) -> float | int:
        """Draw a point for a fault in a run that is `shorter` times as short."""
        end = getattr(self, place) / shorter
        return draw.uniform(0, end) if place == "moment" else draw.randint(1, max(1, int(end)))


class Harness:
    """The process that forks the program, and the uninterrupted runs."""

    def __init__(self, folder: Path, forks: subprocess.Popen[str]) -> None:
        self.folder, self._forks = folder, forks
        self._references: dict[str, Reference] = {}

    def call(self, arguments: Arguments, run: Path, fault: dict[str, Any] | None = None) -> Ended:
        """Run the program with these arguments in a forked process, with an optional fault."""
        stderr = self.folder / "stderr.txt"
        stderr.write_text("", encoding="utf-8")
        request = {"arguments": arguments, "run": str(run), "stderr": str(stderr)} | (fault or {})
        print(json.dumps(request), file=self._forks.stdin, flush=True)
        answer = json.loads(_line(self._forks))
        text = stderr.read_text(encoding="utf-8")
        if "Traceback" in text:
            raise LostError(f"traceback: {text[-2000:]}")
        printed = re.search(r"^torture: (\w+), SIG", text, re.MULTILINE)
        interrupted = answer["code"] not in (0, 2)  # 0: completed; 2: failed with a message
        if not interrupted and ((printed and printed[1] == "unfinished") or answer["after"] > MAX_DELAY):
            raise LostError(f"signal was ignored: {text[-2000:]}")
        # a program that still ends normally had ended before the signal
        fault_occurred = (answer["fault_sent"] and interrupted) or printed is not None
        return Ended(answer["code"], text, fault_occurred, answer["seconds"])

    def arguments(self, setting: Setting, run: Path) -> Arguments:
        """Return the command's arguments for one run directory."""
        if setting.command == "train":
            return ("train", *setting.arguments, str(run))
        return (setting.command, str(run), *setting.arguments)

    def prepare_run(self, setting: Setting, run: Path) -> Path:
        """Remove the run directory, or replace it with a copy of the complete run that the command starts from."""
        shutil.rmtree(run, ignore_errors=True)
        if setting.starts_from:
            shutil.copytree(self.reference(setting.starts_from).whole, run)
        return run

    def reference(self, name: str) -> Reference:
        """Return the uninterrupted run of a setting; it is trained on the first call."""
        if name not in self._references:
            setting, whole = SETTINGS[name], self.folder / "whole" / name
            whole.parent.mkdir(exist_ok=True)
            ended = self.call(self.arguments(setting, self.prepare_run(setting, whole)), whole)
            counts = re.search(r"torture: end, (\d+) operations, (\d+) renames", ended.stderr)
            if ended.code or counts is None:
                raise SystemExit(f"setting {name!r} cannot be trained: {ended.stderr}")
            self._references[name] = Reference(whole, ended.seconds, int(counts[1]), int(counts[2]))
        return self._references[name]

    def run_with_faults(self, kind: str, seed: int) -> "RunOutcome":
        """Kill a run once or several times, resume it after each kill, and compare it with the uninterrupted run."""
        for speedup in (1, 2, 4, 8, 16):  # a faster machine can end before the moment
            draw = random.Random(f"{kind}:{seed}")
            outcome = RunOutcome(draw.choices(list(SETTINGS), SHARES)[0])
            self._run_and_compare(outcome, kind, seed, draw, speedup)
            if outcome.faults or outcome.reason:
                break
        return outcome

    def _run_and_compare(self, outcome: "RunOutcome", kind: str, seed: int, draw: random.Random, speedup: int) -> None:
        try:
            self._run_until_complete(outcome, kind, draw, speedup)
        except (LostError, DifferentError) as error:
            outcome.verdict = "lost" if isinstance(error, LostError) else "different"
            outcome.reason = f"{kind}:{seed} ({outcome.setting}; {', '.join(outcome.faults)}): {error}"

    def _run_until_complete(self, outcome: "RunOutcome", kind: str, draw: random.Random, speedup: int) -> None:
        number, place = KINDS[kind]
        setting, reference = SETTINGS[outcome.setting], self.reference(outcome.setting)
        run = self.prepare_run(setting, self.folder / "run")
        planned_faults = [
            {
                "signal": int(number),
                place: reference.draw(place, draw, speedup * (2 if i else 1)),
                "share": draw.random(),
            }
            for i in range(draw.choice((1, 1, 2, 3)))
        ]
        arguments = command = self.arguments(setting, run)
        reached = 0
        while True:
            before = files_of(run)
            fault = planned_faults[0] if planned_faults else {}
            ended = self.call(command, run, fault)
            reached = _last_iteration(reached, ended.stderr)
            if ended.fault_occurred:
                outcome.record_fault(planned_faults.pop(0), run, command[0] == "resume")
                if number != signal.SIGKILL:
                    _require_advice(ended, run, before)
                self._require_readable(run)
                command = ("resume", str(run))
            elif ended.code == 2 and re.search(NOT_SAVED, ended.stderr) and not reached:
                command = arguments
            elif ended.code and "is complete" not in ended.stderr:
                raise LostError(f"{' '.join(command)}: exit code {ended.code}: {ended.stderr}")
            elif setting.command == "train" or command == arguments:
                break
            else:
                command = arguments  # complete again: repeat the command
        if names := different(reference.whole, run):
            raise DifferentError(", ".join(names))
        if left := [str(path.relative_to(run)) for path in run.rglob("*") if path.is_dir()]:
            raise DifferentError(f"temporary directories: {', '.join(left)}")

    def _require_readable(self, run: Path) -> None:
        """Raise LostError unless reading commands succeed on a complete run and fail with a message on others."""
        for command in ("evaluate", "rules"):
            ended = self.call((command, str(run)), run)
            expected = 0 if (run / "metrics.json").exists() else 2
            if ended.code != expected or (expected and not ended.stderr.startswith("plogicnet: ")):
                raise LostError(f"{command}: exit code {ended.code}: {ended.stderr}")


def _last_iteration(reached: int, stderr: str) -> int:
    """Return the last printed EM iteration; only the iteration that the fault interrupted can appear again."""
    printed = [int(number) for number in re.findall(r"^EM iteration (\d+):", stderr, re.MULTILINE)]
    if printed and printed[0] < reached:
        raise LostError(f"EM iteration {printed[0]} was repeated after iteration {reached}")
    return max([reached, *printed])


def _require_advice(ended: Ended, run: Path, before: dict[str, bytes]) -> None:
    """Raise LostError unless a run that had written files and was stopped by a signal printed how to continue."""
    unfinished = (run / "run.json").exists() and not (run / "metrics.json").exists()
    if unfinished and files_of(run) != before:
        if ended.code != 130 or f"`plogicnet resume {run}`" not in ended.stderr:
            raise LostError(f"stopped without printing how to continue, exit code {ended.code}: {ended.stderr}")
    elif ended.code not in (130, -signal.SIGTERM, 0):
        raise LostError(f"exit code {ended.code}: {ended.stderr}")


@dataclass
class RunOutcome:
    """The outcome of one run."""

    setting: str
    faults: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    resuming: int = 0
    verdict: str = "survived"
    reason: str = ""

    def record_fault(self, fault: dict[str, Any], run: Path, resuming: bool) -> None:
        """Count a fault that occurred, and the state that it left."""
        place = next(key for key in ("moment", "operation", "rename") if key in fault)
        self.faults.append(f"{place} {fault[place]:g}")
        self.resuming += resuming
        if (run / "metrics.json").exists():
            self.left["a complete run"] += 1
        elif not (run / "run.json").exists():
            self.left["nothing saved yet"] += 1
        else:
            inside = any((run / "checkpoint").glob("e_step*"))
            self.left[f"an unfinished run {'with' if inside else 'without'} an E-step checkpoint"] += 1


@contextmanager
def start_harness(folder: Path) -> Iterator[Harness]:
    """Start the process that forks, and end it with the block."""
    (folder / "graph").mkdir()
    (folder / "given.rules").write_text(RULES, encoding="utf-8")
    environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NO_COLOR"), "1")
    forks = subprocess.Popen(
        [sys.executable, str(ROOT / "torture" / "child.py"), "graph"],
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C stops the harness; the current child still ends
    )
    try:
        if _line(forks) != "ready\n":
            raise SystemExit("the forking process did not start")
        yield Harness(folder, forks)
    finally:
        forks.communicate()  # close its stdin and wait


def _line(forks: subprocess.Popen[str]) -> str:
    return "" if forks.stdout is None else forks.stdout.readline()


def require_same_without_forks(harness: Harness) -> None:
    """Raise SystemExit if a forked training writes other files than a normal one."""
    plain, setting = harness.folder / "plain", SETTINGS["sampled"]
    command = [sys.executable, "-m", "plogicnet", *harness.arguments(setting, plain)]
    subprocess.run(command, cwd=harness.folder, capture_output=True, check=True)
    if names := different(plain, harness.reference("sampled").whole):
        raise SystemExit(f"a forked training differs from a normal one: {', '.join(names)}")


def campaign(harness: Harness, kills: int, seed: int) -> dict[str, Any]:
    """Return counts by kind of fault, by setting and by state after the fault; kinds run in complete rounds."""
    start, runs, done, failures = time.monotonic(), 0, 0, []
    outcomes = ("tried", "survived", "lost", "different", "resuming")
    kinds = {kind: dict.fromkeys(outcomes, 0) for kind in KINDS}
    settings, left = Counter[str](dict.fromkeys(SETTINGS, 0)), Counter[str]()
    stopped = False
    try:
        with for_stderr()("killing runs, kills", kills) as advance:
            while done < kills or runs % len(KINDS):
                kind = list(KINDS)[runs % len(KINDS)]
                outcome = harness.run_with_faults(kind, seed + runs // len(KINDS))
                count, runs = len(outcome.faults), runs + 1
                kinds[kind]["tried"] += count
                kinds[kind][outcome.verdict] += count
                kinds[kind]["resuming"] += outcome.resuming
                settings[outcome.setting] += count
                left += outcome.left
                if outcome.reason:
                    failures.append(outcome.reason)
                    print(outcome.reason, file=sys.stderr)
                done += count
                per_minute = 60 * done / (time.monotonic() - start)
                advance(count, f"{per_minute:.0f} per minute, {len(failures)} failed")
    except KeyboardInterrupt:
        stopped = True
    return {
        "kills": done,
        "runs": runs,
        "seed": seed,
        "minutes": round((time.monotonic() - start) / 60, 1),
        "kinds": kinds,
        "settings": dict(settings),
        "left": dict(sorted(left.items())),
        "failures": failures,
        "stopped": stopped,
    }


def main() -> None:
    """Run the campaign, or repeat one run; exit with 1 if a run was lost or different, and 130 if interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="Minimum number of kills.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the first run of each kind.")
    parser.add_argument("--only", metavar="KIND:SEED", help=f"Repeat one run. Kinds: {', '.join(KINDS)}.")
    parser.add_argument(
        "--write", action="store_true", help="Run the tests of other faults, and write the results and the page."
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    with start_harness(folder) as harness:
        if options.only:
            kind, _, seed = options.only.partition(":")
            outcome = harness.run_with_faults(kind, int(seed))
            print(f"{outcome.verdict}: {outcome.reason or outcome.faults}; the run is in {folder / 'run'}")
            sys.exit(outcome.verdict != "survived")
        require_same_without_forks(harness)
        figures = campaign(harness, options.kills, options.seed)
    shutil.rmtree(folder)
    print(json.dumps(figures, indent=1))
    if figures["stopped"]:
        sys.exit(130)
    if options.write:
        from reliability import write

        passed = write(figures)
        sys.exit(bool(figures["failures"]) or not passed)
    sys.exit(bool(figures["failures"]))


if __name__ == "__main__":
    main()
