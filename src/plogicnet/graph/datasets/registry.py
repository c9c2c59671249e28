"""The list of benchmark data sets, and the search for data sets on this machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from plogicnet.graph.io.readers import SUFFIXES
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.support.errors import InputError, did_you_mean

COUNTS = ("entities", "relations", *SPLITS)


@dataclass(frozen=True)
class DataSet:
    """A benchmark data set: the counts of entities, relations and triples, checksums, licence, citation and addresses.

    `train`, `valid` and `test` are numbers of lines, including duplicates: the train file of the Countries sets has one
    line twice. Data sets without a `sha256` are checked only by their number of lines.

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
        """The number of lines per split.

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


def canonical_name(name: str) -> str | None:
    """Return the name of a known data set, ignoring case, spaces, hyphens and underscores, or None.

    Example:
        >>> canonical_name("FB15k 237"), canonical_name("yago3_10"), canonical_name("my graph")
        ('fb15k-237', 'yago3-10', None)
    """
    return next((known for known in DATA_SETS if _normalize(known) == _normalize(name)), None)


def find_data_set(name: str) -> DataSet:
    """Return the data set with this name, in any spelling that `canonical_name` accepts, or raise InputError.

    Example:
        >>> find_data_set("FB15k 237").name
        'fb15k-237'
    """
    known = canonical_name(name)
    if known is None:
        raise InputError(
            f"unknown data set {name!r}.{did_you_mean(name, list(DATA_SETS))} Run `plogicnet data list` to list all."
        )
    return DATA_SETS[known]


def cache_directory() -> Path:
    """Return the directory for downloads: $PLOGICNET_CACHE, or plogicnet in the user's cache (~/.cache on Linux).

    Example:
        >>> cache_directory().is_absolute() or "PLOGICNET_CACHE" in os.environ
        True
    """
    configured = os.environ.get("PLOGICNET_CACHE")
    if configured:
        return Path(configured)
    from platformdirs import user_cache_path

    directory = user_cache_path("plogicnet")
    if not directory.is_absolute():  # a user in a container can have no home directory
        raise InputError("no home directory for downloaded data sets. Set PLOGICNET_CACHE to a directory.")
    return directory


def locate(name: str) -> Path | None:
    """Return the directory of a data set in $PLOGICNET_DATA or in the cache, or None.

    $PLOGICNET_DATA can also contain data sets that are not in `DATA_SETS`. An exact name takes precedence over a
    different spelling.

    Example:
        >>> locate("no such set") is None
        True
    """
    matches = [folder for folder in _folders() if _normalize(folder.name) == _normalize(name)]
    if matches:
        return min(matches, key=lambda folder: (folder.name != name, not _has_train(folder), folder.name))
    known = canonical_name(name)
    return cache_directory() / known if known and is_complete(cache_directory() / known) else None


def available_names() -> list[str]:
    """Return the names of data sets on this machine: directories with a train file in $PLOGICNET_DATA, and downloads.

    Example:
        >>> "no such set" in available_names()
        False
    """
    names = [folder.name for folder in _folders() if _has_train(folder)]
    present = {_normalize(name) for name in names}
    cache = cache_directory()
    return sorted(names + [name for name in DATA_SETS if _normalize(name) not in present and is_complete(cache / name)])


def list_data_sets() -> list[dict[str, object]]:
    """Return the counts and the location of all known and available data sets, as `plogicnet data list` prints them.

    Example:
        >>> [row["train"] for row in list_data_sets() if row["name"] == "umls"]
        [5216]
    """
    rows: list[dict[str, object]] = []
    for name in sorted({*DATA_SETS, *available_names()}):
        counts = {key: getattr(DATA_SETS.get(name), key, None) for key in COUNTS}
        rows.append({"name": name, **counts, "here": str(locate(name) or "") or None})
    return rows


def is_complete(folder: Path) -> bool:
    """Return whether a directory contains all three files. A file in a download gets its name only after it is checked.

    Example:
        >>> is_complete(Path("nowhere"))
        False
    """
    return all((folder / f"{split}.txt").is_file() for split in SPLITS)


def _normalize(name: str) -> str:
    return name.casefold().replace(" ", "").replace("-", "").replace("_", "")


def _folders() -> list[Path]:
    """Return the subdirectories of $PLOGICNET_DATA."""
    root = os.environ.get("PLOGICNET_DATA")
    try:
        return [folder for folder in Path(root).iterdir() if folder.is_dir()] if root else []
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"cannot read PLOGICNET_DATA={root}: {error.strerror}. Set it to another directory.") from None


def _has_train(folder: Path) -> bool:
    return any((folder / f"train{suffix}").is_file() for suffix in SUFFIXES)
