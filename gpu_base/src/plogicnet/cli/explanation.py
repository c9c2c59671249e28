"""An explanation in words: an outline, shown as a tree or as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from plogicnet.cli.show import NO_LABELS, fact
from plogicnet.errors import many
from plogicnet.rules import Atom, Constant, Variable, parse_rule

RULES = 5
"""So many rules are shown, the strongest."""


@dataclass(frozen=True)
class Outline:
    """A line and what stands below it.

    Example:
        >>> print(Outline("a", (Outline("b"),)).text())
        a
          b
    """

    line: str
    below: tuple["Outline", ...] = ()

    def text(self, depth: int = 0) -> str:
        """As indented lines."""
        return "\n".join(["  " * depth + self.line, *(part.text(depth + 1) for part in self.below)])

    def tree(self) -> Tree:
        """As a tree."""
        root = Tree(escape(self.line))
        for part in self.below:
            root.add(part.tree())
        return root


def explained(reason: Mapping[str, Any], labels: Mapping[str, str] = NO_LABELS) -> Outline:
    """Why a triple is held probable or not, in words.

    Example:
        >>> print(explained(model.explain("zoe_brandt", "mother", "anna_brandt")).text())  # doctest: +SKIP
    """
    known = ", a known fact" if reason["known"] else ""
    line = f"{fact(reason['triple'], labels)}  probability {reason['probability']:.3f}{known}"
    return Outline(line, (_vectors(reason, labels), _rules(reason, labels), _calibration(reason, labels)))


def _vectors(reason: Mapping[str, Any], labels: Mapping[str, str]) -> Outline:
    similar: dict[str, list[Outline]] = {}
    for entry in reason["neighbours"]:
        line = f"{entry['similarity']:.2f}  {fact(entry['fact'], labels)}"
        similar.setdefault(labels.get(entry["similar_to"], entry["similar_to"]), []).append(Outline(line))
    below = tuple(Outline(f"similar to {name}, with such a fact", tuple(lines)) for name, lines in similar.items())
    if reason["without_vector"]:
        names = " and ".join(labels.get(name, name) for name in reason["without_vector"])
        return Outline(f"judged by rules alone: no vector for {names}", below)
    if reason["q"] is None:
        return Outline("judged by rules alone: this model has no vectors")
    return Outline(f"the vectors say q = {reason['q']:.3f}", below)


def _rules(reason: Mapping[str, Any], labels: Mapping[str, str]) -> Outline:
    line = f"the rules say p_w = {reason['p_w']:.3f}, log-odds {reason['log_odds']:+.2f}"
    relation = labels.get(reason["triple"][1], reason["triple"][1])
    below = [Outline(f"{reason['base']:+.2f}  base rate of {relation}")]
    below += [_rule(entry, labels) for entry in reason["rules"][:RULES]]
    rest = reason["rules"][RULES:]
    if rest:
        below.append(Outline(f"{sum(entry['contribution'] for entry in rest):+.2f}  {many(len(rest), 'more rule')}"))
    if not reason["rules"]:
        below.append(Outline("no rule reaches it from the known facts"))
    return Outline(line, tuple(below))


def _rule(entry: Mapping[str, Any], labels: Mapping[str, str]) -> Outline:
    """A rule's contribution and its premises."""
    counts = f", {entry['groundings']:,} groundings" if entry["groundings"] != 1 else ""
    if entry["broken"]:
        counts += f", and {entry['broken']:,} that it would break as a premise"
    line = f"{entry['contribution']:+.2f}  {_rule_text(entry['rule'], labels)}  (weight {entry['weight']:.2f}{counts})"
    below = [Outline(" and ".join(fact(p, labels) for p in premises)) for premises in entry["premises"]]
    if len(below) < entry["groundings"]:
        below.append(Outline(f"… and {entry['groundings'] - len(below):,} more"))
    return Outline(line, tuple(below))


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


def _calibration(reason: Mapping[str, Any], labels: Mapping[str, str]) -> Outline:
    """How the probability comes about."""
    if reason["forbidden"]:
        relation = labels.get(reason["triple"][1], reason["triple"][1])
        return Outline(f"ruled out: {relation} does not hold between an entity and itself")
    if reason["calibration"] is None:
        return Outline(
            "not calibrated, p_w where a rule reaches it, else 0: `plogicnet refit` calibrates this run for entities"
            " without vector"
        )
    line = f"together, as calibrated on validation triples: log-odds {reason['calibration']['log_odds']:+.2f}"
    return Outline(line, tuple(_parts(reason["calibration"]["parts"], reason["reached"])))


def _parts(parts: Sequence[Mapping[str, Any]], reached: bool) -> list[Outline]:
    words = {
        "intercept": "for any triple",
        "score": "for the vectors' log-odds {value:+.2f} × {coefficient:.2f}",
        "p_w": "for the rules' p_w {value:.3f} × {coefficient:.2f}",
        "reached": "for being reached by rules" if reached else "no rule reaches it",
    }
    left_out = "" if reached else "p_w"
    return [
        Outline(f"{part['contribution']:+.2f}  {words[part['part']].format(**part)}")
        for part in parts
        if part["part"] != left_out
    ]
