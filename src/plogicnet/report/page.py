"""The page: its sections, its style and its policy, in one file."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.config.tree import children
from plogicnet.diagnostics.graphs import examine_graph
from plogicnet.evaluation.figures import Bin, SplitFigures
from plogicnet.graph import RELATION
from plogicnet.inference.examples import Example
from plogicnet.model import PLogicNet
from plogicnet.report import figures, findings, reasons
from plogicnet.report.markup import Child, Markup, Names, breakable, join, separated, shortened, tag
from plogicnet.rules import RuleTable
from plogicnet.runs.files import read_timings
from plogicnet.runs.reading import read_config
from plogicnet.support.errors import InputError, many
from plogicnet.support.files import write_text
from plogicnet.support.progress import Progress, silent
from plogicnet.systems.system import NEURAL, RULES, STAR
from plogicnet.version import VERSION

NEITHER = "without rules and without a neural model, nothing tells one answer from another"
NONE = "There are none."
STRONGEST, EXAMPLES = 12, 2
EXAMPLE_MOST = 160
TURNING = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Characters that change the direction of the text after them."""


def write_report(
    run: Path, out: Path, settings: Mapping[str, object] | None = None, progress: Progress = silent
) -> Path:
    """Writes the report of a complete run to an HTML file; settings, as the device, may differ from the run's own."""
    page = page_of(PLogicNet.load(run, settings), run, progress)
    try:
        write_text(out, page)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    return out


def page_of(model: PLogicNet, run: Path, progress: Progress = silent) -> str:
    """The report as text."""
    graph = model.fitted.graph
    names = Names(graph.labels, {str(rule): rule for rule in model.fitted.outcome.rule_model.rules.rules})
    split = next((s for s in ("test", "valid") if s in model.metrics), None)
    ranking = findings.ranked(model, split, progress) if split else None
    asked = findings.ask(model, ranking, progress) if ranking else []
    metrics: Mapping[str, Any] = model.metrics
    result = SplitFigures.of_json(metrics[split]) if split else None
    sections: list[tuple[str, str, Child]] = [
        ("data", "The graph", _data(model)),
        ("ranking", "How well it ranks", _ranking(model, result, ranking, names)),
        ("probabilities", "Probabilities", _probabilities(result)),
        ("rules", "The rules", _rules(model, names)),
        ("surprises", "Surprising predictions", _surprises(model, asked, names)),
        ("mistakes", "Mistakes worth reading", _mistakes(model, ranking, asked, names)),
        ("settings", "Settings", _settings(read_config(run))),
        ("timings", "Timings", figures.timings_table(read_timings(run))),
    ]
    contents = tag("nav", [tag("a", title, href=f"#{anchor}") for anchor, title, _ in sections], aria_label="Contents")
    body = [tag("section", tag("h2", title), inner, id=anchor) for anchor, title, inner in sections]
    halves = [model.config.neural.model] * model.config.em.neural + ["rules"] * bool(names.rules)
    trained = f"plogicnet report · {' and '.join(halves) or 'nothing'}, seed {model.config.seed}"
    title = tag("h1", names(graph.name), tag("small", trained))
    head = tag("header", title, _short(model, result), contents)
    foot = tag("footer", f"Made by plogicnet {VERSION} from the run ", names(run.resolve().name), ".")
    return _document(f"{names.text(graph.name)}: plogicnet report", join(head, tag("main", body), foot))


def _document(title: str, body: Markup) -> str:
    """The file around the body: nothing but its own style, known by its hash, may take effect."""
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


