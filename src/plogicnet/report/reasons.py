"""Predictions and mistakes as cards: what is believed, how firmly, and why."""

from collections.abc import Mapping, Sequence

from plogicnet.inference.explanation import Contribution, Path, SimilarEntity
from plogicnet.model import Explanation, Prediction
from plogicnet.report.findings import Mistake
from plogicnet.report.markup import AND, Child, Markup, Names, join, tag
from plogicnet.report.plots import meter
from plogicnet.rules import Rule
from plogicnet.support.errors import many
from plogicnet.systems.system import FIGURES as TITLES
from plogicnet.systems.system import PLAIN, STAR

RULES_MOST, REASONS_MOST = 4, 3
Rules = Mapping[str, Rule]
"""The run's rules by their text, as explanations name them."""


def prediction_card(why: Explanation, names: Names, rules: Rules) -> Markup:
    """A missing fact, what each half says of it, and the reasons."""
    found = f"true: {why.held_out} holds it" if why.held_out else "not in the data"
    badge = tag("span", found, class_="badge yes" if why.held_out else "badge")
    return tag("article", tag("h4", names.fact(why.triple), " ", badge), _numbers(why), _why(why, names, rules))


def missed_card(mistake: Mistake, names: Names, rules: Rules) -> Markup:
    """A truth that stands far down although a rule reaches it: what stands above it, and what spoke for it."""
    asked = mistake.asked
    text = tag(
        "p", "Asked ", names.query(asked.truth.triple, asked.side), ": ", _places(mistake), _above(mistake, names)
    )
    why = _why(mistake.explained, names, rules, "What speaks for it", by_rules=True)
    return tag("article", tag("h4", names.fact(asked.truth.triple)), text, _numbers(asked.truth), why)


def wrong_card(mistake: Mistake, names: Names, rules: Rules) -> Markup:
    """An answer in no split that is held more probable than the truth, and why it is."""
    asked = mistake.asked
    truth = asked.truth.head if asked.side == "head" else asked.truth.tail
    text = tag(
        "p",
        *("Asked ", names.query(asked.truth.triple, asked.side), ", the truth is ", tag("b", names(truth))),
        f" (probability {_share(asked.truth.probability)}): ",
        _places(mistake),
    )
    why = _why(mistake.explained, names, rules, "Why it is believed")
    return tag("article", tag("h4", names.fact(mistake.explained.triple)), _numbers(mistake.explained), text, why)


def _numbers(judged: Prediction | Explanation) -> Markup:
    """The calibrated probability, and what each half says."""
    halves: list[tuple[str, str, float]] = [("probability", "star", judged.probability)]
    if judged.q is not None:
        halves.append(("neural model, q", "neural", judged.q))
    halves.append(("rules, p_w", "rules", judged.p_w))
    return tag(
        "dl", [tag("div", tag("dt", n), tag("dd", meter(v, k), _share(v))) for n, k, v in halves], class_="halves"
    )


