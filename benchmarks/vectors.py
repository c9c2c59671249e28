"""Training and evaluation speed and peak memory of vector models, compared with PyKEEN in the same run.

Both train the same model with the same dimension, batch size and negatives per positive, with the self-adversarial loss
and Adam. Both rank the same test triples with the same filter. Only ours filters negatives that are known positives;
PyKEEN's default, without this filter, is faster. Each measurement is a separate process with its own peak memory. The
two alternate, and the best round counts.
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
SHARED_POSITIVES = 64
"""Positives that share one set of negatives in the row `ours_shared`."""
MIN_SECONDS = 4.0
RATE_KEYS = {"train": "triples_per_second", "evaluate": "queries_per_second"}


def peak_mb() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rate(work: Callable[[int], object], units: int) -> float:
    """Return units per second without the set-up time; repeat with more units until the time is long enough."""

    def seconds(n: int) -> float:
        start = time.perf_counter()
        work(n)
        return time.perf_counter() - start

    seconds(1)  # warm up: load compiled code
    setup = seconds(1)
    while (elapsed := seconds(1 + units) - setup) < MIN_SECONDS:
        units *= 4
    return units / elapsed


def our_training(graph: KnowledgeGraph, args: argparse.Namespace) -> float:
    """Return our training triples per second."""
    from plogicnet.neural.protocol import Examples
    from plogicnet.neural.registry import make_model

    def fit(steps: int) -> None:
        settings = config.Config().with_values(
            {
                "neural.model": args.model,
                "neural.vectors.dim": args.dim,
                "neural.batch": args.batch,
                "neural.vectors.negatives": args.negatives,
                "neural.vectors.share_negatives": args.share,
                "neural.steps": steps,
                "device": "cpu",
            }
        )
        make_model(graph, settings).fit(Examples.of(graph.train), 0)

    return float(args.batch) * rate(fit, args.steps)


def pykeen_training(graph: KnowledgeGraph, args: argparse.Namespace) -> float:
    """Return PyKEEN's training triples per second in its sLCWA loop; an epoch is one batch."""
    from pykeen.training import SLCWATrainingLoop

    factory = pykeen_triples(graph, graph.train[np.random.default_rng(0).permutation(len(graph.train))[: args.batch]])
    model = pykeen_model(factory, args)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.001),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": args.negatives},
    )

    def train(epochs: int) -> None:
        loop.train(factory, num_epochs=epochs, batch_size=args.batch, use_tqdm=False, use_tqdm_batch=False)

    return float(args.batch) * rate(train, args.steps)


def our_evaluation(graph: KnowledgeGraph, args: argparse.Namespace) -> float:
    """Return our evaluation queries per second."""
    from plogicnet.evaluation.orders import CombinedOrder
    from plogicnet.evaluation.ranking import rank
    from plogicnet.mln import RuleScores
    from plogicnet.neural.protocol import Examples
    from plogicnet.neural.registry import make_model

    values = {
        "neural.model": args.model,
        "neural.vectors.dim": args.dim,
        "neural.steps": 1,
        "neural.batch": 64,
        "neural.vectors.negatives": 4,
        "device": "cpu",
    }
    model = make_model(graph, config.Config().with_values(values))
    model.fit(Examples.of(graph.train), 0)
    n = len(graph.relations)
    no_triples = TripleSet.of([], len(graph.entities))
    rules = RuleScores(no_triples, np.empty(0), np.zeros(n), np.zeros(n, dtype=bool), graph.observed)
    start = time.perf_counter()
    rank(graph, "test", model, rules, {"neural": CombinedOrder(constraint=False)})
    return 2 * len(graph.test) / (time.perf_counter() - start)


def pykeen_evaluation(graph: KnowledgeGraph, args: argparse.Namespace) -> float:
    """Return PyKEEN's evaluation queries per second."""
    from pykeen.evaluation import RankBasedEvaluator

    splits = [torch.from_numpy(graph.split(split).copy()) for split in ("train", "valid", "test")]
    model = pykeen_model(pykeen_triples(graph, graph.train), args)
    start = time.perf_counter()
    RankBasedEvaluator(filtered=True).evaluate(
        model, splits[2], additional_filter_triples=splits[:2], use_tqdm=False, batch_size=args.batch_size
    )
    return 2 * len(graph.test) / (time.perf_counter() - start)


def pykeen_triples(graph: KnowledgeGraph, triples: Any) -> Any:
    """Return triples as a PyKEEN factory with the graph's vocabularies."""
    from pykeen.triples import CoreTriplesFactory

    return CoreTriplesFactory(torch.from_numpy(triples.copy()), len(graph.entities), len(graph.relations))


