"""The path model on a CPU: frontiers, new entities, explanations, and the cost of a query on a large graph.

    python benchmarks/paths_on_cpu.py frontier [--data NAME]    test MRR, seconds and memory by the size of the frontier
    python benchmarks/paths_on_cpu.py inductive [--data NAME]   entities without training facts, compared with rules
    python benchmarks/paths_on_cpu.py explain [--data NAME]     seconds per explanation, and the effect of removing the
                                                                best path, compared with random facts near the triple
    python benchmarks/paths_on_cpu.py growth                    seconds per query on random graphs of growing size

Each part adds its rows to docs/results/paths-on-cpu.json, or to the file given with --out.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plogicnet import Config, PLogicNet, open_graph
from plogicnet.config import parse_assignments
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import HEAD, RELATION, SPLITS, TAIL, IntArray, KnowledgeGraph, Vocabulary, as_triples
from plogicnet.neural.paths.model import PathModel
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Examples
from plogicnet.support.files import write_text
from results import ROOT, current_commit, no_rules

Row = dict[str, Any]
TEST_TRIPLES = 1_000
"""Larger test splits are sampled in `frontier`."""
HELD_OUT_ENTITIES = 0.1
"""The share of entities without training facts in `inductive`."""
GROWTH = (10**4, 10**5, 10**6, 10**7)
"""Numbers of triples in `growth`."""


def settings_of(options: argparse.Namespace) -> Config:
    """Return the settings of a path model without rules, with those of the command line."""
    preset = Config().with_preset(options.preset) if options.preset else Config()
    values = {"neural.model": "Paths", "em.iterations": 1, "device": "cpu", "seed": options.seed}
    return preset.with_values(values).with_values(parse_assignments(options.set))


def sample(triples: IntArray, size: int) -> IntArray:
    """Return at most `size` of the triples."""
    return np.random.default_rng(0).permutation(triples)[:size]


def test_metrics(graph: KnowledgeGraph, model: PathModel) -> Row:
    """Return the metrics of a model alone on test."""
    ranks = rank(graph, "test", model, no_rules(graph), {"neural": CombinedOrder(constraint=False)})["neural"]
    metrics = compute_metrics(ranks.realistic)
    return {key: metrics[key] for key in ("mrr", "hits_at_1", "hits_at_10")}


def frontier(options: argparse.Namespace) -> Iterator[Row]:
    """Train with each size of the frontier for the same number of steps; 0 is the exact model."""
    whole = open_graph(options.data)
    graph = replace(whole, test=sample(whole.test, TEST_TRIPLES))
    for size in options.frontiers:
        config = settings_of(options).with_values({"neural.paths.frontier": size})
        model = PathModel.of(whole, config)
        started = time.perf_counter()
        model.fit(Examples.of(whole.train), seed=options.seed)
        trained = time.perf_counter()
        metrics = test_metrics(graph, model)
        seconds = time.perf_counter() - trained
        yield {
            "frontier": size,
            "steps": model.settings.steps,
            **metrics,
            "train_seconds": round(trained - started, 1),
            "test_triples": len(graph.test),
            "test_seconds": round(seconds, 1),
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
    started = time.perf_counter()
    model = PLogicNet(settings_of(options)).fit(small)
    seconds = time.perf_counter() - started
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
            "fit_seconds": round(seconds, 1),
        }


def explain(options: argparse.Namespace) -> Iterator[Row]:
    """Explain test triples with good ranks, then remove the best path, or random facts instead.

    The random facts are as many as the path has, each with an entity of the triple.
    """
    graph, config = open_graph(options.data), settings_of(options)
    model = PathModel.of(graph, config)
    model.fit(Examples.of(graph.train), seed=options.seed)
    rng, seconds = np.random.default_rng(0), []
    falls: list[tuple[float, float]] = []
    for triple in sample(graph.test, len(graph.test)):
        scores = model.score_all(triple[[HEAD]], triple[[RELATION]], "tail")[0]
        if int((scores > scores[triple[TAIL]]).sum()) > 10:  # not among the first predictions
            continue
        if len(falls) == options.triples:
            break
        started = time.perf_counter()
        paths = model.reasons(triple).paths
        seconds.append(time.perf_counter() - started)
        if not paths:
            continue
        path, train = paths[0].triples, graph.train
        is_path = (train[:, None] == path).all(-1).any(1)
        near = np.flatnonzero(np.isin(train[:, [HEAD, TAIL]], triple[[HEAD, TAIL]]).any(1) & ~is_path)
        is_random = np.isin(np.arange(len(train)), rng.permutation(near)[: len(path)])
        before, after, random = (
            float(model.bind(replace(graph, train=train[~removed])).score(triple[None, :])[0])
            for removed in (np.zeros(len(train), dtype=bool), is_path, is_random)
        )
        falls.append((before - after, before - random))
    by_path, by_chance = np.array(falls).T
    yield {
        "triples": len(falls),
        "lower_without_best_path": float((by_path > 0).mean()),
        "lower_without_random_facts": float((by_chance > 0).mean()),
        "median_fall_without_best_path": round(float(np.median(by_path)), 3),
        "median_fall_without_random_facts": round(float(np.median(by_chance)), 3),
        "seconds_median": round(float(np.median(seconds)), 3),
        "seconds_p95": round(float(np.quantile(seconds, 0.95)), 3),
    }


def growth(options: argparse.Namespace) -> Iterator[Row]:
    """Time queries on random graphs with the same mean degree and hubs whose degree grows with the graph."""
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
        asked = sample(triples, 64)
        model.score_all(asked[:4, HEAD], asked[:4, RELATION], "tail")
        times = []
        for h, r, _ in asked:
            started = time.perf_counter()
            model.score_all(np.array([h]), np.array([r]), "tail")
            times.append(time.perf_counter() - started)
        yield {
            "triples": n_triples,
            "entities": n,
            "max_degree": int(model.edges.degree.max()),
            "frontier": settings.frontier,
            "query_ms_median": round(1e3 * float(np.median(times)), 1),
            "query_ms_p95": round(1e3 * float(np.quantile(times, 0.95)), 1),
        }


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "frontier": frontier,
    "inductive": inductive,
    "explain": explain,
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
    parser.add_argument("--triples", type=int, default=200, help="number of explained triples")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "paths-on-cpu.json")
    options = parser.parse_args()
    words = [word for word in sys.argv[1:] if word not in ("--out", str(options.out))]
    command, commit = " ".join(["python benchmarks/paths_on_cpu.py", *words]), current_commit()
    data = None if options.part == "growth" else options.data
    for row in PARTS[options.part](options):
        origin = {"part": options.part, "dataset": data, "threads": torch.get_num_threads()}
        new = origin | row | {"command": command, "commit": commit}
        print(json.dumps(new), flush=True)
        old = json.loads(options.out.read_text()) if options.out.exists() else []
        same = ("command", "frontier", "model", "triples")
        kept = [entry for entry in old if any(entry.get(key) != new.get(key) for key in same)]
        write_text(options.out, json.dumps([*kept, new], indent=1) + "\n")


if __name__ == "__main__":
    main()
