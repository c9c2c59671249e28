"""Vectors: ours beside PyKEEN in the same run: training triples and evaluation queries a second, peak memory.

Both train the same model with the same dimension, batch and number of negatives a positive by the self-adversarial
loss and Adam, and rank the same test triples with the same filter. Ours leaves out negatives that are known positives;
PyKEEN samples as it does by default, without that filter, which is its faster way. Each measurement is a child process
of its own, so that its peak memory is its own; the two take turns, and the better of their rounds counts.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from plogicnet import config
from plogicnet.graph import KnowledgeGraph, TripleSet, open_graph
from plogicnet.support.errors import InputError
from results import save

MODELS = ("TransE", "ComplEx")
SHARED = 64
"""Positives that share one set of negatives in the separate row."""
AT_LEAST_SECONDS = 4.0
FIGURES = {"train": "triples_per_second", "evaluate": "queries_per_second"}


def peak_mb() -> float:
    """This process's peak memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rate(work: Callable[[int], object], units: int) -> float:
    """Units a second beyond the first, so that setting up falls out; more of them until the time is worth measuring."""

    def seconds(n: int) -> float:
        start = time.perf_counter()
        work(n)
        return time.perf_counter() - start

    seconds(1)  # compiled code is read from the disk
    alone = seconds(1)
    while (taken := seconds(1 + units) - alone) < AT_LEAST_SECONDS:
        units *= 4
    return units / taken


def our_training(graph: KnowledgeGraph, a: argparse.Namespace) -> float:
    """Training triples a second of ours."""
    from plogicnet.neural.protocol import Examples, make_model

    def fit(steps: int) -> None:
        settings = config.Config().with_values(
            {
                "neural.model": a.model,
                "neural.vectors.dim": a.dim,
                "neural.batch": a.batch,
                "neural.vectors.negatives": a.negatives,
                "neural.vectors.share_negatives": a.share,
                "neural.steps": steps,
                "device": "cpu",
            }
        )
        make_model(graph, settings).fit(Examples.of(graph.train), 0)

    return float(a.batch) * rate(fit, a.steps)


def pykeens_training(graph: KnowledgeGraph, a: argparse.Namespace) -> float:
    """Training triples a second of PyKEEN: its sLCWA loop over so many triples that an epoch is one batch."""
    from pykeen.training import SLCWATrainingLoop

    factory = pykeens_triples(graph, graph.train[np.random.default_rng(0).permutation(len(graph.train))[: a.batch]])
    model = pykeens_model(factory, a)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.001),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": a.negatives},
    )

    def train(epochs: int) -> None:
        loop.train(factory, num_epochs=epochs, batch_size=a.batch, use_tqdm=False, use_tqdm_batch=False)

    return float(a.batch) * rate(train, a.steps)


def our_evaluation(graph: KnowledgeGraph, a: argparse.Namespace) -> float:
    """Queries a second of ours."""
    from plogicnet.evaluation.orders import Combination
    from plogicnet.evaluation.ranking import rank
    from plogicnet.mln import RuleScores
    from plogicnet.neural.protocol import Examples, make_model

    values = {
        "neural.model": a.model,
        "neural.vectors.dim": a.dim,
        "neural.steps": 1,
        "neural.batch": 64,
        "neural.vectors.negatives": 4,
        "device": "cpu",
    }
    model = make_model(graph, config.Config().with_values(values))
    model.fit(Examples.of(graph.train), 0)
    n = len(graph.relations)
    nothing = TripleSet.of([], len(graph.entities))
    rules = RuleScores(nothing, np.empty(0), np.zeros(n), np.zeros(n, dtype=bool), graph.observed)
    start = time.perf_counter()
    rank(graph, "test", model, rules, {"neural": Combination(constraint=False)})
    return 2 * len(graph.test) / (time.perf_counter() - start)


def pykeens_evaluation(graph: KnowledgeGraph, a: argparse.Namespace) -> float:
    """Queries a second of PyKEEN, in batches of its own choice."""
    from pykeen.evaluation import RankBasedEvaluator

    splits = [torch.from_numpy(graph.split(split).copy()) for split in ("train", "valid", "test")]
    model = pykeens_model(pykeens_triples(graph, graph.train), a)
    start = time.perf_counter()
    RankBasedEvaluator(filtered=True).evaluate(
        model, splits[2], additional_filter_triples=splits[:2], use_tqdm=False, batch_size=a.batch_size
    )
    return 2 * len(graph.test) / (time.perf_counter() - start)


