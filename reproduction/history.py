"""Every run by EM iteration: the number of accepted hidden triples, and the test MRR of each ranking."""

from collections.abc import Mapping, Sequence

from plogicnet.systems.system import PLOGICNET_STAR_KEY, RANKING_TITLES
from reproduction.inspection import SELF_LOOPS, TOP_100
from reproduction.results import Json, average_iterations

RANKINGS = {key: key for key in RANKING_TITLES} | {
    PLOGICNET_STAR_KEY + TOP_100: "top 100",
    PLOGICNET_STAR_KEY + SELF_LOOPS: "self-loops",
}
"""The rankings with an MRR column, and the column titles."""
RUN_COLUMNS = ("run", "seeds", "EM")
COUNT_COLUMNS = ("hidden", "accepted", "held out", "%", "λ")
COLUMNS = (*RUN_COLUMNS, *COUNT_COLUMNS, *RANKINGS.values())


def history_rows(results: Mapping[str, Json]) -> list[Json]:
    """Return one row per iteration of each run, sorted by run, with means over the seeds.

    Example:
        >>> iteration = {"iteration": 1, "hidden": 9, "accepted": 4, "precision": 0.5, "lambda": 2.0}
        >>> entry = {"seed": 0, "iterations": [iteration | {"metrics": {"plogicnet*": {"mrr": 0.75}}}]}
        >>> rows = history_rows({"umls-transe": {"by_seed": [entry]}})
        >>> rows[0]["held_out"], rows[0]["mrr"]
        (2, {'plogicnet*': 0.75})
    """
    return [_row(name, about) for name in sorted(results) for about in average_iterations(results[name]["by_seed"])]


def _row(run: str, about: Json) -> Json:
    counts = {key: about.get(key) for key in ("iteration", "hidden", "accepted", "precision")}
    held_out = round((counts["accepted"] or 0) * (counts["precision"] or 0.0))
    metrics = about.get("metrics", {})
    mrr = {system: metrics[system]["mrr"] for system in RANKINGS if system in metrics}
    seeds = max(about.get("seeds", {}).values(), default=0)
    lambda_ = about.get("lambda") if counts["hidden"] else None
    return {"run": run, "seeds": seeds, **counts, "held_out": held_out, "lambda": lambda_, "mrr": mrr}


def format_row(row: Json) -> Sequence[str]:
    """Return a row as text, one cell per column.

    Example:
        >>> row = {"run": "r", "seeds": 1, "iteration": 1, "hidden": 9, "accepted": 4, "precision": 0.5, "held_out": 2}
        >>> format_row(row | {"lambda": 2.0, "mrr": {"neural": 0.5}})[4:9]
        ['4', '2', '50.00', '2', '0.5000']
    """
    known = row["precision"] is not None
    share = [f"{row['held_out']:,}", f"{row['precision']:.2%}"[:-1]] if known else ["", ""]
    counts = [*("" if row[key] is None else f"{row[key]:,.0f}" for key in ("hidden", "accepted")), *share]
    mrrs = [f"{row['mrr'][system]:.4f}" if system in row["mrr"] else "" for system in RANKINGS]
    lambda_ = "" if row["lambda"] is None else f"{row['lambda']:g}"
    return [row["run"], str(row["seeds"]), str(row["iteration"]), *counts, lambda_, *mrrs]
