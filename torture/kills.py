"""Kills real trainings at random places, resumes them, and holds what they end with against the uninterrupted ones.

`python torture/kills.py --kills 300 --write` writes docs/results/reliability.json and docs/reliability.md;
`--only KIND:SEED` repeats one. A place that is a moment is drawn the same each time, and hit nearly the same.
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
"""Kinds of fault: the signal, and what is counted until it comes."""
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
NOTHING = "before anything was saved|no such directory; `plogicnet train"
"""What resume says where a training was stopped before there was anything to go on from."""
UNHEARD = 2.0
"""Seconds that a program may go on after a signal, if it then ends as if there had been none."""
Words = tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A command that is killed, with its words; one that works on a complete run begins from another setting's."""

    command: str
    words: Words
    begins_from: str | None = None


def _train(*assignments: str, rules: bool = False) -> Setting:
    given = ("--rules", "given.rules") if rules else ()
    return Setting("train", ("graph", *given, *(f"--set={a}" for a in (*SMALL, *assignments)), "--out"))


SETTINGS = {
    "sampled": _train("mln.hidden_premises=sampled"),
    "softmax": _train(*SOFTMAX, rules=True),
    "rules alone": _train("em.neural=false", rules=True),
    "explicit negatives": _train("em.hidden_negatives=explicit", rules=True),
    "one iteration more": Setting("resume", ("--set=em.iterations=3",), "sampled"),
    "refit": Setting("refit", ("--rules", "given.rules"), "sampled"),
}
SHARES = (4, 4, 2, 2, 1, 1)
"""How often each is drawn."""


class LostError(Exception):
    """A run that cannot be read or gone on with, or that has lost what it had saved."""


class DifferentError(Exception):
    """A run that ended with other files than the uninterrupted one."""