def _short(model: PLogicNet, result: SplitFigures | None) -> Markup:
    """The whole in a few numbers and a sentence."""
    rules = model.fitted.outcome.rule_model.rules
    last = model.history[model.fitted.outcome.iteration - 1] if model.history else None
    tiles: list[tuple[str, Child]] = []
    sentence = None
    if result is not None:
        star, split = result.rankings[STAR].overall, result.split
        tiles += [(f"MRR on {split}", f"{star['mrr']:.3f}"), (f"Hits@10 on {split}", f"{star['hits_at_10']:.3f}")]
        titles, together = model.titles, len(rules) and NEURAL in result.rankings and result.lambda_
        halves = [(titles[n], result.rankings[n].overall["mrr"]) for n in (NEURAL, RULES) if n in result.rankings]
        both = ", which ranks by the neural model and rules together" if together else ""
        others = ", ".join(f"{title} {mrr:.3f}" for title, mrr in halves)
        sentence = f"Mean reciprocal rank of {titles[STAR]}{both}; {others}."
    tiles.append(("rules learned", f"{len(rules):,}"))
    if last is not None:
        tiles.append(("missing facts accepted", f"{last.accepted:,}"))
    return join(_tiles(tiles), tag("p", sentence) if sentence else None)


def _data(model: PLogicNet) -> Child:
    graph = model.fitted.graph
    count = graph.statistics()
    sizes = [(key, f"{count[key]:,}") for key in ("entities", "relations", "train", "valid", "test")]
    aside = many(graph.held_out, "training triple was", "training triples were")
    held = f"The graph came without a valid split: {aside} set aside as one."
    unseen: Any = count["unseen_entities"]
    new = [f"{n:,} in {split}" for split, n in unseen.items() if n]
    relations: Any = count["relation_categories"]
    triples = _by_category(model, "train")
    rows: list[list[Child]] = [[c, f"{n:,}", f"{triples[c]:,}"] for c, n in relations.items() if n]
    return [
        _tiles(sizes),
        tag("p", held) if graph.held_out else None,
        tag("p", f"Entities that train has never shown: {', '.join(new)}.") if new else None,
        tag("h3", "Relations by category"),
        tag("p", "1 or N heads to a tail, and 1 or N tails to a head (N: more than 1.5 on average, in train)."),
        figures.table(["category", "relations", "training triples"], rows, "narrow"),
        tag("h3", "What to know before reading the figures"),
        _checkup(model),
    ]


def _by_category(model: PLogicNet, split: str) -> Counter[str]:
    """How many triples of a split each category of relations has."""
    categories = model.fitted.graph.relation_categories
    return Counter(categories[relation] for relation in model.fitted.graph.split(split)[:, RELATION].tolist())


def _checkup(model: PLogicNet) -> Markup:
    """What the doctor says of the graph, warnings first."""
    checked = examine_graph(model.fitted.graph).findings
    shown = [f for level in ("warning", "note") for f in checked if f.level == level]
    kinds = {"warning": "badge no", "note": "badge"}
    items = [
        tag("li", tag("span", f.level, class_=kinds[f.level]), " ", f.message, _examples(f.examples[:3])) for f in shown
    ]
    fine = len(checked) - len(shown)
    return tag("ul", items, tag("li", f"{fine} of {len(checked)} checks passed."), class_="checkup")


def _examples(examples: Sequence[str]) -> Child:
    """Texts with names in them, which must not turn the rest of the text around."""
    shown = [tag("bdi", breakable(shortened(e.translate(TURNING), EXAMPLE_MOST))) for e in examples]
    return tag("small", "For example: ", separated("; ", shown)) if shown else None


def _ranking(model: PLogicNet, result: SplitFigures | None, ranking: findings.Ranked | None, names: Names) -> Child:
    if result is None or ranking is None:
        return tag("p", "The graph holds nothing out, so there is nothing to rank.")
    graph, titles = model.fitted.graph, model.titles
    relations = Counter(graph.relations.take(graph.split(ranking.split)[:, RELATION]))
    by_category = {name: of.by_category for name, of in result.rankings.items()}
    by_relation = {name: of.by_relation for name, of in result.rankings.items()}
    most = figures.RELATIONS_MOST
    largest = f", the {most} largest of {len(relations):,}" if len(relations) > most else ""
    iterations = figures.iterations_figure(model.history, titles, ranking.split == "test")
    asked = many(ranking.of, f"{ranking.split} triple")
    about = f"{asked}, both ends, among {many(len(graph.entities), 'entity', 'entities')}; filtered."
    return [
        tag("p", about),
        figures.systems_table(result.rankings, titles),
        tag("div", iterations, figures.ranks_figure(ranking, len(graph.entities), titles), class_="pair"),
        tag("h3", "MRR by category of relation"),
        figures.groups_table(by_category, _by_category(model, ranking.split), "category", names, titles),
        tag("h3", f"MRR by relation{largest}"),
        figures.groups_table(by_relation, relations, "relation", names, titles),
    ]


