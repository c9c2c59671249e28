"""Eight processes read a run while two others refit it in turn, on a machine with more processes than cores.

`python reading_and_writing.py RUN ROUNDS` prints one JSON object with the counts and the failures. Old snapshots are
removed at once, so that readers often lose the one that they are reading and start again.
"""

import json
import multiprocessing
import os
import random
import sys
import time
import traceback
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np

from plogicnet import PLogicNet
from plogicnet.runs import directory, snapshots
from plogicnet.runs.snapshots import list_snapshots, read_rules
from plogicnet.support.errors import InputError

READERS, WRITERS, PROCESSES_PER_CORE = 8, 2, 4
RULES = ("husband(X, Y) => wife(Y, X)", "parent(X, Y) => child(Y, X)")
"""Each writer has its own rule, with other hidden triples."""
FORKS = multiprocessing.get_context("fork")


def write(run: Path, number: int, rounds: int, done: "Synchronized[int]", refused: "Synchronized[int]") -> None:
    """Refit the run until all rounds are done. The weight of the rule is the number of the round."""
    model, draw = PLogicNet.load(run), random.Random(number)
    while done.value < rounds:
        try:
            model.refit(f"={1 + done.value / 100}: {RULES[number]}", out=run, keep=1)
            with done:
                done.value += 1
        except InputError as error:
            if "another process is writing here" not in str(error) and "the current snapshot is" not in str(error):
                raise
            with refused:
                refused.value += 1
            time.sleep(draw.random() / 10)
            model = PLogicNet.load(run)


def read(
    run: Path, rounds: int, done: "Synchronized[int]", reads: "Synchronized[int]", restarts: "Synchronized[int]"
) -> None:
    """Load the run until all rounds are done, and check that rules, hidden triples and metrics belong together."""
    real, attempts = directory.snapshot_folder, 0

    def count(path: Path, name: str | None = None) -> Path:
        nonlocal attempts
        attempts += 1
        return real(path, name)

    vars(snapshots)["snapshot_folder"] = count
    while done.value < rounds:
        attempts = 0
        model = PLogicNet.load(run)
        with restarts:
            restarts.value += attempts - 1
        require_consistent(model)
        assert len(read_rules(run)) == 1
        assert any(snapshot.current for snapshot in list_snapshots(run))
        with reads:
            reads.value += 1


def require_consistent(model: PLogicNet) -> None:
    """Raise AssertionError if a model was loaded from files of different snapshots."""
    outcome, metrics = model.fitted.outcome, json.loads(json.dumps(model.metrics))
    assert len(outcome.rule_model.rules) == 1
    assert len(outcome.hidden_q) == len(outcome.rule_model.hidden) == len(outcome.accepted)
    accepted = outcome.rule_model.hidden_p_w >= model.config.em.tau_triplet
    np.testing.assert_array_equal(accepted, outcome.accepted)
    for split in ("valid", "test"):
        assert json.loads(json.dumps(model.evaluate(split))) == metrics[split]


def burn(rounds: int, done: "Synchronized[int]") -> None:
    """Use a core until all rounds are done."""
    while done.value < rounds:
        sum(range(10_000))


def report(failures: "multiprocessing.Queue[str]", work: object, *arguments: object) -> None:
    """Call a function in a child process, and put the traceback of an exception into the queue."""
    try:
        work(*arguments)  # type: ignore[operator]
    except BaseException:
        failures.put(traceback.format_exc())
        sys.exit(1)


def main() -> None:
    """Start all processes, wait for them, and print the result."""
    run, rounds = Path(sys.argv[1]), int(sys.argv[2])
    snapshots.MIN_AGE_SECONDS = 0.0
    done, refused, reads, restarts = (FORKS.Value("i", 0) for _ in range(4))
    failures = FORKS.Queue()
    works = [(write, run, number, rounds, done, refused) for number in range(WRITERS)]
    works += [(read, run, rounds, done, reads, restarts)] * READERS  # type: ignore[list-item]
    works += [(burn, rounds, done)] * (PROCESSES_PER_CORE * (os.cpu_count() or 1) - len(works))  # type: ignore[list-item]
    children = [FORKS.Process(target=report, args=(failures, *work)) for work in works]
    for child in children:
        child.start()
    while any(child.is_alive() for child in children) and not any(child.exitcode for child in children):
        time.sleep(0.1)
    for child in children:
        if any(child.exitcode for child in children):
            child.terminate()
        child.join()
    counts = {"rounds": done.value, "refused": refused.value, "reads": reads.value, "restarts": restarts.value}
    found = [failures.get() for _ in range(sum(child.exitcode == 1 for child in children))]
    print(json.dumps(counts | {"processes": len(children), "failures": found}))


if __name__ == "__main__":
    main()
