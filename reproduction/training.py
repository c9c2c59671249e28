"""Trains the runs that the tables are read from, and writes the result of each."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plogicnet.cli.train import cost, terminal_hooks, trained
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, open_graph
from plogicnet.runs.directory import State, state_of
from plogicnet.runs.lifecycle import require_compatible
from plogicnet.support.errors import InputError
from plogicnet.support.progress import for_stderr
from reproduction.first_e_step import fit_or_load
from reproduction.inspection import rank_test
from reproduction.results import add_entry, entry_of, is_of, iterations_of, measured, read_results
from reproduction.selection import Selection
from reproduction.tables import Run


@dataclass(frozen=True)
class Training:
    """A training to do: one run with one seed, in one directory."""

    run: Run
    config: Config
    folder: Path


def pending(selection: Selection, seeds: Sequence[int] | None, options: Mapping[str, object]) -> list[Training]:
    """The trainings without a complete result: of these seeds, or of one seed of each run that has none."""
    there, found = read_results(selection.results), []
    for run in selection.runs:
        result = there.get(run.name)
        entries = {e["seed"]: e for e in result["by_seed"]} if result and is_of(result, run) else {}
        done = [seed for seed, entry in entries.items() if measured(entry) >= iterations_of(run.config(seed))]
        for seed in seeds or ([] if done else list(entries)[:1] or [0]):
            config, folder = run.config(seed).with_values(options), selection.out / run.name / f"seed-{seed}"
            if seed not in done:
                require_compatible(folder, config)
                found.append(Training(run, config, folder))
    return found


def train(selection: Selection, trainings: Sequence[Training], commit: str | None) -> None:
    """Prints the cost of the trainings, does each, and writes its result as soon as it is done."""
    graphs = _graphs(trainings)
    names = ", ".join(f"{t.run.name} (seed {t.config.seed})" for t in trainings)
    print(f"trainings to do: {names or 'none'}", file=sys.stderr)
    todo = [t for t in trainings if state_of(t.folder) is not State.COMPLETE]
    alike = {(t.run.dataset, repr(t.config.neural), t.config.em): t for t in todo}  # the cost of equals is printed once
    for t in alike.values():
        print(cost(graphs[t.run.dataset], t.config), file=sys.stderr)
    for t in trainings:
        print(f"{t.run.name}, seed {t.config.seed}", file=sys.stderr)
        if t in todo:
            hooks = terminal_hooks()
            inspect = rank_test(t.config, commit, hooks.progress)
            hooks = replace(hooks, inspect=inspect, fit_first=fit_or_load(selection.out / "first-e-steps", hooks.clock))
            trained(t.folder, t.config, graphs[t.run.dataset], hooks=hooks, again="the same command")
        print(add_entry(selection.results, t.run, entry_of(t.folder), selection.paper), file=sys.stderr)


def _graphs(trainings: Sequence[Training]) -> dict[str, KnowledgeGraph]:
    """The graphs that are trained on; an error where one has no test triples."""
    names = dict.fromkeys(t.run.dataset for t in trainings)
    graphs = {name: open_graph(name, progress=for_stderr()) for name in names}
    for name, graph in graphs.items():
        if not len(graph.test):
            raise InputError(
                f"{name}: there are no test triples, and the tables rank those; give a directory with train, valid and"
                f" test, as `plogicnet data convert {name} DIRECTORY --split 0.8,0.1,0.1` makes one"
            )
    return graphs
