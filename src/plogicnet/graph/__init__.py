"""Knowledge graphs, graph files (`io`), benchmark data sets (`datasets`) and the demo family.

Other packages import from here. Only the list of data sets is imported from `datasets.registry`.
"""

from plogicnet.graph.family import demo_family
from plogicnet.graph.hiding import Hide, choose_hiding
from plogicnet.graph.io.dictionaries import read_labels
from plogicnet.graph.io.queries import read_queries, read_triples
from plogicnet.graph.io.readers import COLUMNS
from plogicnet.graph.io.sources import add_facts, make_graph, read_facts
from plogicnet.graph.io.unpacking import read_parquet
from plogicnet.graph.io.writers import quote_tsv, to_iri, write_graph
from plogicnet.graph.knowledge_graph import CATEGORIES, SPLITS, KnowledgeGraph
from plogicnet.graph.opening import open_graph
from plogicnet.graph.slots import Slots
from plogicnet.graph.splitting import parse_shares
from plogicnet.graph.triples import (
    HEAD,
    MISSING,
    RELATION,
    SIDES,
    TAIL,
    AnswerIndex,
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
    "MISSING",
    "RELATION",
    "SIDES",
    "SPLITS",
    "TAIL",
    "AnswerIndex",
    "BoolArray",
    "FloatArray",
    "Hide",
    "IntArray",
    "KnowledgeGraph",
    "Side",
    "Slots",
    "TripleSet",
    "Vocabulary",
    "add_facts",
    "as_triples",
    "choose_hiding",
    "demo_family",
    "make_graph",
    "open_graph",
    "parse_shares",
    "quote_tsv",
    "read_facts",
    "read_labels",
    "read_parquet",
    "read_queries",
    "read_triples",
    "to_iri",
    "triple_keys",
    "write_graph",
]
