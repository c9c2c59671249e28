"""Predict the missing facts of a knowledge graph, with probabilities and explanations.

Importing this package is fast. Numerical libraries are loaded when a name below is first used.

Example:
    >>> import plogicnet
    >>> graph = plogicnet.demo_family()
    >>> len(graph.train)
    4341
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import plogicnet.grounding  # registers the built-in engines
import plogicnet.neural  # registers the built-in models
import plogicnet.systems  # noqa: F401 - registers the built-in systems
from plogicnet.version import VERSION

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph, demo_family, make_graph, open_graph
    from plogicnet.model import PLogicNet
    from plogicnet.support.errors import InputError

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

_MODULES = {
    "Config": "plogicnet.config",
    "InputError": "plogicnet.support.errors",
    "KnowledgeGraph": "plogicnet.graph",
    "PLogicNet": "plogicnet.model",
    "demo_family": "plogicnet.graph",
    "make_graph": "plogicnet.graph",
    "open_graph": "plogicnet.graph",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'plogicnet' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
