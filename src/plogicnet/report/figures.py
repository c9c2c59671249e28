"""Figures and tables of the report."""

from collections.abc import Mapping, Sequence

import numpy as np

from plogicnet.evaluation.metrics import Metric, columns
from plogicnet.evaluation.results import CalibrationQuality, MetricValues, RankingMetrics
from plogicnet.graph import FloatArray
from plogicnet.report.highlights import RankedTriples
from plogicnet.report.markup import Child, Markup, NameFormatter, join, tag
from plogicnet.report.plots import Axis, Plot, legend, meter, strip_axis, strip_plot
from plogicnet.rules import RuleTable
from plogicnet.support.numbers import format_probability
from plogicnet.systems.system import NEURAL, PLOGICNET_KEY, PLOGICNET_STAR_KEY, RANKING_TITLES, RULES
from plogicnet.training.state import Iteration

CSS_CLASSES = {NEURAL: "neural", RULES: "rules", PLOGICNET_KEY: "plogicnet", PLOGICNET_STAR_KEY: "star"}
"""The CSS class of each ranking, which also selects its marker."""
Titles = Mapping[str, str]
COMPARED = (NEURAL, RULES, PLOGICNET_STAR_KEY)
"""The rankings in tables and figures with little space."""
BIN_EDGES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""The last rank of each bin. Bins have similar widths on a log scale. Sums of the first bins are Hits@1, 3 and 10."""
MAX_RELATIONS = 20
MAX_POINTS = 1_000
"""Maximum number of rules in a plot."""
MAX_BARS_WITH_SHARES = 4
"""With more bars, the labels contain no shares, so that they do not overlap."""
MAX_BINS_WITH_LABELS = 7
"""With more bins, every second bin has a label, so that labels do not overlap on a phone."""
STEPS = {
    "mine": "mining rules",
    "ground": "grounding rules",
    "e_step": "E-steps: training the neural model",
    "propose": "rules proposed by paths",
    "e_step_shared": "E-steps shared with another run",
    "m_step": "M-steps: learning rule weights",
    "validate": "choosing λ on valid",
    "report": "standard errors of rule weights",
    "completion": "choosing the candidates of completion",
    "evaluate": "calibration and evaluation",
}
"""Descriptions of the steps in timings.json."""


def table(columns: Sequence[Child], rows: Sequence[Sequence[Child]], class_: str = "") -> Markup:
    """Return a table that scrolls on narrow screens. Numbers, and texts that start with a digit, are right-aligned.

    Example:
        >>> '<td class="number">1</td>' in table(["n"], [[1]])
        True
    """
    head = tag("tr", [tag("th", column, scope="col") for column in columns])
    body = [tag("tr", [tag("td", cell, class_=_alignment(cell)) for cell in row]) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body), class_=class_ or None), class_="scroll")


def _alignment(cell: Child) -> str | None:
    plain = isinstance(cell, int | float) or (isinstance(cell, str) and not isinstance(cell, Markup))
    return "number" if plain and str(cell).lstrip("+-–−")[:1] in "0123456789" else None


def rankings_table(rankings: Mapping[str, RankingMetrics], titles: Titles = RANKING_TITLES) -> Markup:
    """Return a table of the metrics of each ranking. The best value of each column is bold."""
    overall = {title: rankings[name].overall for name, title in titles.items() if name in rankings}
    shown = [metric for metric in columns() if all(metric.key in values for values in overall.values())]
    best = {metric.key: metric.best(round(values[metric.key], 3) for values in overall.values()) for metric in shown}

    def cell(metric: Metric, value: float) -> Child:
        text = metric.show(value)
        return tag("b", text) if round(value, 3) == best[metric.key] and len(overall) > 1 else text

    rows = [[title, *(cell(m, values[m.key]) for m in shown)] for title, values in overall.items()]
    return table(["ranking", *(metric.title for metric in shown)], rows, "rankings")


def groups_table(
    groups: Mapping[str, Mapping[str, MetricValues]],
    counts: Mapping[str, int],
    group_title: str,
    names: NameFormatter,
    titles: Titles,
) -> Markup:
    """Return a table of the MRR per group (relation or category) and ranking, with strip plots. Large groups are first.

    Args:
        groups: the metrics by ranking and group.
        counts: the number of triples per group.
        group_title: the column title of the groups.
        names: the formatter of group names.
        titles: the titles of the rankings.

    Example:
        >>> groups, names = {"rules": {"1-1": {"mrr": 0.5}}}, NameFormatter()
        >>> rows = groups_table(groups, {"1-1": 3}, "category", names, RANKING_TITLES)
        >>> '<td class="number">0.500</td>' in rows
        True
    """
    compared = [name for name in COMPARED if name in groups]
    largest = sorted(counts, key=lambda group: (-counts[group], group))[:MAX_RELATIONS]
    rows = []
    for group in largest:
        values = {name: groups[name][group]["mrr"] for name in compared}
        markers = [(CSS_CLASSES[n], v, f"{titles[n]}: MRR {v:.3f}") for n, v in values.items()]
        rows.append([names(group), f"{counts[group]:,}", strip_plot(markers), *(f"{v:.3f}" for v in values.values())])
    head = [group_title, "triples", strip_axis(), *(titles[name] for name in compared)]
    return join(legend(_legend_entries(compared, titles), with_lines=False), table(head, rows, "groups"))


def _legend_entries(rankings: Sequence[str], titles: Titles) -> list[tuple[str, str]]:
    return [(CSS_CLASSES[name], titles[name]) for name in rankings]


def iterations_figure(history: Sequence[Iteration], titles: Titles = RANKING_TITLES, with_test: bool = False) -> Markup:
    """Return a plot of the MRR on valid after each EM iteration.

    With a test split (`with_test`), the caption explains why the MRR on test differs.

    Example:
        >>> figure = iterations_figure([Iteration(1, 9, 4, 0.5, {}, 1.0, {"rules": {"mrr": 0.5}})])
        >>> "<title>rules alone: 0.500</title>" in figure
        True
    """
    compared = [name for name in titles if name in history[0].valid]
    mrr = {name: [(line.iteration, line.valid[name]["mrr"]) for line in history] for name in compared}
    values = [v for points in mrr.values() for _, v in points]
    plot = Plot(_iteration_axis(history), Axis.from_range(min(values), max(values), "MRR on valid"))
    elements = [plot.line(CSS_CLASSES[n], points) for n, points in mrr.items()]
    elements += [[plot.marker(CSS_CLASSES[n], *p, f"{titles[n]}: {p[1]:.3f}") for p in mrr[n]] for n in compared]
    lambdas = ", ".join(f"{line.lambda_:g} in iteration {line.iteration}" for line in history)
    caption = (
        "MRR on the validation triples. They also select λ (with em.lambda=auto), the weight of the rules in"
        f" pLogicNet*: {lambdas}."
    )
    caption += (
        " On valid, answers that are in test count as wrong, so this MRR can be far below that on test."
        if with_test
        else ""
    )
    return plot.figure("EM iterations", caption, elements, legend(_legend_entries(compared, titles)))


def _iteration_axis(history: Sequence[Iteration]) -> Axis:
    iterations = [line.iteration for line in history]
    ticks = tuple((float(n), str(n)) for n in iterations[:: max(1, len(iterations) // 10)])
    return Axis(min(iterations) - 0.5, max(iterations) + 0.5, ticks, "EM iteration")


def accepted_figure(history: Sequence[Iteration], tau: float) -> Markup:
    """Return a plot of the number of accepted hidden triples per iteration, and the share in valid or test.

    Example:
        >>> ">4 · 50.0%</text>" in accepted_figure([Iteration(1, 9, 4, 0.5, {}, 1.0, {})], 0.5)
        True
    """
    highest = max(1, *(line.accepted for line in history))
    plot = Plot(_iteration_axis(history), Axis.from_range(0, 1.08 * highest, "accepted hidden triples"))
    half = min(0.3, 0.06 * len(history) + 0.1)
    elements: list[Child] = []
    for line in history:
        x, accepted, share = line.iteration, line.accepted, line.accepted_precision
        text = "" if share is None else f"{100 * share:.1f}%"
        elements.append(plot.bar("soft", x - half, x + half, accepted, f"{accepted:,} accepted"))
        if share:
            elements.append(plot.bar("star", x - half, x + half, share * accepted, f"{text} in valid or test"))
        label = f"{accepted:,} · {text}" if text and len(history) <= MAX_BARS_WITH_SHARES else f"{accepted:,}"
        elements.append(plot.text(x, accepted, label))
    caption = (
        f"Of {history[-1].hidden:,} hidden triples, those with p_w ≥ {tau:g} are accepted. The dark part, and the"
        " percentage, is the share that is in valid or test. The others are wrong, or true but not in the graph."
    )
    return plot.figure("Accepted hidden triples", caption, elements)


def ranks_figure(ranked: RankedTriples, n_entities: int, titles: Titles = RANKING_TITLES) -> Markup:
    """Return a histogram of the ranks, with bins of similar width on a log scale."""
    compared = [name for name in COMPARED if name in ranked.ranks]
    edges = [edge for i, edge in enumerate(BIN_EDGES) if not i or BIN_EDGES[i - 1] < n_entities]
    shares = {name: rank_shares(ranked.ranks[name].realistic, edges) for name in compared}
    ticks = [(i + 0.5, _bin_label(edges[i - 1] + 1 if i else 1, edge)) for i, edge in enumerate(edges)]
    step = 1 if len(edges) <= MAX_BINS_WITH_LABELS else 2
    x = Axis(0, len(edges), tuple(ticks[::step]), "rank")
    plot = Plot(x, Axis.from_range(0, max(float(s.max()) for s in shares.values()), "share of queries", percent=True))
    width = 0.8 / len(compared)
    elements = [
        plot.bar(
            CSS_CLASSES[name], left + 0.1 + i * width, left + 0.1 + (i + 0.92) * width, share, f"{100 * share:.1f}%"
        )
        for i, name in enumerate(compared)
        for left, share in enumerate(shares[name].tolist())
    ]
    count, total = len(ranked.triples), ranked.total
    sample = f" A random sample of {count:,} of the {total:,} triples." if count < total else ""
    caption = f"Head and tail queries of the {ranked.split} triples among {n_entities:,} entities, filtered.{sample}"
    return plot.figure(
        "Ranks of the correct answers", caption, elements, legend(_legend_entries(compared, titles), with_lines=False)
    )


def rank_shares(ranks: FloatArray, edges: Sequence[int]) -> FloatArray:
    """Return the share of ranks in each bin. `edges` are the last ranks of the bins.

    Example:
        >>> rank_shares(np.array([1.0, 2.0, 2.5, 9.0]), [1, 3, 10])
        array([0.25, 0.5 , 0.25])
    """
    bins = np.minimum(np.searchsorted(edges, ranks.ravel()), len(edges) - 1)
    return np.asarray(np.bincount(bins, minlength=len(edges)) / max(1, ranks.size))


def _bin_label(first: int, last: int) -> str:
    """Return the label of a bin. Thousands are rounded down.

    Example:
        >>> _bin_label(1, 1), _bin_label(4, 10), _bin_label(301, 1000), _bin_label(3001, 10_000)
        ('1', '4–10', '301–1k', '3k–10k')
    """
    short = [f"{n // 1000}k" if n >= 1000 else str(n) for n in (first, last)]
    return "–".join(dict.fromkeys(short))


def reliability_figure(quality: CalibrationQuality, split: str) -> Markup:
    """Return the reliability curve: the share of true candidates by predicted probability.

    Example:
        >>> from plogicnet.evaluation.results import ReliabilityBin
        >>> figure = reliability_figure(CalibrationQuality(0.1, 0.0, (ReliabilityBin(0.1, 0.2, 1.0),)), "test")
        >>> "<title>predicted 0.100, true 0.200; 100% of candidates</title>" in figure
        True
    """
    x = Axis.from_range(0, 1, "predicted probability")
    plot = Plot(x, Axis.from_range(0, 1, "share of true candidates"))
    points = [(point.predicted, point.true) for point in quality.curve]
    elements = [plot.line("ideal", [(0, 0), (1, 1)]), plot.line("star", points)]
    for point in quality.curve:
        text = (
            f"predicted {format_probability(point.predicted)}, true {point.true:.3f};"
            f" {100 * point.share:.3g}% of candidates"
        )
        elements.append([plot.dot("star", point.predicted, point.true, 2.5 + 3 * point.share**0.25, text)])
    caption = (
        f"On {split}. Above the dashed line the probabilities are too low, below it too high. Larger dots represent"
        " more candidates."
    )
    return plot.figure("Reliability of the probabilities", caption, elements)


def rules_figure(rules: RuleTable, seed: int) -> Markup:
    """Return a plot of the precision and the weight of each rule."""
    total = len(rules)
    if total > MAX_POINTS:
        rules = rules.take(np.sort(np.random.default_rng([seed, 31]).choice(total, MAX_POINTS, replace=False)))
    x = Axis.from_range(0, 1, "precision: share of its conclusions that are training triples")
    plot = Plot(x, Axis.from_range(float(rules.weight.min()), float(rules.weight.max()), "weight"), 260)
    radius = np.clip(1.5 + 1.3 * np.log10(np.maximum(rules.support, 1)), 2, 9)
    elements = []
    for i in np.argsort(-rules.support, kind="stable").tolist():
        precision = f"precision {rules.precision[i]:.2f} ({rules.hits[i]:,} of {rules.support[i]:,})"
        text = f"weight {rules.weight[i]:.2f}, {precision}: {rules.rules[i]}"
        elements.append(plot.dot("rules", rules.precision[i], rules.weight[i], float(radius[i]), text))
    sample = f"A random sample of {len(rules):,} of the {total:,} rules." if len(rules) < total else ""
    caption = (
        f"{sample or f'All {total:,} rules.'} Larger dots are rules that conclude more triples. The weights of all"
        " rules that conclude a triple add up, so a precise rule can have a low weight if other rules conclude the"
        " same triples."
    )
    return plot.figure("Precision and learned weight", caption, elements)


def timings_table(seconds: Mapping[str, float]) -> Markup:
    """Return a table of the time that each step of training took.

    Example:
        >>> '<td class="number">75%</td>' in timings_table({"mine": 1.0, "e_step": 3.0})
        True
    """
    if not seconds:
        return tag("p", "The run has no timings.")
    total = sum(seconds.values())
    rows: list[list[Child]] = [
        [STEPS.get(step, step), f"{took:,.1f} s", meter(took / (total or 1.0)), f"{100 * took / (total or 1.0):.0f}%"]
        for step, took in seconds.items()
    ]
    return table(["step", "time", "", "share"], [*rows, ["total", f"{total:,.1f} s", "", ""]], "timings")
