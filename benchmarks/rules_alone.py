"""Rules alone on the test sets of benchmark graphs: ours, and AnyBURL with PyClause.

`--who anyburl` learns rules with AnyBURL (Java, `--jar`) for a fixed time and applies them with PyClause, which is not
on PyPI: `pip install git+https://github.com/symbolic-kg/PyClause.git`. The repository of PyClause has the jar.
`--who ours` trains without a neural model and ranks by the rules.

Ranks are filtered by train, valid and test, for heads and tails, with all test triples. Ties are realistic: the mean
of the best and the worst rank. Entities without a score are tied behind all others. PyClause has two aggregations:

- noisy-or of the 5 best rules returns scores, so ties are realistic as well.
- max+ returns an order without ties: it puts the entity with more training triples first. Its ranks follow this order.

PyClause returns about `CANDIDATES` entities per query; the others count as without a score.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.graph import HEAD, RELATION, TAIL, KnowledgeGraph, open_graph
from plogicnet.support.files import write_text
from results import ROOT, current_commit

SAVED = ROOT / "docs" / "results" / "rules-alone.json"
KEYS = ("dataset", "who", "settings")
"""A row replaces one with the same values of these keys."""
CANDIDATES, BATCH = 500, 500
"""Number of candidates per query, and of queries that are answered at once, by PyClause."""
ANYBURL: dict[str, float] = {
    "MAX_LENGTH_CYCLIC": 3,
    "THRESHOLD_CORRECT_PREDICTIONS": 2,
    "THRESHOLD_CONFIDENCE": 0.0001,
}
"""The settings of AnyBURL that PyClause's own configuration uses."""
AGGREGATIONS = {"noisy-or of 5": ("noisyor", 5), "max+": ("maxplus", -1)}
"""Name of an aggregation, with PyClause's name for it and its largest number of rules per candidate."""


