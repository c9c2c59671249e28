"""All settings, with defaults, descriptions and validation.

The settings are a tree of frozen dataclasses (`sections`, `settings`). Registered models and systems add blocks to it
(`registries`). YAML files, `--set a.b=value` and `plogicnet config` all use this tree.
"""

from plogicnet.config.domains import Choices, Domain, Range, SearchSpace, parse_search
from plogicnet.config.fields import setting
from plogicnet.config.registries import ENGINES, MODELS, SYSTEMS, Extension
from plogicnet.config.sections import MLN, Gradient, MinPrecision, Neural, QueryObjective, Rules
from plogicnet.config.settings import UPDATE_STEPS, Config
from plogicnet.config.text import parse_assignments, preset_names

__all__ = [
    "ENGINES",
    "MLN",
    "MODELS",
    "SYSTEMS",
    "UPDATE_STEPS",
    "Choices",
    "Config",
    "Domain",
    "Extension",
    "Gradient",
    "MinPrecision",
    "Neural",
    "QueryObjective",
    "Range",
    "Rules",
    "SearchSpace",
    "parse_assignments",
    "parse_search",
    "preset_names",
    "setting",
]
