"""Every run by EM iteration: what its rules accepted, and how well each system ranked the test triples then."""

from collections.abc import Mapping, Sequence

from plogicnet.reproduction.results import Json, iterations_over

SYSTEMS = {
    "embedding": "embedding",
    "rules": "rules",
    "plogicnet": "plogicnet",
    "plogicnet*": "plogicnet*",
    "plogicnet*, top 100": "top 100",
    "plogicnet*, self-loops compete": "self-loops",
}
"""The systems whose MRR is shown, and the titles of their columns."""
NAMES = ("run", "seeds", "EM")
COUNTS = ("hidden", "accepted", "held out", "%", "λ")
COLUMNS = (*NAMES, *COUNTS, *SYSTEMS.values())


def history(results: Mapping[str, Json]) -> list[Json]:
    """A row an iteration of a run, in the order of their names; figures are means over the seeds.

    Example:
        >>> iteration = {"iteration": 1, "hidden": 9, "accepted": 4, "precision": 0.5, "lambda": 2.0}
        >>> entry = {"seed": 0, "iterations": [iteration | {"metrics": {"plogicnet*": {"mrr": 0.75}}}]}
        >>> rows = history({"umls-transe": {"by_seed": [entry]}})
        >>> rows[0]["held_out"], rows[0]["mrr"]
        (2, {'plogicnet*': 0.75})
    """
    return [_row(name, about) for name in sorted(results) for about in iterations_over(results[name]["by_seed"])]


def _row(run: str, about: Json) -> Json:
    kept = {key: about.get(key) for key in ("iteration", "hidden", "accepted", "precision")}
    held_out = round((kept["accepted"] or 0) * (kept["precision"] or 0.0))
    metrics = about.get("metrics", {})
    mrr = {system: metrics[system]["mrr"] for system in SYSTEMS if system in metrics}
    seeds = max(about.get("seeds", {}).values(), default=0)
    lambda_ = about.get("lambda") if kept["hidden"] else None
    return {"run": run, "seeds": seeds, **kept, "held_out": held_out, "lambda": lambda_, "mrr": mrr}


def cells(row: Json) -> Sequence[str]:
    """A row as text, a cell a column.

    Example:
        >>> row = {"run": "r", "seeds": 1, "iteration": 1, "hidden": 9, "accepted": 4, "precision": 0.5, "held_out": 2}
        >>> cells(row | {"lambda": 2.0, "mrr": {"embedding": 0.5}})[4:9]
        ['4', '2', '50.00', '2', '0.5000']
    """
    known = row["precision"] is not None
    share = [f"{row['held_out']:,}", f"{row['precision']:.2%}"[:-1]] if known else ["", ""]
    counts = [*("" if row[key] is None else f"{row[key]:,.0f}" for key in ("hidden", "accepted")), *share]
    ranked = [f"{row['mrr'][system]:.4f}" if system in row["mrr"] else "" for system in SYSTEMS]
    lambda_ = "" if row["lambda"] is None else f"{row['lambda']:g}"
    return [row["run"], str(row["seeds"]), str(row["iteration"]), *counts, lambda_, *ranked]
