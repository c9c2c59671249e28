"""predict and export in this process: queries, files, formats and errors."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.graph import SPLITS
from plogicnet.inference.pool import RECALLS
from plogicnet.model import Prediction
from plogicnet.support.errors import pluralize
from small import fitted

Row = dict[str, Any]
Query = tuple[str | None, str | None, str | None]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    fitted({"neural.steps": 60}).save(out)
    return out


@pytest.fixture(scope="module")
def model(run: Path) -> PLogicNet:
    return PLogicNet.load(run)


def to_rows(predictions: list[Prediction]) -> list[Row]:
    return [p.to_json() for p in predictions]


def predict_rows(call: Call, *arguments: object) -> list[Row]:
    rows: list[Row] = call_json(call, *arguments)["predictions"]
    return rows


QUERIES: list[Query] = [("man2", "parent", None), (None, "sibling", "a0"), ("a5", None, "b5")]


def options(query: Query) -> list[str]:
    parts = zip(("--head", "--relation", "--tail"), query, strict=True)
    return [word for name, value in parts if value is not None for word in (name, value)]


@pytest.mark.parametrize("query", QUERIES)
def test_each_part_of_a_query_can_be_missing(call: Call, run: Path, model: PLogicNet, query: Query) -> None:
    for more in ([], ["--include-known"]):
        expected = to_rows(model.predict(*query, top=4, include_known=bool(more)))
        assert predict_rows(call, "predict", run, *options(query), "--top", 4, *more) == expected
    assert len(predict_rows(call, "predict", run, *options(query))) <= 10
    threshold = to_rows(model.predict(*query, top=4))[1]["probability"]
    filtered = predict_rows(call, "predict", run, *options(query), "--min-probability", threshold)
    assert filtered == to_rows(model.predict(*query, top=len(filtered)))
    code, text, _ = call("predict", run, *options(query), "--top", 2)
    assert code == 0
    assert "probability" in text
    assert "(man2, ?)" in text or "(?, a0)" in text or "?(a5, b5)" in text
    known = sum(bool(row["known"]) for row in to_rows(model.predict(*query, top=1000, include_known=True)))
    note = f"{pluralize(known, 'known answer')} not shown. Use --include-known to show all answers."
    assert (note in " ".join(text.split())) == (known > 0)
    assert "not shown" not in call("predict", run, *options(query), "--include-known")[1]


def test_a_query_without_answers_is_printed(call: Call, run: Path) -> None:
    code, text, _ = call("predict", run, "--head", "man2", "--relation", "parent", "--min-probability", 1)
    assert code == 0
    assert "parent(man2, ?)" in text


def test_a_file_of_queries_is_answered(call: Call, run: Path, model: PLogicNet, tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("".join("\t".join(part or "?" for part in query) + "\n" for query in QUERIES))
    expected = [
        row | {"query": number}
        for number, query in enumerate(QUERIES, 1)
        for row in to_rows(model.predict(*query, top=3))
    ]
    assert predict_rows(call, "predict", run, "--queries", file, "--top", 3) == expected
    code, text, _ = call("predict", run, "--queries", file, "--top", 1)
    assert code == 0
    assert all(heading in text for heading in ("parent(man2, ?)", "sibling(?, a0)", "?(a5, b5)"))
    out = tmp_path / "answers.parquet"
    summary = call_json(call, "predict", run, "--queries", file, "--top", 3, "--out", out)
    assert (summary["out"], summary["written"]) == (str(out), len(expected))
    assert pq.read_table(out).to_pylist() == expected


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl", ".parquet", ".tsv.gz", ".csv.gz", ".jsonl.gz", ".nt"])
def test_a_written_completion_gets_the_same_probabilities_again(
    call: Call, run: Path, model: PLogicNet, tmp_path: Path, ending: str
) -> None:
    if ending == ".nt":
        pytest.importorskip("pyoxigraph")
    out, again = tmp_path / f"missing{ending}", tmp_path / f"again{ending}"
    summary = call_json(call, "predict", run, "--complete", "--min-probability", 0.001, "--out", out)
    expected = to_rows(model.complete(0.001))
    assert summary["written"] == len(expected) > 20
    assert summary["predictions"] == expected[:10]
    rows = predict_rows(call, "predict", run, "--triples", out)
    assert sorted(rows, key=str) == sorted(expected, key=str)
    call_json(call, "predict", run, "--triples", out, "--out", again)
    assert out.read_bytes() == again.read_bytes()


def test_completion_prints_the_most_probable_triples(call: Call, run: Path, model: PLogicNet, tmp_path: Path) -> None:
    expected = to_rows(model.complete(0.0))
    code, text, stderr = call("predict", run, "--complete", "--min-probability", 0)
    assert code == 0
    assert re.search(
        r"Completing: conclusions of rules and \d+ queries with up to \d+ answers? each, about 1 s\.", stderr
    )
    recall = model.metrics["completion"][RECALLS.index(0.9)]["recall"]
    assert f"{recall:.3f} of the facts of valid are among such candidates" in stderr
    assert "--out FILE for all" in stderr
    assert len(re.findall("rules|neural model", text.partition("\nq:")[0])) == 10
    assert predict_rows(call, "predict", run, "--complete", "--min-probability", 0, "--top", 7) == expected[:7]
    out = tmp_path / "best.jsonl"
    call_json(call, "predict", run, "--complete", "--min-probability", 0, "--top", 7, "--out", out)
    assert [json.loads(line) for line in out.read_text().splitlines()] == expected[:7]
    all_pairs = call_json(call, "predict", run, "--complete", "--min-probability", 0, "--all-pairs", "--out", out)
    n, m = len(model.fitted.graph.entities), len(model.fitted.graph.relations)
    assert all_pairs["written"] == n * n * m - sum(len(model.fitted.graph.split(s)) for s in SPLITS) > len(expected)


def test_a_higher_recall_needs_more_candidates(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "missing.jsonl"

    def written(*arguments: object) -> int:
        answer = call_json(call, "predict", run, "--complete", "--min-probability", 0, "--out", out, *arguments)
        return int(answer["written"])

    assert written("--recall", 0.5) < written() == written("--recall", 0.9) <= written("--recall", 0.99)
    for arguments in (("--complete", "--all-pairs"), ("--head", "man0", "--relation", "parent")):
        code, _, stderr = call("predict", run, *arguments, "--recall", 0.5)
        assert code == 2
        assert "--recall needs --complete" in stderr


@pytest.mark.parametrize("side", ["head", "tail"])
def test_an_entity_alone_gets_its_missing_facts(call: Call, run: Path, model: PLogicNet, side: str) -> None:
    found = predict_rows(call, "predict", run, f"--{side}", "woman1", "--top", 4)
    assert found == to_rows(model.missing_about("woman1", as_tail=side == "tail", top=4))
    assert {row[side] for row in found} == {"woman1"}
    assert call("predict", run, "--relation", "parent")[0] == 2
    assert "Did you mean 'woman1'" in call("predict", run, f"--{side}", "woman11")[2]


def test_the_title_contains_the_number_of_triples(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "missing.tsv"
    complete = ("predict", run, "--complete", "--min-probability", 0.001, "--out", out)
    text = call(*complete)[1]
    written = len(out.read_text().splitlines()) - 1
    assert written > 20
    assert text.startswith(f"The 10 most probable of {written} triples")
    assert f"{written} predictions written to" in text
    seven = call(*complete, "--top", 7)[1]
    assert seven.startswith("7 triples")
    assert "7 predictions written to" in seven
    one = call(*complete, "--top", 1)[1]
    assert one.startswith("1 triple ")
    assert "1 prediction written to" in one


def test_a_written_completion_is_sorted_by_relation_head_and_probability(
    call: Call, run: Path, model: PLogicNet, tmp_path: Path
) -> None:
    out, graph = tmp_path / "missing.parquet", model.fitted.graph
    call_json(call, "predict", run, "--complete", "--min-probability", 0.1, "--out", out)
    order = [
        (graph.relations.id(row["relation"]), graph.entities.id(row["head"]), -row["probability"])
        for row in pq.read_table(out).to_pylist()
    ]
    assert order == sorted(order)


def test_triples_keep_their_order_unless_top_is_given(call: Call, run: Path, model: PLogicNet, tmp_path: Path) -> None:
    graph = model.fitted.graph
    file = tmp_path / "triples.csv"
    file.write_text("".join(",".join(graph.names(t)) + "\n" for t in graph.test))
    rows = predict_rows(call, "predict", run, "--triples", file)
    assert rows == to_rows(model.predict_triples(graph.test))
    best = predict_rows(call, "predict", run, "--triples", file, "--top", 3)
    assert best == sorted(rows, key=lambda row: -row["probability"])[:3]
    probable = predict_rows(call, "predict", run, "--triples", file, "--min-probability", best[-1]["probability"])
    assert [row for row in rows if row in best] == probable


def test_the_format_can_be_given_by_an_option(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.dat"
    call_json(call, "predict", run, *options(QUERIES[0]), "--out", out, "--format", "jsonl")
    assert all(json.loads(line)["head"] == "man2" for line in out.read_text().splitlines())
    assert [p.name for p in tmp_path.iterdir()] == ["out.dat"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (),
            "expected two of --head, --relation and --tail, or one entity, or --queries FILE, or --triples FILE, or"
            " --complete, got none of them",
        ),
        (("--relation", "parent"), "or --complete, got --relation"),
        (("--head", "man1", "--include-known"), "--include-known works only with queries"),
        (("--head", "man1", "--relation", "parent", "--tail", "a0"), "or --complete, got --head, --relation, --tail"),
        (("--complete", "--triples", "x.tsv"), "or --complete, got --triples, --complete"),
        (("--queries", "x.tsv", "--head", "man1"), "or --complete, got --head, --queries"),
        (("--head", "man1", "--tail", "a0", "--all-pairs"), "--all-pairs needs --complete"),
        (("--complete", "--include-known"), "--include-known works only with queries"),
        (("--complete", "--format", "csv"), "--format needs --out FILE"),
        (("--complete", "--out", "x.xls"), "x.xls: unknown file format. Use one of the suffixes .tsv"),
        (
            ("--complete", "--out", "x.tsv", "--format", "xls"),
            "--format must be one of csv, jsonl, nt, parquet, tsv, got 'xls'",
        ),
        (("--complete", "--out", "no/x.tsv"), "--out no/x.tsv: directory no does not exist"),
        (("--complete", "--min-probability", "1.5"), "--min-probability"),
        (("--complete", "--top", "0"), "--top"),
        (("--queries", "no.tsv"), "no.tsv: no such file"),
        (("--queries", "."), "expected a file of triples, found a directory"),
        (("--head", "mann1", "--relation", "parent"), "unknown entity 'mann1'. Did you mean"),
    ],
)
def test_invalid_options_are_reported(
    call: Call, run: Path, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, stderr = call("predict", run, *arguments)
    assert (code, out) == (2, "")
    assert message in stderr
    assert not list(tmp_path.iterdir())


def test_an_invalid_file_of_queries_keeps_the_old_output(call: Call, run: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "answers.tsv", tmp_path / "queries.tsv"
    out.write_text("before")
    file.write_text("man1\tparent\t?\nman1\tparent\ta0\n")
    code, _, stderr = call("predict", run, "--queries", file, "--out", out)
    assert code == 2
    assert f"{file}, line 2: no part is missing" in stderr
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answers.tsv", "queries.tsv"]


def test_export_writes_all_parts(call: Call, run: Path, tmp_path: Path) -> None:
    summary = call_json(call, "export", run, "--out", tmp_path / "out", "--min-probability", 0.3, "--format", "parquet")
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert set(summary["files"]) == files
    assert files == {
        *("entities.npy", "entities.tsv", "relations.npy", "relations.tsv", "platt.npy"),
        *("rules.txt", "predictions.parquet", "completed.parquet"),
    }
    assert summary["predictions"]["predictions"] == pq.read_metadata(tmp_path / "out" / "predictions.parquet").num_rows
    code, text, _ = call("export", run, "--out", tmp_path / "rules", "--parts", "rules", "--fixed-weights")
    assert code == 0
    assert text.strip() == str(tmp_path / "rules" / "rules.txt")
    code, _, stderr = call("refit", run, "--rules", tmp_path / "rules" / "rules.txt")
    assert code == 0, stderr
    code, _, stderr = call("export", run, "--out", tmp_path / "rules")
    assert code == 2
    assert "the directory is not empty" in stderr
