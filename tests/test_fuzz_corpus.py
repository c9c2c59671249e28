"""The kept corpus of the fuzzing targets, and whatever they found: each goes through its target without harm."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "corpus"


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_the_corpus(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("atheris")
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    __import__(file.parent.name)
    sys.modules[file.parent.name].one_input(file.read_bytes())
