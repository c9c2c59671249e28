"""Explanations as text: an outline that is printed as a tree or as indented lines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rich.markup import escape
from rich.tree import Tree

from plogicnet.cli.show import NO_LABELS, fact, facts
from plogicnet.inference.explanation import Contribution, Explanation
from plogicnet.rules import Atom, Constant, Variable, parse_rule
from plogicnet.support.errors import pluralize
from plogicnet.support.numbers import format_probability

MAX_RULES = 5
"""Default number of rules to show."""
TERMS = {
    "intercept": "constant",
    "score": "neural model: log-odds {value:+.2f} × coefficient {coefficient:.2f}",
    "p_w": "rules: p_w {value:.3f} × coefficient {coefficient:.2f}",
    "reached": "at least one rule concludes the triple",
}
"""The labels of the terms of the calibrated log-odds."""
TERMS_WITHOUT_RULES = {
    "intercept": TERMS["intercept"],
    "score": TERMS["score"],
    "reached": "no rule concludes the triple",
}
"""The labels for a triple that no rule concludes."""


@dataclass(frozen=True)
class Outline:
    """A line with its child lines.

    Example:
        >>> print(Outline("a", [Outline("b")]).text())
        a
          b
    """

    line: str
    children: Sequence["Outline"] = ()

    def text(self, depth: int = 0) -> str:
        """Return the outline as indented lines."""
        return "\n".join(["  " * depth + self.line, *(child.text(depth + 1) for child in self.children)])

    def tree(self) -> Tree:
        """Return the outline as a tree."""
        root = Tree(escape(self.line))
        for child in self.children:
            root.add(child.tree())
        return root


def explanation_outline(
    explanation: Explanation, labels: Mapping[str, str] = NO_LABELS, max_rules: int = MAX_RULES
) -> Outline:
    """Return an explanation as an outline, with labels instead of names if there are any.

    The rules with the largest contributions are shown, at most `max_rules`. If it is 0, all are shown.
    """
    known = " (known fact)" if explanation.known else ""
    line = f"{fact(explanation.triple, labels)}  probability {format_probability(explanation.probability)}{known}"
    relation = labels.get(explanation.triple[1], explanation.triple[1])
    rules = _rules(explanation, relation, labels, max_rules or len(explanation.rules))
    return Outline(line, [_neural(explanation, labels), rules, _calibration(explanation, relation)])


def _neural(explanation: Explanation, labels: Mapping[str, str]) -> Outline:
    """Return the neural model's probability and its reasons: similar entities or paths."""
    similar: dict[str, list[Outline]] = {}
    for entry in explanation.neighbours:
        line = f"{entry.similarity:.2f}  {fact(entry.fact, labels)}"
        similar.setdefault(labels.get(entry.similar_to, entry.similar_to), []).append(Outline(line))
    children = [
        Outline(f"known facts with an entity similar to {name}, with the similarity", lines)
        for name, lines in similar.items()
    ]
    if explanation.paths:
        paths = [Outline(f"{path.share:+.2f}  {facts(path.path, labels)}") for path in explanation.paths]
        children.append(Outline("paths; removed one after the other, they lower the log-odds of q by", paths))
    if explanation.without_vector:
        names = " and ".join(labels.get(name, name) for name in explanation.without_vector)
        return Outline(f"neural model: cannot score {names}, so only rules count", children)
    if explanation.q is None:
        return Outline("neural model: this run has no neural model, so only rules count")
    return Outline(f"neural model: {_equation('q', explanation.q)}", children)


def _equation(name: str, probability: float) -> str:
    """Return a probability with its name.

    Example:
        >>> _equation("q", 0.5), _equation("q", 0.0001)
        ('q = 0.500', 'q <0.001')
    """
    text = format_probability(probability)
    return f"{name} {text}" if text[0] in "<>" else f"{name} = {text}"


def _rules(explanation: Explanation, relation: str, labels: Mapping[str, str], max_rules: int) -> Outline:
    children = [Outline(f"{explanation.base:+.2f}  base rate of {relation}")]
    children += [_rule(entry, explanation.aggregate, labels) for entry in explanation.rules[:max_rules]]
    if rest := [entry.contribution for entry in explanation.rules[max_rules:]]:
        children.append(Outline(f"{sum(rest):+.2f}  {pluralize(len(rest), 'other rule')} together"))
    if not explanation.rules:
        children.append(Outline("no rule concludes the triple from known facts"))
    return Outline(f"rules: {_equation('p_w', explanation.p_w)}, log-odds {explanation.log_odds:+.2f}", children)


def _rule(entry: Contribution, aggregate: str, labels: Mapping[str, str]) -> Outline:
    """Return a rule's contribution and its premises."""
    counts = f", {entry.groundings:,} groundings" if entry.groundings > 1 else ""
    if entry.negative:
        counts = f", {pluralize(entry.groundings, 'fact')} against the triple"
    elif aggregate == "saturating" and entry.value != 1:
        has_groundings = entry.groundings or entry.broken  # a formula can have none
        counts = f" × {entry.value:.2f}" + (counts or ", 1 grounding" if has_groundings else "")
    if entry.broken:
        counts += f", minus {pluralize(entry.broken, 'grounding')} that would be violated if the triple were true"
    line = f"{entry.contribution:+.2f}  {_rule_text(entry.rule, labels)}  (weight {entry.weight:.2f}{counts})"
    children = [Outline(facts(premises, labels)) for premises in entry.premises]
    if len(children) < entry.groundings:
        children.append(Outline(f"… and {entry.groundings - len(children):,} more"))
    return Outline(line, children)


def _rule_text(rule: str, labels: Mapping[str, str]) -> str:
    """Return the text of a rule with labels instead of names."""
    if not labels:
        return rule

    def label_term(term: Constant | Variable) -> Constant | Variable:
        return Constant(labels.get(term.name, term.name)) if isinstance(term, Constant) else term

    def label_atom(atom: Atom) -> Atom:
        return Atom(labels.get(atom.relation, atom.relation), label_term(atom.head), label_term(atom.tail))

    parsed = parse_rule(rule)
    return str(replace(parsed, body=tuple(map(label_atom, parsed.body)), head=label_atom(parsed.head)))


def _calibration(explanation: Explanation, relation: str) -> Outline:
    """Return the terms of the calibrated log-odds."""
    if explanation.forbidden:
        return Outline(f"probability 0: a constraint excludes {relation} between an entity and itself")
    line = f"combined and calibrated on validation triples: log-odds {explanation.calibration.log_odds:+.2f}"
    labels = TERMS if explanation.reached else TERMS_WITHOUT_RULES
    terms = [term for term in explanation.calibration.parts if term.part in labels]
    return Outline(line, [Outline(f"{t.contribution:+.2f}  {labels[t.part].format(**asdict(t))}") for t in terms])
