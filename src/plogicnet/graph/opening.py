"""Opening a graph by its path or by the name of a data set."""

import itertools
import logging
import os
from pathlib import Path

from plogicnet.graph.datasets.download import fetch
from plogicnet.graph.datasets.registry import DATA_SETS, available_names, cache_directory, canonical_name, locate
from plogicnet.graph.io.sources import read_graph
from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.splitting import Shares
from plogicnet.support.errors import InputError, did_you_mean, quote_name
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
MAX_COMPARED_NAMES = 10_000
"""The maximum number of directory entries to compare with a mistyped name."""


def open_graph(
    source: str | Path,
    order: str = "hrt",
    shares: Shares | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> KnowledgeGraph:
    """Open a graph: a data set, a directory with train/valid/test files, or a single file of triples.

    Args:
        source: the path, or the name of a data set. Known data sets are downloaded if necessary.
        order: hrt or htr, the order of the columns in text files without a header.
        shares: the shares of train, valid and test if a single file is split, such as (0.8, 0.1, 0.1); None: all train.
        seed: the seed for splitting.
        progress: displays the progress of downloads.
    """
    path = Path(source)
    if not os.path.exists(path):  # noqa: PTH110 (Path.exists fails on a name that is too long)
        path = _find_data_set(str(source), progress)
    return read_graph(path, order, shares, seed)


def _find_data_set(name: str, progress: Progress) -> Path:
    path = locate(name)
    if path is not None:
        return path
    known = canonical_name(name)
    if known is not None:
        log.warning("%s is not on this machine. Downloading it to %s", known, cache_directory())
        return fetch(DATA_SETS[known], cache_directory(), progress)
    names = sorted({*available_names(), *DATA_SETS})
    hint = _suggest_graph(name, names) or f" Known data sets: {', '.join(names)}."
    raise InputError(f"unknown graph {quote_name(name)}: not a file, a directory or a data set.{hint}")


def _suggest_graph(name: str, data_sets: list[str]) -> str:
    """Return a hint with similar paths or data sets, or an empty string."""
    if "/" not in name and "." not in name:
        return did_you_mean(name, data_sets)
    folder, slash, last = name.rpartition("/")
    try:
        with os.scandir(folder + slash or ".") as entries:
            siblings = [entry.name for entry in itertools.islice(entries, MAX_COMPARED_NAMES)]
    except (OSError, ValueError):  # the directory does not exist, or the path is invalid
        siblings = []
    return did_you_mean(last, siblings if slash else [*data_sets, *siblings], folder + slash)
