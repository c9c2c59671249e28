"""An explanation in words: an outline, shown as a tree or as text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rich.markup import escape
from rich.tree import Tree

from plogicnet.cli.show import NO_LABELS, fact, facts
from plogicnet.inference.explanation import Contribution, Explanation
from plogicnet.rules import Atom, Constant, Variable, parse_rule
from plogicnet.support.errors import many

RULES = 5
"""How many rules are shown, the strongest."""
PARTS = {
    "intercept": "for any triple",
    "score": "for the neural model's log-odds {value:+.2f} × {coefficient:.2f}",
    "p_w": "for the rules' p_w {value:.3f} × {coefficient:.2f}",
    "reached": "for being reached by rules",
}
"""The parts of a calibrated probability, in words."""
UNREACHED = {"intercept": PARTS["intercept"], "score": PARTS["score"], "reached": "no rule reaches it"}
"""The same of a triple that no rule reaches."""


@dataclass(frozen=True)
class Outline:
    """A line and what stands below it.

    Example:
        >>> print(Outline("a", [Outline("b")]).text())
        a
          b
    """

    line: str
    below: Sequence["Outline"] = ()

    def text(self, depth: int = 0) -> str:
        """As indented lines."""
        return "\n".join(["  " * depth + self.line, *(part.text(depth + 1) for part in self.below)])

    def tree(self) -> Tree:
        """As a tree."""
        root = Tree(escape(self.line))
        for part in self.below:
            root.add(part.tree())
        return root


def explained(why: Explanation, labels: Mapping[str, str] = NO_LABELS) -> Outline:
    """Why a triple is probable or not, in words."""
    known = ", a known fact" if why.known else ""
    line = f"{fact(why.triple, labels)}  probability {why.probability:.3f}{known}"
    relation = labels.get(why.triple[1], why.triple[1])
    return Outline(line, [_neural(why, labels), _rules(why, relation, labels), _calibration(why, relation)])


def _neural(why: Explanation, labels: Mapping[str, str]) -> Outline:
    """The neural model's probability, and its reasons: similar entities, or paths."""
    similar: dict[str, list[Outline]] = {}
    for entry in why.neighbours:
        line = f"{entry.similarity:.2f}  {fact(entry.fact, labels)}"
        similar.setdefault(labels.get(entry.similar_to, entry.similar_to), []).append(Outline(line))
    below = [Outline(f"similar to {name}, with such a fact", lines) for name, lines in similar.items()]
    if why.paths:
        paths = [Outline(f"{path.share:.2f}  {facts(path.path, labels)}") for path in why.paths]
        below.append(Outline("by these paths, each with its share of the score", paths))
    if why.without_vector:
        names = " and ".join(labels.get(name, name) for name in why.without_vector)
        return Outline(f"judged by rules alone: the neural model cannot score {names}", below)
    if why.q is None:
        return Outline("judged by rules alone: this run has no neural model")
    return Outline(f"the neural model says q = {why.q:.3f}", below)


def _rules(why: Explanation, relation: str, labels: Mapping[str, str]) -> Outline:
    below = [Outline(f"{why.base:+.2f}  base rate of {relation}")]
    below += [_rule(entry, labels) for entry in why.rules[:RULES]]
    if rest := [entry.contribution for entry in why.rules[RULES:]]:
        below.append(Outline(f"{sum(rest):+.2f}  {many(len(rest), 'more rule')}"))
    if not why.rules:
        below.append(Outline("no rule reaches it from the known facts"))
    return Outline(f"the rules say p_w = {why.p_w:.3f}, log-odds {why.log_odds:+.2f}", below)


def _rule(entry: Contribution, labels: Mapping[str, str]) -> Outline:
    """A rule's contribution and its premises."""
    counts = f", {entry.groundings:,} groundings" if entry.groundings != 1 else ""
    if entry.broken:
        counts += f", and {entry.broken:,} that it would break as a premise"
    line = f"{entry.contribution:+.2f}  {_rule_text(entry.rule, labels)}  (weight {entry.weight:.2f}{counts})"
    below = [Outline(facts(premises, labels)) for premises in entry.premises]
    if len(below) < entry.groundings:
        below.append(Outline(f"… and {entry.groundings - len(below):,} more"))
    return Outline(line, below)


def _rule_text(rule: str, labels: Mapping[str, str]) -> str:
    """A rule under its names' labels."""
    if not labels:
        return rule

    def term(given: Constant | Variable) -> Constant | Variable:
        return Constant(labels.get(given.name, given.name)) if isinstance(given, Constant) else given

    def atom(given: Atom) -> Atom:
        return Atom(labels.get(given.relation, given.relation), term(given.head), term(given.tail))

    parsed = parse_rule(rule)
    return str(replace(parsed, body=tuple(map(atom, parsed.body)), head=atom(parsed.head)))


def _calibration(why: Explanation, relation: str) -> Outline:
    """How the probability is composed."""
    if why.forbidden:
        return Outline(f"ruled out: {relation} does not hold between an entity and itself")
    line = f"together, as calibrated on validation triples: log-odds {why.calibration.log_odds:+.2f}"
    words = PARTS if why.reached else UNREACHED
    parts = [part for part in why.calibration.parts if part.part in words]
    return Outline(line, [Outline(f"{p.contribution:+.2f}  {words[p.part].format(**asdict(p))}") for p in parts])
