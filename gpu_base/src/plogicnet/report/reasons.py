"""Predictions and mistakes as cards: what is believed, how firmly, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from plogicnet.errors import many
from plogicnet.model import Prediction
from plogicnet.report.findings import Explained, Mistake, names_of
from plogicnet.report.markup import AND, Child, Markup, Names, join, tag
from plogicnet.report.plots import meter
from plogicnet.rules import Rule
from plogicnet.titles import TITLES

RULES_MOST, PREMISES_MOST, NEIGHBOURS_MOST = 4, 2, 3
Rules = Mapping[str, Rule]
"""The run's rules by their text, as explanations name them."""


def prediction_card(told: Explained, names: Names, rules: Rules) -> Markup:
    """A missing fact, what each half says of it, and the reasons.

    Example:
        >>> prediction_card(told, Names(), {})  # doctest: +SKIP
    """
    found = f"true: {told.found_in} holds it" if told.found_in else "not in the data"
    badge = tag("span", found, class_="badge yes" if told.found_in else "badge")
    return tag(
        "article", tag("h4", names.fact(told.names), " ", badge), _numbers(told.judged), _why(told, names, rules)
    )


def missed_card(mistake: Mistake, names: Names, rules: Rules) -> Markup:
    """A truth that stands far down although a rule reaches it: what stands above it, and what spoke for it.

    Example:
        >>> missed_card(mistake, Names(), {})  # doctest: +SKIP
    """
    asked = mistake.asked
    said = tag(
        "p", "Asked ", names.query(names_of(asked.truth), asked.side), ": ", _places(mistake), _above(mistake, names)
    )
    why = _why(mistake.explained, names, rules, "What speaks for it", by_rules=True)
    return tag("article", tag("h4", names.fact(names_of(asked.truth))), said, _numbers(asked.truth), why)


def wrong_card(mistake: Mistake, names: Names, rules: Rules) -> Markup:
    """An answer in no split that is held more probable than the truth, and why it is.

    Example:
        >>> wrong_card(mistake, Names(), {})  # doctest: +SKIP
    """
    asked = mistake.asked
    truth = asked.truth.head if asked.side == "head" else asked.truth.tail
    said = tag(
        "p",
        *("Asked ", names.query(names_of(asked.truth), asked.side), ", the truth is ", tag("b", names(truth))),
        f" (probability {_share(asked.truth.probability)}): ",
        _places(mistake),
    )
    why = _why(mistake.explained, names, rules, "Why it is believed")
    return tag("article", tag("h4", names.fact(mistake.explained.names)), _numbers(mistake.explained.judged), said, why)


def _numbers(judged: Prediction) -> Markup:
    """The calibrated probability, and what each half says."""
    halves: list[tuple[str, str, float]] = [("probability", "star", judged.probability)]
    if judged.q is not None:
        halves.append(("vectors, q", "embedding", judged.q))
    halves.append(("rules, p_w", "rules", judged.p_w))
    return tag(
        "dl", [tag("div", tag("dt", n), tag("dd", meter(v, k), _share(v))) for n, k, v in halves], class_="halves"
    )


