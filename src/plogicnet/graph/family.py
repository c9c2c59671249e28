"""The demo family: a generated kinship graph of five generations with known ground truth."""

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
"""Numbers of children of couples, drawn without replacement, so that the family has a similar size for all seeds."""
TRAIN_SHARE, VALID_SHARE, NOISE_SHARE = 0.72, 0.1, 0.02
"""The shares of the true facts in train and valid, and the share of wrong facts in train.

A rule without exceptions has a precision of about TRAIN_SHARE, because its other conclusions are in valid and test.
"""

# Strings, because the formatter would put each name of a tuple on its own line.
_FEMALE_NAMES = """
ada agnes alice alma amelia anna astrid beatrice bella carla cecilia celia clara cora dagmar daisy diana dora
edith elena elisa ella elsa emma erika esther eva flora freya frida gerda greta hanna hedwig helena hilda ida
ines ingrid irene iris johanna julia karin laura lena lily lucia marta maya mina nora olga paula rosa ruth
sofia tilda vera zoe
"""
_MALE_NAMES = """
aaron adam albert alex anton arne august axel ben bruno carl caspar clemens conrad daniel david edgar emil
erik ernst felix finn frank fritz georg gustav hans harald henrik hugo isaac ivan jakob jan jonas josef julius
kilian klaus leo linus lorenz ludwig lukas magnus martin max nils noah oscar otto paul peter robert rolf
samuel simon theo viktor walter
"""
_FAMILY_NAMES = """
adler bauer beck berg brandt dahl ebert falk fischer frost haas hagen hahn holm keller klein kraus lang lind
lund meyer moser norden olsen peters quist richter roth sander sommer stein strand thal ulmer vogel wagner
weber winter wolf ziegler
"""

