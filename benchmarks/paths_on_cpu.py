"""The path model on a CPU: frontiers, new entities, explanations, and the cost of a query on a large graph.

    python benchmarks/paths_on_cpu.py frontier [--data NAME]    test MRR, seconds and memory by the size of the frontier
    python benchmarks/paths_on_cpu.py inductive [--data NAME]   entities without training facts, compared with rules
    python benchmarks/paths_on_cpu.py explain [--data NAME]     seconds per explanation, and the effect of removing the
                                                                best path, compared with random facts near the triple;
                                                                --run RUN takes a trained model
    python benchmarks/paths_on_cpu.py update [--data NAME]      seconds of `update` with 100 facts, compared with a
                                                                model created with all facts
    python benchmarks/paths_on_cpu.py growth                    seconds per query on random graphs of growing size

Each part adds its rows to docs/results/paths-on-cpu.json, or to the file given with --out. CPU seconds are those of all
threads. They do not grow if other programs use the machine.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plogicnet import Config, PLogicNet, open_graph
from plogicnet.config import parse_assignments
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import HEAD, RELATION, SPLITS, TAIL, IntArray, KnowledgeGraph, Side, Vocabulary, as_triples
from plogicnet.inference.facts import update_model
from plogicnet.mln import build_rule_model
from plogicnet.neural.paths.model import PathModel
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Examples
from plogicnet.support.files import write_text
from plogicnet.training.hooks import Hooks
from results import ROOT, current_commit, no_rules

Row = dict[str, Any]
TEST_TRIPLES = 1_000
"""Larger test splits are sampled in `frontier`."""
HELD_OUT_ENTITIES = 0.1
"""The share of entities without training facts in `inductive`."""
FIRST_PREDICTIONS = 10
"""`explain` takes test triples that are among this number of first answers."""
KNOWN: dict[Side, int] = {"tail": HEAD, "head": TAIL}
"""The column of the known entity of a query, by missing side."""
NEW_FACTS, TEST_QUERIES = 100, 100
"""Numbers of facts that join the graph in `update`, and of queries that are compared."""
GROWTH = (10**4, 10**5, 10**6, 10**7)
"""Numbers of triples in `growth`."""


def settings_of(options: argparse.Namespace) -> Config:
    """Return the settings of a path model without rules, with those of the command line."""
    preset = Config().with_preset(options.preset) if options.preset else Config()
    values = {"neural.model": "Paths", "em.iterations": 1, "device": "cpu", "seed": options.seed}
    return preset.with_values(values).with_values(parse_assignments(options.set))


class Stopwatch:
    """A clock that starts when it is created."""

    def __init__(self) -> None:
        self.started, self.cpu_started = time.perf_counter(), time.process_time()

    def seconds(self, name: str) -> Row:
        """Return the wall and the CPU seconds so far."""
        cpu = time.process_time() - self.cpu_started
        return {f"{name}_seconds": round(time.perf_counter() - self.started, 1), f"{name}_cpu_seconds": round(cpu, 1)}


def sample(triples: IntArray, size: int) -> IntArray:
    """Return at most `size` of the triples."""
    return np.random.default_rng(0).permutation(triples)[:size]


def test_metrics(graph: KnowledgeGraph, model: PathModel) -> Row:
    """Return the metrics of a model alone on test."""
    ranks = rank(graph, "test", model, no_rules(graph), {"neural": CombinedOrder(constraint=False)})["neural"]
    metrics = compute_metrics(ranks.realistic)
    return {key: metrics[key] for key in ("mrr", "hits_at_1", "hits_at_10")}


def frontier(options: argparse.Namespace) -> Iterator[Row]:
    """Train with each size of the frontier for the same number of steps; 0 is the exact model.

    Each size has a process of its own, since a process only knows the peak of its memory since its start.
    """
    for size in options.frontiers:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield pool.submit(train_with_frontier, options, size).result()


def train_with_frontier(options: argparse.Namespace, size: int) -> Row:
    """Train with a frontier, and rank test."""
    whole = open_graph(options.data)
    graph = replace(whole, test=sample(whole.test, TEST_TRIPLES))
    model = PathModel.of(whole, settings_of(options).with_values({"neural.paths.frontier": size}))
    training = Stopwatch()
    model.fit(Examples.of(whole.train), seed=options.seed)
    trained, testing = training.seconds("train"), Stopwatch()
    return {
        "frontier": size,
        "steps": model.settings.steps,
        **test_metrics(graph, model),
        **trained,
        "test_triples": len(graph.test),
        **testing.seconds("test"),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def inductive(options: argparse.Namespace) -> Iterator[Row]:
    """Hold out entities with all their triples, give half of these back at prediction, and rank the other half.

    Triples without a held-out entity keep their splits. Ranks are among all entities.
    """
    graph = open_graph(options.data)
    rng = np.random.default_rng(options.seed)
    n = len(graph.entities)
    is_new = np.zeros(n, dtype=bool)
    is_new[rng.permutation(n)[: int(HELD_OUT_ENTITIES * n)]] = True

    def is_about_new(triples: IntArray) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        return np.asarray(is_new[triples[:, [HEAD, TAIL]]].any(axis=1))

    about = np.concatenate([graph.split(s)[is_about_new(graph.split(s))] for s in SPLITS])
    about = rng.permutation(np.unique(about, axis=0))
    given, asked = about[: len(about) // 2], about[len(about) // 2 :]
    rest = {s: [graph.names(t) for t in graph.split(s)[~is_about_new(graph.split(s))]] for s in SPLITS}
    small = KnowledgeGraph.from_names(rest["train"], rest["valid"], name=f"{graph.name} without some entities")
    relations = set(small.relations.names)
    facts = [names for t in given if (names := graph.names(t))[1] in relations]
    fitting = Stopwatch()
    model = PLogicNet(settings_of(options)).fit(small)
    fitted = fitting.seconds("fit")
    larger = model.with_facts(facts).fitted
    wide = larger.graph
    known = set(wide.entities.names)

    def encode(triples: Iterable[tuple[str, str, str]]) -> IntArray:
        """Return the ids of the triples whose names are all known."""
        return as_triples([wide.encode(h, r, t) for h, r, t in triples if {h, t} <= known and r in relations])

    # answers in the test split without new entities do not compete
    asked, others = encode(map(graph.names, asked)), encode(rest["test"])
    queries = replace(wide, valid=np.concatenate([wide.valid, others]), test=asked)
    scores = larger.outcome.rule_model.scores(wide)
    orders = {"Paths": CombinedOrder(constraint=False), "rules": CombinedOrder(neural=False)}
    ranks = rank(queries, "test", larger.outcome.neural, scores, orders)
    for name in orders:
        metrics = compute_metrics(ranks[name].realistic)
        yield {
            "model": name,
            "new_entities": len(wide.entities) - len(small.entities),
            "facts": len(facts),
            "queries": 2 * len(asked),
            **{key: metrics[key] for key in ("mrr", "hits_at_1", "hits_at_10")},
            **fitted,
        }


def explain(options: argparse.Namespace) -> Iterator[Row]:
    """Explain test triples with good ranks, then remove the best path, or random facts instead.

    The random facts are as many as the path has, each with an entity of the triple. A prediction without a path counts
    as one whose score does not fall.
    """
    graph, model, trained = trained_model(options)
    rng, seconds, cpu_seconds = np.random.default_rng(0), [], []
    falls: list[tuple[float, float]] = []
    for triple in sample(graph.test, len(graph.test)):
        if len(falls) == options.triples:
            break
        scores = model.score_all(triple[[HEAD]], triple[[RELATION]], "tail")[0]
        if int((scores >= scores[triple[TAIL]]).sum()) > FIRST_PREDICTIONS:
            continue
        started, cpu_started = time.perf_counter(), time.process_time()
        paths = model.reasons(triple).paths
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(time.process_time() - cpu_started)
        falls.append(falls_of(graph, model, triple, paths[0].triples, rng) if paths else (0.0, 0.0))
    by_path, by_chance = np.array(falls).T
    yield {
        "dataset": graph.name,
        "frontier": model.settings.frontier,
        "steps": model.settings.steps,
        **trained,
        "triples": len(falls),
        "without_paths": int((by_path == 0).sum()),
        "lower_without_best_path": round(float((by_path > 0).mean()), 3),
        "lower_without_random_facts": round(float((by_chance > 0).mean()), 3),
        "path_matters_more_than_random_facts": round(float((by_path > by_chance).mean()), 3),
        "median_fall_without_best_path": round(float(np.median(by_path)), 3),
        "median_fall_without_random_facts": round(float(np.median(by_chance)), 3),
        "seconds_median": round(float(np.median(seconds)), 3),
        "seconds_p95": round(float(np.quantile(seconds, 0.95)), 3),
        "cpu_seconds_median": round(float(np.median(cpu_seconds)), 3),
        "cpu_seconds_p95": round(float(np.quantile(cpu_seconds, 0.95)), 3),
    }


def trained_model(options: argparse.Namespace) -> tuple[KnowledgeGraph, PathModel, Row]:
    """Return the path model of a run on its graph, or a new one, with the seconds of its training."""
    if options.run:
        fitted = PLogicNet.load(options.run).fitted
        if not isinstance(fitted.outcome.neural, PathModel):
            raise SystemExit(f"{options.run} has no path model")
        return fitted.graph, fitted.outcome.neural, {}
    graph, training = open_graph(options.data), Stopwatch()
    model = PathModel.of(graph, settings_of(options))
    model.fit(Examples.of(graph.train), seed=options.seed)
    return graph, model, training.seconds("train")


def falls_of(
    graph: KnowledgeGraph, model: PathModel, triple: IntArray, path: IntArray, rng: np.random.Generator
) -> tuple[float, float]:
    """Return how much a score falls without the facts of a path, and without as many random facts near the triple."""
    train = graph.train
    is_path = (train[:, None] == path).all(-1).any(1)
    near = np.flatnonzero(np.isin(train[:, [HEAD, TAIL]], triple[[HEAD, TAIL]]).any(1) & ~is_path)
    is_random = np.isin(np.arange(len(train)), rng.permutation(near)[: len(path)])
    before, after, random = (
        float(model.bind(replace(graph, train=train[~removed])).score(triple[None, :])[0])
        for removed in (np.zeros(len(train), dtype=bool), is_path, is_random)
    )
    return before - after, before - random


def update(options: argparse.Namespace) -> Iterator[Row]:
    """Add facts to a model of all others. Compare the result with a model that is created with all facts.

    The rules learn their weights without the path model, and the path model is trained alone, since q of all hidden
    triples would take hours. Its q of the triples that were hidden before is not used.
    """
    graph, config = open_graph(options.data), settings_of(options)
    rng = np.random.default_rng(options.seed)
    is_new = np.zeros(len(graph.train), dtype=bool)
    is_new[rng.permutation(len(is_new))[:NEW_FACTS]] = True
    small = replace(graph, train=graph.train[~is_new])
    without = PLogicNet(config.with_values({"em.neural": False})).fit(small)
    neural = PathModel.of(small, config)
    neural.fit(Examples.of(small.train), seed=options.seed)
    outcome = without.fitted.outcome
    fitted = replace(without.fitted, outcome=replace(outcome, neural=neural))
    updating = Stopwatch()
    updated, change = update_model(fitted, config, [graph.names(t) for t in graph.train[is_new]], 0, Hooks())
    seconds = updating.seconds("update")
    fresh = PathModel.of(graph, config)
    for name, value in neural.parameters.items():
        fresh.parameters[name].copy_(value)
    fresh.mean_log_count = neural.mean_log_count
    found = updated.outcome.rule_model
    expected = build_rule_model(graph, config, found.rules, found.constraints)
    asked = sample(graph.test, TEST_QUERIES)
    scores, fresh_scores = (
        torch.stack([model.score_all(asked[:, known], asked[:, RELATION], side) for side, known in KNOWN.items()])
        for model in (updated.outcome.neural, fresh)
        if model is not None
    )
    yield {
        "frontier": neural.settings.frontier,
        "facts": change.facts,
        "hidden": change.hidden,
        "hidden_before": len(outcome.hidden_q),
        **seconds,
        "queries": 2 * len(asked),
        "same_scores": torch.equal(scores, fresh_scores),
        "same_hidden_triples": np.array_equal(found.hidden, expected.hidden),
        "same_groundings": np.array_equal(found.network.groundings_per_rule, expected.network.groundings_per_rule),
    }


def growth(options: argparse.Namespace) -> Iterator[Row]:
    """Time queries on random graphs with the same mean degree and hubs whose degree grows with the graph.

    An untrained frontier takes any entity. One that prefers entities with many edges soon consists of the largest hubs,
    which cost most.
    """
    for n_triples in GROWTH:
        n, rng = n_triples // 5, np.random.default_rng(0)
        ends = np.minimum((n * rng.random((2, n_triples)) ** 2).astype(np.int64), n - 1)  # low numbers are hubs
        triples = np.stack([ends[0], rng.integers(0, 20, n_triples), ends[1]], 1)
        entities = Vocabulary("entity", tuple(map(str, range(n))))
        graph = KnowledgeGraph("random", entities, Vocabulary("relation", tuple(f"r{i}" for i in range(20))), triples)
        settings = PathSettings(frontier=options.frontiers[0], layers=6)
        model = PathModel(graph, settings)
        for name, value in model._initial_parameters(torch.Generator().manual_seed(0)).items():
            model.parameters[name].copy_(value)
        for prefers_hubs in (False, True):
            model.parameters["priority"][:, -1] = float(prefers_hubs)
            yield {
                "triples": n_triples,
                "entities": n,
                "max_degree": int(model.edges.degree.max()),
                "frontier": settings.frontier,
                "prefers_hubs": prefers_hubs,
                **query_times(model, sample(triples, 64)),
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }


def query_times(model: PathModel, asked: IntArray) -> Row:
    """Return the milliseconds of queries, one by one."""
    model.score_all(asked[:4, HEAD], asked[:4, RELATION], "tail")
    times, cpu_times = [], []
    for h, r, _ in asked:
        started, cpu_started = time.perf_counter(), time.process_time()
        model.score_all(np.array([h]), np.array([r]), "tail")
        times.append(1e3 * (time.perf_counter() - started))
        cpu_times.append(1e3 * (time.process_time() - cpu_started))
    return {
        "query_ms_median": round(float(np.median(times)), 1),
        "query_ms_p95": round(float(np.quantile(times, 0.95)), 1),
        "query_cpu_ms_median": round(float(np.median(cpu_times)), 1),
    }


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "frontier": frontier,
    "inductive": inductive,
    "explain": explain,
    "update": update,
    "growth": growth,
}


def main() -> None:
    """Run a part, print its rows, and add them to the file, in place of rows of the same command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--data", default="wn18rr")
    parser.add_argument("--preset")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frontiers", type=lambda text: [int(k) for k in text.split(",")], default=[100])
    parser.add_argument("--run", type=Path, help="explain with the path model of this run")
    parser.add_argument("--triples", type=int, default=200, help="number of explained triples")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "paths-on-cpu.json")
    options = parser.parse_args()
    words = [word for word in sys.argv[1:] if word not in ("--out", str(options.out))]
    words = ["RUN" if word == str(options.run) else word for word in words]
    command, commit = " ".join(["python benchmarks/paths_on_cpu.py", *words]), current_commit()
    data = None if options.part == "growth" else options.data
    for row in PARTS[options.part](options):
        origin = {"part": options.part, "dataset": data, "threads": torch.get_num_threads()}
        new = origin | row | {"command": command, "commit": commit}
        print(json.dumps(new), flush=True)
        old = json.loads(options.out.read_text()) if options.out.exists() else []
        same = ("command", "frontier", "model", "triples", "prefers_hubs")
        kept = [entry for entry in old if any(entry.get(key) != new.get(key) for key in same)]
        write_text(options.out, json.dumps([*kept, new], indent=1) + "\n")


if __name__ == "__main__":
    main()
