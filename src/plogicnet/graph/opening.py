"""Opening a graph by a path or by the name of a data set."""

import itertools
import logging
import os
from pathlib import Path

from plogicnet.graph.datasets.download import fetch
from plogicnet.graph.datasets.registry import DATA_SETS, available, cache_directory, canonical, locate
from plogicnet.graph.io.sources import read_graph
from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.splitting import Shares
from plogicnet.support.errors import InputError, nearest, shown
from plogicnet.support.progress import Progress, silent

log = logging.getLogger(__name__)
COMPARED = 10_000
"""So many names of a directory are compared with a mistyped one."""


def open_graph(
    source: str | Path, order: str = "hrt", shares: Shares | None = None, seed: int = 0, progress: Progress = silent
) -> KnowledgeGraph:
    """Opens a graph: a data set's name, a directory with train/valid/test files, or one file of triples.

    Args:
        source: the path or name; a known data set that is not on this machine is downloaded.
        order: hrt or htr, the order of columns in text files without a header.
        shares: for one file, the shares of train, valid and test, as (0.8, 0.1, 0.1); without them all is train.
        seed: for splitting.
        progress: of a download.
    """
    path = Path(source)
    if not os.path.exists(path):  # noqa: PTH110 (Path.exists fails on a name that is too long)
        path = _find_data_set(str(source), progress)
    return read_graph(path, order, shares, seed)


def _find_data_set(name: str, progress: Progress) -> Path:
    found = locate(name)
    if found is not None:
        return found
    known = canonical(name)
    if known is not None:
        log.warning("%s is not on this machine; downloading it to %s", known, cache_directory())
        return fetch(DATA_SETS[known], cache_directory(), progress)
    names = sorted({*available(), *DATA_SETS})
    hint = _nearest_graph(name, names) or f" Known data sets: {', '.join(names)}."
    raise InputError(f"no graph {shown(name)}: neither a file, a directory nor a data set.{hint}")


def _nearest_graph(name: str, data_sets: list[str]) -> str:
    """A hint with what lies where a mistyped path leads to, or with data sets of similar names."""
    if "/" not in name and "." not in name:
        return nearest(name, data_sets)
    folder, slash, last = name.rpartition("/")
    try:
        with os.scandir(folder + slash or ".") as entries:
            beside = [entry.name for entry in itertools.islice(entries, COMPARED)]
    except (OSError, ValueError):  # no such directory, or no path at all
        beside = []
    return nearest(last, beside if slash else [*data_sets, *beside], folder + slash)