def _probabilities(result: SplitFigures | None) -> Child:
    if result is None:
        return tag("p", "The graph holds nothing out to check the probabilities by.")
    quality = result.calibration
    same = " It was fitted on these same triples, so that the figure flatters it." if result.split == "valid" else ""
    text = (
        f"A probability is calibrated on the validation triples.{same} {_trust(quality.curve)} True facts that no"
        " split holds count as wrong, so that the shares are rather too low than too high."
    )
    rows: list[list[Child]] = [
        [name, f"{of.brier:.4f}", f"{of.ece:.4f}"]
        for name, of in (("calibrated", quality), ("before", quality.uncalibrated))
        if of is not None
    ]
    beside = tag("div", tag("p", text), figures.table(["", "Brier score", "calibration error"], rows, "narrow"))
    return tag("div", figures.reliability_figure(quality, result.split), beside, class_="pair")


def _trust(curve: Sequence[Bin]) -> str:
    """What the curve says of the probabilities, to half a percentage point.

    Example:
        >>> _trust([Bin(0.5, 0.6, 0.9), Bin(0.9, 0.7, 0.1)])
        'In 1 of the 2 groups of candidates fewer are right than predicted, at worst 70 % instead of 90 %.'
    """
    below = [point for point in curve if point.true < point.predicted - 0.005]
    if not below:
        return "In every group of candidates at least as many are right as predicted."
    worst = max(below, key=lambda point: point.predicted - point.true)
    at_worst = f"at worst {_percent(worst.true)} instead of {_percent(worst.predicted)}"
    return f"In {len(below)} of the {len(curve)} groups of candidates fewer are right than predicted, {at_worst}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _rules(model: PLogicNet, names: Names) -> Child:
    outcome = model.fitted.outcome
    rules = outcome.rule_model.rules.by_weight()
    constraints = len(outcome.rule_model.constraints)
    besides = many(constraints, "irreflexive constraint")
    if not len(rules):
        kept = f" but {besides}" if constraints else ""
        by = "it ranks by the neural model alone" if outcome.neural is not None else NEITHER
        return tag("p", f"This run has no rules{kept}: {by}.")
    kinds = ", ".join(f"{n:,} {pattern}" for pattern, n in rules.counts().items() if n)
    found = many(model.fitted.candidates, "candidate")
    accepted = figures.accepted_figure(model.history, model.config.em.tau_triplet)
    return [
        tag("p", f"{many(len(rules), 'rule')} ({kinds}) and {besides} were kept of {found}."),
        tag("div", figures.rules_figure(rules, model.config.seed), accepted, class_="pair"),
        tag("h3", "The strongest rules"),
        _strongest(model, rules, names),
    ]


def _strongest(model: PLogicNet, rules: RuleTable, names: Names) -> Markup:
    rows = []
    for rule, row in zip(rules.rules[:STRONGEST], rules.rows()[:STRONGEST], strict=True):
        error = row["standard_error"]
        weight = join(f"{row['weight']:.2f}", tag("small", f" ± {error:.2f}") if error is not None else None)
        examples = [_example(e, names) for e in model.fitted.examples(rule, EXAMPLES)]
        counts = join(f"{row['precision']:.2f}", tag("small", f" {row['hits']:,} of {row['support']:,}"))
        rows.append([weight, join(names.rule(str(rule)), tag("ul", examples, class_="examples")), counts])
    return figures.table(["weight", "rule, and examples of it", "precision"], rows, "rules")


