"""The HTML page of the report: its sections, style sheet and content security policy."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.config import Config
from plogicnet.config.fields import yaml_value
from plogicnet.config.tree import iter_settings
from plogicnet.diagnostics.graphs import examine_graph
from plogicnet.evaluation.results import ReliabilityBin, SplitMetrics
from plogicnet.graph import RELATION, KnowledgeGraph
from plogicnet.inference.examples import Example
from plogicnet.model import PLogicNet
from plogicnet.report import figures, highlights, reasons
from plogicnet.report.markup import Child, Markup, NameFormatter, breakable, join, separated, tag, truncate
from plogicnet.rules import RuleIndex, RuleTable
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.files import write_text
from plogicnet.support.numbers import format_probability
from plogicnet.support.progress import Progress, no_progress
from plogicnet.systems.system import NEURAL, PLOGICNET_STAR_KEY, RULES
from plogicnet.version import VERSION

ALL_TIED = "Without rules and a neural model, all answers are tied."
NO_RESULTS = "No results."
NO_SPLIT = "The graph has no valid or test split"
NOT_EVALUATED = "The model was not evaluated after facts were added"
MAX_RULES, EXAMPLES_PER_RULE = 24, 2
ORDER = (
    "The most important rule of each relation, then the second one of each, and so on, grouped by relation. Importance"
    " is |weight| · √(number of conclusions that are training triples)."
)
MAX_EXAMPLE_LENGTH = 160
"""Maximum number of characters of an example in the checks of the graph."""
DIRECTION_CONTROLS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Unicode characters that change the text direction."""


def write_report(model: PLogicNet, run: Path, out: Path, progress: Progress = no_progress) -> Path:
    """Write the report of the model of a run."""
    page = render_page(model, run, progress)
    try:
        write_text(out, page)
    except OSError as error:
        raise InputError(f"{out}: cannot write the file: {error.strerror}") from None
    return out


def render_page(model: PLogicNet, run: Path, progress: Progress = no_progress) -> str:
    """Return the report as HTML."""
    graph = model.fitted.graph
    names = NameFormatter(graph.labels, {str(rule): rule for rule in model.fitted.outcome.rule_model.rules.rules})
    split = next((s for s in ("test", "valid") if s in model.metrics), None)
    ranked = highlights.rank_split(model, split, progress) if split else None
    results = highlights.answer_queries(model, ranked, progress) if ranked else []
    metrics: Mapping[str, Any] = model.metrics
    split_metrics = SplitMetrics.from_json(metrics[split]) if split else None
    sections: list[tuple[str, str, Child]] = [
        ("data", "Graph", _data(model)),
        ("ranking", "Ranking", _ranking(model, split_metrics, ranked, names)),
        ("probabilities", "Probabilities", _probabilities(model, split_metrics)),
        ("rules", "Rules", _rules(model, names)),
        ("surprises", "Surprising predictions", _surprises(model, results, names)),
        ("mistakes", "Mistakes", _mistakes(model, ranked, results, names)),
        ("settings", "Settings", _settings(model.config)),
        ("timings", "Timings", figures.timings_table(model.seconds)),
    ]
    contents = tag("nav", [tag("a", title, href=f"#{anchor}") for anchor, title, _ in sections], aria_label="Contents")
    body = [tag("section", tag("h2", title), content, id=anchor) for anchor, title, content in sections]
    parts = [model.config.neural.title] * model.config.em.neural + ["rules"] * bool(names.rules)
    subtitle = f"plogicnet report · {' and '.join(parts) or 'no model'}, seed {model.config.seed}"
    title = tag("h1", names(graph.name), tag("small", subtitle))
    head = tag("header", title, _summary(model, split_metrics), contents)
    foot = tag("footer", f"Created by plogicnet {VERSION} from the run ", names(run.resolve().name), ".")
    return _document(f"{names.text(graph.name)}: plogicnet report", join(head, tag("main", body), foot))


def _document(title: str, body: Markup) -> str:
    """Return the whole file. Its content security policy allows only its own style sheet, identified by a hash."""
    style = (resources.files("plogicnet.report") / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title[:200]),
        tag("style", Markup(style)),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", body), lang="en") + "\n"


def _tiles(values: Sequence[tuple[str, Child]]) -> Markup:
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in values], class_="tiles")


