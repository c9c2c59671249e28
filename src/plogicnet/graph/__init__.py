"""Triples, vocabularies and indexes; files of graphs (`io`); benchmark data sets (`datasets`); the demo family.

Other packages import from here; the list of data sets from `datasets.registry`.
"""

from plogicnet.graph.family import demo_family
from plogicnet.graph.io.dictionaries import read_labels
from plogicnet.graph.io.questions import read_queries, read_triples
from plogicnet.graph.io.readers import COLUMNS
from plogicnet.graph.io.sources import add_facts, make_graph
from plogicnet.graph.io.unpacking import read_parquet
from plogicnet.graph.io.writers import iri, quoted, write_graph
from plogicnet.graph.knowledge_graph import CATEGORIES, SPLITS, KnowledgeGraph
from plogicnet.graph.opening import open_graph
from plogicnet.graph.splitting import parse_shares
from plogicnet.graph.triples import (
    HEAD,
    OPEN,
    RELATION,
    SIDES,
    TAIL,
    Answers,
    BoolArray,
    FloatArray,
    IntArray,
    Side,
    TripleSet,
    as_triples,
    triple_keys,
)
from plogicnet.graph.vocabulary import Vocabulary

__all__ = [
    "CATEGORIES",
    "COLUMNS",
    "HEAD",
    "OPEN",
    "RELATION",
    "SIDES",
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
    "iri",
    "make_graph",
    "open_graph",
    "parse_shares",
    "quoted",
    "read_labels",
    "read_parquet",
    "read_queries",
    "read_triples",
    "triple_keys",
    "write_graph",
]
