"""Rule files through the real commands: what is mined, shown, refused and kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from forking import program
from small import write_small_graph

QUICK = [
    *("--device", "cpu", "--threads", "1", "--set", "rules.mine=false", "--set", "em.iterations=1"),
    *(
        "--set",
        "neural.steps=10",
        "--set",
        "neural.vectors.dim=8",
        "--set",
        "neural.batch=32",
        "--set",
        "neural.vectors.negatives=8",
    ),
]
RULES = """\
# three rules about families
=1.5: husband(Man, Woman) => wife(Woman, Man)
parent(X, Y) & parent(X, Z) & sibling(Y, Z) => child(Y, X)
0.25: husband(X, Y) & parent(Y, Z) => parent(X, Z)
"""
GENERAL = "parent(X, Y) & parent(X, Z) & sibling(Y, Z) => child(Y, X)"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_graph(tmp_path_factory.mktemp("graph"))


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "family.rules"
    file.write_text(RULES)
    return file


def answer(*words: object) -> dict[str, Any]:
    done = program(*words, "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


def refused(folder: Path, *words: object) -> str:
    """What is said on stderr, after checking that it is in words and that nothing was made."""
    before = sorted(folder.rglob("*"))
    done = program(*words, cwd=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
    return done.stderr


def test_mine_adds_written_rules(graph: Path, rules: Path, tmp_path: Path) -> None:
    mined = answer("mine", graph)
    out = tmp_path / "all.tsv"
    both = answer("mine", graph, "--rules", rules, "--out", out)
    assert both["candidates"] == mined["candidates"]
    assert both["rules"]["general"] == 1
    assert "general" not in mined["rules"]
    assert both["rules"]["inverse"] == mined["rules"]["inverse"]  # the written one is mined too
    assert both["groundings"] > mined["groundings"]
    written = [line.split("\t") for line in out.read_text().splitlines()]
    assert written[0][-1] == "given"
    given = {row[1]: row[-1] for row in written[1:] if row[-1]}
    assert given == {
        "husband(X, Y) => wife(Y, X)": "=1.5",
        "husband(X, Y) & parent(Y, Z) => parent(X, Z)": "0.25",
    }
    alone = answer("mine", graph, "--rules", rules, "--set", "rules.mine=false")
    assert (alone["candidates"], sum(alone["rules"].values()), alone["irreflexive"]) == (0, 3, 0)
    again = answer("mine", graph, "--rules", out, "--set", "rules.mine=false")  # what is written loads back
    for key in ("hidden", "groundings", "rules", "irreflexive"):
        assert again[key] == both[key]


def test_mine_says_its_cost_first(graph: Path, rules: Path) -> None:
    """The paths are counted here by hand; without mining nothing is counted."""
    train = [line.split("\t") for line in (graph / "train.txt").read_text().splitlines()]
    paths = sum(a[2] == b[0] for a in train for b in train)
    cost = f"{len(train)} training triples, 5 relations; mining counts {paths:,} two-step paths"
    assert program("mine", graph).stderr.splitlines()[0].endswith(cost)
    one_step = program("mine", graph, "--set", "rules.patterns=[inverse]").stderr
    assert "mining counts no two-step paths" in one_step
    assert "mining" not in program("mine", graph, "--rules", rules, "--set", "rules.mine=false").stderr


def test_examples_are_groundings(graph: Path, rules: Path) -> None:
    train = {tuple(line.split("\t")) for line in (graph / "train.txt").read_text().splitlines()}
    found = answer("mine", graph, "--rules", rules, "--examples", 2, "--top", 3)["examples"]
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for example in found:
        by_rule.setdefault(example["rule"], []).append(example)
        premises = [tuple(p) for p in example["premises"]]
        assert premises
        assert train.issuperset(premises)
        assert example["known"] == (tuple(example["hypothesis"]) in train)
    assert GENERAL in by_rule
    assert {len(examples) for examples in by_rule.values()} == {2}
    for example in by_rule[GENERAL]:
        (parent, _, child), *_ = example["premises"]
        assert example["hypothesis"] == [child, "child", parent]
    text = program("mine", graph, "--rules", rules, "--examples", 2, "--top", 3)
    assert text.returncode == 0
    lines = text.stdout.splitlines()
    for example in found:
        because = " and ".join(f"{r}({h}, {t})" for h, r, t in example["premises"])
        head, relation, tail = example["hypothesis"]
        shown = f"  {because}: {relation}({head}, {tail})" + ("" if example["known"] else " (not in train)")
        assert shown in lines
    assert "examples" not in answer("mine", graph)


def test_min_support(graph: Path, tmp_path: Path) -> None:
    supports = {}
    for least in (1, 12):
        out = tmp_path / f"{least}.tsv"
        answer("mine", graph, "--min-support", least, "--out", out)
        rows = [line.split("\t") for line in out.read_text().splitlines()[1:]]
        supports[least] = {row[1]: int(row[2]) for row in rows if row[0] != "irreflexive"}
    assert supports[12] == {rule: n for rule, n in supports[1].items() if n >= 12}
    assert 0 < len(supports[12]) < len(supports[1])
    done = program("mine", graph, "--min-support", 0)
    assert done.returncode == 2
    assert "--min-support" in done.stderr


CARTESIAN = "every match of the one would pair with every match of the other, expected connected premises"
MISTAKES = [
    ("husband(X, Y) = wife(Y, X)", 15, "expected '&' or '=>', found '='"),
    ("husbend(X, Y) => wife(Y, X)", 1, "unknown relation 'husbend'. Did you mean 'husband'?"),
    ("parent(X, man00) => child(man00, X)", 11, "unknown entity 'man00'. Did you mean 'man0' or"),
    ("husband(X, Y) & wife(Z, U) & sibling(U, Z) => parent(X, Y)", 17, CARTESIAN),
    ("husband(X, Y) & wife(man0, woman0) => parent(X, Y)", 17, CARTESIAN),
    ("husband(X, man0) & wife(man0, Y) => parent(X, Y)", 20, CARTESIAN),
    ("husband(X, Y) => wife(Z, X)", 23, "'Z' is in no premise, expected it in at least one"),
]


CASES = [("mine", *mistake) for mistake in MISTAKES] + [("train", *MISTAKES[i]) for i in (1, 3)]


@pytest.mark.parametrize(("command", "line", "column", "reason"), CASES, ids=[f"{c[0]}: {c[3][:24]}" for c in CASES])
def test_a_mistake_in_line_seven_is_shown_and_nothing_made(
    graph: Path, tmp_path: Path, command: str, line: str, column: int, reason: str
) -> None:
    (tmp_path / "my.rules").write_text(RULES + "\n# and\n" + line + "\n")
    out = ["--out", "runs/new" if command == "train" else "new.tsv"]
    said = refused(tmp_path, command, graph, "--rules", "my.rules", *out)
    message, source, caret = said.rstrip("\n").splitlines()
    assert message.startswith(f"plogicnet: my.rules, line 7, column {column}: ")
    assert reason in message
    assert (source, caret) == ("  " + line, "  " + " " * (column - 1) + "^")


@pytest.mark.parametrize("command", ["mine", "train"])
def test_a_missing_rules_file(graph: Path, tmp_path: Path, command: str) -> None:
    out = ["--out", "new"]
    said = refused(tmp_path, command, graph, "--rules", "no.rules", *out)
    assert said == "plogicnet: no.rules: cannot be read as a file of rules: No such file or directory\n"


def test_other_refusals_of_train_make_nothing(graph: Path, rules: Path) -> None:
    words = ("train", graph, "--rules", rules.name, "--out", "new")
    assert "em.rules=false leaves all rules out" in refused(rules.parent, *words, "--set", "em.rules=false")
    rules.write_text(RULES + "husband(A, B) => wife(B, A)\n")
    assert "family.rules, line 5: the same rule stands in line 2" in refused(rules.parent, *words)


def test_general_rules_are_refused_by_the_native_engine_alone(graph: Path, rules: Path) -> None:
    said = refused(rules.parent, "mine", graph, "--rules", rules, "--set", "grounding.engine=native")
    assert f"{GENERAL}: the native engine grounds chains of relations only" in said


def test_train_with_written_rules_alone(graph: Path, rules: Path, tmp_path: Path) -> None:
    """A fixed weight stays as it is written; the run loads back, and its rules are a rules file again."""
    out = tmp_path / "run"
    done = program("train", graph, "--rules", rules, "--out", out, *QUICK)
    assert done.returncode == 0, done.stderr
    shown = {row["rule"]: row for row in answer("rules", out)["rules"]}
    assert set(shown) == {
        "husband(Man, Woman) => wife(Woman, Man)",
        GENERAL,
        "husband(X, Y) & parent(Y, Z) => parent(X, Z)",
    }
    assert shown["husband(Man, Woman) => wife(Woman, Man)"]["weight"] == 1.5
    assert all(row["weight"] not in (None, 0.25) for row in shown.values())
    assert {row["pattern"] for row in shown.values()} == {"inverse", "general", "composition"}
    train = {tuple(line.split("\t")) for line in (graph / "train.txt").read_text().splitlines()}
    husband, _, wife = next(t for t in sorted(train) if t[1] == "husband")
    why = answer("explain", out, wife, "wife", husband)
    assert [(r["weight"], r["groundings"], r["premises"]) for r in why["rules"]] == [
        (1.5, 1, [[[husband, "husband", wife]]])
    ]
    assert why["log_odds"] == why["base"] + 1.5
    again = tmp_path / "again"
    done = program("train", graph, "--rules", out / "rules.tsv", "--out", again, *QUICK)
    assert done.returncode == 0, done.stderr
    assert {row["rule"]: row["weight"] for row in answer("rules", again)["rules"]} == pytest.approx(
        {rule: row["weight"] for rule, row in shown.items()}, abs=1e-6
    )
