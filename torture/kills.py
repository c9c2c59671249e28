"""Kill real commands at random points, resume or repeat them, and compare the run with an uninterrupted one.

`python torture/kills.py --kills 1000 --write` writes docs/results/reliability.json and docs/reliability.md.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from plogicnet.runs.directory import (  # noqa: E402
    CHECKPOINT_DIR,
    CURRENT_FILE,
    SNAPSHOTS_DIR,
    has_unfinished_training,
    snapshot_folder,
    written_names,
)
from plogicnet.runs.integrity import MANIFEST_FILE  # noqa: E402
from plogicnet.support.progress import for_stderr  # noqa: E402
from stopping import different, leftovers, tree_of  # noqa: E402

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


RUN = "RUN"
"""Stands for the run directory in arguments."""
READING = (("evaluate", RUN, "--json"), ("rules", RUN, "--json"), ("runs", "list", RUN))
"""Commands that must always succeed on a complete run. The first two print nothing that depends on the time."""


@dataclass(frozen=True)
class Setting:
    """A command to kill.

    Attributes:
        arguments: its arguments. `save` is the method `PLogicNet.save`: the run to load, then the run to save over.
        starts_from: the setting whose complete run the command changes; None if it creates a run.
        keeps_old: whether the state before the command must still be among the snapshots after it.
    """

    arguments: Arguments
    starts_from: str | None = None
    keeps_old: bool = True

    @property
    def resumed(self) -> bool:
        """Whether the command is continued with `resume` after a kill. Otherwise it is repeated."""
        return self.arguments[0] in ("train", "resume")


def _train(*assignments: str, rules: bool = False) -> Setting:
    rules_option = ("--rules", "given.rules") if rules else ()
    return Setting(("train", "graph", *rules_option, *(f"--set={a}" for a in (*SMALL, *assignments)), "--out", RUN))


SAVED = "softmax"
"""The setting whose run is saved over another one."""
SETTINGS = {
    "sampled": _train("mln.hidden_premises=sampled"),
    "softmax": _train(*SOFTMAX, rules=True),
    "rules alone": _train("em.neural=false", rules=True),
    "explicit negatives": _train("em.hidden_negatives=explicit", rules=True),
    "one iteration more": Setting(("resume", RUN, "--set=em.iterations=3"), "sampled"),
    "refit": Setting(("refit", RUN, "--rules", "given.rules"), "one iteration more"),
    "save": Setting(("save", f"whole/{SAVED}", RUN), "one iteration more"),
    "revert": Setting(("runs", "revert", RUN, "0001", "--keep=1"), "one iteration more", keeps_old=False),
}
SHARES = (3, 3, 2, 2, 2, 9, 9, 9)
"""Relative frequency of each setting. Most kills hit `refit`, `save` and `revert`."""


class LostError(Exception):
    """A run that cannot be read or resumed, or that has lost saved work."""


class DifferentError(Exception):
    """A run whose files differ from those of the uninterrupted run, or that is a mixture of two states."""


@dataclass(frozen=True)
class Ended:
    """The result of a child process.

    Attributes:
        code: its exit code.
        stdout: its stdout.
        stderr: its stderr.
        fault_occurred: whether the fault occurred before its end.
        seconds: since it first changed the run directory.
    """

    code: int
    stdout: str
    stderr: str
    fault_occurred: bool
    seconds: float


@dataclass(frozen=True)
class Content:
    """The state of a run: the files of its current snapshot, and what commands print about it."""

    files: dict[str, bytes]
    printed: Arguments


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run, and the state before it (None if there was no run).

    `moment`, `operation` and `rename` are its duration and its numbers of file operations and renames.
    """

    whole: Path
    old: Content | None
    new: Content
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
        files = {name: self.folder / name for name in ("stdout", "stderr", "started")}
        for file in files.values():
            file.unlink(missing_ok=True)
        words = [str(run) if word == RUN else word for word in arguments]
        request = {"arguments": words, "run": str(run)} | {name: str(file) for name, file in files.items()}
        print(json.dumps(request | (fault or {})), file=self._forks.stdin, flush=True)
        answer = json.loads(_line(self._forks))
        stdout, text = (
            files[name].read_text(encoding="utf-8") if files[name].exists() else "" for name in ("stdout", "stderr")
        )
        if "Traceback" in text:
            raise LostError(f"traceback: {text[-2000:]}")
        printed = re.search(r"^torture: (\w+), SIG", text, re.MULTILINE)
        interrupted = answer["code"] not in (0, 2)  # 0: completed; 2: failed with a message
        if not interrupted and ((printed and printed[1] == "unpublished") or answer["after"] > MAX_DELAY):
            raise LostError(f"signal was ignored: {text[-2000:]}")
        # a program that still ends normally had ended before the signal
        fault_occurred = (answer["fault_sent"] and interrupted) or printed is not None
        return Ended(answer["code"], stdout, text, fault_occurred, answer["seconds"])

    def prepare_run(self, setting: Setting, run: Path) -> Path:
        """Remove the run directory, or replace it with a copy of the complete run that the command starts from."""
        shutil.rmtree(run, ignore_errors=True)
        if setting.starts_from:
            copy_with_links(self.reference(setting.starts_from).whole, run)
            make_old(run, setting)
        return run

    def reference(self, name: str) -> Reference:
        """Return the uninterrupted run of a setting; it is made on the first call."""
        if name not in self._references:
            setting, whole = SETTINGS[name], self.folder / "whole" / name
            old = self.reference(setting.starts_from).new if setting.starts_from else None
            if setting.arguments[0] == "save":
                self.reference(SAVED)
            whole.parent.mkdir(exist_ok=True)
            ended = self.call(setting.arguments, self.prepare_run(setting, whole))
            counts = re.search(r"torture: end, (\d+) operations, (\d+) renames", ended.stderr)
            new = None if ended.code else self.read(whole)
            if counts is None or new is None or new == old:
                raise SystemExit(f"setting {name!r} cannot be used: {ended.stderr}")
            self._references[name] = Reference(whole, old, new, ended.seconds, int(counts[1]), int(counts[2]))
        return self._references[name]

    def read(self, run: Path) -> Content | None:
        """Return the state of a run, or None if nothing is published.

        Raise LostError unless reading commands succeed on a complete run and fail with a message on others.
        """
        published = (run / CURRENT_FILE).exists()
        printed = []
        for command in READING:
            ended = self.call(command, run)
            if ended.code != (0 if published else 2) or not (published or ended.stderr.startswith("plogicnet: ")):
                raise LostError(f"{' '.join(command)}: exit code {ended.code}: {ended.stderr}")
            printed.append(ended.stdout)
        return Content(_files(snapshot_folder(run)), tuple(printed[:2])) if published else None

    def run_with_faults(self, kind: str, seed: int) -> "RunOutcome":
        """Kill a command once or several times, continue it after each kill, and compare it with the reference."""
        for speedup in (1, 2, 4, 8, 16):  # a faster machine can end before the moment
            draw = random.Random(f"{kind}:{seed}")
            outcome = RunOutcome(draw.choices(list(SETTINGS), SHARES)[0])
            try:
                self._run_until_complete(outcome, kind, draw, speedup)
            except (LostError, DifferentError) as error:
                outcome.verdict = "lost" if isinstance(error, LostError) else "different"
                outcome.reason = f"{kind}:{seed} ({outcome.setting}; {', '.join(outcome.faults)}): {error}"
            if outcome.faults or outcome.reason:
                break
        return outcome

    def _run_until_complete(self, outcome: "RunOutcome", kind: str, draw: random.Random, speedup: int) -> None:
        number, place = KINDS[kind]
        setting, reference = SETTINGS[outcome.setting], self.reference(outcome.setting)
        run = self.prepare_run(setting, self.folder / "run")
        shorter = 2 if setting.resumed else 1  # less remains to be done after a kill
        planned_faults = [
            {
                "signal": int(number),
                place: reference.draw(place, draw, speedup * (shorter if i else 1)),
                "share": draw.random(),
            }
            for i in range(draw.choice((1, 1, 2, 3)))
        ]
        command, reached, state, first_current = setting.arguments, 0, reference.old, _current(run)
        while True:
            before = tree_of(run)
            ended = self.call(command, run, planned_faults[0] if planned_faults else {})
            reached = _last_iteration(reached, ended.stderr)
            if ended.fault_occurred:
                outcome.record_fault(planned_faults.pop(0), run, first_current)
                if number != signal.SIGKILL:
                    _require_advice(ended, run, before)
                state = _require_old_or_new(self.read(run), state, reference.new)
                make_old(run, setting)
                command = ("resume", RUN) if setting.resumed else setting.arguments
            elif ended.code == 2 and re.search(NOT_SAVED, ended.stderr) and not reached:
                command = setting.arguments
            elif ended.code and not (setting.resumed and "is complete" in ended.stderr):
                raise LostError(f"{' '.join(command)}: exit code {ended.code}: {ended.stderr}")
            elif setting.arguments[0] == "train" or command == setting.arguments:
                break
            else:
                command = setting.arguments  # complete again: repeat the command
        _require_result(run, setting, reference, state)


