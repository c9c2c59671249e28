"""Predictions and mistakes as cards: what is believed, how firmly, and why."""

from collections.abc import Sequence

from plogicnet.inference.explanation import Contribution
from plogicnet.model import Explanation, Prediction
from plogicnet.report.findings import Asked, Mistake
from plogicnet.report.markup import Child, Markup, Names, join, separated, tag
from plogicnet.report.plots import meter
from plogicnet.support.errors import many
from plogicnet.systems.system import FIGURES as TITLES
from plogicnet.systems.system import PLAIN, STAR

RULES_MOST, REASONS_MOST = 4, 3


def prediction_card(why: Explanation, names: Names) -> Markup:
    """A missing fact, what each half says of it, and the reasons."""
    found = f"true: {why.held_out} holds it" if why.held_out else "not in the data"
    badge = tag("span", found, class_="badge yes" if why.held_out else "badge")
    return tag("article", tag("h4", names.fact(why.triple), " ", badge), _numbers(why), _why(why, names))


def missed_card(mistake: Mistake, names: Names) -> Markup:
    """A truth that stands far down although a rule reaches it: what stands above it, and what spoke for it."""
    asked, why = mistake
    above = [join(names(_end(a, asked)), f" {_share(a.probability)}") for a in asked.answers[:3]]
    instead = [" Most probable instead: ", separated("; ", above), "."] if above else None
    text = tag("p", "Asked ", names.fact(asked.truth.triple, asked.side), ": ", _places(asked), instead)
    reasons = _why(why, names, "What speaks for it", by_rules=True)
    return tag("article", tag("h4", names.fact(asked.truth.triple)), text, _numbers(asked.truth), reasons)


def wrong_card(mistake: Mistake, names: Names) -> Markup:
    """An answer in no split that is held more probable than the truth, and why it is."""
    asked, why = mistake
    truth = [tag("b", names(_end(asked.truth, asked))), f" (probability {_share(asked.truth.probability)}): "]
    query = names.fact(asked.truth.triple, asked.side)
    text = tag("p", "Asked ", query, ", the truth is ", truth, _places(asked))
    reasons = _why(why, names, "Why it is believed")
    return tag("article", tag("h4", names.fact(why.triple)), _numbers(why), text, reasons)


def _end(answer: Prediction, asked: Asked) -> str:
    return answer.head if asked.side == "head" else answer.tail


def _numbers(judged: Prediction | Explanation) -> Markup:
    """The calibrated probability, and what each half says."""
    halves = [
        ("probability", "star", judged.probability),
        ("neural model, q", "neural", judged.q),
        ("rules, p_w", "rules", judged.p_w),
    ]
    shown = [tag("div", tag("dt", n), tag("dd", meter(v, k), _share(v))) for n, k, v in halves if v is not None]
    return tag("dl", shown, class_="halves")


def _share(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 or value == 0 else "<0.001"


def _places(asked: Asked) -> Markup:
    places = {s: f"{p:,.0f}" if p == int(p) else f"{p:,.1f}" for s, p in asked.places.items()}
    halves = [f"{TITLES[s]} {place}" for s, place in places.items() if s not in (PLAIN, STAR)]
    others = f" ({', '.join(halves)})" if halves else ""
    return join("rank ", tag("b", places[STAR]), f" by {TITLES[STAR]}{others}.")


def _why(why: Explanation, names: Names, title: str = "Why", by_rules: bool = False) -> Markup:
    """The strongest reason in sight, and everything under it."""
    contributions = [
        _term(f"{why.base:+.2f}", join("base rate of ", tag("i", names(why.triple[1])))),
        *(_contribution(entry, _groundings(entry, why), names) for entry in why.rules[:RULES_MOST]),
    ]
    if len(why.rules) > RULES_MOST:
        rest = sum(entry.contribution for entry in why.rules[RULES_MOST:])
        contributions.append(_term(f"{rest:+.2f}", many(len(why.rules) - RULES_MOST, "more rule")))
    if not why.rules:
        contributions.append(tag("li", "No rule reaches it from the known facts."))
    whole = tag("p", f"The rules’ log-odds: {why.log_odds:+.2f}, which is")
    similar = "Entities that the neural model finds similar, with such a fact (1: the most similar):"
    paths = "Paths from head to tail, each with its share of the neural model’s score:"
    neural = [
        _shares(similar, [(n.similarity, names.fact(n.fact)) for n in why.neighbours]),
        _shares(paths, [(path.share, names.facts(path.path)) for path in why.paths]),
    ]
    folded = tag("details", tag("summary", "All reasons"), whole, tag("ul", contributions, class_="terms"), neural)
    return join(tag("p", tag("b", f"{title}: "), _strongest(why, names, by_rules)), folded)


def _strongest(why: Explanation, names: Names, by_rules: bool) -> Markup:
    """The reason that counts most, in a sentence: of the half that believes more, or of the rules if asked for."""
    entry = next((e for e in why.rules if e.contribution > 0 and e.premises), None)
    if entry is not None and (by_rules or why.q is None or why.p_w >= why.q):
        return join(names.facts(entry.premises[0]), ", since ", names.rule(entry.rule), ".")
    doubt = "the rules doubt it" if why.rules else "no rule reaches it"
    if why.paths:
        best = max(why.paths, key=lambda path: path.share)
        return join(f"{doubt}; the neural model reaches it by ", names.facts(best.path), ".")
    if why.neighbours:
        like = max(why.neighbours, key=lambda n: n.similarity)
        return join(f"{doubt}; to the neural model it is like the known ", names.fact(like.fact), ".")
    besides = "." if why.q is None else " and the neural model’s score."
    return join(f"{doubt}; there is the base rate of its relation", besides)


def _groundings(entry: Contribution, why: Explanation) -> str:
    """What a rule's weight is multiplied with: its groundings, or in the mean their share of all."""
    own, broken = entry.groundings, entry.broken
    less = f", less {broken:,} that it would break as a premise" if broken else ""
    if why.aggregate == "mean":
        every = sum(e.groundings + e.broken for e in why.rules)
        return f", {own:,} of the {many(every, 'grounding')}{less}"
    return f" × {many(own, 'grounding')}{less}" if own != 1 or broken else ""


def _contribution(entry: Contribution, times: str, names: Names) -> Markup:
    text = join(names.rule(entry.rule), tag("small", f" weight {entry.weight:.2f}{times}"))
    premises = [tag("li", names.facts(premises)) for premises in entry.premises]
    more = entry.groundings - len(premises)
    under = tag("ul", premises, tag("li", f"… and {more:,} more") if more > 0 else None)
    return _term(f"{entry.contribution:+.2f}", join(text, under))


def _term(number: str, about: Child) -> Markup:
    return tag("li", tag("span", number, class_="term"), tag("div", about))


def _shares(text: str, rows: Sequence[tuple[float, Markup]]) -> Child:
    """The largest numbers with what each belongs to; nothing where there are none."""
    best = [_term(f"{n:.2f}", about) for n, about in sorted(rows, key=lambda row: -row[0])[:REASONS_MOST]]
    return [tag("p", text), tag("ul", best, class_="terms")] if best else None