def _share(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 or value == 0 else "<0.001"


def _places(mistake: Mistake) -> Markup:
    places = [f"{TITLES[s]} {_place(p)}" for s, p in mistake.places.items() if s not in ("plogicnet", "plogicnet*")]
    others = f" ({', '.join(places)})" if places else ""
    return join("rank ", tag("b", _place(mistake.places["plogicnet*"])), f" by pLogicNet*{others}.")


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


def _why(told: Explained, names: Names, rules: Rules, title: str = "Why", by_rules: bool = False) -> Markup:
    """The strongest reason in sight, and everything under it."""
    why = told.why
    entries: Sequence[Mapping[str, Any]] = why["rules"]
    contributions = [
        _term(float(why["base"]), join("base rate of ", tag("i", names(why["triple"][1])))),
        *(_contribution(entry, _groundings(entry, why), names, rules) for entry in entries[:RULES_MOST]),
    ]
    if len(entries) > RULES_MOST:
        rest = sum(entry["contribution"] for entry in entries[RULES_MOST:])
        contributions.append(_term(rest, many(len(entries) - RULES_MOST, "more rule")))
    if not entries:
        contributions.append(tag("li", "No rule reaches it from the known facts."))
    whole = tag("p", f"The rules’ log-odds: {why['log_odds']:+.2f}, which is")
    similar = _similar(why["neighbours"], names)
    folded = tag("details", tag("summary", "All reasons"), whole, tag("ul", contributions, class_="terms"), similar)
    return join(tag("p", tag("b", f"{title}: "), _strongest(told, names, rules, by_rules)), folded)


def _strongest(told: Explained, names: Names, rules: Rules, by_rules: bool) -> Markup:
    """The reason that counts most, in a sentence: of the half that believes more, or of the rules if asked for."""
    why, judged = told.why, told.judged
    like = max(why["neighbours"], key=lambda n: float(n["similarity"]), default=None)
    entry = next((e for e in why["rules"] if e["contribution"] > 0 and e["premises"]), None)
    if entry is not None and (by_rules or judged.q is None or judged.p_w >= judged.q):
        return join(_facts(entry["premises"][0], names), ", since ", _rule(entry["rule"], names, rules), ".")
    silent = "the rules doubt it" if why["rules"] else "no rule reaches it"
    if like is not None:
        return join(f"{silent}; to the vectors it is like the known ", names.fact(like["fact"]), ".")
    return join(
        f"{silent}; there is the base rate of its relation", "." if judged.q is None else " and the vectors’ score."
    )


def _groundings(entry: Mapping[str, Any], why: Mapping[str, Any]) -> str:
    """What a rule's weight is multiplied with: its groundings, or in the mean their share of all."""
    own, broken = entry["groundings"], entry["broken"]
    less = f", less {broken:,} that it would break as a premise" if broken else ""
    if why["aggregate"] == "mean":
        every = sum(e["groundings"] + e["broken"] for e in why["rules"])
        return f", {own:,} of the {every:,} grounding{'s' if every != 1 else ''}{less}"
    return f" × {own:,} grounding{'s' if own != 1 else ''}{less}" if own != 1 or broken else ""


def _contribution(entry: Mapping[str, Any], times: str, names: Names, rules: Rules) -> Markup:
    said = join(_rule(entry["rule"], names, rules), tag("small", f" weight {entry['weight']:.2f}{times}"))
    premises = [tag("li", _facts(premises, names)) for premises in entry["premises"][:PREMISES_MOST]]
    more = len(entry["premises"]) - PREMISES_MOST
    return _term(
        entry["contribution"], said, tag("ul", premises, tag("li", f"… and {more:,} more") if more > 0 else None)
    )


def _term(value: float, said: Child, under: Child = None) -> Markup:
    return tag("li", tag("span", f"{value:+.2f}", class_="term"), tag("div", said, under))


def _similar(neighbours: Sequence[Mapping[str, Any]], names: Names) -> Child:
    if not neighbours:
        return None
    nearest = sorted(neighbours, key=lambda n: -n["similarity"])[:NEIGHBOURS_MOST]
    rows = [_similarity(n, names) for n in nearest]
    return [
        tag("p", "Similar entities with such a fact, by the cosine of their vectors:"),
        tag("ul", rows, class_="terms"),
    ]


def _similarity(neighbour: Mapping[str, Any], names: Names) -> Markup:
    return tag(
        "li", tag("span", f"{neighbour['similarity']:.2f}", class_="term"), tag("div", names.fact(neighbour["fact"]))
    )


def _facts(premises: Sequence[Sequence[str]], names: Names) -> Markup:
    return join(*(join(AND if at else "", names.fact(triple)) for at, triple in enumerate(premises)))


def _rule(text: str, names: Names, rules: Rules) -> Markup:
    return names.rule(rules[text]) if text in rules else tag("span", text, class_="rule")
