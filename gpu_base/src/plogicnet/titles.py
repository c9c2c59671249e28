"""What the systems are called where people read of them; JSON has their keys."""

from collections.abc import Mapping

TITLES: Mapping[str, str] = {
    "embedding": "embedding alone",
    "rules": "rules alone",
    "plogicnet": "pLogicNet",
    "plogicnet*": "pLogicNet*",
}
"""The title of each key of the figures, in the order in which they are shown."""
OTHERS: Mapping[str, tuple[str, str]] = {
    "blp": ("BLP", "rules"),
    "ruge": ("RUGE", "embedding"),
    "nne_aer": ("NNE-AER", "embedding"),
}
"""The other systems: each one's name, and the key of its own figures."""


def titles_of(system: str) -> Mapping[str, str]:
    """The titles in a run of a system; the figures that are the system's own have its name.

    Example:
        >>> titles_of("ruge")["embedding"], titles_of("ruge")["rules"]
        ('RUGE (embedding alone)', 'rules alone')
    """
    if system not in OTHERS:
        return TITLES
    name, own = OTHERS[system]
    return {**TITLES, own: f"{name} ({TITLES[own]})"}
