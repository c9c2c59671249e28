"""A new person in the demo family by the real commands: relatives by rules alone, with reasons; no file changes."""

import hashlib
import json
from pathlib import Path

import pytest

from calling import Call, answer
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import demo_family
from plogicnet.graph.family import true_facts

SIBLING = "celia_thal"
FACTS = [("aaron_thal", "brother", "kim_thal"), ("maya_thal", "sister", "kim_thal")]
"""Kim is a sister of Celia, Aaron and Maya, so Celia's relatives are hers."""


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo family's run, with fewer steps: new people have no vectors anyway."""
    out = tmp_path_factory.mktemp("family") / "run"
    config = Config(device="cpu").with_preset("best/family").with_values({"neural.steps": 300, "threads": 1})
    PLogicNet(config).fit(demo_family(), out=out)
    return out


@pytest.fixture(scope="module")
def kim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("facts") / "kim.tsv"
    file.write_text("".join("\t".join(fact) + "\n" for fact in FACTS))
    return file


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def hashes(run: Path) -> dict[str, str]:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def relatives(relation: str) -> set[str]:
    """Who the new person's sister says are theirs."""
    return {head for head, r, tail in true_facts() if r == relation and tail == SIBLING}


@pytest.mark.parametrize(
    ("relation", "sure"), [("grandparent", 4), ("aunt", 2), ("uncle", 1), ("parent", 2), ("mother", 1), ("father", 1)]
)
def test_the_right_relatives_are_predicted_by_rules_alone(
    call: Call, family: Path, kim: Path, relation: str, sure: int
) -> None:
    before = hashes(family)
    asked = ("predict", family, "--relation", relation, "--tail", "kim_thal", "--facts", kim, "--top", sure)
    rows = answer(call, *asked)["predictions"]
    assert {row["head"] for row in rows} == relatives(relation)
    for row in rows:
        assert row["q"] is None
        assert row["in_hidden"] is True
        assert row["p_w"] > 0
        assert 0.05 < row["probability"] < 1
        why = answer(call, "explain", family, row["head"], relation, "kim_thal", "--facts", kim)
        assert why["probability"] == pytest.approx(row["probability"], rel=1e-9)
        assert why["without_vector"] == ["kim_thal"]
        premises = [p for rule in why["rules"] for one in rule["premises"] for p in one]
        assert any(tuple(p) in FACTS for p in premises)
    assert hashes(family) == before


def test_every_question_takes_facts(call: Call, family: Path, kim: Path, tmp_path: Path) -> None:
    before = hashes(family)
    by_head = answer(call, "predict", family, "--head", "kim_thal", "--relation", "sibling", "--facts", kim, "--top", 2)
    assert {row["tail"] for row in by_head["predictions"]} == {"aaron_thal", "maya_thal"}
    by_pair = answer(call, "predict", family, "--head", "martin_thal", "--tail", "kim_thal", "--facts", kim, "--top", 2)
    assert {row["relation"] for row in by_pair["predictions"]} == {"father", "parent"}
    (tmp_path / "asked.tsv").write_text("martin_thal\tfather\tkim_thal\naaron_thal\tbrother\tkim_thal\n")
    judged = answer(call, "predict", family, "--triples", tmp_path / "asked.tsv", "--facts", kim)["predictions"]
    assert [row["known"] for row in judged] == [False, True]
    out = tmp_path / "missing.tsv"
    code, _, said = call("predict", family, "--complete", "--min-probability", 0.1, "--facts", kim, "--out", out)
    assert code == 0, said
    lines = [line.split("\t") for line in out.read_text().splitlines() if "kim_thal" in line]
    assert {(line[0], line[1]) for line in lines} >= {("martin_thal", "father"), ("anna_brandt", "mother")}
    assert hashes(family) == before


def test_the_output_says_that_the_neural_model_has_no_part_in_it(call: Call, family: Path, kim: Path) -> None:
    asked = ("--relation", "uncle", "--tail", "kim_thal", "--top", 3)
    _, out, said = call("predict", family, *asked, "--facts", kim)
    assert "3 of 3 judged by rules alone: no score by a neural model" in out
    assert "kim.tsv: judged by rules alone, since the neural model cannot score them: kim_thal" in said
    for how in ("tree", "text"):
        _, out, _ = call("explain", family, "clemens_brandt", "uncle", "kim_thal", "--facts", kim, "--format", how)
        assert "judged by rules alone: the neural model cannot score kim_thal" in out
        assert "uncle(clemens_brandt, aaron_thal) and brother(aaron_thal, kim_thal)" in out
    code, _, said = call("predict", family, *asked)
    assert code == 2
    assert "unknown entity 'kim_thal'" in said


def test_formats_and_premises(call: Call, family: Path) -> None:
    fact = ("daughter", "olga_stein", "erik_peters")
    words = ("explain", family, fact[1], fact[0], fact[2])
    _, tree, _ = call(*words)
    assert tree == call(*words, "--format", "tree")[1]
    assert "└── " in tree
    _, text, _ = call(*words, "--format", "text")
    assert "─" not in text
    assert text.startswith("daughter(olga_stein, erik_peters)  probability ")
    as_json = answer(call, *words)
    assert json.loads(call(*words, "--format", "json")[1]) == as_json
    assert all(len(rule["premises"]) == rule["groundings"] for rule in as_json["rules"])
    none = answer(call, *words, "--premises", 0)
    assert [rule["premises"] for rule in none["rules"]] == [[]] * len(as_json["rules"])
    assert [rule["groundings"] for rule in none["rules"]] == [rule["groundings"] for rule in as_json["rules"]]
    assert "… and 1 more" in call(*words, "--premises", 0)[1]
    contract = ("triple", "probability", "q", "p_w", "log_odds", "base", "rules", "neighbours")
    assert set(contract) <= set(as_json)
    assert {"rule", "weight", "groundings", "contribution", "premises"} <= set(as_json["rules"][0])
    for bad in (("--premises", -1), ("--format", "html")):
        assert call(*words, *bad)[0] == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kim\tuncel\tanna_brandt\n", "bad.tsv, line 1: unknown relation 'uncel'. Did you mean 'uncle'"),
        ("kim\tuncle\n", "bad.tsv, line 1: 2 columns where three are meant"),
        (None, "bad.tsv: no such file"),
    ],
)
def test_bad_facts_end_the_command(call: Call, family: Path, tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "bad.tsv").write_text(content)
    for words in (("explain", family, "anna_brandt", "mother", "aaron_thal"), ("predict", family, "--complete")):
        code, out, error = call(*words, "--facts", tmp_path / "bad.tsv")
        assert code == 2
        assert out == ""
        assert said in error


def test_labels_are_shown(call: Call, family: Path, kim: Path) -> None:
    labels = family / "labels.tsv"
    labels.write_text("aaron_thal\tAaron Thal\nuncle\tuncle of\n")
    try:
        _, out, _ = call("explain", family, "clemens_brandt", "uncle", "kim_thal", "--facts", kim, "--format", "text")
    finally:
        labels.unlink()
    assert out.startswith("uncle of(clemens_brandt, kim_thal)")
    assert "uncle of(clemens_brandt, Aaron Thal) and brother(Aaron Thal, kim_thal)" in out
    assert '"uncle of"(X, Y) & brother(Y, Z) => "uncle of"(X, Z)' in out