@dataclass(frozen=True)
class Ended:
    """A child's end.

    Attributes:
        code: its exit code.
        said: its stderr.
        struck: whether its fault came before its end.
        seconds: since the run directory was there.
    """

    code: int
    said: str
    struck: bool
    seconds: float


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run, and how long and by how many file operations and renames it was made."""

    whole: Path
    moment: float
    operation: int
    rename: int

    def draw(self, place: str, draw: random.Random, shorter: int) -> float | int:
        """A place for a fault in a run that is so many times shorter."""
        end = getattr(self, place) / shorter
        return draw.uniform(0, end) if place == "moment" else draw.randint(1, max(1, int(end)))


class Harness:
    """The process that forks the program, and the runs that nothing interrupts.

    Example:
        >>> with started(Path("here")) as harness:  # doctest: +SKIP
        ...     harness.life("kill-moment", 0)
    """

    def __init__(self, folder: Path, forks: subprocess.Popen[str]) -> None:
        self.folder, self._forks = folder, forks
        self._references: dict[str, Reference] = {}

    def call(self, words: Words, run: Path, fault: dict[str, Any] | None = None) -> Ended:
        """The program with these words, in a forked process, with a fault if one is given."""
        said = self.folder / "said.txt"
        said.write_text("", encoding="utf-8")
        request = {"words": words, "run": str(run), "said": str(said)} | (fault or {})
        print(json.dumps(request), file=self._forks.stdin, flush=True)
        answer = json.loads(_line(self._forks))
        text = said.read_text(encoding="utf-8")
        if "Traceback" in text:
            raise LostError(f"a traceback: {text[-2000:]}")
        told = re.search(r"^torture: (\w+), SIG", text, re.MULTILINE)
        heard = answer["code"] not in (0, 2)  # done, or refused
        if not heard and ((told and told[1] == "unfinished") or answer["after"] > UNHEARD):
            raise LostError(f"a signal was not heard: {text[-2000:]}")
        # where it comes to its end all the same, it had come there before the signal
        struck = (answer["struck"] and heard) or told is not None
        return Ended(answer["code"], text, struck, answer["seconds"])

    def words(self, setting: Setting, run: Path) -> Words:
        """The command's words for one run directory."""
        if setting.command == "train":
            return ("train", *setting.words, str(run))
        return (setting.command, str(run), *setting.words)

    def prepared(self, setting: Setting, run: Path) -> Path:
        """Where the command begins: nothing, or a copy of a complete run."""
        shutil.rmtree(run, ignore_errors=True)
        if setting.begins_from:
            shutil.copytree(self.reference(setting.begins_from).whole, run)
        return run

    def reference(self, name: str) -> Reference:
        """What nothing interrupts, made when it is first asked for."""
        if name not in self._references:
            setting, whole = SETTINGS[name], self.folder / "whole" / name
            whole.parent.mkdir(exist_ok=True)
            ended = self.call(self.words(setting, self.prepared(setting, whole)), whole)
            counts = re.search(r"torture: end, (\d+) operations, (\d+) renames", ended.said)
            if ended.code or counts is None:
                raise SystemExit(f"{name} does not train: {ended.said}")
            self._references[name] = Reference(whole, ended.seconds, int(counts[1]), int(counts[2]))
        return self._references[name]

    def life(self, kind: str, seed: int) -> "Life":
        """One run: killed once or a few times, resumed after each, and compared."""
        for hurry in (1, 2, 4, 8, 16):  # a machine that is quicker by now may have come to the end before the moment
            draw = random.Random(f"{kind}:{seed}")
            life = Life(draw.choices(list(SETTINGS), SHARES)[0])
            self._judge(life, kind, seed, draw, hurry)
            if life.places or life.why:
                break
        return life

    def _judge(self, life: "Life", kind: str, seed: int, draw: random.Random, hurry: int) -> None:
        try:
            self._live(life, kind, draw, hurry)
        except (LostError, DifferentError) as error:
            life.verdict = "lost" if isinstance(error, LostError) else "different"
            life.why = f"{kind}:{seed} ({life.setting}; {', '.join(life.places)}): {error}"

    def _live(self, life: "Life", kind: str, draw: random.Random, hurry: int) -> None:
        number, place = KINDS[kind]
        setting, reference = SETTINGS[life.setting], self.reference(life.setting)
        run = self.prepared(setting, self.folder / "run")
        planned = [
            {"signal": int(number), place: reference.draw(place, draw, hurry * (2 if i else 1)), "share": draw.random()}
            for i in range(draw.choice((1, 1, 2, 3)))
        ]
        words = todo = self.words(setting, run)
        reached = 0
        while True:
            before = files_of(run)
            fault = planned[0] if planned else {}
            ended = self.call(todo, run, fault)
            reached = _not_gone_back(reached, ended.said)
            if ended.struck:
                life.struck(planned.pop(0), run, todo[0] == "resume")
                if number != signal.SIGKILL:
                    _require_words(ended, run, before)
                self._require_readable(run)
                todo = ("resume", str(run))
            elif ended.code == 2 and re.search(NOTHING, ended.said) and not reached:
                todo = words
            elif ended.code and "is complete" not in ended.said:
                raise LostError(f"{' '.join(todo)}: exit code {ended.code}: {ended.said}")
            elif setting.command == "train" or todo == words:
                break
            else:
                todo = words  # whole again; now what was asked of it
        if names := different(reference.whole, run):
            raise DifferentError(", ".join(names))
        if left := [str(path.relative_to(run)) for path in run.rglob("*") if path.is_dir()]:
            raise DifferentError(f"left behind: {', '.join(left)}")

    def _require_readable(self, run: Path) -> None:
        """What only reads a run answers or refuses in words, and answers if the run is complete."""
        for command in ("evaluate", "rules"):
            ended = self.call((command, str(run)), run)
            expected = 0 if (run / "metrics.json").exists() else 2
            if ended.code != expected or (expected and not ended.said.startswith("plogicnet: ")):
                raise LostError(f"{command}: exit code {ended.code}: {ended.said}")


def _not_gone_back(reached: int, said: str) -> int:
    """The last EM iteration that was told; only the one in hand when the fault came may be told again."""
    told = [int(number) for number in re.findall(r"^EM iteration (\d+):", said, re.MULTILINE)]
    if told and told[0] < reached:
        raise LostError(f"EM iteration {told[0]} was done again, after {reached}")
    return max([reached, *told])


def _require_words(ended: Ended, run: Path, before: dict[str, bytes]) -> None:
    """A run that was stopped by a signal it can hear says how to go on, if it had begun to write."""
    unfinished = (run / "run.json").exists() and not (run / "metrics.json").exists()
    if unfinished and files_of(run) != before:
        if ended.code != 130 or f"`plogicnet resume {run}` continues from here" not in ended.said:
            raise LostError(f"stopped without a word on how to go on, exit code {ended.code}: {ended.said}")
    elif ended.code not in (130, -signal.SIGTERM, 0):
        raise LostError(f"exit code {ended.code}: {ended.said}")


