"""Triples, vocabularies and indexes; readers; benchmark data sets; the demo family."""

from plogicnet.graph.family import demo_family
from plogicnet.graph.knowledge_graph import CATEGORIES, SPLITS, KnowledgeGraph
from plogicnet.graph.sources import data_sets, open_graph, read_triples
from plogicnet.graph.triples import (
    HEAD,
    RELATION,
    TAIL,
    Answers,
    BoolArray,
    FloatArray,
    IntArray,
    Side,
    TripleSet,
    as_triples,
    expand_ranges,
)
from plogicnet.graph.vocabulary import Vocabulary

__all__ = [
    "CATEGORIES",
    "HEAD",
    "RELATION",
    "SPLITS",
    "TAIL",
    "Answers",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "KnowledgeGraph",
    "Side",
    "TripleSet",
    "Vocabulary",
    "as_triples",
    "data_sets",
    "demo_family",
    "expand_ranges",
    "open_graph",
    "read_triples",
]
