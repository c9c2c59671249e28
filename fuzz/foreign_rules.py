"""Fuzz the readers of AMIE's and AnyBURL's rules: any text must give rules that survive writing, or an InputError."""

from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import Rule, parse_rule
from plogicnet.rules.amie import format_amie, is_amie, read_amie
from plogicnet.rules.anyburl import format_anyburl, is_anyburl, read_anyburl
from plogicnet.rules.foreign import ForeignRule, NotExpressibleError
from plogicnet.rules.syntax import find_problem
from plogicnet.support.errors import InputError

RELATIONS, ENTITIES = ("r", "s", "r(a), s", "a b", "<p>"), ("ab", "b, c", "a(b)", "a <= b", "?q x", "me_myself_i", "é")
GRAPH = KnowledgeGraph.from_names([(e, r, e) for r in RELATIONS for e in ENTITIES])
FORMATS = ((read_anyburl, format_anyburl, is_anyburl), (read_amie, format_amie, is_amie))


def one_input(data: bytes) -> None:
    r"""Read the bytes as rules. The first byte selects the format.

    Example:
        >>> one_input(b"04\t3\t0.75\tr(X,Y) <= s(Y,X)")
    """
    text = data[1:].decode("utf-8", errors="replace")
    reader, _, _ = FORMATS[data[0] % len(FORMATS) if data else 0]
    for _, _, is_line in FORMATS:
        is_line(text)
    try:
        rules = [found.rule for found in reader(text, GRAPH, "fuzz") if isinstance(found, ForeignRule)]
    except InputError:
        return
    for rule in rules:
        if find_problem(rule.body, rule.head) is None and parse_rule(str(rule)) != rule:
            raise AssertionError(f"{rule} changes when it is printed and parsed")
        for reader, writer, _ in FORMATS:
            try:
                line = writer(rule, 4, 3)
            except NotExpressibleError:
                continue
            [again] = reader(line, GRAPH, "fuzz")
            if not isinstance(again, ForeignRule) or not _is_same(again.rule, rule):
                raise AssertionError(f"{rule} changes when it is written and read")


def _is_same(rule: Rule, other: Rule) -> bool:
    """Return whether two rules have the same premises. AnyBURL's are in the order of the path."""
    return sorted(atom.relation for atom in rule.body) == sorted(atom.relation for atom in other.body)
