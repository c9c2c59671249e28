"""The registry of benchmark data sets, and where on this machine a data set lies."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from plogicnet.graph.io.readers import SUFFIXES
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.support.errors import InputError, nearest

COUNTS = ("entities", "relations", *SPLITS)


@dataclass(frozen=True)
class DataSet:
    """A benchmark: its counts, its licence and citation, and where its three files are fetched from.

    Counts of triples are lines of the files: train of the Countries sets has one line twice. Sets of which we hold no
    copy have no sha256.

    Example:
        >>> DATA_SETS["umls"].relations, DATA_SETS["umls"].train
        (46, 5216)
    """

    name: str
    title: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    sha256: Mapping[str, str]
    licence: str
    citation: str
    source: str
    addresses: Mapping[str, str]

    @property
    def triples(self) -> Mapping[str, int]:
        """The number of lines of each split.

        Example:
            >>> DATA_SETS["nations"].triples
            {'train': 1592, 'valid': 199, 'test': 201}
        """
        return dict(zip(SPLITS, (self.train, self.valid, self.test), strict=True))


def _data_set(name: str, address: str, sha256: Mapping[str, str] | None = None, **entry: Any) -> DataSet:
    addresses = {split: address.format(split=split) for split in SPLITS}
    return DataSet(name=name, sha256=sha256 or {}, addresses=addresses, **entry)


_TABLE = resources.files("plogicnet.graph.datasets").joinpath("datasets.yaml").read_text(encoding="utf-8")
DATA_SETS = {name: _data_set(name, **entry) for name, entry in yaml.safe_load(_TABLE).items()}


def canonical(name: str) -> str | None:
    """The registry's name for a data set; case, blanks, hyphens and underscores do not matter.

    Example:
        >>> canonical("FB15k 237"), canonical("yago3_10"), canonical("my graph")
        ('fb15k-237', 'yago3-10', None)
    """
    return next((known for known in DATA_SETS if _bare(known) == _bare(name)), None)


def find(name: str) -> DataSet:
    """The data set of this name, spelt in any way that `canonical` takes; an InputError where there is none.

    Example:
        >>> find("FB15k 237").name
        'fb15k-237'
    """
    known = canonical(name)
    if known is None:
        raise InputError(f"unknown data set {name!r}.{nearest(name, list(DATA_SETS))} `plogicnet data list` shows all.")
    return DATA_SETS[known]


def cache_directory() -> Path:
    """Where downloads go: $PLOGICNET_CACHE, else plogicnet in the user's cache directory (~/.cache on Linux).

    Example:
        >>> directory = cache_directory()
    """
    named = os.environ.get("PLOGICNET_CACHE")
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    directory = user_cache_path("plogicnet")
    if not directory.is_absolute():  # a container's user without a home directory
        raise InputError("no home directory for downloaded data sets: set PLOGICNET_CACHE to a directory")
    return directory


def locate(name: str) -> Path | None:
    """The directory of a data set: in $PLOGICNET_DATA, where sets outside the registry may lie too, or in the cache.

    A folder of $PLOGICNET_DATA with exactly this name comes before one whose name is only written differently.

    Example:
        >>> locate("no such set")
    """
    like = [folder for folder in _folders() if _bare(folder.name) == _bare(name)]
    if like:
        return min(like, key=lambda folder: (folder.name != name, not _has_train(folder), folder.name))
    known = canonical(name)
    return cache_directory() / known if known and is_complete(cache_directory() / known) else None


def available() -> list[str]:
    """The names of the data sets on this machine: folders of $PLOGICNET_DATA with a train file, and downloaded sets.

    Example:
        >>> names = available()
    """
    names = [folder.name for folder in _folders() if _has_train(folder)]
    there = {_bare(name) for name in names}
    cache = cache_directory()
    return sorted(names + [name for name in DATA_SETS if _bare(name) not in there and is_complete(cache / name)])


def listing() -> list[dict[str, object]]:
    """Every known data set and every one on this machine, as `plogicnet data list` prints them: counts, and where.

    Example:
        >>> [row["train"] for row in listing() if row["name"] == "umls"]
        [5216]
    """
    rows: list[dict[str, object]] = []
    for name in sorted({*DATA_SETS, *available()}):
        counts = {key: getattr(DATA_SETS.get(name), key, None) for key in COUNTS}
        rows.append({"name": name, **counts, "here": str(locate(name) or "") or None})
    return rows


def is_complete(folder: Path) -> bool:
    """Whether a download is complete; a file appears under its name only when it is whole and checked.

    Example:
        >>> is_complete(Path("nowhere"))
        False
    """
    return all((folder / f"{split}.txt").is_file() for split in SPLITS)


def _bare(name: str) -> str:
    return name.casefold().replace(" ", "").replace("-", "").replace("_", "")


def _folders() -> list[Path]:
    """The folders of $PLOGICNET_DATA."""
    root = os.environ.get("PLOGICNET_DATA")
    try:
        return [folder for folder in Path(root).iterdir() if folder.is_dir()] if root else []
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"PLOGICNET_DATA={root} cannot be read: {error.strerror}; set it to another place") from None


def _has_train(folder: Path) -> bool:
    return any((folder / f"train{suffix}").is_file() for suffix in SUFFIXES)
