"""The demo family: a made-up kinship graph over five generations whose whole truth is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from plogicnet.graph.knowledge_graph import KnowledgeGraph

Fact = tuple[str, str, str]
_T = TypeVar("_T")

FOUNDING_COUPLES, GENERATIONS = 12, 5
SINGLE_SHARE, NEWCOMER_SHARE = 0.15, 0.55
CHILDREN = (0, 1, 2, 2, 3, 3, 4, 4)
"""Dealt out to the couples like cards, over and over, so that the families of all seeds are alike in size."""
TRAIN_SHARE, VALID_SHARE, NOISE_SHARE = 0.72, 0.1, 0.02
"""A rule that always holds has a precision of about TRAIN_SHARE: well above 0.6, the usual threshold."""

# Texts rather than tuples, which the formatter would spread over a line per name.
_FEMALE = """
ada agnes alice alma amelia anna astrid beatrice bella carla cecilia celia clara cora dagmar daisy diana dora
edith elena elisa ella elsa emma erika esther eva flora freya frida gerda greta hanna hedwig helena hilda ida
ines ingrid irene iris johanna julia karin laura lena lily lucia marta maya mina nora olga paula rosa ruth
sofia tilda vera zoe
"""
_MALE = """
aaron adam albert alex anton arne august axel ben bruno carl caspar clemens conrad daniel david edgar emil
erik ernst felix finn frank fritz georg gustav hans harald henrik hugo isaac ivan jakob jan jonas josef julius
kilian klaus leo linus lorenz ludwig lukas magnus martin max nils noah oscar otto paul peter robert rolf
samuel simon theo viktor walter
"""
_FAMILY = """
adler bauer beck berg brandt dahl ebert falk fischer frost haas hagen hahn holm keller klein kraus lang lind
lund meyer moser norden olsen peters quist richter roth sander sommer stein strand thal ulmer vogel wagner
weber winter wolf ziegler
"""

# What we call any relative of a kind, a male one and a female one ("" where the graph has no such relation).
_WORDS = {
    "spouses": ("spouse", "husband", "wife"),
    "parents": ("parent", "father", "mother"),
    "children": ("child", "son", "daughter"),
    "siblings": ("sibling", "brother", "sister"),
    "grandparents": ("grandparent", "grandfather", "grandmother"),
    "parents' siblings": ("", "uncle", "aunt"),
    "siblings' children": ("", "nephew", "niece"),
    "cousins": ("cousin", "", ""),
}


@dataclass(eq=False)
class _Person:
    name: str
    family: str
    female: bool
    parents: tuple["_Person", ...] = ()
    spouses: list["_Person"] = field(default_factory=list)  # one at most
    children: list["_Person"] = field(default_factory=list)

    def relatives(self) -> dict[str, list["_Person"]]:
        """All relatives by blood, and the spouse, by kind."""
        siblings = self.siblings()
        parents_siblings = [s for parent in self.parents for s in parent.siblings()]
        return {
            "spouses": self.spouses,
            "parents": list(self.parents),
            "children": self.children,
            "siblings": siblings,
            "grandparents": [g for parent in self.parents for g in parent.parents],
            "parents' siblings": parents_siblings,
            "siblings' children": [c for s in siblings for c in s.children],
            "cousins": [c for s in parents_siblings for c in s.children],
        }

    def siblings(self) -> list["_Person"]:
        """People marry once, so the father's other children are the mother's too."""
        return [c for c in self.parents[0].children if c is not self] if self.parents else []


class _Society:
    """Everybody, in the order of arrival."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.people: dict[str, _Person] = {}
        self.deck: list[int] = []
        self.given = {True: _FEMALE.split(), False: _MALE.split()}
        self.families = [str(name) for name in rng.permutation(_FAMILY.split())]

        generation = []
        for couple in range(FOUNDING_COUPLES):
            husband = self.arrive(self.families[couple], female=False)
            wife = self.arrive(self.families[FOUNDING_COUPLES + couple], female=True)
            generation += self.marry(husband, wife)
        for _ in range(GENERATIONS - 2):
            generation = self.next_generation(generation)

    def arrive(self, family: str, female: bool, parents: tuple[_Person, ...] = ()) -> _Person:
        """A new person, with a given name that no sibling has."""
        siblings = {c.name.split("_")[0] for c in parents[0].children} if parents else set()
        given = _pick(self.rng, [name for name in self.given[female] if name not in siblings])
        name, copies = f"{given}_{family}", 1
        while name in self.people:
            copies += 1
            name = f"{given}_{family}_{copies}"
        self.people[name] = _Person(name, family, female, parents)
        return self.people[name]

    def marry(self, one: _Person, other: _Person) -> list[_Person]:
        """Joins the two; returns their children, who bear one family name."""
        one.spouses.append(other)
        other.spouses.append(one)
        father, mother = (other, one) if one.female else (one, other)
        self.deck = self.deck or [int(n) for n in self.rng.permutation(CHILDREN)]
        family = _pick(self.rng, [father.family, mother.family])
        for _ in range(self.deck.pop()):
            child = self.arrive(family, bool(self.rng.random() < 0.5), (father, mother))
            father.children.append(child)
            mother.children.append(child)
        return father.children

    def next_generation(self, generation: list[_Person]) -> list[_Person]:
        """Marries most of a generation, among themselves or to newcomers; returns their children."""
        order = self.rng.permutation(len(generation))
        willing = [generation[i] for i in order if self.rng.random() >= SINGLE_SHARE]
        children = []
        while willing:
            one = willing.pop()
            kin = one.relatives()
            barred = kin["siblings"] + kin["cousins"]
            matches = [p for p in willing if p.female != one.female and p not in barred]
            if matches and self.rng.random() >= NEWCOMER_SHARE:
                other = _pick(self.rng, matches)
                willing.remove(other)
            else:
                other = self.arrive(_pick(self.rng, self.families), not one.female)
            children += self.marry(one, other)
        return children


