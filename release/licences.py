"""Write docs/licences.md: the dependencies of plogicnet and their licences."""

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
"""Extras for development only."""
KNOWN_LICENCES = {"atheris": "Apache-2.0", "pykeen": "MIT"}
"""Licences of packages that do not state one in their metadata, or are often not installed."""
CLASSIFIER = "License :: OSI Approved :: "
MAX_NAME_LENGTH = 80
"""A longer text is the full licence, not its name."""


def direct_dependencies() -> dict[str, list[str]]:
    """Return the packages in pyproject.toml, each with the extras that require it; `core` if it is always required.

    Example:
        >>> direct_dependencies()["numpy"]
        ['core']
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras_of: dict[str, list[str]] = {}
    for extra, lines in {"core": project["dependencies"], **project["optional-dependencies"]}.items():
        for name in (canonicalize_name(Requirement(line).name) for line in lines):
            if name != "plogicnet":
                extras_of.setdefault(name, []).append(extra)
    return extras_of


def indirect_dependencies(names: Iterable[str]) -> set[str]:
    """Return the installed packages that these packages require, directly or indirectly.

    Example:
        >>> "llvmlite" in indirect_dependencies(["numba"])
        True
    """
    start = set(names)
    found, queue = set(start), sorted(start)
    while queue:
        for name in _requirements(queue.pop()):
            if name not in found:
                found.add(name)
                queue.append(name)
    return found - start


def _requirements(name: str) -> Iterator[str]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def licence(name: str) -> str:
    """Return the name of a package's licence from its metadata, or an empty string if it is unknown.

    Example:
        >>> licence("typer")
        'MIT'
    """
    try:
        fields = cast(Message, metadata(name))
    except PackageNotFoundError:
        return KNOWN_LICENCES.get(name, "")
    classifiers = [c.removeprefix(CLASSIFIER) for c in fields.get_all("Classifier") or [] if c.startswith(CLASSIFIER)]
    text = re.sub(r"\s+", " ", fields.get("License") or "").strip()
    short = text if len(text) < MAX_NAME_LENGTH and not text.startswith("Copyright") else ""
    return fields.get("License-Expression") or short or " or ".join(classifiers) or KNOWN_LICENCES.get(name, "")


def page() -> str:
    """Return the page in Markdown.

    Example:
        >>> "| numpy | core |" in page()
        True
    """
    extras_of = direct_dependencies()
    runtime = [name for name, extras in extras_of.items() if set(extras) - set(TOOLS)]
    lines = [
        "# Licences",
        "",
        "plogicnet is under the MIT licence ([LICENSE](../LICENSE)). It includes no third-party code. Its dependencies",
        "are installed separately, each under its own licence. `make licences` writes this page from the packages'",
        "metadata.",
        "",
        "| package | needed by | licence |",
        "|---|---|---|",
        *(f"| {name} | {', '.join(extras)} | {licence(name)} |" for name, extras in sorted(extras_of.items())),
        "",
        f"The extras {' and '.join(TOOLS)} are for development. Indirect dependencies of the other packages that were"
        " installed\nwhen this page was written:",
        "",
        "| package | licence |",
        "|---|---|",
        *(f"| {name} | {text} |" for name in sorted(indirect_dependencies(runtime)) if (text := licence(name))),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
