"""The list of benchmark data sets: entries, names and locations."""

import gzip
import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from plogicnet.graph.datasets.registry import DATA_SETS, available_names, cache_directory, canonical_name, locate
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.support.errors import InputError

COUNTED_ONLY = {"codex-m", "codex-l", "yago3-10"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty $PLOGICNET_DATA; the cache is also empty."""
    monkeypatch.setenv("PLOGICNET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PLOGICNET_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def make(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).touch()
    return folder


def test_every_entry_is_complete() -> None:
    assert len(DATA_SETS) == 14
    for name, data_set in DATA_SETS.items():
        assert data_set.name == name == canonical_name(data_set.name)
        assert all(n > 0 for n in (data_set.entities, data_set.relations, *data_set.triples.values()))
        assert set(data_set.sha256) == (set() if name in COUNTED_ONLY else set(SPLITS))
        assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in data_set.sha256.values())
        assert set(data_set.addresses) == set(SPLITS)
        assert len(set(data_set.addresses.values())) == 3
        for address in (*data_set.addresses.values(), data_set.source):
            assert urlsplit(address).scheme == "https"
            assert "{" not in address
        assert data_set.licence.strip() == data_set.licence != ""
        assert len(data_set.citation.splitlines()) == 1


@pytest.mark.parametrize("name", sorted(set(DATA_SETS) - COUNTED_ONLY))
def test_the_files_match_the_checksums_and_counts(name: str) -> None:
    folder = Path(os.environ.get("PLOGICNET_DATA", "no-data")) / name
    if not folder.is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that contains {name}")
    data_set, entities, relations = DATA_SETS[name], set(), set()
    for split in SPLITS:
        plain = folder / f"{split}.txt"
        text = plain.read_bytes() if plain.is_file() else gzip.decompress((folder / f"{split}.txt.gz").read_bytes())
        assert hashlib.sha256(text).hexdigest() == data_set.sha256[split]
        triples = [line.split(b"\t") for line in text.splitlines()]
        assert len(triples) == data_set.triples[split]
        entities |= {name for head, _, tail in triples for name in (head, tail)}
        relations |= {relation for _, relation, _ in triples}
    assert (len(entities), len(relations)) == (data_set.entities, data_set.relations)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("FB15k-237", "fb15k-237"),
        ("fb15k237", "fb15k-237"),
        ("FB15K", "fb15k"),
        ("WN18 RR", "wn18rr"),
        ("wn18", "wn18"),
        ("yago3_10", "yago3-10"),
        ("YAGO310", "yago3-10"),
        ("countries_S1", "countries-s1"),
        ("CoDEx S", "codex-s"),
        ("kinships", None),
        ("fb15k/237", None),
        ("", None),
        ("-", None),
    ],
)
def test_names_ignore_case_spaces_hyphens_and_underscores(name: str, known: str | None) -> None:
    assert canonical_name(name) == known


def test_canonical_names_are_unique() -> None:
    assert [canonical_name(name) for name in DATA_SETS] == list(DATA_SETS)


def test_the_data_directory_and_exact_names_take_precedence(data: Path) -> None:
    assert locate("WN18RR") is None
    cached = make(cache_directory() / "wn18rr", "train.txt", "valid.txt", "test.txt")
    assert locate("WN18RR") == locate("wn18-rr") == cached
    empty = make(data / "WN 18 RR")
    assert locate("WN18RR") == empty
    similar = make(data / "Wn18-RR", "train.tsv")
    assert locate("WN18RR") == similar  # of two similar names, the one with triples
    exact = make(data / "WN18RR")
    assert locate("WN18RR") == exact
    assert locate("wn18_rr") == similar


def test_other_data_sets_are_found_in_the_data_directory(data: Path) -> None:
    mine = make(data / "My Graph", "train.csv")
    (data / "notes").touch()
    assert locate("my-graph") == mine
    assert [locate(name) for name in ("notes", "", ".", "..", "My Graph/..", str(mine))] == [None] * 6


def test_an_incomplete_download_is_ignored(data: Path) -> None:
    cached = make(cache_directory() / "umls", "train.txt", "valid.txt", ".test.txt.part")
    make(cache_directory() / "unknown", "train.txt", "valid.txt", "test.txt")
    assert (locate("umls"), locate("unknown"), available_names()) == (None, None, [])
    (cached / "test.txt").touch()
    assert (locate("umls"), available_names()) == (cached, ["umls"])
    make(data / "UMLS", "train.nt.gz")
    assert available_names() == ["UMLS"]


@pytest.mark.parametrize("ending", [".txt", ".tsv", ".csv", ".parquet", ".nt", ".ttl", ".txt.gz", ".csv.gz", ".ttl.gz"])
def test_available_sets_have_a_train_file(data: Path, ending: str) -> None:
    make(data / "b", f"train{ending}")
    make(data / "a", f"train{ending}")
    make(data / "only-test", f"test{ending}")
    make(data / "other", "train.doc", "train")
    assert available_names() == ["a", "b"]


@pytest.mark.parametrize("value", ["", "missing", "a-file"])
def test_without_a_data_directory_nothing_is_found(data: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    (data / "a-file").touch()
    monkeypatch.setenv("PLOGICNET_DATA", str(data / value) if value else "")
    assert (locate("umls"), available_names()) == (None, [])


def test_an_unreadable_data_directory_raises(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "loop").symlink_to("loop")
    monkeypatch.setenv("PLOGICNET_DATA", str(data / "loop"))
    with pytest.raises(InputError, match=r"cannot read PLOGICNET_DATA=.*loop"):
        locate("umls")


def test_the_cache_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PLOGICNET_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "plogicnet"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "plogicnet"
    monkeypatch.setenv("PLOGICNET_CACHE", str(tmp_path / "mine"))
    assert cache_directory() == tmp_path / "mine"
