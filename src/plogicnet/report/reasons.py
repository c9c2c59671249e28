"""Predictions and mistakes as cards with probabilities and reasons."""

from collections.abc import Sequence

from plogicnet.inference.explanation import Contribution
from plogicnet.model import Explanation, Prediction
from plogicnet.report.highlights import Mistake, QueryResult
from plogicnet.report.markup import Child, Markup, NameFormatter, join, separated, tag
from plogicnet.report.plots import meter
from plogicnet.support.errors import pluralize
from plogicnet.support.numbers import format_probability
from plogicnet.systems.system import NEURAL, PLOGICNET_KEY, PLOGICNET_STAR_KEY, RANKING_TITLES, RULES

MAX_RULES, MAX_REASONS = 4, 3
"""Maximum number of rules, and of similar entities or paths, on a card."""


def prediction_card(why: Explanation, names: NameFormatter) -> Markup:
    """Return the card of a missing fact."""
    text = f"true: in {why.held_out}" if why.held_out else "not in the graph"
    badge = tag("span", text, class_="badge yes" if why.held_out else "badge")
    return tag("article", tag("h4", names.fact(why.triple), " ", badge), _probabilities(why), _reasons(why, names))


def missed_card(mistake: Mistake, names: NameFormatter) -> Markup:
    """Return the card of a badly ranked held-out triple, with its rank, other answers and the rules."""
    result, why = mistake
    answers = [join(names(_answer(a, result)), f" {format_probability(a.probability)}") for a in result.answers[:3]]
    others = [" Most probable other answers: ", separated("; ", answers), "."] if answers else None
    query = names.fact(result.correct.triple, result.side)
    text = tag("p", "Query ", query, ": the correct answer has ", _rank_text(result), others)
    reasons = _reasons(why, names, "Evidence", by_rules=True)
    return tag("article", tag("h4", names.fact(result.correct.triple)), text, _probabilities(result.correct), reasons)


def wrong_card(mistake: Mistake, names: NameFormatter) -> Markup:
    """Return the card of an answer that is in no split and more probable than the correct one."""
    result, why = mistake
    probability = format_probability(result.correct.probability)
    correct = [tag("b", names(_answer(result.correct, result))), f", with probability {probability} and "]
    query = names.fact(result.correct.triple, result.side)
    text = tag("p", "Query ", query, ": the correct answer is ", correct, _rank_text(result))
    reasons = _reasons(why, names)
    return tag("article", tag("h4", names.fact(why.triple)), _probabilities(why), text, reasons)


def _answer(prediction: Prediction, result: QueryResult) -> str:
    return prediction.head if result.side == "head" else prediction.tail


def _probabilities(prediction: Prediction | Explanation) -> Markup:
    """Return the calibrated probability and the probabilities of the neural model and the rules, with meters."""
    values = [
        ("Probability", "star", prediction.probability),
        (f"{RANKING_TITLES[NEURAL]} (q)", "neural", prediction.q),
        (f"{RANKING_TITLES[RULES]} (p_w)", "rules", prediction.p_w),
    ]
    items = [
        tag("div", tag("dt", name), tag("dd", meter(value, css_class), format_probability(value)))
        for name, css_class, value in values
        if value is not None
    ]
    return tag("dl", items, class_="probabilities")


def _rank_text(result: QueryResult) -> Markup:
    ranks = {key: f"{rank:,.0f}" if rank == int(rank) else f"{rank:,.1f}" for key, rank in result.ranks.items()}
    combined = (PLOGICNET_KEY, PLOGICNET_STAR_KEY)
    parts = [f"{RANKING_TITLES[key]}: {rank}" for key, rank in ranks.items() if key not in combined]
    others = f" ({', '.join(parts)})" if parts else ""
    return join("rank ", tag("b", ranks[PLOGICNET_STAR_KEY]), f" by {RANKING_TITLES[PLOGICNET_STAR_KEY]}{others}.")


