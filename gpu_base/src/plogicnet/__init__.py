"""Which facts is a knowledge graph missing, how probable is each, and why.

Light to import: the numerical libraries are loaded when a class below is first used.

Example:
    >>> import plogicnet
    >>> graph = plogicnet.demo_family()
    >>> model = plogicnet.PLogicNet().fit(graph)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plogicnet.version import VERSION

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.errors import InputError
    from plogicnet.graph import KnowledgeGraph, demo_family, make_graph, open_graph
    from plogicnet.model import PLogicNet

__version__ = VERSION
__all__ = [
    "Config",
    "InputError",
    "KnowledgeGraph",
    "PLogicNet",
    "__version__",
    "demo_family",
    "make_graph",
    "open_graph",
]

_HOMES = {
    "Config": "plogicnet.config",
    "InputError": "plogicnet.errors",
    "KnowledgeGraph": "plogicnet.graph",
    "PLogicNet": "plogicnet.model",
    "demo_family": "plogicnet.graph",
    "make_graph": "plogicnet.graph",
    "open_graph": "plogicnet.graph",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plogicnet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