def learn_rules(folder: Path, jar: Path, seconds: int, threads: int) -> tuple[Path, dict[str, float]]:
    """Learn rules of train.txt with AnyBURL. Return their file, with the wall and CPU seconds and the peak memory."""
    settings: dict[str, Any] = {
        "PATH_TRAINING": folder / "train.txt",
        "PATH_OUTPUT": folder / "rules",
        "SNAPSHOTS_AT": seconds,
    }
    settings |= {"WORKER_THREADS": threads} | ANYBURL
    (folder / "learn.properties").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    command = ["java", "-cp", str(jar), "de.unima.ki.anyburl.Learn", str(folder / "learn.properties")]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rules = folder / f"rules-{seconds}"
    if not rules.is_file():  # the exit code is 1 on success as well
        sys.exit(f"AnyBURL wrote no rules:\n{(done.stdout + done.stderr)[-2000:]}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {"seconds": time.perf_counter() - start, "cpu_seconds": used.ru_utime + used.ru_stime}
    return rules, cost | {"learning_mb": used.ru_maxrss / 1024}


def write_splits(graph: KnowledgeGraph, folder: Path) -> None:
    """Write the splits as text files."""
    for split in ("train", "valid", "test"):
        lines = ["\t".join(graph.names(triple)) for triple in graph.split(split)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def pyclause_ranks(
    c_clause: Any, graph: KnowledgeGraph, rules: Path, aggregation: str, threads: int
) -> np.ndarray[Any, Any]:
    """Return the filtered ranks of the test triples, one column per missing side."""
    function, top = AGGREGATIONS[aggregation]
    common = {"num_threads": str(threads), "verbose": "false"}
    options = {"topk": CANDIDATES, "aggregation_function": function, "num_top_rules": top, "disc_at_least": -1}
    options |= {"filter_w_data": "true", "tie_handling": "frequency", "collect_rules": "false"}
    loader = c_clause.Loader(options=common)
    loader.load_data(data=str(rules.parent / "train.txt"), filter=str(rules.parent / "valid.txt"))
    loader.load_rules(rules=str(rules))
    handler = c_clause.QAHandler(options={key: str(value) for key, value in options.items()} | common)
    entity_ids, relation_ids = loader.get_entity_index(), loader.get_relation_index()
    known: dict[tuple[int, int, int], set[int]] = {}
    for side, (given, missing) in enumerate(((TAIL, HEAD), (HEAD, TAIL))):
        for triple in np.concatenate([graph.train, graph.valid, graph.test]).tolist():
            known.setdefault((side, triple[given], triple[RELATION]), set()).add(triple[missing])
    ours = {entity_ids[name]: i for i, name in enumerate(graph.entities.names) if name in entity_ids}
    ranks = np.empty((len(graph.test), 2))
    for side, (given, missing) in enumerate(((TAIL, HEAD), (HEAD, TAIL))):
        names = [(graph.entities.names[t[given]], graph.relations.names[t[RELATION]]) for t in graph.test]
        asked = [i for i, (e, r) in enumerate(names) if e in entity_ids and r in relation_ids]
        for start in range(0, len(asked), BATCH):
            rows = asked[start : start + BATCH]
            queries = [(entity_ids[names[i][0]], relation_ids[names[i][1]]) for i in rows]
            handler.calculate_answers(queries=queries, loader=loader, direction=("head", "tail")[side])
            for i, answers in zip(rows, handler.get_answers(as_string=False), strict=True):
                others = known[side, int(graph.test[i, given]), int(graph.test[i, RELATION])]
                ranks[i, side] = rank(answers, ours, int(graph.test[i, missing]), others, graph, function)
        for i in set(range(len(names))) - set(asked):  # an entity that is not in train has no candidates
            others = known[side, int(graph.test[i, given]), int(graph.test[i, RELATION])]
            ranks[i, side] = rank([], ours, int(graph.test[i, missing]), others, graph, function)
    return ranks


def rank(
    answers: list[tuple[int, float]],
    ours: dict[int, int],
    true: int,
    known: set[int],
    graph: KnowledgeGraph,
    function: str,
) -> float:
    """Return the filtered rank of the true entity among the answers, which are sorted."""
    scores = {ours[e]: score for e, score in answers if ours[e] == true or ours[e] not in known}
    others = len(graph.entities) - len(known)
    if true not in scores:
        return len(scores) + (others - len(scores)) / 2 + 1
    if function == "maxplus":
        return list(scores).index(true) + 1.0
    values = np.array(list(scores.values()))
    above, tied = int((values > scores[true]).sum()), int((values == scores[true]).sum()) - 1
    return above + tied / 2 + 1


def metrics_of(ranks: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return MRR and Hits@k of ranks."""
    hits = {f"hits_at_{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    return {"mrr": float((1 / ranks).mean())} | hits


def anyburl(options: argparse.Namespace, c_clause: Any) -> list[dict[str, Any]]:
    """Return a row per aggregation of PyClause."""
    graph = open_graph(options.data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_splits(graph, folder)
        rules, cost = learn_rules(folder, options.jar, options.seconds, options.threads)
        cost["rules"] = sum(1 for line in rules.open(encoding="utf-8") if line.strip())
        rows: list[dict[str, Any]] = []
        for aggregation in AGGREGATIONS:
            start = time.perf_counter()
            ranks = pyclause_ranks(c_clause, graph, rules, aggregation, options.threads)
            ranking = {"ranking_seconds": time.perf_counter() - start}
            settings: dict[str, Any] = {
                "aggregation": aggregation,
                "seconds": options.seconds,
                "threads": options.threads,
            } | ANYBURL
            rows.append({"settings": settings} | metrics_of(ranks) | cost | ranking)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [row | {"peak_mb": max(own, row["learning_mb"])} for row in rows]


def ours(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the row of a training without a neural model."""
    from plogicnet import PLogicNet
    from plogicnet.cli.settings import make_config

    assignments = ["em.neural=false", *options.set]
    config = make_config(options.preset, assignments=assignments, device="cpu", threads=options.threads)
    start = time.perf_counter()
    model = PLogicNet(config).fit(open_graph(options.data))
    seconds = time.perf_counter() - start
    found: Any = model.evaluate("test")["rules"]
    used = resource.getrusage(resource.RUSAGE_SELF)
    row = {key: found[key] for key in ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")}
    row |= {
        "settings": {"preset": options.preset, "set": options.set, "threads": options.threads},
        "rules": len(model.rules),
    }
    row |= {"seconds": seconds, "steps": dict(model.seconds), "cpu_seconds": used.ru_utime + used.ru_stime}
    return [row | {"peak_mb": used.ru_maxrss / 1024}]


def save(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Add rows to the saved ones."""
    jar = [] if options.jar is None else [str(options.jar)]
    arguments = ["JAR" if word in jar else word for word in sys.argv[1:]]
    origin: dict[str, Any] = {
        "command": " ".join(["python benchmarks/rules_alone.py", *arguments]),
        "commit": current_commit(),
    }
    origin["load_average"] = round(options.load, 1)
    saved = json.loads(SAVED.read_text(encoding="utf-8")) if SAVED.is_file() else []
    for row in rows:
        new = {"dataset": options.data, "who": options.who} | row | origin
        new = {key: round(value, 4) if isinstance(value, float) else value for key, value in new.items()}
        saved = [old for old in saved if any(old[key] != new[key] for key in KEYS)] + [new]
        print({key: new[key] for key in (*KEYS, "mrr", "hits_at_1", "hits_at_10", "seconds", "rules")})
    write_text(SAVED, json.dumps(saved, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Measure one system on one graph and add its rows to docs/results/rules-alone.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--who", choices=("ours", "anyburl"), default="ours")
    parser.add_argument("--data", default="wn18rr")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=100, help="anyburl: time of learning")
    parser.add_argument("--jar", type=Path, help="anyburl: AnyBURL-23-1.jar")
    parser.add_argument("--preset", help="ours: preset")
    parser.add_argument("--set", action="append", default=[], help="ours: setting, as in `plogicnet train`")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]  # of other programs: AnyBURL learns fewer rules on a busy machine
    if options.who == "ours":
        save(options, ours(options))
        return
    try:
        c_clause = importlib.import_module("c_clause")
    except ImportError:
        sys.exit("skipped: PyClause is not installed. pip install git+https://github.com/symbolic-kg/PyClause.git")
    if options.jar is None or not options.jar.is_file():
        sys.exit("skipped: --jar FILE must name AnyBURL's jar")
    save(options, anyburl(options, c_clause))


if __name__ == "__main__":
    main()
