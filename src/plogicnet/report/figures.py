"""The figures of a report: from a run's numbers to plots and tables."""

from collections.abc import Mapping, Sequence

import numpy as np

from plogicnet.evaluation.figures import Figures, RankingFigures, Reliability
from plogicnet.evaluation.metrics import Metric, columns
from plogicnet.graph import FloatArray
from plogicnet.report.findings import Ranked
from plogicnet.report.markup import Child, Markup, Names, join, tag
from plogicnet.report.plots import Axis, Plane, legend, meter, strip, strip_scale
from plogicnet.rules import RuleTable
from plogicnet.systems.system import FIGURES as TITLES
from plogicnet.systems.system import NEURAL, PLAIN, RULES, STAR
from plogicnet.training.state import Iteration

KINDS = {NEURAL: "neural", RULES: "rules", PLAIN: "plogicnet", STAR: "star"}
"""Each ranking's kind of mark."""
Titles = Mapping[str, str]
COMPARED = (NEURAL, RULES, STAR)
EDGES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""The last rank of each bin: about the same width on a scale of logarithms, and Hits@1, 3 and 10 are their sums."""
RELATIONS_MOST = 20
POINTS_MOST = 1_000
BARS_WITH_SHARES = 4
BINS_WITH_NAMES = 7
"""Of more bins, every other is named, so that the names stand apart on a phone."""
STEPS = {
    "mine": "mining rules",
    "ground": "grounding rules",
    "e_step": "E-steps: training the neural model",
    "e_step_shared": "E-steps taken over",
    "m_step": "M-steps: learning weights",
    "validate": "choosing λ on valid",
    "report": "standard errors of rules",
    "evaluate": "calibrating and evaluating",
}


def table(columns: Sequence[Child], rows: Sequence[Sequence[Child]], class_: str = "") -> Markup:
    """A table that scrolls by itself where a screen is narrow; numbers, and texts that begin like one, to the right.

    Example:
        >>> table(["n"], [[1]]).count("<td")
        1
    """
    head = tag("tr", [tag("th", column, scope="col") for column in columns])
    body = [tag("tr", [tag("td", cell, class_=_side(cell)) for cell in row]) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body), class_=class_ or None), class_="scroll")


def _side(cell: Child) -> str | None:
    plain = isinstance(cell, int | float) or (isinstance(cell, str) and not isinstance(cell, Markup))
    return "number" if plain and str(cell).lstrip("+-–−")[:1] in "0123456789" else None


def systems_table(rankings: Mapping[str, RankingFigures], titles: Titles = TITLES) -> Markup:
    """The rankings side by side; the best of each column is bold."""
    there = {title: rankings[name].overall for name, title in titles.items() if name in rankings}
    shown = [metric for metric in columns() if all(metric.key in figures for figures in there.values())]
    best = {metric.key: metric.best(round(figures[metric.key], 3) for figures in there.values()) for metric in shown}

    def cell(metric: Metric, value: float) -> Child:
        text = metric.show(value)
        return tag("b", text) if round(value, 3) == best[metric.key] and len(there) > 1 else text

    rows = [[title, *(cell(m, figures[m.key]) for m in shown)] for title, figures in there.items()]
    return table(["system", *(metric.title for metric in shown)], rows, "systems")


def groups_table(
    groups: Mapping[str, Mapping[str, Figures]], counts: Mapping[str, int], kind: str, names: Names, titles: Titles
) -> Markup:
    """The MRR of each relation or category, by ranking, as marks on a line; the largest first.

    Example:
        >>> groups_table({"rules": {"1-1": {"mrr": 0.5}}}, {"1-1": 3}, "category", Names(), TITLES).count("0.500")
        3
    """
    there = [name for name in COMPARED if name in groups]
    shown = sorted(counts, key=lambda group: (-counts[group], group))[:RELATIONS_MOST]
    rows = []
    for group in shown:
        values = {name: groups[name][group]["mrr"] for name in there}
        marks = [(KINDS[n], v, f"{titles[n]}: MRR {v:.3f}") for n, v in values.items()]
        rows.append([names(group), f"{counts[group]:,}", strip(marks), *(f"{v:.3f}" for v in values.values())])
    head = [kind, "triples", strip_scale(), *(titles[name] for name in there)]
    return join(legend(_kinds(there, titles), lines=False), table(head, rows, "groups"))


def _kinds(there: Sequence[str], titles: Titles) -> list[tuple[str, str]]:
    return [(KINDS[name], titles[name]) for name in there]


def iterations_figure(history: Sequence[Iteration], titles: Titles = TITLES, beside_test: bool = False) -> Markup:
    """MRR on valid after each EM iteration; beside figures on test the caption says why they differ.

    Example:
        >>> iterations_figure([Iteration(1, 9, 4, 0.5, {}, 1.0, {"rules": {"mrr": 0.5}})]).count("figure")
        2
    """
    there = [name for name in titles if name in history[0].valid]
    mrr = {name: [(line.iteration, line.valid[name]["mrr"]) for line in history] for name in there}
    values = [v for points in mrr.values() for _, v in points]
    plane = Plane(_iterations(history), Axis.of(min(values), max(values), "MRR on valid"))
    drawn = [plane.line(KINDS[n], points) for n, points in mrr.items()]
    drawn += [[plane.mark(KINDS[n], *p, f"{titles[n]}: {p[1]:.3f}") for p in mrr[n]] for n in there]
    about = "; ".join(f"{line.iteration}: λ = {line.lambda_:g}" for line in history)
    about = f"By the validation triples, which also choose λ, the rules’ share in pLogicNet* ({about})."
    about += " Facts of test compete there, so that it may be far below the MRR on test." if beside_test else ""
    return plane.figure("EM iterations", about, drawn, legend(_kinds(there, titles)))


def _iterations(history: Sequence[Iteration]) -> Axis:
    numbers = [line.iteration for line in history]
    ticks = tuple((float(n), str(n)) for n in numbers[:: max(1, len(numbers) // 10)])
    return Axis(min(numbers) - 0.5, max(numbers) + 0.5, ticks, "EM iteration")


def accepted_figure(history: Sequence[Iteration], tau: float) -> Markup:
    """How many hidden triples were accepted, and how many of them are held-out facts.

    Example:
        >>> accepted_figure([Iteration(1, 9, 4, 0.5, {}, 1.0, {})], 0.5).count("50.0 %")
        2
    """
    highest = max(1, *(line.accepted for line in history))
    plane = Plane(_iterations(history), Axis.of(0, 1.08 * highest, "accepted hidden triples"))
    half = min(0.3, 0.06 * len(history) + 0.1)
    drawn: list[Child] = []
    for line in history:
        at, accepted, share = line.iteration, line.accepted, line.accepted_precision
        text = "" if share is None else f"{100 * share:.1f} %"
        drawn.append(plane.bar("soft", at - half, at + half, accepted, f"{accepted:,} accepted"))
        if share:
            drawn.append(plane.bar("star", at - half, at + half, share * accepted, f"{text} of them held out"))
        shown = f"{accepted:,} · {text}" if text and len(history) <= BARS_WITH_SHARES else f"{accepted:,}"
        drawn.append(plane.text(at, accepted, shown))
    about = (
        f"Of {history[-1].hidden:,} hidden triples, those with p_w ≥ {tau:g}. The full colour and the percentage are"
        " the part that valid or test holds; the rest is wrong, or true and not in the data."
    )
    return plane.figure("Hidden triples accepted", about, drawn)


def ranks_figure(ranking: Ranked, entities: int, titles: Titles = TITLES) -> Markup:
    """How the ranks are spread over bins of equal width on a scale of logarithms."""
    there = [name for name in COMPARED if name in ranking.ranks]
    edges = [edge for at, edge in enumerate(EDGES) if not at or EDGES[at - 1] < entities]
    shares = {name: rank_shares(ranking.ranks[name].realistic, edges) for name in there}
    ticks = [(at + 0.5, _bin(edges[at - 1] + 1 if at else 1, edge)) for at, edge in enumerate(edges)]
    step = 1 if len(edges) <= BINS_WITH_NAMES else 2
    x = Axis(0, len(edges), tuple(ticks[::step]), "rank")
    plane = Plane(x, Axis.of(0, max(float(s.max()) for s in shares.values()), "share of queries", percent=True))
    width = 0.8 / len(there)
    drawn = [
        plane.bar(KINDS[name], at + 0.1 + i * width, at + 0.1 + (i + 0.92) * width, share, f"{100 * share:.1f} %")
        for i, name in enumerate(there)
        for at, share in enumerate(shares[name].tolist())
    ]
    part, of = len(ranking.triples), ranking.of
    sample = f" A sample of {part:,} of the {of:,} triples, drawn by the run’s seed." if part < of else ""
    about = f"Heads and tails of the {ranking.split} triples among {entities:,} entities, filtered.{sample}"
    return plane.figure("Where the truth stands", about, drawn, legend(_kinds(there, titles), lines=False))


def rank_shares(ranks: FloatArray, edges: Sequence[int]) -> FloatArray:
    """The share of ranks in each bin, given the last rank of each.

    Example:
        >>> rank_shares(np.array([1.0, 2.0, 2.5, 9.0]), [1, 3, 10])
        array([0.25, 0.5 , 0.25])
    """
    place = np.minimum(np.searchsorted(edges, ranks.ravel()), len(edges) - 1)
    return np.asarray(np.bincount(place, minlength=len(edges)) / max(1, ranks.size))


def _bin(first: int, last: int) -> str:
    """The ranks of a bin; thousands are rounded down.

    Example:
        >>> _bin(1, 1), _bin(4, 10), _bin(301, 1000), _bin(3001, 10_000)
        ('1', '4–10', '301–1k', '3k–10k')
    """
    short = [f"{n // 1000}k" if n >= 1000 else str(n) for n in (first, last)]
    return "–".join(dict.fromkeys(short))


def reliability_figure(calibration: Reliability, split: str) -> Markup:
    """How many candidates of a probability are true.

    Example:
        >>> from plogicnet.evaluation.figures import Bin
        >>> reliability_figure(Reliability(0.1, 0.0, (Bin(0.1, 0.2, 1.0),)), "test").count("<circle")
        1
    """
    x = Axis.of(0, 1, "probability that was given", percent=True)
    plane = Plane(x, Axis.of(0, 1, "share that is true", percent=True))
    points = [(point.predicted, point.true) for point in calibration.curve]
    drawn = [plane.line("ideal", [(0, 0), (1, 1)]), plane.line("star", points)]
    for point in calibration.curve:
        text = f"given {point.predicted:.3f}, true {point.true:.3f}; {100 * point.share:.3g} % of candidates"
        drawn.append([plane.dot("star", point.predicted, point.true, 2.5 + 3 * point.share**0.25, text)])
    about = (
        f"On {split}. Above the dashed line the model is more cautious than it need be, below it too sure; larger dots"
        " stand for more candidates."
    )
    return plane.figure("Can the probabilities be believed?", about, drawn)


def rules_figure(rules: RuleTable, seed: int) -> Markup:
    """Each rule's precision and its learned weight."""
    of = len(rules)
    if of > POINTS_MOST:
        rules = rules.take(np.sort(np.random.default_rng([seed, 31]).choice(of, POINTS_MOST, replace=False)))
    x = Axis.of(0, 1, "precision: the share of what it concludes that is observed", percent=True)
    plane = Plane(x, Axis.of(float(rules.weight.min()), float(rules.weight.max()), "weight"), 260)
    radius = np.clip(1.5 + 1.3 * np.log10(np.maximum(rules.support, 1)), 2, 9)
    drawn = []
    for i in np.argsort(-rules.support, kind="stable").tolist():
        text = f"weight {rules.weight[i]:.2f}, {rules.hits[i]:,} of {rules.support[i]:,}: {rules.rules[i]}"
        drawn.append(plane.dot("rules", rules.precision[i], rules.weight[i], float(radius[i]), text))
    part = f"A sample of {len(rules):,} of the {of:,} rules, drawn by the run’s seed." if len(rules) < of else ""
    about = (
        f"{part or f'All {of:,} rules.'} Larger dots conclude more triples. A weight counts beside those of the other"
        " rules that reach the same triple: a precise rule that others repeat needs little weight of its own."
    )
    return plane.figure("Precision against learned weight", about, drawn)


def timings_table(seconds: Mapping[str, float]) -> Markup:
    """What each step of the training took.

    Example:
        >>> timings_table({"mine": 1.0, "e_step": 3.0}).count("<tr")
        4
    """
    if not seconds:
        return tag("p", "The run holds no timings.")
    whole = sum(seconds.values())
    rows: list[list[Child]] = [
        [STEPS.get(step, step), f"{took:,.1f} s", meter(took / (whole or 1.0)), f"{100 * took / (whole or 1.0):.0f} %"]
        for step, took in seconds.items()
    ]
    return table(["step", "time", "", "share"], [*rows, ["all", f"{whole:,.1f} s", "", ""]], "timings")
