"""The immutable graph that all other packages use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from plogicnet.graph.triples import (
    HEAD,
    RELATION,
    SIDES,
    TAIL,
    AnswerIndex,
    IntArray,
    Side,
    TripleSet,
    as_triples,
    triple_keys,
)
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.support.errors import InputError, pluralize

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
"""The relation categories; see `KnowledgeGraph.relation_categories`."""
SPLITS = ("train", "valid", "test")
VALID_SHARE, MAX_VALID = 0.05, 5_000


@dataclass(frozen=True, repr=False)
class KnowledgeGraph:
    """A knowledge graph: vocabularies of entities and relations, and three splits as (n, 3) arrays of ids.

    Indexes are built on first use.

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
    """The number of duplicate triples that were dropped."""
    moved_to_valid: int = 0
    """The number of training triples that were moved to valid because the graph had no valid split."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Human-readable labels of entities and relations, by name."""

    def __post_init__(self) -> None:
        for split in SPLITS:
            frozen = self.split(split).view()  # a view, so that the caller's array stays writeable
            frozen.flags.writeable = False
            object.__setattr__(self, split, frozen)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.split(split)):,}" for split in SPLITS)
        entities = pluralize(len(self.entities), "entity", "entities")
        return f"<KnowledgeGraph {self.name}: {entities}, {pluralize(len(self.relations), 'relation')}; {sizes}>"

    @classmethod
    def from_names(
        cls,
        train: Iterable[tuple[str, str, str]],
        valid: Iterable[tuple[str, str, str]] = (),
        test: Iterable[tuple[str, str, str]] = (),
        name: str = "graph",
    ) -> "KnowledgeGraph":
        """Create a graph from triples of names. Duplicates within a split are dropped and counted.

        Example:
            >>> KnowledgeGraph.from_names([("anna", "knows", "ben")] * 2).duplicates
            1
        """
        splits = [list(train), list(valid), list(test)]
        names = dict.fromkeys(e for rows in splits for h, _, t in rows for e in (h, t))
        entities = Vocabulary("entity", tuple(names))
        relations = Vocabulary("relation", tuple(dict.fromkeys(r for rows in splits for _, r, _ in rows)))
        triples = [as_triples([(entities.id(h), relations.id(r), entities.id(t)) for h, r, t in s]) for s in splits]
        return cls.from_ids(entities, relations, triples, name)

    @classmethod
    def from_ids(
        cls,
        entities: Vocabulary,
        relations: Vocabulary,
        splits: Iterable[IntArray],
        name: str,
        labels: Mapping[str, str] | None = None,
        source: object = None,
    ) -> "KnowledgeGraph":
        """Create a graph from the triples of ids of each split. Duplicates within a split are dropped and counted.

        `source` is the location of the graph for messages, such as its path. The default is the name.
        """
        arrays = list(splits)
        if not len(arrays[0]):
            raise InputError(f"{source or name}: the train split has no triples")
        graph = cls(name, entities, relations, arrays[0], arrays[1], arrays[2], labels=labels or {})
        if not any(np.any(keys[1:] == keys[:-1]) for keys in graph.sorted_keys.values()):
            return graph
        distinct = [drop_duplicates(rows, len(entities)) for rows in arrays]
        duplicates = sum(map(len, arrays)) - sum(map(len, distinct))
        return replace(graph, train=distinct[0], valid=distinct[1], test=distinct[2], duplicates=duplicates)

    @cached_property
    def sorted_keys(self) -> dict[str, IntArray]:
        """The sorted keys (see `triple_keys`) of the triples of each split."""
        return {split: np.sort(triple_keys(self.split(split), len(self.entities))) for split in SPLITS}

    @cached_property
    def observed(self) -> TripleSet:
        """The set of training triples (O in the paper)."""
        keys = self.sorted_keys["train"]
        return TripleSet.of_keys(keys[np.append(True, keys[1:] != keys[:-1])], len(self.entities))

    def count_shared(self, split: str, other: str) -> int:
        """Count the triples of a split that are also in another split.

        Example:
            >>> KnowledgeGraph.from_names([("a", "r", "b")], test=[("a", "r", "b")]).count_shared("test", "train")
            1
        """
        keys, others = self.sorted_keys[split], self.sorted_keys[other]
        return int(np.count_nonzero(np.searchsorted(others, keys, "right") > np.searchsorted(others, keys)))

    def split(self, name: str) -> IntArray:
        """Return the triples of "train", "valid" or "test"."""
        if name not in SPLITS:
            raise InputError(f"unknown split {name!r}. The splits are train, valid and test.")
        triples: IntArray = getattr(self, name)
        return triples

    def answer_index(self, splits: Iterable[str], side: Side) -> AnswerIndex:
        """Return an index of the answers in some splits, for queries of one side.

        Example:
            >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
            >>> graph.answer_index(["train"], "tail").lookup(np.array([0]), np.array([0]))[1]
            array([1])
        """
        return AnswerIndex.of(np.concatenate([self.split(s) for s in splits]), len(self.entities), side)

    @cached_property
    def observed_answers(self) -> dict[Side, AnswerIndex]:
        """The indexes of the answers in train, by side."""
        return {side: self.answer_index(["train"], side) for side in SIDES}

    def __deepcopy__(self, memo: object) -> "KnowledgeGraph":
        return self  # immutable

    def names(self, triple: IntArray) -> tuple[str, str, str]:
        """Return the names of a triple."""
        head, relation, tail = (int(x) for x in triple)
        return self.entities.names[head], self.relations.names[relation], self.entities.names[tail]

    def encode(self, head: str, relation: str, tail: str) -> IntArray:
        """Return the ids of three names.

        Example:
            >>> KnowledgeGraph.from_names([("anna", "knows", "ben")]).encode("anna", "knows", "ben")
            array([0, 0, 1])
        """
        return np.array([self.entities.id(head), self.relations.id(relation), self.entities.id(tail)])

    def with_validation(self, seed: int) -> "KnowledgeGraph":
        """Return the graph itself if it has a valid split. Otherwise move 5% of train (at most 5,000 triples) to valid.

        Example:
            >>> rows = [(str(i), "next", str(i + 1)) for i in range(100)]
            >>> len(KnowledgeGraph.from_names(rows).with_validation(seed=0).valid)
            5
        """
        if len(self.valid) or len(self.train) < 2:
            return self
        n_moved = min(max(1, round(len(self.train) * VALID_SHARE)), MAX_VALID)
        moved = np.zeros(len(self.train), dtype=bool)
        moved[np.random.default_rng(seed).choice(len(self.train), n_moved, replace=False)] = True
        return replace(self, train=self.train[~moved], valid=self.train[moved], moved_to_valid=n_moved)

    def with_facts(self, entities: Vocabulary, facts: IntArray) -> "KnowledgeGraph":
        """Return the graph with facts added to train. `entities` are those of the graph, then the new ones.

        Example:
            >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
            >>> graph.with_facts(graph.entities, as_triples([(1, 0, 0), (0, 0, 1)])).train.tolist()
            [[0, 0, 1], [1, 0, 0]]
        """
        train = drop_duplicates(np.concatenate([self.train, facts]), len(entities))
        return replace(self, entities=entities, train=train)

    def without_held_out(self, facts: TripleSet) -> "KnowledgeGraph":
        """Return the graph with these facts removed from valid and test.

        Example:
            >>> graph = KnowledgeGraph.from_names([("a", "r", "b")], test=[("b", "r", "a")])
            >>> len(graph.without_held_out(TripleSet.of([(1, 0, 0)], entities=2)).test)
            0
        """
        return replace(self, valid=self.valid[~facts.contains(self.valid)], test=self.test[~facts.contains(self.test)])

    def count_unseen(self, split: str) -> tuple[int, int]:
        """Count the entities and the relations of a split that are not in train.

        Example:
            >>> KnowledgeGraph.from_names([("a", "r", "b")], test=[("a", "r", "c")]).count_unseen("test")
            (1, 0)
        """

        def count(columns: list[int], size: int) -> int:
            in_split, in_train = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
            in_split[self.split(split)[:, columns]] = True
            in_train[self.train[:, columns]] = True
            return int((in_split & ~in_train).sum())

        return count([HEAD, TAIL], len(self.entities)), count([RELATION], len(self.relations))

    @cached_property
    def relation_categories(self) -> tuple[str, ...]:
        """The category of each relation, such as "1-N".

        The tail side is N if a (head, relation) pair of train has more than 1.5 tails on average, otherwise 1. The head
        side is N if a (relation, tail) pair has more than 1.5 heads on average, otherwise 1.

        Example:
            >>> rows = [("a", "father", "b"), ("a", "father", "c")]
            >>> KnowledgeGraph.from_names(rows).relation_categories
            ('1-N',)
        """
        n = len(self.relations)
        n_facts = np.bincount(self.train[:, RELATION], minlength=n)

        def sides(known: int) -> Iterable[str]:
            queries = np.unique(self.train[:, RELATION] * len(self.entities) + self.train[:, known])
            many = n_facts > 1.5 * np.bincount(queries // len(self.entities), minlength=n)
            return ("N" if is_many else "1" for is_many in many)

        return tuple(map("-".join, zip(sides(TAIL), sides(HEAD), strict=True)))

    def statistics(self) -> dict[str, object]:
        """Return the counts that `plogicnet data info` prints.

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
            "unseen_entities": {split: self.count_unseen(split)[0] for split in ("valid", "test")},
            "relation_categories": {c: self.relation_categories.count(c) for c in CATEGORIES},
        }


def drop_duplicates(triples: IntArray, n_entities: int) -> IntArray:
    """Return the distinct triples, in the order of their first occurrence.

    Example:
        >>> drop_duplicates(as_triples([(1, 0, 0), (0, 0, 1), (1, 0, 0)]), n_entities=2).tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    first: IntArray = np.unique(triple_keys(triples, n_entities), return_index=True)[1]
    return triples[np.sort(first)]