def true_facts(seed: int = 0) -> set[Fact]:
    """Everything that is true in the family: (head, relation, tail) says that head is the relation of tail.

    Example:
        >>> facts = true_facts()
        >>> all((y, "wife", x) in facts for x, relation, y in facts if relation == "husband")
        True
    """
    return set(_facts(np.random.default_rng(seed)))


def demo_family(seed: int = 0) -> KnowledgeGraph:
    """The family as a knowledge graph that is incomplete and a bit wrong.

    Every true fact is in exactly one split (72 % train, 10 % valid, 18 % test), so that each prediction can
    be checked. Train also holds 2 % wrong facts.

    Example:
        >>> family = demo_family()
        >>> family.name, "uncle" in family.relations
        ('family', True)
    """
    rng = np.random.default_rng(seed)
    truth = _facts(rng)
    shuffled = [truth[i] for i in rng.permutation(len(truth))]
    # What first shows a person or a relation goes to the front, into train: nothing held out may be unseen.
    seen: set[str] = set()
    first: list[Fact] = []
    later: list[Fact] = []
    for fact in shuffled:
        (later if seen.issuperset(fact) else first).append(fact)
        seen.update(fact)
    shuffled = first + later

    train_end = round(TRAIN_SHARE * len(truth))
    valid_end = train_end + round(VALID_SHARE * len(truth))
    train = shuffled[:train_end]
    train += _wrong_facts(rng, train, truth)
    train = [train[i] for i in rng.permutation(len(train))]  # nothing tells the wrong ones by their place
    return KnowledgeGraph.from_names(train, shuffled[train_end:valid_end], shuffled[valid_end:], name="family")


def _facts(rng: np.random.Generator) -> list[Fact]:
    """The truth of a new society, each fact once, in an order that depends on nothing but the generator."""
    facts: dict[Fact, None] = {}  # a set that keeps its order: double cousins come up twice
    for person in _Society(rng).people.values():
        for kind, relatives in person.relatives().items():
            anyone, male, female = _WORDS[kind]
            for relative in relatives:
                for word in (anyone, female if relative.female else male):
                    if word:
                        facts[relative.name, word, person.name] = None
    return list(facts)


def _wrong_facts(rng: np.random.Generator, train: list[Fact], truth: list[Fact]) -> list[Fact]:
    """Facts of train with a random person in place of one end, none of them true or a self-loop."""
    people = list(dict.fromkeys(head for head, _, _ in truth))
    true, wrong = set(truth), dict[Fact, None]()
    while len(wrong) < NOISE_SHARE * len(train):
        head, relation, tail = _pick(rng, train)
        stranger = _pick(rng, people)
        fact = (stranger, relation, tail) if rng.random() < 0.5 else (head, relation, stranger)
        if fact not in true and fact[0] != fact[2]:
            wrong[fact] = None
    return list(wrong)


def _pick(rng: np.random.Generator, options: Sequence[_T]) -> _T:
    return options[int(rng.integers(len(options)))]
