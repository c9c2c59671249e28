"""A new person in the demo family: the real commands predict and explain relatives with the rules alone."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import demo_family
from plogicnet.graph.family import true_facts
from plogicnet.runs.directory import snapshot_folder
from stopping import update_checksums

SIBLING = "celia_thal"
FACTS = [("aaron_thal", "brother", "kim_thal"), ("maya_thal", "sister", "kim_thal")]
"""Kim is a sister of Celia, Aaron and Maya, so she has the same relatives as Celia."""


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the demo family with few steps: new people have no vectors."""
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
    """Return the relatives of the new person's sister."""
    return {head for head, r, tail in true_facts() if r == relation and tail == SIBLING}


@pytest.mark.parametrize(
    ("relation", "count"), [("grandparent", 4), ("aunt", 2), ("uncle", 1), ("parent", 2), ("mother", 1), ("father", 1)]
)
def test_rules_alone_predict_the_relatives_of_a_new_person(
    call: Call, family: Path, kim: Path, relation: str, count: int
) -> None:
    before = hashes(family)
    query = ("predict", family, "--relation", relation, "--tail", "kim_thal", "--facts", kim, "--top", count)
    rows = call_json(call, *query)["predictions"]
    assert {row["head"] for row in rows} == relatives(relation)
    for row in rows:
        assert row["q"] is None
        assert row["in_hidden"] is True
        assert row["p_w"] > 0
        assert 0.05 < row["probability"] < 1
        explanation = call_json(call, "explain", family, row["head"], relation, "kim_thal", "--facts", kim)
        assert explanation["probability"] == pytest.approx(row["probability"], rel=1e-9)
        assert explanation["without_vector"] == ["kim_thal"]
        premises = [p for rule in explanation["rules"] for one in rule["premises"] for p in one]
        assert any(tuple(p) in FACTS for p in premises)
    assert hashes(family) == before


def test_every_kind_of_prediction_uses_the_new_facts(call: Call, family: Path, kim: Path, tmp_path: Path) -> None:
    before = hashes(family)
    by_head = call_json(
        call, "predict", family, "--head", "kim_thal", "--relation", "sibling", "--facts", kim, "--top", 2
    )
    assert {row["tail"] for row in by_head["predictions"]} == {"aaron_thal", "maya_thal"}
    by_pair = call_json(
        call, "predict", family, "--head", "martin_thal", "--tail", "kim_thal", "--facts", kim, "--top", 2
    )
    assert {row["relation"] for row in by_pair["predictions"]} == {"father", "parent"}
    (tmp_path / "triples.tsv").write_text("martin_thal\tfather\tkim_thal\naaron_thal\tbrother\tkim_thal\n")
    predictions = call_json(call, "predict", family, "--triples", tmp_path / "triples.tsv", "--facts", kim)[
        "predictions"
    ]
    assert [row["known"] for row in predictions] == [False, True]
    out = tmp_path / "missing.tsv"
    code, _, stderr = call("predict", family, "--complete", "--min-probability", 0.1, "--facts", kim, "--out", out)
    assert code == 0, stderr
    lines = [line.split("\t") for line in out.read_text().splitlines() if "kim_thal" in line]
    assert {(line[0], line[1]) for line in lines} >= {("martin_thal", "father"), ("anna_brandt", "mother")}
    assert hashes(family) == before


def test_the_output_reports_that_only_rules_count(call: Call, family: Path, kim: Path) -> None:
    query = ("--relation", "uncle", "--tail", "kim_thal", "--top", 3)
    _, out, stderr = call("predict", family, *query, "--facts", kim)
    assert "3 of 3 have no q: no neural model scores them" in " ".join(out.split())
    assert "kim.tsv: the neural model cannot score these entities, so only rules predict their facts: kim" in stderr
    for format_name in ("tree", "text"):
        _, out, _ = call(
            "explain", family, "clemens_brandt", "uncle", "kim_thal", "--facts", kim, "--format", format_name
        )
        assert "neural model: cannot score kim_thal, so only rules count" in out
        assert "uncle(clemens_brandt, aaron_thal) and brother(aaron_thal, kim_thal)" in out
    code, _, stderr = call("predict", family, *query)
    assert code == 2
    assert "unknown entity 'kim_thal'" in stderr


def test_explanation_formats_and_number_of_premises(call: Call, family: Path) -> None:
    fact = ("daughter", "olga_stein", "erik_peters")
    arguments = ("explain", family, fact[1], fact[0], fact[2])
    _, tree, _ = call(*arguments)
    assert tree == call(*arguments, "--format", "tree")[1]
    assert "└── " in tree
    _, text, _ = call(*arguments, "--format", "text")
    assert "─" not in text
    assert text.startswith("daughter(olga_stein, erik_peters)  probability ")
    as_json = call_json(call, *arguments)
    assert json.loads(call(*arguments, "--format", "json")[1]) == as_json
    assert all(len(rule["premises"]) == rule["groundings"] for rule in as_json["rules"])
    without = call_json(call, *arguments, "--premises", 0)
    assert [rule["premises"] for rule in without["rules"]] == [[]] * len(as_json["rules"])
    assert [rule["groundings"] for rule in without["rules"]] == [rule["groundings"] for rule in as_json["rules"]]
    assert "… and 1 more" in call(*arguments, "--premises", 0)[1]
    keys = ("triple", "probability", "q", "p_w", "log_odds", "base", "rules", "neighbours")
    assert set(keys) <= set(as_json)
    assert {"rule", "weight", "groundings", "contribution", "premises"} <= set(as_json["rules"][0])
    for invalid in (("--premises", -1), ("--format", "html")):
        assert call(*arguments, *invalid)[0] == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kim\tuncel\tanna_brandt\n", "bad.tsv, line 1: unknown relation 'uncel'. Did you mean 'uncle'"),
        ("kim\tuncle\n", "bad.tsv, line 1: expected three columns"),
        (None, "bad.tsv: no such file"),
    ],
)
def test_invalid_facts_are_an_error(
    call: Call, family: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "bad.tsv").write_text(content)
    for arguments in (("explain", family, "anna_brandt", "mother", "aaron_thal"), ("predict", family, "--complete")):
        code, out, stderr = call(*arguments, "--facts", tmp_path / "bad.tsv")
        assert code == 2
        assert out == ""
        assert message in stderr


def test_labels_are_shown(call: Call, family: Path, kim: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(family, tmp_path / "run"))
    (snapshot_folder(run) / "labels.tsv").write_text("aaron_thal\tAaron Thal\nuncle\tuncle of\n")
    update_checksums(run)
    _, out, _ = call("explain", run, "clemens_brandt", "uncle", "kim_thal", "--facts", kim, "--format", "text")
    assert out.startswith("uncle of(clemens_brandt, kim_thal)")
    assert "uncle of(clemens_brandt, Aaron Thal) and brother(Aaron Thal, kim_thal)" in out
    assert '"uncle of"(X, Y) & brother(Y, Z) => "uncle of"(X, Z)' in out