# The relations for any, a male and a female relative of each kind ("" if the graph has no such relation).
_RELATIONS = {
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
    spouses: list["_Person"] = field(default_factory=list)  # at most one
    children: list["_Person"] = field(default_factory=list)

    def relatives(self) -> dict[str, list["_Person"]]:
        """Return all blood relatives and the spouse, by kind."""
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
        """Return the siblings. People marry only once, so the father's other children are also the mother's."""
        return [c for c in self.parents[0].children if c is not self] if self.parents else []


class _Society:
    """A generated population. `people` contains all persons by name, in the order in which they were added."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.people: dict[str, _Person] = {}
        self.child_counts: list[int] = []
        self.first_names = {True: _FEMALE_NAMES.split(), False: _MALE_NAMES.split()}
        self.family_names = [str(name) for name in rng.permutation(_FAMILY_NAMES.split())]

        generation = []
        for couple in range(FOUNDING_COUPLES):
            husband = self.add_person(self.family_names[couple], female=False)
            wife = self.add_person(self.family_names[FOUNDING_COUPLES + couple], female=True)
            generation += self.marry(husband, wife)
        for _ in range(GENERATIONS - 2):
            generation = self.next_generation(generation)

    def add_person(self, family: str, female: bool, parents: tuple[_Person, ...] = ()) -> _Person:
        """Add a person with a first name that no sibling has."""
        siblings = {c.name.split("_")[0] for c in parents[0].children} if parents else set()
        first_name = _pick(self.rng, [name for name in self.first_names[female] if name not in siblings])
        name, copies = f"{first_name}_{family}", 1
        while name in self.people:
            copies += 1
            name = f"{first_name}_{family}_{copies}"
        self.people[name] = _Person(name, family, female, parents)
        return self.people[name]

    def marry(self, one: _Person, other: _Person) -> list[_Person]:
        """Marry two people and return their children, who all get one family name."""
        one.spouses.append(other)
        other.spouses.append(one)
        father, mother = (other, one) if one.female else (one, other)
        self.child_counts = self.child_counts or [int(n) for n in self.rng.permutation(CHILDREN)]
        family = _pick(self.rng, [father.family, mother.family])
        for _ in range(self.child_counts.pop()):
            child = self.add_person(family, bool(self.rng.random() < 0.5), (father, mother))
            father.children.append(child)
            mother.children.append(child)
        return father.children

    def next_generation(self, generation: list[_Person]) -> list[_Person]:
        """Marry most of a generation, to each other or to newcomers, and return their children."""
        order = self.rng.permutation(len(generation))
        singles = [generation[i] for i in order if self.rng.random() >= SINGLE_SHARE]
        children = []
        while singles:
            one = singles.pop()
            relatives = one.relatives()
            excluded = relatives["siblings"] + relatives["cousins"]
            matches = [p for p in singles if p.female != one.female and p not in excluded]
            if matches and self.rng.random() >= NEWCOMER_SHARE:
                other = _pick(self.rng, matches)
                singles.remove(other)
            else:
                other = self.add_person(_pick(self.rng, self.family_names), not one.female)
            children += self.marry(one, other)
        return children


def true_facts(seed: int = 0) -> set[Fact]:
    """Return all true facts of the family. (anna, mother, ben) means that anna is the mother of ben.

    Example:
        >>> facts = true_facts()
        >>> all((y, "wife", x) in facts for x, relation, y in facts if relation == "husband")
        True
    """
    return set(_facts(np.random.default_rng(seed)))


def demo_family(seed: int = 0) -> KnowledgeGraph:
    """Return the family as a knowledge graph that is incomplete and contains a few wrong facts.

    Every true fact is in exactly one split (72% train, 10% valid, 18% test), so that predictions can be checked.
    In addition, train contains 2% wrong facts.

    Example:
        >>> family = demo_family()
        >>> family.name, "uncle" in family.relations
        ('family', True)
    """
    rng = np.random.default_rng(seed)
    facts = _facts(rng)
    shuffled = [facts[i] for i in rng.permutation(len(facts))]
    # Move the first fact of each person and relation to train, so that valid and test contain no unseen names.
    seen: set[str] = set()
    first: list[Fact] = []
    later: list[Fact] = []
    for fact in shuffled:
        (later if seen.issuperset(fact) else first).append(fact)
        seen.update(fact)
    shuffled = first + later

    train_end = round(TRAIN_SHARE * len(facts))
    valid_end = train_end + round(VALID_SHARE * len(facts))
    train = shuffled[:train_end]
    train += _wrong_facts(rng, train, facts)
    train = [train[i] for i in rng.permutation(len(train))]  # mix the wrong facts with the others
    return KnowledgeGraph.from_names(train, shuffled[train_end:valid_end], shuffled[valid_end:], name="family")


def _facts(rng: np.random.Generator) -> list[Fact]:
    """Return the distinct facts of a new society, in an order that depends only on the generator."""
    facts: dict[Fact, None] = {}  # an ordered set: people who are cousins through both parents occur twice
    for person in _Society(rng).people.values():
        for kind, relatives in person.relatives().items():
            general, male, female = _RELATIONS[kind]
            for relative in relatives:
                for relation in (general, female if relative.female else male):
                    if relation:
                        facts[relative.name, relation, person.name] = None
    return list(facts)


def _wrong_facts(rng: np.random.Generator, train: list[Fact], facts: list[Fact]) -> list[Fact]:
    """Return wrong facts: facts of train with a random head or tail. Self-loops are excluded."""
    people = list(dict.fromkeys(head for head, _, _ in facts))
    true, wrong = set(facts), dict[Fact, None]()
    while len(wrong) < NOISE_SHARE * len(train):
        head, relation, tail = _pick(rng, train)
        person = _pick(rng, people)
        fact = (person, relation, tail) if rng.random() < 0.5 else (head, relation, person)
        if fact not in true and fact[0] != fact[2]:
            wrong[fact] = None
    return list(wrong)


def _pick(rng: np.random.Generator, options: Sequence[_T]) -> _T:
    return options[int(rng.integers(len(options)))]
