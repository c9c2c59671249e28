"""All settings, with defaults, descriptions and validation.

The settings are a tree of frozen dataclasses (`sections`, `settings`). Registered models and systems add blocks to it
(`registries`). YAML files, `--set a.b=value` and `plogicnet config` all use this tree.
"""

from plogicnet.config.domains import Choices, Domain, Range, SearchSpace, parse_search
from plogicnet.config.fields import setting
from plogicnet.config.registries import ENGINES, MODELS, SYSTEMS
from plogicnet.config.sections import MLN, Gradient, MinPrecision, Neural, Rules
from plogicnet.config.settings import Config
from plogicnet.config.text import parse_assignments, preset_names

__all__ = [
    "ENGINES",
    "MLN",
    "MODELS",
    "SYSTEMS",
    "Choices",
    "Config",
    "Domain",
    "Gradient",
    "MinPrecision",
    "Neural",
    "Range",
    "Rules",
    "SearchSpace",
    "parse_assignments",
    "parse_search",
    "preset_names",
    "setting",
]