def _share(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 or value == 0 else "<0.001"


def _places(mistake: Mistake) -> Markup:
    places = [f"{TITLES[s]} {_place(p)}" for s, p in mistake.places.items() if s not in (PLAIN, STAR)]
    others = f" ({', '.join(places)})" if places else ""
    return join("rank ", tag("b", _place(mistake.places[STAR])), f" by {TITLES[STAR]}{others}.")


def _place(rank: float) -> str:
    return f"{rank:,.0f}" if rank == int(rank) else f"{rank:,.1f}"


def _above(mistake: Mistake, names: Names) -> Child:
    """The most probable answers that no split has."""
    answers = mistake.asked.answers[:3]
    if not answers:
        return None
    ends = [(a.head if mistake.asked.side == "head" else a.tail, a.probability) for a in answers]
    return [
        " Most probable instead: ",
        [join("; " if i else "", names(n), f" {_share(p)}") for i, (n, p) in enumerate(ends)],
        ".",
    ]


def _why(why: Explanation, names: Names, rules: Rules, title: str = "Why", by_rules: bool = False) -> Markup:
    """The strongest reason in sight, and everything under it."""
    contributions = [
        _term(why.base, join("base rate of ", tag("i", names(why.triple[1])))),
        *(_contribution(entry, _groundings(entry, why), names, rules) for entry in why.rules[:RULES_MOST]),
    ]
    if len(why.rules) > RULES_MOST:
        rest = sum(entry.contribution for entry in why.rules[RULES_MOST:])
        contributions.append(_term(rest, many(len(why.rules) - RULES_MOST, "more rule")))
    if not why.rules:
        contributions.append(tag("li", "No rule reaches it from the known facts."))
    whole = tag("p", f"The rules’ log-odds: {why.log_odds:+.2f}, which is")
    neural = [_similar(why.neighbours, names), _paths(why.paths, names)]
    folded = tag("details", tag("summary", "All reasons"), whole, tag("ul", contributions, class_="terms"), neural)
    return join(tag("p", tag("b", f"{title}: "), _strongest(why, names, rules, by_rules)), folded)


def _strongest(why: Explanation, names: Names, rules: Rules, by_rules: bool) -> Markup:
    """The reason that counts most, in a sentence: of the half that believes more, or of the rules if asked for."""
    entry = next((e for e in why.rules if e.contribution > 0 and e.premises), None)
    if entry is not None and (by_rules or why.q is None or why.p_w >= why.q):
        return join(_facts(entry.premises[0], names), ", since ", _rule(entry.rule, names, rules), ".")
    doubt = "the rules doubt it" if why.rules else "no rule reaches it"
    like = max(why.neighbours, key=lambda n: n.similarity, default=None)
    if why.paths:
        best = max(why.paths, key=lambda path: path.share)
        return join(f"{doubt}; the neural model reaches it by ", _facts(best.path, names), ".")
    if like is not None:
        return join(f"{doubt}; to the neural model it is like the known ", names.fact(like.fact), ".")
    besides = "." if why.q is None else " and the neural model’s score."
    return join(f"{doubt}; there is the base rate of its relation", besides)


def _groundings(entry: Contribution, why: Explanation) -> str:
    """What a rule's weight is multiplied with: its groundings, or in the mean their share of all."""
    own, broken = entry.groundings, entry.broken
    less = f", less {broken:,} that it would break as a premise" if broken else ""
    if why.aggregate == "mean":
        every = sum(e.groundings + e.broken for e in why.rules)
        return f", {own:,} of the {every:,} grounding{'s' if every != 1 else ''}{less}"
    return f" × {own:,} grounding{'s' if own != 1 else ''}{less}" if own != 1 or broken else ""


def _contribution(entry: Contribution, times: str, names: Names, rules: Rules) -> Markup:
    text = join(_rule(entry.rule, names, rules), tag("small", f" weight {entry.weight:.2f}{times}"))
    premises = [tag("li", _facts(premises, names)) for premises in entry.premises]
    more = entry.groundings - len(premises)
    return _term(entry.contribution, text, tag("ul", premises, tag("li", f"… and {more:,} more") if more > 0 else None))


def _term(value: float, text: Child, under: Child = None) -> Markup:
    return tag("li", tag("span", f"{value:+.2f}", class_="term"), tag("div", text, under))


def _similar(neighbours: Sequence[SimilarEntity], names: Names) -> Child:
    nearest = sorted(neighbours, key=lambda n: -n.similarity)[:REASONS_MOST]
    text = "Entities that the neural model finds similar, with such a fact (1: the most similar):"
    return _shares(text, [(n.similarity, names.fact(n.fact)) for n in nearest])


def _paths(paths: Sequence[Path], names: Names) -> Child:
    best = sorted(paths, key=lambda path: -path.share)[:REASONS_MOST]
    text = "Paths from head to tail, each with its share of the neural model’s score:"
    return _shares(text, [(path.share, _facts(path.path, names)) for path in best])


def _shares(text: str, rows: Sequence[tuple[float, Markup]]) -> Child:
    """A list of numbers with what each belongs to; nothing where there are none."""
    items = [tag("li", tag("span", f"{value:.2f}", class_="term"), tag("div", about)) for value, about in rows]
    return [tag("p", text), tag("ul", items, class_="terms")] if items else None


def _facts(premises: Sequence[Sequence[str]], names: Names) -> Markup:
    return join(*(join(AND if at else "", names.fact(triple)) for at, triple in enumerate(premises)))


def _rule(text: str, names: Names, rules: Rules) -> Markup:
    return names.rule(rules[text]) if text in rules else tag("span", text, class_="rule")
