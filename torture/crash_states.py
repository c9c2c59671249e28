"""Open every state that a power cut can leave on the disk while a command writes a run directory.

`python torture/crash_states.py` records the file operations of the real commands, and prints one JSON object. `disk.py`
computes the states.
"""

import argparse
import io
import json
import logging
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from disk import RUN, CrashState, Recorder, Recording, Tree, read_tree
from plogicnet import PLogicNet
from plogicnet.cli.runs import list_runs
from plogicnet.config import Config
from plogicnet.inference.export import ExportOptions, export
from plogicnet.inference.fitted import Prediction
from plogicnet.neural.protocol import Checkpoint
from plogicnet.runs import lifecycle, snapshots
from plogicnet.runs.directory import (
    CHECKPOINT_DIR,
    CURRENT_FILE,
    E_STEP_FILE,
    SNAPSHOTS_DIR,
    State,
    current_name,
    snapshot_names,
    state_of,
)
from plogicnet.runs.integrity import MANIFEST_FILE
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, for_stderr
from plogicnet.training.hooks import Hooks
from small import SMALL, small_graph
from stopping import StoppedError, files_of, leftovers

NO_RUN = r"no run at .*does not exist|contains no complete run"
"""The messages of `load` if no snapshot was published yet."""
RULES = "=1.5: husband(X, Y) => wife(Y, X)\n0.25: parent(X, Y) & sibling(Y, Z) => parent(X, Z)\n"
OTHER_RULES = "0.5: child(X, Y) => parent(Y, X)\n=1.0: sibling(X, Y) => sibling(Y, X)\n"
QUERY = ("man0", "parent")
"""Head and relation of the query whose answers are compared."""


def different_for_readers(states: Sequence[CrashState]) -> list[CrashState]:
    """Return one state of each group that `load` and `runs list` cannot distinguish.

    If there is a snapshot, they read neither partial files nor the checkpoint of an unfinished training.
    """
    found: dict[frozenset[tuple[str, bytes | None]], CrashState] = {}
    for state in states:
        hidden = (".part", f"{RUN}/{CHECKPOINT_DIR}") if f"{RUN}/{CURRENT_FILE}" in state.tree else ()
        visible = (item for item in state.tree.items() if not any(text in item[0] for text in hidden))
        found.setdefault(frozenset(visible), state)
    return list(found.values())