def pykeens_triples(graph: KnowledgeGraph, triples: Any) -> Any:
    """Some triples over the graph's vocabularies, as PyKEEN has them."""
    from pykeen.triples import CoreTriplesFactory

    return CoreTriplesFactory(torch.from_numpy(triples.copy()), len(graph.entities), len(graph.relations))


def pykeens_model(factory: Any, a: argparse.Namespace) -> Any:
    """PyKEEN's model of the same name and dimension (complex numbers for ComplEx, as ours), no regulariser."""
    from pykeen.losses import NSSALoss
    from pykeen.models import ComplEx, TransE

    shared = {"triples_factory": factory, "embedding_dim": a.dim, "random_seed": 0}
    loss = NSSALoss(margin=12.0 if a.model == "TransE" else 0.0, adversarial_temperature=1.0)
    if a.model == "TransE":
        return TransE(**shared, loss=loss, scoring_fct_norm=1, regularizer=None)
    return ComplEx(**shared, loss=loss, regularizer=None)


PARTS = {
    ("train", "ours"): our_training,
    ("train", "pykeen"): pykeens_training,
    ("evaluate", "ours"): our_evaluation,
    ("evaluate", "pykeen"): pykeens_evaluation,
}


def measure(a: argparse.Namespace) -> dict[str, float]:
    """One measurement, in this process."""
    torch.set_num_threads(a.threads)
    graph = open_graph(a.dataset)
    if a.test:
        rows = np.random.default_rng(0).permutation(len(graph.test))[: a.test]
        graph = KnowledgeGraph(graph.name, graph.entities, graph.relations, graph.train, graph.valid, graph.test[rows])
    if a.who == "pykeen":
        import pykeen.pipeline  # noqa: F401 (its imports are no part of its work)
    before = peak_mb()
    speed = PARTS[a.part, a.who](graph, a)
    return {FIGURES[a.part]: round(speed, 1), "peak_mb_above_imports": round(peak_mb() - before)}


def child(a: argparse.Namespace, **options: object) -> dict[str, float]:
    """Runs one measurement in a process of its own."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in (vars(a) | options).items() if value is not None]
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(options, figures, file=sys.stderr)
    return figures


def compare(a: argparse.Namespace, part: str, model: str) -> dict[str, object]:
    """Both in turn; the better of the rounds, and ours divided by PyKEEN's. Training with sharing stands beside."""
    ways: dict[str, dict[str, object]] = {"ours": {"who": "ours", "share": 1}, "pykeen": {"who": "pykeen"}}
    if part == "train":
        ways["ours_shared"] = {"who": "ours", "share": SHARED}
    rounds = [{name: child(a, part=part, model=model, **way) for name, way in ways.items()} for _ in range(a.rounds)]
    figure = FIGURES[part]
    row: dict[str, Any] = {
        name: {
            figure: max(r[name][figure] for r in rounds),
            "peak_mb_above_imports": min(r[name]["peak_mb_above_imports"] for r in rounds),
        }
        for name in ways
    }
    theirs = row["pykeen"]
    for name in ways:
        if name != "pykeen":
            memory = row[name]["peak_mb_above_imports"] / max(1, theirs["peak_mb_above_imports"])
            row[name] |= {"speed_ratio": round(row[name][figure] / theirs[figure], 2), "memory_ratio": round(memory, 2)}
    return row


def buildable(model: str) -> bool:
    """Whether ours has the model."""
    try:
        config.Config().with_values({"neural.model": model})
    except InputError as error:
        print(error, file=sys.stderr)
        return False
    return True


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fb15k-237")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--negatives", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4, help="training steps that are timed, or more")
    parser.add_argument("--test", type=int, default=0, help="so many test triples only; 0: all")
    parser.add_argument("--batch-size", type=int, help="PyKEEN's evaluation batch; its own choice unless given")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    for name, kind in (("part", str), ("who", str), ("model", str), ("share", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Prints the table and saves docs/results/vectors.json."""
    a = options()
    if a.who:
        print(json.dumps(measure(a)))
        return
    measured = {
        model: {part: compare(a, part, model) for part in ("train", "evaluate")} for model in MODELS if buildable(model)
    }
    table = Table("model", "", "whose", "a second", "MB above imports", "speed ÷ PyKEEN's", "memory ÷ PyKEEN's")
    for model, parts in measured.items():
        for part, row in parts.items():
            for name, figures in row.items():
                table.add_row(model, part, name, *(str(x) for x in dict(figures).values()))  # type: ignore[call-overload]
    Console().print(table)
    kept = ("dataset", "dim", "batch", "negatives", "steps", "test", "rounds", "threads")
    print(save("vectors", {k: getattr(a, k) for k in kept} | {"measured": measured}))


if __name__ == "__main__":
    main()
