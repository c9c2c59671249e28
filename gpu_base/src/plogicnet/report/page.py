"""The page: its sections, its style and its policy, in one file."""

import base64
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.config import Config
from plogicnet.errors import InputError, many
from plogicnet.files import write_text
from plogicnet.graph import RELATION, KnowledgeGraph
from plogicnet.graph.doctor import Finding, examine
from plogicnet.model import PLogicNet
from plogicnet.progress import Progress, silent
from plogicnet.report import figures, findings, reasons
from plogicnet.report.markup import AND, Child, Markup, Names, breakable, join, shortened, tag
from plogicnet.rules import RuleTable
from plogicnet.titles import titles_of
from plogicnet.version import VERSION

NEITHER = "without rules and without vectors, nothing tells one answer from another"
STRONGEST = 12
EXAMPLE_MOST = 160
TURNING = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Characters that change the direction of the text after them."""
Section = tuple[str, str, Child]
"""An anchor, a title, and what stands under it."""


def write_report(
    run: Path, out: Path, settings: Mapping[str, object] | None = None, progress: Progress = silent
) -> Path:
    """Writes the report of a complete run to an HTML file; settings, as the device, may differ from the run's own.

    Example:
        >>> write_report(Path("runs/family"), Path("family.html"))  # doctest: +SKIP
    """
    model = PLogicNet.load(run, settings)
    page = page_of(model, run, progress)
    try:
        write_text(out, page)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    return out


def page_of(model: PLogicNet, run: Path, progress: Progress = silent) -> str:
    """The report as text.

    Example:
        >>> page_of(PLogicNet.load("runs/family"), Path("runs/family"))  # doctest: +SKIP
    """
    graph, names = model.fitted.graph, Names(model.fitted.graph.labels)
    split = next((s for s in ("test", "valid") if s in model.metrics), None)
    told = findings.ranked(model, split, progress) if split else None
    asked = findings.ask(model, told, progress) if told else []
    result: Any = model.metrics[split] if split else {}
    sections: list[Section] = [
        ("data", "The graph", _data(model)),
        ("ranking", "How well it ranks", _ranking(model, result, told, names)),
        ("probabilities", "Probabilities", _probabilities(result)),
        ("rules", "The rules", _rules(model, names)),
        ("surprises", "Surprising predictions", _surprises(model, run, asked, names)),
        ("mistakes", "Mistakes worth reading", _mistakes(model, told, asked, names)),
        ("settings", "Settings", _settings(Config().with_file(run / "config.yaml"))),
        ("timings", "Timings", _timings(run)),
    ]
    contents = tag("nav", [tag("a", title, href=f"#{anchor}") for anchor, title, _ in sections], aria_label="Contents")
    body = [tag("section", tag("h2", title), inner, id=anchor) for anchor, title, inner in sections]
    title = tag("h1", names(graph.name), tag("small", f"plogicnet report · {_halves(model)}"))
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


def _halves(model: PLogicNet) -> str:
    """What was trained together."""
    config = model.config
    vectors = [f"{config.kge.model} of {config.kge.dim} dimensions"] if config.em.embedding else []
    halves = [*vectors, *(["rules"] if len(model.fitted.outcome.rule_model.rules) else [])]
    return f"{' and '.join(halves) or 'nothing'}, seed {config.seed}"


def _tiles(values: Sequence[tuple[str, Child]]) -> Markup:
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in values], class_="tiles")


def _short(model: PLogicNet, result: Mapping[str, Any]) -> Markup:
    """The whole in a few numbers and a sentence."""
    rules = model.fitted.outcome.rule_model.rules
    last = model.history[model.fitted.outcome.iteration - 1] if model.history else None
    tiles: list[tuple[str, Child]] = []
    sentence = None
    if result:
        star, split = result["plogicnet*"], result["split"]
        tiles += [(f"MRR on {split}", f"{star['mrr']:.3f}"), (f"Hits@10 on {split}", f"{star['hits_at_10']:.3f}")]
        titles, together = titles_of(model.config.system), len(rules) and "embedding" in result and result["lambda"]
        others = [f"{titles[n]} {result[n]['mrr']:.3f}" for n in ("embedding", "rules") if n in result]
        both = ", which ranks by vectors and rules together" if together else ""
        sentence = f"Mean reciprocal rank of pLogicNet*{both}; {', '.join(others)}."
    tiles.append(("rules learned", f"{len(rules):,}"))
    if last is not None:
        tiles.append(("missing facts accepted", f"{last['accepted']:,}"))
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
    triples = _by_category(graph, "train")
    rows: list[list[Child]] = [[c, f"{n:,}", f"{triples.get(c, 0):,}"] for c, n in relations.items() if n]
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


def _by_relation(graph: KnowledgeGraph, split: str) -> dict[str, int]:
    """How many triples of a split each relation has, where it has some."""
    numbers, counts = np.unique(graph.split(split)[:, RELATION], return_counts=True)
    return dict(zip(graph.relations.take(numbers), counts.tolist(), strict=True))


def _by_category(graph: KnowledgeGraph, split: str) -> dict[str, int]:
    """How many triples of a split each category of relations has, where it has some."""
    category = dict(zip(graph.relations.names, graph.relation_categories, strict=True))
    counts = Counter[str]()
    for relation, n in _by_relation(graph, split).items():
        counts[category[relation]] += n
    return dict(counts)


def _checkup(model: PLogicNet) -> Markup:
    """What the doctor says of the graph, warnings first."""
    checked = examine(model.fitted.graph).findings
    told = [f for level in ("warning", "note") for f in checked if f.level == level]
    items = [tag("li", _level(f), " ", f.message, _examples(f.examples[:3])) for f in told]
    fine = len(checked) - len(told)
    return tag("ul", items, tag("li", f"{fine} of {len(checked)} checks found nothing worth a word."), class_="checkup")


def _level(finding: Finding) -> Markup:
    return tag("span", finding.level, class_="badge no" if finding.level == "warning" else "badge")


def _examples(examples: Sequence[str]) -> Child:
    """Texts with names in them, which must not turn the rest of the text around."""
    shown = [tag("bdi", breakable(shortened(e.translate(TURNING), EXAMPLE_MOST))) for e in examples]
    return tag("small", "For example: ", [join("; " if at else "", e) for at, e in enumerate(shown)]) if shown else None


def _ranking(model: PLogicNet, result: Mapping[str, Any], told: findings.Ranked | None, names: Names) -> Child:
    if told is None:
        return tag("p", "The graph holds nothing out, so there is nothing to rank.")
    graph, titles = model.fitted.graph, titles_of(model.config.system)
    relations, categories = _by_relation(graph, told.split), _by_category(graph, told.split)
    most = figures.RELATIONS_MOST
    largest = f", the {most} largest of {len(relations):,}" if len(relations) > most else ""
    plots = (
        figures.iterations_figure(model.history, titles, told.split == "test"),
        figures.ranks_figure(told, len(graph.entities), titles),
    )
    asked = many(told.of, f"{told.split} triple")
    about = f"{asked}, both ends, among {many(len(graph.entities), 'entity', 'entities')}; filtered."
    return [
        tag("p", about),
        figures.systems_table(result, titles),
        tag("div", *plots, class_="pair"),
        tag("h3", "MRR by category of relation"),
        figures.groups_table(result, "by_category", categories, "category", names, titles),
        tag("h3", f"MRR by relation{largest}"),
        figures.groups_table(result, "by_relation", relations, "relation", names, titles),
    ]


def _probabilities(result: Mapping[str, Any]) -> Child:
    if not result:
        return tag("p", "The graph holds nothing out to check the probabilities by.")
    quality = result["calibration"]
    same = " It was fitted on these same triples, so that the figure flatters it." if result["split"] == "valid" else ""
    said = (
        f"A probability is calibrated on the validation triples.{same} {_trust(quality['curve'])} True facts that no"
        " split holds count as wrong, so that the shares are rather too low than too high."
    )
    rows: list[list[Child]] = [
        [name, f"{of['brier']:.4f}", f"{of['ece']:.4f}"]
        for name, of in (("calibrated", quality), ("before", quality["uncalibrated"]))
    ]
    beside = tag("div", tag("p", said), figures.table(["", "Brier score", "calibration error"], rows, "narrow"))
    return tag("div", figures.reliability_figure(quality, result["split"]), beside, class_="pair")


def _trust(curve: Sequence[Mapping[str, float]]) -> str:
    """What the curve says of the probabilities, to half a percentage point.

    Example:
        >>> _trust([{"predicted": 0.5, "true": 0.6}, {"predicted": 0.9, "true": 0.7}])
        'In 1 of the 2 groups of candidates fewer are right than was said, at worst 70 % where 90 % was said.'
    """
    below = [point for point in curve if point["true"] < point["predicted"] - 0.005]
    if not below:
        return "In every group of candidates at least as many are right as was said."
    worst = max(below, key=lambda point: point["predicted"] - point["true"])
    told = f"{_percent(worst['true'])} where {_percent(worst['predicted'])} was said"
    return f"In {len(below)} of the {len(curve)} groups of candidates fewer are right than was said, at worst {told}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _rules(model: PLogicNet, names: Names) -> Child:
    outcome = model.fitted.outcome
    rules = outcome.rule_model.rules.by_weight()
    constraints = len(outcome.rule_model.constraints)
    besides = many(constraints, "irreflexive constraint")
    if not len(rules):
        kept = f" but {besides}" if constraints else ""
        by = "it ranks by the vectors alone" if outcome.embedding is not None else NEITHER
        return tag("p", f"This run has no rules{kept}: {by}.")
    kinds = ", ".join(f"{n:,} {pattern}" for pattern, n in rules.counts().items() if n)
    said = (
        f"{many(len(rules), 'rule')} ({kinds}) and {besides} were kept of {many(model.fitted.candidates, 'candidate')}."
    )
    plots = (
        figures.rules_figure(rules, model.config.seed),
        figures.accepted_figure(model.history, model.config.em.tau_triplet),
    )
    return [
        tag("p", said),
        tag("div", *plots, class_="pair"),
        tag("h3", "The strongest rules"),
        _strongest(model, rules, names),
    ]


def _strongest(model: PLogicNet, rules: RuleTable, names: Names) -> Markup:
    rows = []
    for rule, row in zip(rules.rules[:STRONGEST], rules.rows()[:STRONGEST], strict=True):
        error = row["standard_error"]
        weight = join(f"{row['weight']:.2f}", tag("small", f" ± {error:.2f}") if error is not None else None)
        examples = [_example(e, names) for e in findings.examples_of(model, rule)]
        counts = join(f"{row['precision']:.2f}", tag("small", f" {row['hits']:,} of {row['support']:,}"))
        rows.append([weight, join(names.rule(rule), tag("ul", examples, class_="examples")), counts])
    return figures.table(["weight", "rule, and examples of it", "precision"], rows, "rules")


def _example(example: findings.Example, names: Names) -> Markup:
    premises = [join(AND if i else "", names.fact(p)) for i, p in enumerate(example.premises)]
    said = "known" if example.known else f"new, in {example.found_in}" if example.found_in else "new"
    known = tag("span", said, class_="badge" if example.known else "badge yes")
    return tag("li", *premises, tag("span", " ⇒ ", class_="and"), names.fact(example.hypothesis), " ", known)


def _surprises(model: PLogicNet, run: Path, asked: Sequence[findings.Asked], names: Names) -> Child:
    rules = _rule_texts(model)
    embedded = model.fitted.outcome.embedding is not None
    said: list[Child] = [tag("p", "Facts that the training triples do not hold. The probability is calibrated.")]
    if rules:
        title = "Rules say yes, the vectors doubt it" if embedded else "The rules’ most probable missing facts"
        found = findings.believed_by_rules(model, run)
        said += [tag("h3", title), _cards([reasons.prediction_card(e, names, rules) for e in found], "There are none.")]
    if embedded:
        title = (
            "The vectors say yes, rules doubt it or do not reach it" if rules else "The vectors’ most probable answers"
        )
        among = f"Among {'the hidden triples and ' if rules else ''}the answers to {len(asked):,} queries."
        found = findings.believed_by_vectors(model, run, asked)
        cards = _cards([reasons.prediction_card(e, names, rules) for e in found], "There are none.")
        said += [tag("h3", title), tag("p", among), cards]
    return said if rules or embedded else tag("p", f"There are none: {NEITHER}.")


def _mistakes(model: PLogicNet, told: findings.Ranked | None, asked: Sequence[findings.Asked], names: Names) -> Child:
    if told is None:
        return tag("p", "The graph holds nothing out that could be mistaken.")
    rules = _rule_texts(model)
    said: list[Child] = []
    if rules:
        missed = [reasons.missed_card(m, names, rules) for m in findings.ranked_badly(model, told)]
        none = f"No {told.split} triple that a rule reaches stands below rank {findings.BADLY}."
        said += [tag("h3", "Ranked badly although a rule reaches it"), _cards(missed, none)]
    queries = 2 * told.of
    part = f"{len(asked):,} of {queries:,}, drawn by the run’s seed" if len(asked) < queries else f"all {queries:,}"
    about = f"Answers that no split holds: mistakes, or facts that the data lack. Queries asked: {part}."
    wrong = [reasons.wrong_card(m, names, rules) for m in findings.confidently_wrong(model, told, asked)]
    return [*said, tag("h3", "Held more probable than the truth"), tag("p", about), _cards(wrong, "No query has one.")]


def _rule_texts(model: PLogicNet) -> reasons.Rules:
    return {str(rule): rule for rule in model.fitted.outcome.rule_model.rules.rules}


def _cards(cards: Sequence[Markup], none: str) -> Markup:
    return tag("div", cards, class_="cards") if cards else tag("p", none)


def _settings(config: Config) -> Child:
    rows: list[list[Child]] = [
        [tag("code", key), tag("code", value), tag("code", default), meaning]
        for key, value, default, meaning in changed_settings(config)
    ]
    changed = figures.table(["setting", "here", "default", "meaning"], rows, "settings") if rows else None
    said = "What differs from the defaults:" if rows else "Every setting has its default."
    every = tag("pre", config.to_yaml(comments=True))
    return [tag("p", said), changed, tag("details", tag("summary", "All settings"), every)]


def changed_settings(config: Config) -> Iterator[tuple[str, str, str, str]]:
    """The settings that differ from the defaults: key, value, default, meaning.

    Example:
        >>> [row[:3] for row in changed_settings(Config().with_values({"kge.dim": 64}))]
        [('kge.dim', '64', '200')]
    """
    yield from _changed(config, Config(), "")


def _changed(node: Any, default: Any, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for field in dataclasses.fields(node):
        value, usual = getattr(node, field.name), getattr(default, field.name)
        key = prefix + field.name.rstrip("_")
        if dataclasses.is_dataclass(value):
            yield from _changed(value, usual, f"{key}.")
        elif value != usual:
            yield key, _value(value), _value(usual), field.metadata["meaning"]


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _timings(run: Path) -> Child:
    file = run / "timings.json"
    seconds: dict[str, float] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not seconds:
        return tag("p", "The run holds no timings.")
    return figures.timings_table(seconds)