def _example(example: Example, names: Names) -> Markup:
    text = "known" if example.known else f"new, in {example.held_out}" if example.held_out else "new"
    known = tag("span", text, class_="badge" if example.known else "badge yes")
    arrow = tag("span", " ⇒ ", class_="and")
    return tag("li", names.facts(example.premises), arrow, names.fact(example.hypothesis), " ", known)


def _surprises(model: PLogicNet, asked: Sequence[findings.Asked], names: Names) -> Child:
    rules, neural = names.rules, model.fitted.outcome.neural is not None
    parts: list[Child] = [tag("p", "Facts that the training triples do not hold. The probability is calibrated.")]
    if rules:
        title = "Rules say yes, the neural model doubts it" if neural else "The rules’ most probable missing facts"
        parts += [tag("h3", title), _cards(reasons.prediction_card, findings.believed_by_rules(model), names)]
    if neural:
        doubted = "The neural model says yes, rules doubt it or do not reach it"
        title = doubted if rules else "The neural model’s most probable answers"
        among = f"Among {'the hidden triples and ' if rules else ''}the answers to {len(asked):,} queries."
        found = findings.believed_by_neural(model, asked)
        parts += [tag("h3", title), tag("p", among), _cards(reasons.prediction_card, found, names)]
    return parts if rules or neural else tag("p", f"There are none: {NEITHER}.")


def _mistakes(
    model: PLogicNet, ranking: findings.Ranked | None, asked: Sequence[findings.Asked], names: Names
) -> Child:
    if ranking is None:
        return tag("p", "The graph holds nothing out that could be mistaken.")
    parts: list[Child] = []
    if names.rules:
        none = f"No {ranking.split} triple that a rule reaches stands below rank {findings.BADLY}."
        missed = _cards(reasons.missed_card, findings.ranked_badly(model, ranking), names, none)
        parts += [tag("h3", "Ranked badly although a rule reaches it"), missed]
    queries = 2 * ranking.of
    part = f"{len(asked):,} of {queries:,}, drawn by the run’s seed" if len(asked) < queries else f"all {queries:,}"
    about = f"Answers that no split holds: mistakes, or facts that the data lack. Queries asked: {part}."
    wrong = _cards(reasons.wrong_card, findings.confidently_wrong(model, asked), names, "No query has one.")
    return [*parts, tag("h3", "Held more probable than the truth"), tag("p", about), wrong]


def _cards(card: Callable[[Any, Names], Markup], found: Sequence[Any], names: Names, none: str = NONE) -> Markup:
    return tag("div", [card(each, names) for each in found], class_="cards") if found else tag("p", none)


def _settings(config: Config) -> Child:
    rows: list[list[Child]] = [
        [tag("code", key), tag("code", value), tag("code", default), meaning]
        for key, value, default, meaning in changed_settings(config)
    ]
    changed = figures.table(["setting", "here", "default", "meaning"], rows, "settings") if rows else None
    text = "What differs from the defaults:" if rows else "Every setting has its default."
    every = tag("pre", config.to_yaml(comments=True))
    return [tag("p", text), changed, tag("details", tag("summary", "All settings"), every)]


def changed_settings(node: Any, default: Any = None, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """The settings of a section, or of all, that differ from the defaults: key, value, default, meaning.

    Example:
        >>> [row[:3] for row in changed_settings(Config().with_values({"neural.vectors.dim": 64}))]
        [('neural.vectors.dim', '64', '200')]
    """
    usual = {key: value for key, value, _ in children(default or type(node)())}
    for key, value, about in children(node):
        if is_dataclass(value):
            yield from changed_settings(value, usual.get(key), f"{prefix}{key}.")
        elif value != usual[key]:
            yield prefix + key, _value(value), _value(usual[key]), about["meaning"]


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
