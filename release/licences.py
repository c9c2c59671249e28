"""Makes docs/licences.md: what plogicnet depends on, and under which licence each is given."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "licences.md"
TOOLS = ("dev", "fuzz")
"""Extras that no user of the program needs."""
BY_HAND = {"atheris": "Apache-2.0", "pykeen": "MIT"}
"""The licence in the file of a project whose package does not name it, or is seldom installed."""
CLASSIFIER = "License :: OSI Approved :: "
SHORT = 80
"""A longer text is the licence itself, not its name."""


def direct() -> dict[str, list[str]]:
    """The packages that pyproject.toml names, each with where it is needed: core, or an extra.

    Example:
        >>> direct()["numpy"]
        ['core']
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed: dict[str, list[str]] = {}
    for place, lines in {"core": project["dependencies"], **project["optional-dependencies"]}.items():
        for name in (canonicalize_name(Requirement(line).name) for line in lines):
            if name != "plogicnet":
                needed.setdefault(name, []).append(place)
    return needed


def in_turn(names: Iterable[str]) -> set[str]:
    """The installed packages that these need, and those need, and so on; without themselves.

    Example:
        >>> "llvmlite" in in_turn(["numba"])
        True
    """
    begun = set(names)
    found, left = set(begun), sorted(begun)
    while left:
        for name in _needs(left.pop()):
            if name not in found:
                found.add(name)
                left.append(name)
    return found - begun


def _needs(name: str) -> Iterator[str]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def licence(name: str) -> str:
    """The licence's name from the package's own metadata, or empty.

    Example:
        >>> licence("typer")
        'MIT'
    """
    try:
        about = cast(Message, metadata(name))
    except PackageNotFoundError:
        return BY_HAND.get(name, "")
    classifiers = [c.removeprefix(CLASSIFIER) for c in about.get_all("Classifier") or [] if c.startswith(CLASSIFIER)]
    text = re.sub(r"\s+", " ", about.get("License") or "").strip()
    short = text if len(text) < SHORT and not text.startswith("Copyright") else ""
    return about.get("License-Expression") or short or " or ".join(classifiers) or BY_HAND.get(name, "")


def page() -> str:
    """The whole page.

    Example:
        >>> "| numpy | core |" in page()
        True
    """
    needed = direct()
    used = [name for name, places in needed.items() if set(places) - set(TOOLS)]
    lines = [
        "# Licences",
        "",
        "plogicnet itself is under the MIT licence ([LICENSE](../LICENSE)). It ships no code of others; these are",
        "installed beside it, each under its own licence. Made by `make licences` from what the packages say of",
        "themselves.",
        "",
        "| package | needed by | licence |",
        "|---|---|---|",
        *(f"| {name} | {', '.join(places)} | {licence(name)} |" for name, places in sorted(needed.items())),
        "",
        f"Extras {' and '.join(TOOLS)} are for work on plogicnet itself. What the others need in turn, as far as it is"
        " installed where this page was made:",
        "",
        "| package | licence |",
        "|---|---|",
        *(f"| {name} | {known} |" for name in sorted(in_turn(used)) if (known := licence(name))),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