def copy_with_links(source: Path, target: Path) -> None:
    """Copy a run directory. Files that are links to each other are so in the copy as well."""
    copies: dict[int, str] = {}

    def copy(file: str, place: str) -> str:
        first = copies.setdefault(Path(file).stat().st_ino, place)
        if first == place:
            return shutil.copy2(file, place)
        os.link(first, place)
        return place

    shutil.copytree(source, target, copy_function=copy)


def make_old(run: Path, setting: Setting) -> None:
    """Make the snapshots of a run old, so that the next command removes those that it need not keep.

    The successor of a snapshot that the command names stays new. The named one is then kept, and the command can be
    repeated.
    """
    for previous, name in pairwise(["", *written_names(run)]):
        changed = time.time() if previous in setting.arguments else 0
        for path in (run / SNAPSHOTS_DIR / name, run / SNAPSHOTS_DIR / name / MANIFEST_FILE):
            os.utime(path, (changed, changed))


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def _current(run: Path) -> bytes:
    file = run / CURRENT_FILE
    return file.read_bytes() if file.is_file() else b""


def _last_iteration(reached: int, stderr: str) -> int:
    """Return the last printed EM iteration; only the iteration that the fault interrupted can appear again."""
    printed = [int(number) for number in re.findall(r"^EM iteration (\d+):", stderr, re.MULTILINE)]
    if printed and printed[0] < reached:
        raise LostError(f"EM iteration {printed[0]} was repeated after iteration {reached}")
    return max([reached, *printed])


