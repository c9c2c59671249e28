"""Rule files in the real commands: mining, training, examples and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from forking import run_program
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


def run_json(*arguments: object) -> dict[str, Any]:
    result = run_program(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


def error_message(folder: Path, *arguments: object) -> str:
    """Run a command that must fail without output, traceback or new files, and return stderr."""
    before = sorted(folder.rglob("*"))
    result = run_program(*arguments, cwd=folder)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert sorted(folder.rglob("*")) == before
    return result.stderr


def test_mine_adds_the_rules_of_a_file(graph: Path, rules: Path, tmp_path: Path) -> None:
    only_mined = run_json("mine", graph)
    out = tmp_path / "all.tsv"
    combined = run_json("mine", graph, "--rules", rules, "--out", out)
    assert combined["candidates"] == only_mined["candidates"]
    assert combined["rules"]["general"] == 1
    assert "general" not in only_mined["rules"]
    assert combined["rules"]["inverse"] == only_mined["rules"]["inverse"]  # the given inverse rule is also mined
    assert combined["groundings"] > only_mined["groundings"]
    written = [line.split("\t") for line in out.read_text().splitlines()]
    assert written[0][-1] == "given"
    weights = {row[1]: row[-1] for row in written[1:] if row[-1]}
    assert weights == {
        "husband(X, Y) => wife(Y, X)": "=1.5",
        "husband(X, Y) & parent(Y, Z) => parent(X, Z)": "0.25",
    }
    only_given = run_json("mine", graph, "--rules", rules, "--set", "rules.mine=false")
    assert (only_given["candidates"], sum(only_given["rules"].values()), only_given["irreflexive"]) == (0, 3, 0)
    again = run_json("mine", graph, "--rules", out, "--set", "rules.mine=false")  # the written table is a rule file
    for key in ("hidden", "groundings", "rules", "irreflexive"):
        assert again[key] == combined[key]


def test_mine_prints_its_cost_first(graph: Path, rules: Path) -> None:
    """The expected number of paths comes from brute force. Without mining no paths are counted."""
    train = [line.split("\t") for line in (graph / "train.txt").read_text().splitlines()]
    paths = sum(a[2] == b[0] for a in train for b in train)
    cost = f"Mining {graph.name}: {len(train)} training triples, 5 relations, {paths:,} two-step paths."
    assert run_program("mine", graph).stderr.splitlines()[0] == cost
    one_step = run_program("mine", graph, "--set", "rules.patterns=[inverse]").stderr
    assert f"Mining {graph.name}: {len(train)} training triples, 5 relations, no two-step paths." in one_step
    assert "mining" not in run_program("mine", graph, "--rules", rules, "--set", "rules.mine=false").stderr.lower()


def test_examples_are_groundings_in_train(graph: Path, rules: Path) -> None:
    train = {tuple(line.split("\t")) for line in (graph / "train.txt").read_text().splitlines()}
    examples = run_json("mine", graph, "--rules", rules, "--examples", 2, "--top", 3)["examples"]
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for example in examples:
        by_rule.setdefault(example["rule"], []).append(example)
        premises = [tuple(p) for p in example["premises"]]
        assert premises
        assert train.issuperset(premises)
        assert example["known"] == (tuple(example["hypothesis"]) in train)
    assert GENERAL in by_rule
    assert {len(of_rule) for of_rule in by_rule.values()} == {2}
    for example in by_rule[GENERAL]:
        (parent, _, child), *_ = example["premises"]
        assert example["hypothesis"] == [child, "child", parent]
    text = run_program("mine", graph, "--rules", rules, "--examples", 2, "--top", 3)
    assert text.returncode == 0
    lines = text.stdout.splitlines()
    for example in examples:
        premises_text = " and ".join(f"{r}({h}, {t})" for h, r, t in example["premises"])
        head, relation, tail = example["hypothesis"]
        status = f" (in {example['held_out']})" if example["held_out"] else " (not in the graph)"
        line = f"  {premises_text} => {relation}({head}, {tail})" + ("" if example["known"] else status)
        assert line in lines
    assert "examples" not in run_json("mine", graph)


def test_min_support_removes_other_rules(graph: Path, tmp_path: Path) -> None:
    supports = {}
    for min_support in (1, 12):
        out = tmp_path / f"{min_support}.tsv"
        run_json("mine", graph, "--min-support", min_support, "--out", out)
        rows = [line.split("\t") for line in out.read_text().splitlines()[1:]]
        supports[min_support] = {row[1]: int(row[2]) for row in rows if row[0] != "irreflexive"}
    assert supports[12] == {rule: n for rule, n in supports[1].items() if n >= 12}
    assert 0 < len(supports[12]) < len(supports[1])
    result = run_program("mine", graph, "--min-support", 0)
    assert result.returncode == 2
    assert "--min-support" in result.stderr


CARTESIAN = "every match of one would be combined with every match of the other"
MISTAKES = [
    ("husband(X, Y) = wife(Y, X)", 15, "expected '&' or '=>', found '='"),
    ("husbend(X, Y) => wife(Y, X)", 1, "unknown relation 'husbend'. Did you mean 'husband'?"),
    ("parent(X, man00) => child(man00, X)", 11, "unknown entity 'man00'. Did you mean 'man0' or"),
    ("husband(X, Y) & wife(Z, U) & sibling(U, Z) => parent(X, Y)", 17, CARTESIAN),
    ("husband(X, Y) & wife(man0, woman0) => parent(X, Y)", 17, CARTESIAN),
    ("husband(X, man0) & wife(man0, Y) => parent(X, Y)", 20, CARTESIAN),
    ("husband(X, Y) => wife(Z, X)", 23, "the variable 'Z' must also be in a premise"),
]


CASES = [("mine", *mistake) for mistake in MISTAKES] + [("train", *MISTAKES[i]) for i in (1, 3)]


@pytest.mark.parametrize(("command", "line", "column", "reason"), CASES, ids=[f"{c[0]}: {c[3][:24]}" for c in CASES])
def test_a_mistake_in_line_seven_is_marked_and_no_file_is_created(
    graph: Path, tmp_path: Path, command: str, line: str, column: int, reason: str
) -> None:
    (tmp_path / "my.rules").write_text(RULES + "\n# and\n" + line + "\n")
    out = ["--out", "runs/new" if command == "train" else "new.tsv"]
    stderr = error_message(tmp_path, command, graph, "--rules", "my.rules", *out)
    message, source, caret = stderr.rstrip("\n").splitlines()
    assert message.startswith(f"plogicnet: my.rules, line 7, column {column}: ")
    assert reason in message
    assert (source, caret) == ("  " + line, "  " + " " * (column - 1) + "^")


@pytest.mark.parametrize("command", ["mine", "train"])
def test_a_missing_rule_file_is_reported(graph: Path, tmp_path: Path, command: str) -> None:
    out = ["--out", "new"]
    stderr = error_message(tmp_path, command, graph, "--rules", "no.rules", *out)
    assert stderr == "plogicnet: no.rules: cannot read the rule file: No such file or directory\n"


def test_train_refuses_rules_that_it_cannot_use(graph: Path, rules: Path) -> None:
    arguments = ("train", graph, "--rules", rules.name, "--out", "new")
    stderr = error_message(rules.parent, *arguments, "--set", "em.rules=false")
    assert stderr == "plogicnet: cannot use rules with em.rules=false. Set em.rules=true.\n"
    rules.write_text(RULES + "husband(A, B) => wife(B, A)\n")
    assert "family.rules, line 5: duplicate of the rule in line 2" in error_message(rules.parent, *arguments)


def test_the_native_engine_refuses_general_rules(graph: Path, rules: Path) -> None:
    stderr = error_message(rules.parent, "mine", graph, "--rules", rules, "--set", "grounding.engine=native")
    assert f"{GENERAL}: the native engine grounds only chains of relations" in stderr


def test_train_only_with_given_rules(graph: Path, rules: Path, tmp_path: Path) -> None:
    """A fixed weight does not change. The run can be loaded, and `rules --out` writes a rule file."""
    out = tmp_path / "run"
    result = run_program("train", graph, "--rules", rules, "--out", out, *QUICK)
    assert result.returncode == 0, result.stderr
    learned = {row["rule"]: row for row in run_json("rules", out)["rules"]}
    assert set(learned) == {
        "husband(Man, Woman) => wife(Woman, Man)",
        GENERAL,
        "husband(X, Y) & parent(Y, Z) => parent(X, Z)",
    }
    assert learned["husband(Man, Woman) => wife(Woman, Man)"]["weight"] == 1.5
    assert all(row["weight"] not in (None, 0.25) for row in learned.values())
    assert {row["pattern"] for row in learned.values()} == {"inverse", "general", "composition"}
    train = {tuple(line.split("\t")) for line in (graph / "train.txt").read_text().splitlines()}
    husband, _, wife = next(t for t in sorted(train) if t[1] == "husband")
    explanation = run_json("explain", out, wife, "wife", husband)
    assert [(r["weight"], r["groundings"], r["premises"]) for r in explanation["rules"]] == [
        (1.5, 1, [[[husband, "husband", wife]]])
    ]
    assert explanation["log_odds"] == explanation["base"] + 1.5
    again = tmp_path / "again"
    assert run_json("rules", out, "--out", tmp_path / "my.tsv")["rules"] == list(learned.values())
    result = run_program("train", graph, "--rules", tmp_path / "my.tsv", "--out", again, *QUICK)
    assert result.returncode == 0, result.stderr
    assert {row["rule"]: row["weight"] for row in run_json("rules", again)["rules"]} == pytest.approx(
        {rule: row["weight"] for rule, row in learned.items()}, abs=1e-6
    )


ANYBURL = """\
40\t30\t0.75\twife(X,Y) <= husband(Y,X)
9\t1\t0.11\tparent(X,Y) <= husband(X,A), parent(A,Y)
9\t2\t0.22\tparent(X,nobody) <= husband(X,A)
9\t2\t0.22\tparent(X,man0) <=
"""


def test_rules_of_anyburl_are_counted_again(graph: Path, tmp_path: Path) -> None:
    """The counts of the file are in their own columns, next to the counts on the graph."""
    (tmp_path / "rules-100").write_text(ANYBURL)
    arguments = ("mine", graph, "--rules", "rules-100", "--set", "rules.mine=false", "--out", "out.tsv")
    result = run_program(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines()[0] == (
        "rules-100: 2 of 4 rules used. Left out: 1 rule with a name that the graph does not contain"
        " (first: line 3: 'nobody'); 1 rule without premises (first: line 4)."
    )
    header, *rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["rule"], row["file_support"], row["file_hits"]) for row in table] == [
        ("husband(X, Y) => wife(Y, X)", "40", "30"),
        ("husband(X, Y) & parent(Y, Z) => parent(X, Z)", "9", "1"),
    ]
    mined = run_json(
        "mine", graph, "--rules", tmp_path / "out.tsv", "--set", "rules.mine=false", "--out", tmp_path / "b"
    )
    assert sum(mined["rules"].values()) == 2
    assert (tmp_path / "b").read_text() == (tmp_path / "out.tsv").read_text()
    train = {tuple(line.split("\t")) for line in (graph / "train.txt").read_text().splitlines()}
    husbands = {(tail, head) for head, relation, tail in train if relation == "husband"}
    hits = sum((wife, "wife", husband) in train for wife, husband in husbands)
    assert (table[0]["support"], table[0]["hits"]) == (str(len(husbands)), str(hits))


def test_rules_are_written_for_other_programs(graph: Path, rules: Path, tmp_path: Path) -> None:
    """The run learns the same rules again from its own rules in each format."""
    run = tmp_path / "run"
    result = run_program("train", graph, "--rules", rules, "--out", run, *QUICK)
    assert result.returncode == 0, result.stderr
    for file_format, written in (("anyburl", 2), ("amie", 3), ("plogicnet", 3)):
        out = tmp_path / file_format
        result = run_program("rules", run, "--format", file_format, "--out", out)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"{written} rules written to {out}.")
        assert ("Weights are left out" in result.stdout) == (file_format != "plogicnet")
        as_json = run_json("rules", run, "--format", file_format, "--out", out)
        left_out = {"whose premises are not a path": 1} if file_format == "anyburl" else {}
        assert (as_json["written"], as_json["left_out"]) == (written, left_out)
        again = run_json("mine", graph, "--rules", out, "--set", "rules.mine=false")
        assert sum(again["rules"].values()) == written
    stderr = run_program("rules", run, "--format", "anyburl", "--out", tmp_path / "b").stderr
    assert f"2 of 3 rules written. Left out: 1 rule whose premises are not a path (first: {GENERAL})." in stderr
    for arguments, message in (
        (("--format", "amie"), "--format needs a file. Add --out FILE."),
        (("--format", "prolog", "--out", "x"), "--format prolog: expected plogicnet, amie or anyburl"),
    ):
        assert error_message(tmp_path, "rules", run, *arguments) == f"plogicnet: {message}\n"


def test_negative_evidence_is_mined_trained_explained_and_edited(graph: Path, tmp_path: Path) -> None:
    mined_settings = ["--set", "rules.negative=[functional, disjoint]", "--set", "rules.min_precision.functional=0.1"]
    table = tmp_path / "mined.tsv"
    mined = run_json("mine", graph, *mined_settings, "--examples", "1", "--out", table)
    assert mined["rules"]["functional"] > 0
    patterns = [line.split("\t")[0] for line in table.read_text().splitlines()[1:]]
    assert mined["rules"]["functional"] == patterns.count("functional")
    assert patterns.index("functional") > max(i for i, p in enumerate(patterns) if p in ("composition", "inverse"))

    evidence, run = "child(X, Z) & Z != Y => not child(X, Y)", tmp_path / "run"
    (tmp_path / "my.rules").write_text(f"=2: {evidence}\nparent(X, Y) => child(Y, X)\n")
    run_json("train", graph, "--rules", tmp_path / "my.rules", *QUICK, "--out", run)
    rows = {row["rule"]: row for row in run_json("rules", run)["rules"]}
    assert (rows[evidence]["pattern"], rows[evidence]["weight"]) == ("functional", 2.0)
    why = run_json("explain", run, "a0", "child", "man0")  # a0 is also a child of woman0
    [entry] = [entry for entry in why["rules"] if entry["negative"]]
    assert (entry["rule"], entry["value"], entry["contribution"]) == (evidence, -1.0, -2.0)
    assert entry["premises"] == [[["a0", "child", "woman0"]]]
    text = run_program("explain", run, "a0", "child", "man0", "--format", "text").stdout
    assert f"-2.00  {evidence}  (weight 2.00, 1 fact against the triple)" in text

    edited = tmp_path / "edited.rules"
    run_program("rules", run, "--out", edited)
    assert f"=2.0: {evidence}" in edited.read_text()
    edited.write_text(edited.read_text().replace("=2.0: child", "=3.0: child"))
    run_json("refit", run, "--rules", edited)
    assert {row["rule"]: row["weight"] for row in run_json("rules", run)["rules"]}[evidence] == 3.0
    result = run_program("train", graph, "--rules", edited, *QUICK, "--set", "system=blp", "--out", tmp_path / "blp")
    assert result.returncode == 2
    assert f"{evidence}: BLP has no negative evidence." in result.stderr