def _summary(model: PLogicNet, metrics: SplitMetrics | None) -> Markup:
    """Return the most important numbers."""
    rules = model.fitted.outcome.rule_model.rules
    last = model.history[model.fitted.outcome.iteration - 1] if model.history else None
    tiles: list[tuple[str, Child]] = []
    sentence = None
    if metrics is not None:
        star, split = metrics.rankings[PLOGICNET_STAR_KEY].overall, metrics.split
        tiles += [(f"MRR on {split}", f"{star['mrr']:.3f}"), (f"Hits@10 on {split}", f"{star['hits_at_10']:.3f}")]
        titles = model.titles
        is_combined = len(rules) and NEURAL in metrics.rankings and metrics.lambda_
        parts = [(titles[n], metrics.rankings[n].overall["mrr"]) for n in (NEURAL, RULES) if n in metrics.rankings]
        both = ", which combines the neural model and the rules" if is_combined else ""
        others = ", ".join(f"{title} {mrr:.3f}" for title, mrr in parts)
        sentence = f"MRR is the mean reciprocal rank of {titles[PLOGICNET_STAR_KEY]}{both}. For comparison: {others}."
    tiles.append(("learned rules", f"{len(rules):,}"))
    if last is not None:
        tiles.append(("accepted hidden triples", f"{last.accepted:,}"))
    return join(_tiles(tiles), tag("p", sentence) if sentence else None)


def _data(model: PLogicNet) -> Child:
    graph = model.fitted.graph
    count = graph.statistics()
    sizes = [(key, f"{count[key]:,}") for key in ("entities", "relations", "train", "valid", "test")]
    moved = pluralize(graph.moved_to_valid, "training triple was", "training triples were")
    held_out = f"The graph has no valid split. {moved} held out instead."
    unseen: Any = count["unseen_entities"]
    splits = [f"{n:,} in {split}" for split, n in unseen.items() if n]
    relations: Any = count["relation_categories"]
    triples = _by_category(model, "train")
    rows: list[list[Child]] = [[c, f"{n:,}", f"{triples[c]:,}"] for c, n in relations.items() if n]
    return [
        _tiles(sizes),
        tag("p", held_out) if graph.moved_to_valid else None,
        tag("p", f"Entities that are not in train: {', '.join(splits)}.") if splits else None,
        tag("h3", "Relations by category"),
        tag(
            "p",
            "1-N means one head per tail and several tails per head. N stands for an average above 1.5 in train.",
        ),
        figures.table(["category", "relations", "training triples"], rows, "narrow"),
        tag("h3", "Checks of the graph"),
        _checks(model),
    ]


def _by_category(model: PLogicNet, split: str) -> Counter[str]:
    """Return the number of triples of a split per relation category."""
    categories = model.fitted.graph.relation_categories
    return Counter(categories[relation] for relation in model.fitted.graph.split(split)[:, RELATION].tolist())


def _checks(model: PLogicNet) -> Markup:
    """Return the findings of `plogicnet doctor` about the graph, warnings first."""
    report = examine_graph(model.fitted.graph)
    findings = [f for level in ("warning", "note") for f in report.findings if f.level == level]
    badges = {"warning": "badge no", "note": "badge"}
    items = [
        tag("li", tag("span", f.level, class_=badges[f.level]), " ", f.message, _examples(f.examples[:3]))
        for f in findings
    ]
    return tag("ul", items, tag("li", f"{report.summary}."), class_="checks")


def _examples(examples: Sequence[str]) -> Child:
    """Return examples as text, without the characters with which names could change the text direction."""
    shown = [tag("bdi", breakable(truncate(e.translate(DIRECTION_CONTROLS), MAX_EXAMPLE_LENGTH))) for e in examples]
    return tag("small", "For example: ", separated("; ", shown)) if shown else None


def _ranking(
    model: PLogicNet,
    metrics: SplitMetrics | None,
    ranked: highlights.RankedTriples | None,
    names: NameFormatter,
) -> Child:
    if metrics is None or ranked is None:
        return tag("p", f"{_why_not_evaluated(model.fitted.graph)}, so there is nothing to rank.")
    graph, titles = model.fitted.graph, model.titles
    relations = Counter(graph.relations.take(graph.split(ranked.split)[:, RELATION]))
    by_category = {name: values.by_category for name, values in metrics.rankings.items()}
    by_relation = {name: values.by_relation for name, values in metrics.rankings.items()}
    most = figures.MAX_RELATIONS
    largest = f" (the {most} largest of {len(relations):,})" if len(relations) > most else ""
    iterations = figures.iterations_figure(model.history, titles, ranked.split == "test")
    triples = pluralize(ranked.total, f"{ranked.split} triple")
    entities = pluralize(len(graph.entities), "entity", "entities")
    return [
        tag("p", f"Filtered ranks for the head and tail queries of {triples} among {entities}."),
        figures.rankings_table(metrics.rankings, titles),
        tag("div", iterations, figures.ranks_figure(ranked, len(graph.entities), titles), class_="pair"),
        tag("h3", "MRR by relation category"),
        figures.groups_table(by_category, _by_category(model, ranked.split), "category", names, titles),
        tag("h3", f"MRR by relation{largest}"),
        figures.groups_table(by_relation, relations, "relation", names, titles),
    ]