def pykeen_model(factory: Any, args: argparse.Namespace) -> Any:
    """Return PyKEEN's model of the same name and dimension, without regularizer."""
    from pykeen.losses import NSSALoss
    from pykeen.models import ComplEx, TransE

    shared = {"triples_factory": factory, "embedding_dim": args.dim, "random_seed": 0}
    loss = NSSALoss(margin=12.0 if args.model == "TransE" else 0.0, adversarial_temperature=1.0)
    if args.model == "TransE":
        return TransE(**shared, loss=loss, scoring_fct_norm=1, regularizer=None)
    return ComplEx(**shared, loss=loss, regularizer=None)


PARTS = {
    ("train", "ours"): our_training,
    ("train", "pykeen"): pykeen_training,
    ("evaluate", "ours"): our_evaluation,
    ("evaluate", "pykeen"): pykeen_evaluation,
}


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Run one measurement in this process."""
    torch.set_num_threads(args.threads)
    graph = open_graph(args.dataset)
    if args.test:
        rows = np.random.default_rng(0).permutation(len(graph.test))[: args.test]
        graph = KnowledgeGraph(graph.name, graph.entities, graph.relations, graph.train, graph.valid, graph.test[rows])
    if args.who == "pykeen":
        import pykeen.pipeline  # noqa: F401 (imports are not measured)
    before = peak_mb()
    speed = PARTS[args.part, args.who](graph, args)
    return {RATE_KEYS[args.part]: round(speed, 1), "peak_mb_above_imports": round(peak_mb() - before)}


def child(args: argparse.Namespace, **options: object) -> dict[str, float]:
    """Run one measurement in a separate process."""
    arguments = [
        f"--{name.replace('_', '-')}={value}" for name, value in (vars(args) | options).items() if value is not None
    ]
    finished = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    print(options, result, file=sys.stderr)
    return result


def compare(args: argparse.Namespace, part: str, model: str) -> dict[str, object]:
    """Measure both in turn and return the best of the rounds, with our ratio to PyKEEN."""
    systems: dict[str, dict[str, object]] = {"ours": {"who": "ours", "share": 1}, "pykeen": {"who": "pykeen"}}
    if part == "train":
        systems["ours_shared"] = {"who": "ours", "share": SHARED_POSITIVES}
    rounds = [
        {name: child(args, part=part, model=model, **arguments) for name, arguments in systems.items()}
        for _ in range(args.rounds)
    ]
    rate_key = RATE_KEYS[part]
    row: dict[str, Any] = {
        name: {
            rate_key: max(r[name][rate_key] for r in rounds),
            "peak_mb_above_imports": min(r[name]["peak_mb_above_imports"] for r in rounds),
        }
        for name in systems
    }
    peer = row["pykeen"]
    for name in systems:
        if name != "pykeen":
            memory = row[name]["peak_mb_above_imports"] / max(1, peer["peak_mb_above_imports"])
            row[name] |= {
                "speed_ratio": round(row[name][rate_key] / peer[rate_key], 2),
                "memory_ratio": round(memory, 2),
            }
    return row


def is_available(model: str) -> bool:
    """Return whether this program has the model."""
    try:
        config.Config().with_values({"neural.model": model})
    except InputError as error:
        print(error, file=sys.stderr)
        return False
    return True


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fb15k-237")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--negatives", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4, help="minimum number of timed training steps")
    parser.add_argument("--test", type=int, default=0, help="number of test triples; 0: all")
    parser.add_argument("--batch-size", type=int, help="PyKEEN's evaluation batch size; default: chosen by PyKEEN")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    for name, kind in (("part", str), ("who", str), ("model", str), ("share", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print the table and save docs/results/vectors.json."""
    args = parse_arguments()
    if args.who:
        print(json.dumps(measure(args)))
        return
    measured = {
        model: {part: compare(args, part, model) for part in ("train", "evaluate")}
        for model in MODELS
        if is_available(model)
    }
    table = Table("model", "part", "system", "per second", "MB above imports", "speed ÷ PyKEEN's", "memory ÷ PyKEEN's")
    for model, parts in measured.items():
        for part, row in parts.items():
            for name, result in row.items():
                table.add_row(model, part, name, *(str(x) for x in dict(result).values()))  # type: ignore[call-overload]
    Console().print(table)
    kept = ("dataset", "dim", "batch", "negatives", "steps", "test", "rounds", "threads")
    print(save("vectors", {k: getattr(args, k) for k in kept} | {"measured": measured}))


if __name__ == "__main__":
    main()