def _require_advice(ended: Ended, run: Path, before: dict[str, bytes]) -> None:
    """Raise LostError unless a training that had written files and was stopped by a signal printed how to continue."""
    if has_unfinished_training(run) and tree_of(run) != before:
        if ended.code != 130 or f"`plogicnet resume {run}`" not in ended.stderr:
            raise LostError(f"stopped without printing how to continue, exit code {ended.code}: {ended.stderr}")
    elif ended.code not in (130, -signal.SIGTERM, 0):
        raise LostError(f"exit code {ended.code}: {ended.stderr}")


def _require_old_or_new(found: Content | None, before: Content | None, new: Content) -> Content | None:
    """Return the state that was found after a kill. Raise an error unless it is the one before it or the new one."""
    if found is None and before is not None:
        raise LostError("the run is no longer complete")
    if found not in (before, new):
        names = [f"{word}: {', '.join(_different(found, state))}" for word, state in (("old", before), ("new", new))]
        raise DifferentError(f"neither the old nor the new state; different from {'; '.join(names)}")
    return found


def _different(found: Content | None, state: Content | None) -> list[str]:
    """Return the names of the files that differ between two states."""
    first, second = ({} if content is None else content.files for content in (found, state))
    return sorted(name for name in first | second if first.get(name) != second.get(name)) or ["output of commands"]


def _require_result(run: Path, setting: Setting, reference: Reference, state: Content | None) -> None:
    """Raise DifferentError unless a run is as if its command had never been killed.

    Args:
        run: the run directory.
        setting: its setting.
        reference: the uninterrupted run.
        state: the state after the last kill. If it was the old one, it must still exist.
    """
    found = {name: _files(run / SNAPSHOTS_DIR / name) for name in written_names(run)}
    current = found[snapshot_folder(run).name]
    if current != reference.new.files:
        raise DifferentError(", ".join(_different(Content(current, ()), reference.new)))
    if left := leftovers(run):
        raise DifferentError(f"leftovers: {', '.join(left)}")
    known = [content.files for content in (reference.old, reference.new) if content]
    known += [_files(folder) for folder in (reference.whole.parent / "sampled" / SNAPSHOTS_DIR).iterdir()]
    if mixed := [name for name, files in found.items() if files not in known]:
        raise DifferentError(f"snapshots with other content: {', '.join(mixed)}")
    if setting.keeps_old and state is not None and state == reference.old and state.files not in found.values():
        raise DifferentError(f"the state before the command was removed; snapshots: {', '.join(found)}")


@dataclass
class RunOutcome:
    """The outcome of one run."""

    setting: str
    faults: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    verdict: str = "survived"
    reason: str = ""

    @property
    def again(self) -> int:
        """The number of faults after the first, so while the command was resumed or repeated."""
        return max(0, len(self.faults) - 1)

    def record_fault(self, fault: dict[str, Any], run: Path, first_current: bytes) -> None:
        """Count a fault that occurred, and the state that it left. `first_current` is CURRENT before the command."""
        place = next(key for key in ("moment", "operation", "rename") if key in fault)
        self.faults.append(f"{place} {fault[place]:g}")
        self.left[_state_name(run, first_current)] += 1


def _state_name(run: Path, first_current: bytes) -> str:
    """Return the name of the state that a fault left."""
    if _current(run) != first_current:
        return "the new state"
    old = "the old state" if first_current else ""
    if has_unfinished_training(run):
        inside = any((run / CHECKPOINT_DIR).glob("e_step*"))
        training = f"an unfinished training {'with' if inside else 'without'} an E-step checkpoint"
        return f"{old} and {training}" if old else training
    if old and int(written_names(run)[-1]) > int(first_current):
        return f"{old} and a complete snapshot that is not yet the current one"
    return old or "nothing saved yet"


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
    words = [str(plain) if word == RUN else word for word in setting.arguments]
    command = [sys.executable, "-m", "plogicnet", *words]
    subprocess.run(command, cwd=harness.folder, capture_output=True, check=True)
    if names := different(plain, harness.reference("sampled").whole):
        raise SystemExit(f"a forked training differs from a normal one: {', '.join(names)}")


def campaign(harness: Harness, kills: int, seed: int) -> dict[str, Any]:
    """Return counts by kind of fault, by setting and by state after the fault; kinds run in complete rounds."""
    start, runs, done, failures = time.monotonic(), 0, 0, []
    outcomes = ("tried", "survived", "lost", "different", "again")
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
                kinds[kind]["again"] += outcome.again
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
    parser.add_argument("--kills", type=int, default=1000, help="Minimum number of kills.")
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
            harness.reference("sampled")  # other settings start from it
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