def _why_not_evaluated(graph: KnowledgeGraph) -> str:
    """Return the reason why a model has no metrics of valid and test."""
    return NOT_EVALUATED if len(graph.valid) or len(graph.test) else NO_SPLIT


def _probabilities(model: PLogicNet, metrics: SplitMetrics | None) -> Child:
    if metrics is None:
        return tag("p", f"{_why_not_evaluated(model.fitted.graph)}, so probabilities cannot be checked.")
    quality = metrics.calibration
    same = ", which this check uses as well, so the check is too optimistic" if metrics.split == "valid" else ""
    text = (
        f"The calibration is fitted on the validation triples{same}. {_describe_curve(quality.curve)} True facts that"
        " are in no split count as wrong, so the shares of true candidates are underestimates."
    )
    rows: list[list[Child]] = [
        [name, f"{values.brier:.4f}", f"{values.ece:.4f}"]
        for name, values in (("calibrated", quality), ("uncalibrated", quality.uncalibrated))
        if values is not None
    ]
    notes = tag("div", tag("p", text), figures.table(["", "Brier score", "expected calibration error"], rows, "narrow"))
    return tag("div", figures.reliability_figure(quality, metrics.split), notes, class_="pair")


def _describe_curve(curve: Sequence[ReliabilityBin]) -> str:
    """Describe the reliability curve. Differences of less than 0.005 are ignored.

    Example:
        >>> _describe_curve([ReliabilityBin(0.5, 0.6, 0.9), ReliabilityBin(0.9, 0.7, 0.1)])
        'In 1 of 2 groups of candidates, fewer are true than predicted: at worst 0.700 instead of 0.900.'
    """
    below = [point for point in curve if point.true < point.predicted - 0.005]
    if not below:
        return "In every group of candidates, at least as many are true as predicted."
    worst = max(below, key=lambda point: point.predicted - point.true)
    at_worst = f"at worst {format_probability(worst.true)} instead of {format_probability(worst.predicted)}"
    return f"In {len(below)} of {len(curve)} groups of candidates, fewer are true than predicted: {at_worst}."


def _rules(model: PLogicNet, names: NameFormatter) -> Child:
    outcome = model.fitted.outcome
    rules = outcome.rule_model.rules.by_weight()
    constraints = len(outcome.rule_model.constraints)
    irreflexive = pluralize(constraints, "irreflexive constraint")
    if not len(rules):
        kept = f" but {irreflexive}" if constraints else ""
        effect = "Only the neural model ranks." if outcome.neural is not None else ALL_TIED
        return tag("p", f"This run has no rules{kept}. {effect}")
    patterns = ", ".join(f"{n:,} {pattern}" for pattern, n in rules.counts().items() if n)
    candidates = pluralize(model.fitted.candidates, "candidate")
    accepted = figures.accepted_figure(model.history, model.config.em.tau_triplet)
    return [
        tag("p", f"{pluralize(len(rules), 'rule')} ({patterns}) and {irreflexive}, selected from {candidates}."),
        tag("div", figures.rules_figure(rules, model.config.seed), accepted, class_="pair"),
        tag("h3", "Most important rules by relation"),
        _important(model, rules, names),
    ]


def _important(model: PLogicNet, rules: RuleTable, names: NameFormatter) -> Markup:
    """Return the most important rules of each relation with examples, and how many rules are not shown."""
    index = RuleIndex(rules)
    chosen = index.by_importance(np.arange(len(rules)))[:MAX_RULES]
    table = rules.take(index.grouped(chosen))
    rows = []
    for rule, row in zip(table.rules, table.rows(), strict=True):
        error = row["standard_error"]
        weight = join(f"{row['weight']:.2f}", tag("small", f" ± {error:.2f}") if error is not None else None)
        examples = [_example(e, names) for e in model.fitted.examples(rule, EXAMPLES_PER_RULE)]
        counts = join(f"{row['precision']:.2f}", tag("small", f" {row['hits']:,} of {row['support']:,}"))
        rows.append([weight, join(names.rule(str(rule)), tag("ul", examples, class_="examples")), counts])
    others = len(rules) - len(table)
    text = f"{pluralize(others, 'other rule')} not shown: see `plogicnet rules` and the page of `plogicnet serve`."
    note = tag("p", text) if others else None
    return join(tag("p", ORDER), figures.table(["weight", "rule and examples", "precision"], rows, "rules"), note)


