"""Training of the runs that the tables need; the result of each run is written when it is complete."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plogicnet.cli.train import cost, terminal_hooks, train_run
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, open_graph
from plogicnet.runs.directory import State, state_of
from plogicnet.runs.lifecycle import require_compatible
from plogicnet.support.errors import InputError
from plogicnet.support.progress import for_stderr
from reproduction.first_e_step import fit_or_load
from reproduction.inspection import rank_test
from reproduction.results import add_entry, count_measured, expected_iterations, matches_run, read_entry, read_results
from reproduction.selection import Selection
from reproduction.tables import Run


@dataclass(frozen=True)
class Training:
    """A training to do: one run with one seed in one directory."""

    run: Run
    config: Config
    folder: Path


def find_pending(selection: Selection, seeds: Sequence[int] | None, options: Mapping[str, object]) -> list[Training]:
    """Return the trainings without a complete result: for the given seeds, or one seed per run without any."""
    results, pending = read_results(selection.results), []
    for run in selection.runs:
        result = results.get(run.name)
        entries = {e["seed"]: e for e in result["by_seed"]} if result and matches_run(result, run) else {}
        done = [
            seed for seed, entry in entries.items() if count_measured(entry) >= expected_iterations(run.config(seed))
        ]
        for seed in seeds or ([] if done else list(entries)[:1] or [0]):
            config, folder = run.config(seed).with_values(options), selection.out / run.name / f"seed-{seed}"
            if seed not in done:
                require_compatible(folder, config)
                pending.append(Training(run, config, folder))
    return pending


def run_trainings(selection: Selection, trainings: Sequence[Training], commit: str | None) -> None:
    """Print the cost of the trainings, then train each and write its result."""
    graphs = _open_graphs(trainings)
    names = ", ".join(f"{t.run.name} (seed {t.config.seed})" for t in trainings)
    print(f"trainings to do: {names or 'none'}", file=sys.stderr)
    todo = [t for t in trainings if state_of(t.folder) is not State.COMPLETE]
    # trainings with equal settings have the same cost, which is printed once
    by_settings = {(t.run.dataset, repr(t.config.neural), t.config.em): t for t in todo}
    for t in by_settings.values():
        print(cost(graphs[t.run.dataset], t.config), file=sys.stderr)
    for t in trainings:
        print(f"{t.run.name}, seed {t.config.seed}", file=sys.stderr)
        if t in todo:
            hooks = terminal_hooks()
            inspect = rank_test(t.config, commit, hooks.progress)
            hooks = replace(hooks, inspect=inspect, fit_first=fit_or_load(selection.out / "first-e-steps", hooks.clock))
            train_run(t.folder, t.config, graphs[t.run.dataset], hooks=hooks, resume_command="the same command")
        print(add_entry(selection.results, t.run, read_entry(t.folder), selection.paper), file=sys.stderr)


def _open_graphs(trainings: Sequence[Training]) -> dict[str, KnowledgeGraph]:
    """Return the graphs of the trainings by name; raise InputError if one has no test triples."""
    names = dict.fromkeys(t.run.dataset for t in trainings)
    graphs = {name: open_graph(name, progress=for_stderr()) for name in names}
    for name, graph in graphs.items():
        if not len(graph.test):
            raise InputError(
                f"{name}: the graph has no test triples, which the tables rank. Use a directory with train, valid and"
                f" test; `plogicnet data convert {name} DIRECTORY --split 0.8,0.1,0.1` creates one."
            )
    return graphs
