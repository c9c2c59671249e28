"""KnowledgeGraph: the immutable graph that everything else reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from plogicnet.graph.triples import (
    HEAD,
    RELATION,
    SIDES,
    TAIL,
    Answers,
    IntArray,
    Side,
    TripleSet,
    as_triples,
    triple_keys,
)
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.support.errors import InputError, many

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
SPLITS = ("train", "valid", "test")
HELD_OUT_SHARE, HELD_OUT_MOST = 0.05, 5_000


@dataclass(frozen=True, repr=False)
class KnowledgeGraph:
    """Vocabularies and the three splits as (n, 3) integer arrays; indexes are built when first needed.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben"), ("ben", "knows", "carl")])
        >>> len(graph.entities), len(graph.train), graph.names(graph.train[0])
        (3, 2, ('anna', 'knows', 'ben'))
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: IntArray
    valid: IntArray = field(default_factory=lambda: as_triples([]))
    test: IntArray = field(default_factory=lambda: as_triples([]))
    duplicates: int = 0
    held_out: int = 0
    """How many training triples were set aside as valid because the graph came without a valid split."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Readable labels of names, for showing to people."""

    def __post_init__(self) -> None:
        for split in SPLITS:
            frozen = self.split(split).view()  # the caller's own array stays writeable
            frozen.flags.writeable = False
            object.__setattr__(self, split, frozen)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.split(split)):,}" for split in SPLITS)
        entities = many(len(self.entities), "entity", "entities")
        return f"<KnowledgeGraph {self.name}: {entities}, {many(len(self.relations), 'relation')}; {sizes}>"

    @classmethod
    def from_names(
        cls,
        train: Iterable[tuple[str, str, str]],
        valid: Iterable[tuple[str, str, str]] = (),
        test: Iterable[tuple[str, str, str]] = (),
        name: str = "graph",
    ) -> "KnowledgeGraph":
        """A graph from rows of names; double rows within a split are dropped and counted.

        Example:
            >>> KnowledgeGraph.from_names([("anna", "knows", "ben")] * 2).duplicates
            1
        """
        splits = [list(train), list(valid), list(test)]
        ends = dict.fromkeys(e for rows in splits for h, _, t in rows for e in (h, t))
        entities = Vocabulary("entity", tuple(ends))
        relations = Vocabulary("relation", tuple(dict.fromkeys(r for rows in splits for _, r, _ in rows)))
        numbered = [as_triples([(entities.id(h), relations.id(r), entities.id(t)) for h, r, t in s]) for s in splits]
        return cls.from_numbers(entities, relations, numbered, name)

    @classmethod
    def from_numbers(
        cls,
        entities: Vocabulary,
        relations: Vocabulary,
        splits: Iterable[IntArray],
        name: str,
        labels: Mapping[str, str] | None = None,
    ) -> "KnowledgeGraph":
        """A graph from the splits' integer triples; double rows within a split are dropped and counted."""
        given = list(splits)
        if not len(given[0]):
            raise InputError(f"{name}: the train split holds no triple")
        graph = cls(name, entities, relations, given[0], given[1], given[2], labels=labels or {})
        if not any(np.any(keys[1:] == keys[:-1]) for keys in graph.sorted_keys.values()):
            return graph
        kept = [drop_duplicates(rows, len(entities)) for rows in given]
        duplicates = sum(map(len, given)) - sum(map(len, kept))
        return replace(graph, train=kept[0], valid=kept[1], test=kept[2], duplicates=duplicates)

    @cached_property
    def sorted_keys(self) -> dict[str, IntArray]:
        """Each split's triples as sorted keys: what duplicates and indexes are found by."""
        return {split: np.sort(triple_keys(self.split(split), len(self.entities))) for split in SPLITS}

    @cached_property
    def observed(self) -> TripleSet:
        """O, the training triples, as a set."""
        keys = self.sorted_keys["train"]
        return TripleSet.of_keys(keys[np.append(True, keys[1:] != keys[:-1])], len(self.entities))

    def shared(self, split: str, other: str) -> int:
        """How many triples of a split stand in another too.

        Example:
            >>> KnowledgeGraph.from_names([("a", "r", "b")], test=[("a", "r", "b")]).shared("test", "train")
            1
        """
        keys, known = self.sorted_keys[split], self.sorted_keys[other]
        return int(np.count_nonzero(np.searchsorted(known, keys, "right") > np.searchsorted(known, keys)))

    def split(self, name: str) -> IntArray:
        """The triples of "train", "valid" or "test"."""
        if name not in SPLITS:
            raise InputError(f"unknown split {name!r}; one of {', '.join(SPLITS)}")
        triples: IntArray = getattr(self, name)
        return triples

    def known(self, splits: Iterable[str], side: Side) -> Answers:
        """The answers that the named splits give to every query of one side.

        Example:
            >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
            >>> graph.known(["train"], "tail").lookup(np.array([0]), np.array([0]))[1]
            array([1])
        """
        return Answers.of(np.concatenate([self.split(s) for s in splits]), len(self.entities), side)

    @cached_property
    def observed_answers(self) -> dict[Side, Answers]:
        """The answers that train gives to every query of each side."""
        return {side: self.known(["train"], side) for side in SIDES}

    def __deepcopy__(self, memo: object) -> "KnowledgeGraph":
        return self  # it never changes

    def names(self, triple: IntArray) -> tuple[str, str, str]:
        """The names of one triple."""
        head, relation, tail = (int(x) for x in triple)
        return self.entities.names[head], self.relations.names[relation], self.entities.names[tail]

    def numbers(self, head: str, relation: str, tail: str) -> IntArray:
        """The integer triple of three names.

        Example:
            >>> KnowledgeGraph.from_names([("anna", "knows", "ben")]).numbers("anna", "knows", "ben")
            array([0, 0, 1])
        """
        return np.array([self.entities.id(head), self.relations.id(relation), self.entities.id(tail)])

    def with_validation(self, seed: int) -> "KnowledgeGraph":
        """Itself where it has a valid split; else 5 % of train (at most 5,000) is set aside as one.

        Example:
            >>> rows = [(str(i), "next", str(i + 1)) for i in range(100)]
            >>> len(KnowledgeGraph.from_names(rows).with_validation(seed=0).valid)
            5
        """
        if len(self.valid) or len(self.train) < 2:
            return self
        share = min(max(1, round(len(self.train) * HELD_OUT_SHARE)), HELD_OUT_MOST)
        aside = np.zeros(len(self.train), dtype=bool)
        aside[np.random.default_rng(seed).choice(len(self.train), share, replace=False)] = True
        return replace(self, train=self.train[~aside], valid=self.train[aside], held_out=share)

    def unseen(self, split: str) -> tuple[int, int]:
        """How many entities and how many relations of a split train has never shown.

        Example:
            >>> KnowledgeGraph.from_names([("a", "r", "b")], test=[("a", "r", "c")]).unseen("test")
            (1, 0)
        """

        def count(columns: list[int], size: int) -> int:
            here, seen = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
            here[self.split(split)[:, columns]] = True
            seen[self.train[:, columns]] = True
            return int((here & ~seen).sum())

        return count([HEAD, TAIL], len(self.entities)), count([RELATION], len(self.relations))

    @cached_property
    def relation_categories(self) -> tuple[str, ...]:
        """Each relation's category by the mean number of tails per head and of heads per tail in train (over 1.5 is N).

        Example:
            >>> rows = [("a", "father", "b"), ("a", "father", "c")]
            >>> KnowledgeGraph.from_names(rows).relation_categories
            ('1-N',)
        """
        n = len(self.relations)
        facts = np.bincount(self.train[:, RELATION], minlength=n)

        def ends(known: int) -> Iterable[str]:
            queries = np.unique(self.train[:, RELATION] * len(self.entities) + self.train[:, known])
            several = facts > 1.5 * np.bincount(queries // len(self.entities), minlength=n)
            return ("N" if end else "1" for end in several)

        return tuple(map("-".join, zip(ends(TAIL), ends(HEAD), strict=True)))

    def statistics(self) -> dict[str, object]:
        """Counts that `plogicnet data info` prints.

        Example:
            >>> KnowledgeGraph.from_names([("anna", "knows", "ben")]).statistics()["entities"]
            2
        """
        return {
            "name": self.name,
            "entities": len(self.entities),
            "relations": len(self.relations),
            **{split: len(self.split(split)) for split in SPLITS},
            "duplicates": self.duplicates,
            "unseen_entities": {split: self.unseen(split)[0] for split in ("valid", "test")},
            "relation_categories": {c: self.relation_categories.count(c) for c in CATEGORIES},
        }


def drop_duplicates(triples: IntArray, entities: int) -> IntArray:
    """The distinct triples, in the order of their first occurrence.

    Example:
        >>> drop_duplicates(as_triples([(1, 0, 0), (0, 0, 1), (1, 0, 0)]), entities=2).tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    first: IntArray = np.unique(triple_keys(triples, entities), return_index=True)[1]
    return triples[np.sort(first)]