def _example(example: Example, names: NameFormatter) -> Markup:
    text = "known" if example.known else f"in {example.held_out}" if example.held_out else "not in the graph"
    known = tag("span", text, class_="badge" if example.known else "badge yes")
    arrow = tag("span", " ⇒ ", class_="and")
    return tag("li", names.facts(example.premises), arrow, names.fact(example.hypothesis), " ", known)


def _surprises(model: PLogicNet, results: Sequence[highlights.QueryResult], names: NameFormatter) -> Child:
    rules, neural = names.rules, model.fitted.outcome.neural is not None
    parts: list[Child] = [tag("p", "Predictions that are not training triples. Probabilities are calibrated.")]
    if rules:
        title = "Supported by rules but not by the neural model" if neural else "Most probable by rules"
        parts += [tag("h3", title), _cards(reasons.prediction_card, highlights.supported_by_rules(model), names)]
    if neural:
        title_with_rules = "Supported by the neural model but not by rules"
        title = title_with_rules if rules else "Most probable by the neural model"
        source = f"Selected from {'hidden triples and ' if rules else ''}the answers to {len(results):,} queries."
        explanations = highlights.supported_by_neural(model, results)
        parts += [tag("h3", title), tag("p", source), _cards(reasons.prediction_card, explanations, names)]
    return parts if rules or neural else tag("p", ALL_TIED)


def _mistakes(
    model: PLogicNet,
    ranked: highlights.RankedTriples | None,
    results: Sequence[highlights.QueryResult],
    names: NameFormatter,
) -> Child:
    if ranked is None:
        return tag("p", f"{_why_not_evaluated(model.fitted.graph)}, so mistakes cannot be found.")
    parts: list[Child] = []
    if names.rules:
        none = f"No {ranked.split} triple that a rule concludes has a rank worse than {highlights.MAX_GOOD_RANK}."
        missed = _cards(reasons.missed_card, highlights.badly_ranked(model, ranked), names, none)
        parts += [tag("h3", "Badly ranked triples that a rule concludes"), missed]
    total = 2 * ranked.total
    queries = f"a random sample of {len(results):,} of {total:,}" if len(results) < total else f"all {total:,}"
    text = (
        "Answers that are in no split. Each is a mistake or a true fact that the graph does not contain. Checked on"
        f" {queries} queries."
    )
    wrong = _cards(
        reasons.wrong_card,
        highlights.wrong_answers(model, results),
        names,
        "No query has a more probable wrong answer.",
    )
    return [*parts, tag("h3", "More probable than the correct answer"), tag("p", text), wrong]


def _cards(
    card: Callable[[Any, NameFormatter], Markup], items: Sequence[Any], names: NameFormatter, none: str = NO_RESULTS
) -> Markup:
    return tag("div", [card(item, names) for item in items], class_="cards") if items else tag("p", none)


def _settings(config: Config) -> Child:
    rows: list[list[Child]] = [
        [tag("code", key), tag("code", value), tag("code", default), description]
        for key, value, default, description in changed_settings(config)
    ]
    changed = figures.table(["setting", "value", "default", "description"], rows, "settings") if rows else None
    text = "Settings that differ from the defaults:" if rows else "All settings have their default values."
    all_settings = tag("pre", config.to_yaml(comments=True))
    return [tag("p", text), changed, tag("details", tag("summary", "All settings"), all_settings)]


def changed_settings(section: Any, default: Any = None, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield the settings that differ from the defaults: key, value, default and description.

    Example:
        >>> [row[:3] for row in changed_settings(Config().with_values({"neural.vectors.dim": 64}))]
        [('neural.vectors.dim', '64', '200')]
    """
    defaults = {key: value for key, value, _ in iter_settings(default or type(section)())}
    for key, value, metadata in iter_settings(section):
        if is_dataclass(value):
            yield from changed_settings(value, defaults.get(key), f"{prefix}{key}.")
        elif value != defaults[key]:
            yield prefix + key, _format_value(value), _format_value(defaults[key]), metadata["description"]


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_format_value, value))
    if isinstance(value, Mapping):
        return yaml_value(value)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