def _reasons(why: Explanation, names: NameFormatter, title: str = "Why", by_rules: bool = False) -> Markup:
    """Return the strongest reason, and a collapsed list of all reasons."""
    contributions = [
        _term(f"{why.base:+.2f}", join("base rate of ", tag("i", names(why.triple[1])))),
        *(_contribution(entry, _groundings(entry, why), names) for entry in why.rules[:MAX_RULES]),
    ]
    if len(why.rules) > MAX_RULES:
        rest = sum(entry.contribution for entry in why.rules[MAX_RULES:])
        others = pluralize(len(why.rules) - MAX_RULES, "other rule")
        contributions.append(_term(f"{rest:+.2f}", f"{others} together"))
    if not why.rules:
        contributions.append(tag("li", "No rule concludes the triple from known facts."))
    total = tag("p", f"Log-odds of the rules: {why.log_odds:+.2f}, the sum of")
    similar = "Known facts with similar entities (similarity in the neural model, 1 is the highest):"
    paths = (
        "Paths from head to tail. If their facts are removed, one path after the other, each path lowers the log-odds"
        " of the neural model by this much:"
    )
    neural = [
        _top_terms(similar, [(n.similarity, names.fact(n.fact)) for n in why.neighbours]),
        _top_terms(paths, [(path.share, names.facts(path.path)) for path in why.paths]),
    ]
    details = tag("details", tag("summary", "All reasons"), total, tag("ul", contributions, class_="terms"), neural)
    return join(tag("p", tag("b", f"{title}: "), _strongest(why, names, by_rules)), details)


def _strongest(why: Explanation, names: NameFormatter, by_rules: bool) -> Markup:
    """Return the strongest reason of the rules, if p_w ≥ q or with `by_rules`, otherwise that of the neural model."""
    entry = next((e for e in why.rules if e.contribution > 0 and e.premises and not e.negative), None)
    if entry is not None and (by_rules or why.q is None or why.p_w >= why.q):
        return join(names.facts(entry.premises[0]), ", by the rule ", names.rule(entry.rule), ".")
    doubt = _doubt(why)
    if why.paths:
        path = names.facts(why.paths[0].path)
        return join(f"{doubt}. The neural model supports the triple by the path ", path, ".")
    if why.neighbours:
        nearest = max(why.neighbours, key=lambda n: n.similarity)
        return join(
            *(f"{doubt}. The neural model supports the triple by the known fact ", names.fact(nearest.fact)),
            ", which has a similar entity.",
        )
    if why.rules:
        return join(f"{doubt}.")
    rest = " counts." if why.q is None else " and the neural model’s score count."
    return join(f"{doubt}. Only the base rate of its relation", rest)


def _doubt(why: Explanation) -> str:
    """Return why the rules do not support a triple."""
    if not why.rules:
        return "no rule concludes the triple"
    rules = format_probability(why.p_w)
    if why.q is None or why.q <= why.p_w:
        return f"the rules give the triple a probability of {rules}"
    return f"the neural model gives the triple a probability of {format_probability(why.q)}, the rules {rules}"


def _groundings(entry: Contribution, why: Explanation) -> str:
    """Return the factor of a rule's weight as text: its groundings, or with the mean their share of all."""
    count, broken = entry.groundings, entry.broken
    if entry.negative:
        return f", {pluralize(count, 'fact')} against the triple"
    violated = (
        f", minus {pluralize(broken, 'grounding')} that would be violated if the triple were true" if broken else ""
    )
    if why.aggregate == "mean":
        total = sum(e.groundings + e.broken for e in why.rules if not e.negative)
        return f", {count:,} of the {pluralize(total, 'grounding')}{violated}"
    if not count:
        return f" × {entry.value:.2f}"
    if why.aggregate == "saturating" and entry.value != 1:
        return f" × {entry.value:.2f} for {pluralize(count, 'grounding')}{violated}"
    return f" × {pluralize(count, 'grounding')}{violated}" if count != 1 or broken else ""


def _contribution(entry: Contribution, factor: str, names: NameFormatter) -> Markup:
    text = join(names.rule(entry.rule), tag("small", f" weight {entry.weight:.2f}{factor}"))
    premises = [tag("li", names.facts(premises)) for premises in entry.premises]
    more = entry.groundings - len(premises)
    examples = tag("ul", premises, tag("li", f"… and {more:,} more") if more > 0 else None)
    return _term(f"{entry.contribution:+.2f}", join(text, examples))


def _term(number: str, text: Child) -> Markup:
    return tag("li", tag("span", number, class_="term"), tag("div", text))


def _top_terms(title: str, rows: Sequence[tuple[float, Markup]]) -> Child:
    """Return a list of the rows with the largest numbers, or None without rows."""
    best = [_term(f"{n:.2f}", text) for n, text in sorted(rows, key=lambda row: -row[0])[:MAX_REASONS]]
    return [tag("p", title), tag("ul", best, class_="terms")] if best else None