class Scratch:
    """A directory that shows one state after another. Only files that differ from the previous state are written."""

    def __init__(self, root: Path) -> None:
        self.root, self._shown = root, Tree()
        root.mkdir()

    def show(self, tree: Tree) -> Path:
        """Make the directory equal to a state, and return the run directory."""
        shown, absent = self._shown, object()
        for path in sorted(shown, reverse=True):  # the content of a directory comes before it
            if path not in tree or (tree[path] is None) != (shown[path] is None):
                (self.root / path).rmdir() if shown[path] is None else (self.root / path).unlink()
                del shown[path]
        for path in sorted(tree):
            data, place = tree[path], self.root / path
            if shown.get(path, absent) != data:
                place.mkdir() if data is None else place.write_bytes(data)
        self._shown = dict(tree)
        return self.root / RUN

    def clear(self) -> None:
        """Remove everything, including what a command wrote."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        self._shown = Tree()


@dataclass(frozen=True)
class Command:
    """A command whose file operations are recorded.

    Attributes:
        run: runs the command on a run directory.
        start: the name of the run with which it starts; "" for a new directory.
        again: completes what a power cut stopped. None: nothing needs to be completed.
        can_refuse: whether it refuses to run again once it has taken effect.
    """

    run: Callable[[Path], object]
    start: str = ""
    again: Callable[[Path], object] | None = None
    can_refuse: bool = False


class Workshop:
    """The commands, and the complete runs with which they start."""

    def __init__(self, folder: Path, iterations: int = 1, checkpoint_steps: int = 0) -> None:
        self.folder, self.graph, self.checkpoint_steps = folder, small_graph(), checkpoint_steps
        self.config = Config().with_values(SMALL | {"neural.steps": 5, "em.iterations": iterations})
        short = self.config.with_values({"em.iterations": 1})
        PLogicNet(short).fit(self.graph, out=folder / "complete").refit(OTHER_RULES, folder / "complete")
        PLogicNet(short.with_values({"seed": 1})).fit(self.graph, out=folder / "other")
        shutil.copytree(folder / "complete", folder / "unfinished")
        with suppress(StoppedError):
            PLogicNet.resume(folder / "unfinished", {"em.iterations": 2}, Hooks(save=stop))
        shutil.copytree(folder / "unfinished", folder / "superseded")
        PLogicNet.resume(folder / "superseded")
        shutil.copytree(folder / "unfinished" / CHECKPOINT_DIR, folder / "superseded" / CHECKPOINT_DIR)

    def commands(self) -> dict[str, Command]:
        """Return the commands by name."""
        revert, refit, save = partial(lifecycle.revert, name="0001"), self.refit, self.save
        resume_to_3 = partial(self.resume, iterations=3)
        return {
            "train": Command(self.train, again=self.train_again, can_refuse=True),
            "save in a new directory": Command(save, again=save),
            "refit": Command(refit, "complete", refit),
            "update": Command(self.update, "complete", self.update),
            "save": Command(save, "complete", save),
            "revert": Command(revert, "complete", revert, can_refuse=True),
            "revert to the current snapshot": Command(self.discard, "unfinished", self.discard),
            "resume with more iterations": Command(self.resume, "complete", self.resume, can_refuse=True),
            "resume an unfinished training": Command(self.resume, "unfinished", self.resume, can_refuse=True),
            "resume after a superseded training": Command(resume_to_3, "superseded", resume_to_3, can_refuse=True),
            "export": Command(self.export),
        }

    def hooks(self, run: Path) -> Hooks:
        """Return hooks that write a checkpoint of the E-step every few steps, or as usual."""
        if not self.checkpoint_steps:
            return Hooks()
        return Hooks(checkpoint=Checkpoint(run / E_STEP_FILE, every_steps=self.checkpoint_steps))

    def train(self, run: Path) -> None:
        """Train a new run."""
        PLogicNet(self.config).fit(self.graph, RULES, run, self.hooks(run))

    def train_again(self, run: Path) -> None:
        """Resume the training, or start again if nothing was saved."""
        try:
            PLogicNet.resume(run, hooks=self.hooks(run))
        except InputError:
            if state_of(run) is not State.ABSENT:
                raise
            self.train(run)

    def resume(self, run: Path, iterations: int = 2) -> None:
        """Train a run until it has this number of iterations."""
        PLogicNet.resume(run, {"em.iterations": iterations}, self.hooks(run))

    def refit(self, run: Path) -> None:
        """Replace the rules of a run."""
        PLogicNet.load(run).refit(RULES, run)

    def update(self, run: Path) -> None:
        """Add facts about a new entity to a run."""
        PLogicNet.load(run).update([("man0", "parent", "kim"), ("woman0", "parent", "kim")], run, steps=3)

    def save(self, run: Path) -> None:
        """Save the model of another run."""
        PLogicNet.load(self.folder / "other").save(run)

    def discard(self, run: Path) -> None:
        """Discard an unfinished training."""
        lifecycle.revert(run, current_name(run))

    def export(self, out: Path) -> None:
        """Export a run."""
        export(PLogicNet.load(self.folder / "complete").fitted, out, ExportOptions())


def stop(*_: object) -> None:
    """Stop a training."""
    raise StoppedError


@dataclass(frozen=True)
class Known:
    """The content of a run, and the answers to a query."""

    files: Mapping[str, bytes]
    answers: Sequence[Prediction]

    @classmethod
    def of(cls, run: Path) -> "Known":
        """Return the content of the current snapshot."""
        return cls(files_of(run), PLogicNet.load(run).predict(*QUERY, top=3))


class UnexpectedError(Exception):
    """A state that does not open or continue as it should."""


@dataclass(frozen=True)
class Case:
    """A recorded command.

    Attributes:
        name: its name.
        command: the command.
        recording: its operations.
        root: the directory in which it ran.
        old: the content of the run before; None for a new directory, and for an export.
        new: the content of the run after; None for an export.
        exported: the exported files.
    """

    name: str
    command: Command
    recording: Recording
    root: Path
    old: Known | None
    new: Known | None
    exported: Tree

    def open(self, run: Path, with_answers: bool = True) -> str:
        """Open a state. Return "old", "new" or "message", or raise UnexpectedError."""
        if self.new is None:
            return self._open_export(run)
        model, messages = None, []
        try:
            model = PLogicNet.load(run)
        except InputError as error:
            messages.append(f"load: {error}")
        try:
            with redirect_stdout(io.StringIO()):
                list_runs(run, as_json=True)
        except InputError as error:
            messages.append(f"runs list: {error}")
        if messages:
            is_new = self.old is None and not (run / CURRENT_FILE).exists()
            if is_new and len(messages) == 2 and all(re.search(NO_RUN, message) for message in messages):
                return "message"
            raise UnexpectedError(messages[0])
        return self._compare(run, model if with_answers else None)

    def _compare(self, run: Path, model: PLogicNet | None) -> str:
        """Return whether a run has the old or the new content. With a model, compare its predictions too."""
        files = files_of(run)
        for name, known in (("new", self.new), ("old", self.old)):
            if known is not None and files == known.files:
                if model is not None and model.predict(*QUERY, top=3) != known.answers:
                    raise UnexpectedError(f"the files are the {name} ones, but the predictions differ")
                return name
        raise UnexpectedError("the content is neither the old nor the new one")

    def _open_export(self, out: Path) -> str:
        files = {name: data for name, data in read_tree(out).items() if ".part" not in name}
        for name, data in files.items():
            if data != self.exported.get(name):
                raise UnexpectedError(f"{name} differs from the exported file")
        return "new" if files == self.exported else "old"

    def proceed(self, run: Path, opened: str) -> None:
        """Run the next command in a state that was opened. Raise UnexpectedError if the result is not the new content.

        The old content must remain as a snapshot.
        """
        if self.command.again is None or self.new is None:
            return
        try:
            self.command.again(run)
        except InputError as error:
            if not self.command.can_refuse or opened != "new":
                raise UnexpectedError(f"again: {error}") from None
            lifecycle.revert(run, current_name(run))  # another command that writes
        if self.open(run) != "new":
            raise UnexpectedError("the next command did not produce the new content")
        if found := leftovers(run):
            raise UnexpectedError(f"the next command left {', '.join(found)}")
        if self.old is not None and opened == "old":
            kept = [run / SNAPSHOTS_DIR / name for name in snapshot_names(run)]
            contents = [{f.name: f.read_bytes() for f in k.iterdir() if f.name != MANIFEST_FILE} for k in kept]
            if self.old.files not in contents:
                raise UnexpectedError("the next command removed the snapshot with the old content")


@contextmanager
def no_minimum_age() -> Iterator[None]:
    """Let commands remove snapshots of any age, as if they were published long ago."""
    usual = snapshots.MIN_AGE_SECONDS
    vars(snapshots)["MIN_AGE_SECONDS"] = -1.0
    try:
        yield
    finally:
        vars(snapshots)["MIN_AGE_SECONDS"] = usual


def record(workshop: Workshop, name: str, folder: Path) -> Case:
    """Run a command in a new directory in `folder`, and record its operations."""
    command, root = workshop.commands()[name], folder / f"recorded {name}"
    root.mkdir()
    run, old, new, exported = root / RUN, None, None, Tree()
    if command.start:
        shutil.copytree(workshop.folder / command.start, run)
        old = Known.of(run)
    with no_minimum_age(), Recorder(root) as recorder:
        command.run(run)
    if name == "export":
        exported = read_tree(run)
    else:
        new = Known.of(run)
    return Case(name, command, recorder.recording(), root, old, new, exported)


@dataclass
class Figures:
    """Counts of states by result, and failures: by command and message, the number of states and the first one."""

    opened: Counter[str] = field(default_factory=Counter)
    continued: int = 0
    failures: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def fail(self, case: Case, state: CrashState, message: str) -> None:
        """Count a failure. Messages that differ only in digits and paths count as equal."""
        text = re.sub(r"\d+", "N", message.replace(str(case.root.parent), ""))
        self.failures.setdefault((case.name, text), []).append(f"{case.recording.describe(state)}: {message}")


def try_states(
    case: Case, states: Sequence[CrashState], folder: Path, figures: Figures, progress: Progress, every: int = 0
) -> None:
    """Open each state, and continue from every `every`-th one (0: none). Predictions are compared as often."""
    opened_in, continued_in = Scratch(folder / f"opened {case.name}"), Scratch(folder / f"continued {case.name}")
    with progress(f"{case.name}, states", len(states)) as advance, no_minimum_age():
        for number, state in enumerate(states):
            chosen = every > 0 and number % every == 0
            try:
                opened = case.open(opened_in.show(state.tree), with_answers=chosen)
                figures.opened[opened] += 1
                if chosen and case.command.again is not None:
                    case.proceed(continued_in.show(state.tree), opened)
                    figures.continued += 1
            except Exception as error:  # any other exception is a failure too
                kind = "" if isinstance(error, UnexpectedError) else f"{type(error).__name__}: "
                figures.fail(case, state, f"{kind}{error}")
            if chosen:
                continued_in.clear()
            advance(1, f"{sum(map(len, figures.failures.values()))} failed")
    for scratch in (opened_in, continued_in):
        shutil.rmtree(scratch.root)


def main() -> None:
    """Try all states of all commands; exit with 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="Continue from every N-th state. Default: 1, all.")
    parser.add_argument("--only", action="append", metavar="COMMAND", help="Only this command. Can be repeated.")
    parser.add_argument("--write", action="store_true", help="Write the result to docs/results/reliability.json.")
    options = parser.parse_args()
    logging.getLogger("plogicnet").addHandler(logging.NullHandler())
    figures, recorded, by_command = Figures(), {}, {}
    with tempfile.TemporaryDirectory(prefix="crash-states-") as name:
        folder = Path(name)
        workshop = Workshop(folder, iterations=2, checkpoint_steps=2)
        for command in options.only or workshop.commands():
            case = record(workshop, command, folder)
            if paths := case.recording.differences(case.root):
                figures.failures[command, "not recorded"] = paths
            states = case.recording.states()
            recorded[command], by_command[command] = len(case.recording.operations), len(states)
            try_states(case, states, folder, figures, for_stderr(), options.every)
    failures = [
        {"command": command, "message": message, "states": len(examples), "example": examples[0]}
        for (command, message), examples in figures.failures.items()
    ]
    counts = {"recorded": recorded, "states": sum(by_command.values()), "by_command": by_command}
    opened = {key: figures.opened[key] for key in ("old", "new", "message")}
    result = {**counts, "opened": opened, "continued": figures.continued, "failures": failures}
    print(json.dumps(result, indent=1))
    if options.write:
        from reliability import write_crash_states

        write_crash_states(result)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
