"""Every input in the fuzzing corpus, including fixed findings, passes its target."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "corpus"


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_corpus_input_passes_its_target(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    importlib.import_module(file.parent.name).one_input(file.read_bytes())


def test_every_target_has_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    assert {folder.name for folder in CORPUS.iterdir()} == set(importlib.import_module("campaign").TARGETS)
