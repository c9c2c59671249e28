"""Every setting, with its default, its meaning and its check.

A tree of frozen dataclasses (`sections`, `settings`) is the only list of settings. Registered models and systems own
blocks of it (`registries`). YAML, `--set a.b=value` and `plogicnet config` all read that tree.
"""

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
    "Config",
    "Gradient",
    "MinPrecision",
    "Neural",
    "Rules",
    "parse_assignments",
    "preset_names",
    "setting",
]