@dataclass
class Life:
    """What became of one run."""

    setting: str
    places: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    resuming: int = 0
    verdict: str = "survived"
    why: str = ""

    def struck(self, fault: dict[str, Any], run: Path, resuming: bool) -> None:
        """Counts a fault that came, and what it left."""
        place = next(key for key in ("moment", "operation", "rename") if key in fault)
        self.places.append(f"{place} {fault[place]:g}")
        self.resuming += resuming
        if (run / "metrics.json").exists():
            self.left["a complete run"] += 1
        elif not (run / "run.json").exists():
            self.left["nothing saved yet"] += 1
        else:
            inside = any((run / "checkpoint").glob("e_step*"))
            self.left["a place inside an E-step" if inside else "a place between two steps"] += 1


@contextmanager
def started(folder: Path) -> Iterator[Harness]:
    """Starts the process that forks; it ends with the block."""
    (folder / "graph").mkdir()
    (folder / "given.rules").write_text(RULES, encoding="utf-8")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NO_COLOR"), "1")
    forks = subprocess.Popen(
        [sys.executable, str(ROOT / "torture" / "child.py"), "graph"],
        cwd=folder,
        env=os.environ | one,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C stops the harness, which then lets the child in hand end
    )
    try:
        if _line(forks) != "ready\n":
            raise SystemExit("the process that forks did not start")
        yield Harness(folder, forks)
    finally:
        forks.communicate()  # closes its stdin, and waits


def _line(forks: subprocess.Popen[str]) -> str:
    return "" if forks.stdout is None else forks.stdout.readline()


def require_same_without_forks(harness: Harness) -> None:
    """An error where a forked program writes other files than one that is started as usual."""
    plain, setting = harness.folder / "plain", SETTINGS["sampled"]
    command = [sys.executable, "-m", "plogicnet", *harness.words(setting, plain)]
    subprocess.run(command, cwd=harness.folder, capture_output=True, check=True)
    if names := different(plain, harness.reference("sampled").whole):
        raise SystemExit(f"a forked training differs from a plain one: {', '.join(names)}")


def campaign(harness: Harness, kills: int, seed: int) -> dict[str, Any]:
    """Figures by kind of fault, by setting, and by what the faults left; every kind in turn, in whole rounds.

    Example:
        >>> with started(Path("here")) as harness:  # doctest: +SKIP
        ...     campaign(harness, 300, 0)["kinds"]["torn-write"]["lost"]
        0
    """
    began, runs, done, failures = time.monotonic(), 0, 0, []
    outcomes = ("tried", "survived", "lost", "different", "resuming")
    kinds = {kind: dict.fromkeys(outcomes, 0) for kind in KINDS}
    settings, left = Counter[str](dict.fromkeys(SETTINGS, 0)), Counter[str]()
    stopped = False
    try:
        with for_stderr()("torture, kills", kills) as advance:
            while done < kills or runs % len(KINDS):
                kind = list(KINDS)[runs % len(KINDS)]
                life = harness.life(kind, seed + runs // len(KINDS))
                count, runs = len(life.places), runs + 1
                kinds[kind]["tried"] += count
                kinds[kind][life.verdict] += count
                kinds[kind]["resuming"] += life.resuming
                settings[life.setting] += count
                left += life.left
                if life.why:
                    failures.append(life.why)
                    print(life.why, file=sys.stderr)
                done += count
                a_minute = 60 * done / (time.monotonic() - began)
                advance(count, f"{a_minute:.0f} a minute, {len(failures)} failed")
    except KeyboardInterrupt:
        stopped = True
    return {
        "kills": done,
        "runs": runs,
        "seed": seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "kinds": kinds,
        "settings": dict(settings),
        "left": dict(sorted(left.items())),
        "failures": failures,
        "stopped": stopped,
    }


def main() -> None:
    """The campaign, or one run again; exit code 1 where something was lost or different, 130 where it was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="how many, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first run of each kind")
    parser.add_argument("--only", metavar="KIND:SEED", help=f"one run again; kinds: {', '.join(KINDS)}")
    parser.add_argument("--write", action="store_true", help="the figures and the page, with the tests of other faults")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    with started(folder) as harness:
        if asked.only:
            kind, _, seed = asked.only.partition(":")
            life = harness.life(kind, int(seed))
            print(f"{life.verdict}: {life.why or life.places}; the run is in {folder / 'run'}")
            sys.exit(life.verdict != "survived")
        require_same_without_forks(harness)
        figures = campaign(harness, asked.kills, asked.seed)
    shutil.rmtree(folder)
    print(json.dumps(figures, indent=1))
    if figures["stopped"]:
        sys.exit(130)
    if asked.write:
        from reliability import write

        passed = write(figures)
        sys.exit(bool(figures["failures"]) or not passed)
    sys.exit(bool(figures["failures"]))


if __name__ == "__main__":
    main()
