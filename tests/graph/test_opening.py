"""Opening graphs by name: locations, hints for unknown names, and the counts of the benchmarks."""

import os
from pathlib import Path

import pytest

from plogicnet.graph import open_graph
from plogicnet.graph.datasets.registry import available_names
from plogicnet.support.errors import InputError


@pytest.fixture(autouse=True)
def _no_downloads(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOGICNET_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_data_sets_are_opened_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kinship", "nations"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.txt").write_text("anna\tknows\tben\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").touch()
    monkeypatch.setenv("PLOGICNET_DATA", str(tmp_path))
    assert available_names() == ["kinship", "nations"]
    assert open_graph("nations").name == "nations"
    with pytest.raises(InputError, match=r"unknown graph 'kinships'.*Did you mean 'kinship'"):
        open_graph("kinships")
    with pytest.raises(InputError, match=r"Known data sets: .*nations"):
        open_graph("zzz")
    with pytest.raises(InputError, match="no train file"):
        open_graph("notes")


def test_a_mistyped_path_raises_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.tsv").write_text("a\tr\tb\n")
    with pytest.raises(InputError, match=f"Did you mean '{tmp_path}/mine.tsv'"):
        open_graph(tmp_path / "mime.tsv")
    with pytest.raises(InputError, match="Known data sets"):
        open_graph(tmp_path / "nowhere" / "mime.tsv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"Did you mean 'mine\.tsv'"):
        open_graph("mime.tsv")


@pytest.mark.parametrize("folder", [None, "missing"])
def test_without_a_data_directory_no_data_sets_are_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    monkeypatch.delenv("PLOGICNET_DATA", raising=False)
    if folder is not None:
        monkeypatch.setenv("PLOGICNET_DATA", str(tmp_path / folder))
    assert available_names() == []
    with pytest.raises(InputError, match="unknown graph 'no-nations': not a file, a directory or a data set"):
        open_graph("no-nations")


# entities, relations, distinct triples of train, valid and test, and duplicates, from datasets/README.md. That table
# counts lines. The Countries sets contain one line of train twice and so have one triple fewer.
COUNTS = {
    "fb15k": (14_951, 1_345, 483_142, 50_000, 59_071, 0),
    "wn18": (40_943, 18, 141_442, 5_000, 5_000, 0),
    "fb15k-237": (14_541, 237, 272_115, 17_535, 20_466, 0),
    "wn18rr": (40_943, 11, 86_835, 3_034, 3_134, 0),
    "umls": (135, 46, 5_216, 652, 661, 0),
    "kinship": (104, 25, 8_544, 1_068, 1_074, 0),
    "nations": (14, 55, 1_592, 199, 201, 0),
    "countries-s1": (271, 2, 1_110, 24, 24, 1),
    "countries-s2": (271, 2, 1_062, 24, 24, 1),
    "countries-s3": (271, 2, 984, 24, 24, 1),
    "codex-s": (2_034, 42, 32_888, 1_827, 1_828, 0),
}
UNSEEN = {"fb15k-237": {"valid": 8, "test": 29}, "wn18rr": {"valid": 198, "test": 209}}


@pytest.mark.parametrize("name", COUNTS)
def test_benchmarks_have_the_published_counts(name: str) -> None:
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that contains {name}")
    statistics = open_graph(name).statistics()
    keys = ("entities", "relations", "train", "valid", "test", "duplicates")
    assert tuple(statistics[key] for key in keys) == COUNTS[name]
    assert name not in UNSEEN or statistics["unseen_entities"] == UNSEEN[name]
