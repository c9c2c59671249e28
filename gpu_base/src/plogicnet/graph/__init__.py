"""Triples, vocabularies and indexes; readers; benchmark data sets; the demo family."""

from plogicnet.graph.dictionaries import read_labels
from plogicnet.graph.family import demo_family
from plogicnet.graph.knowledge_graph import CATEGORIES, SPLITS, KnowledgeGraph
from plogicnet.graph.questions import read_queries, read_triples
from plogicnet.graph.readers import COLUMNS
from plogicnet.graph.sources import add_facts, make_graph, open_graph
from plogicnet.graph.splitting import parse_shares, split_triples
from plogicnet.graph.triples import (
    HEAD,
    OPEN,
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
    triple_keys,
)
from plogicnet.graph.unpacking import read_parquet
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.graph.writers import iri, quoted, write_graph

__all__ = [
    "CATEGORIES",
    "COLUMNS",
    "HEAD",
    "OPEN",
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
    "add_facts",
    "as_triples",
    "demo_family",
    "expand_ranges",
    "iri",
    "make_graph",
    "open_graph",
    "parse_shares",
    "quoted",
    "read_labels",
    "read_parquet",
    "read_queries",
    "read_triples",
    "split_triples",
    "triple_keys",
    "write_graph",
]
