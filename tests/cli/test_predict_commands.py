"""predict and export through the real program, in this process: questions, files, formats, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from calling import Call, answer
from plogicnet import PLogicNet
from plogicnet.model import Prediction
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


def json_of(found: list[Prediction]) -> list[Row]:
    return [p.to_json() for p in found]


def rows_of(call: Call, *words: object) -> list[Row]:
    rows: list[Row] = answer(call, *words)["predictions"]
    return rows


QUERIES: list[Query] = [("man2", "parent", None), (None, "sibling", "a0"), ("a5", None, "b5")]


def options(query: Query) -> list[str]:
    given = zip(("--head", "--relation", "--tail"), query, strict=True)
    return [word for name, value in given if value is not None for word in (name, value)]


@pytest.mark.parametrize("query", QUERIES)
def test_one_query_of_each_kind(call: Call, run: Path, model: PLogicNet, query: Query) -> None:
    for more in ([], ["--include-known"]):
        expected = json_of(model.predict(*query, top=4, include_known=bool(more)))
        assert rows_of(call, "predict", run, *options(query), "--top", 4, *more) == expected
    assert len(rows_of(call, "predict", run, *options(query))) <= 10
    least = json_of(model.predict(*query, top=4))[1]["probability"]
    few = rows_of(call, "predict", run, *options(query), "--min-probability", least)
    assert few == json_of(model.predict(*query, top=len(few)))
    code, text, _ = call("predict", run, *options(query), "--top", 2)
    assert code == 0
    assert "probability" in text
    assert "(man2, ?)" in text or "(?, a0)" in text or "?(a5, b5)" in text
    known = sum(bool(row["known"]) for row in json_of(model.predict(*query, top=1000, include_known=True)))
    assert (f"{known} more known already (--include-known shows them)" in text) == (known > 0)
    assert "known already" not in call("predict", run, *options(query), "--include-known")[1]


def test_a_query_without_an_answer_is_shown_all_the_same(call: Call, run: Path) -> None:
    code, text, _ = call("predict", run, "--head", "man2", "--relation", "parent", "--min-probability", 1)
    assert code == 0
    assert "parent(man2, ?)" in text


def test_a_file_of_queries(call: Call, run: Path, model: PLogicNet, tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("".join("\t".join(part or "?" for part in query) + "\n" for query in QUERIES))
    expected = [
        row | {"query": number}
        for number, query in enumerate(QUERIES, 1)
        for row in json_of(model.predict(*query, top=3))
    ]
    assert rows_of(call, "predict", run, "--queries", file, "--top", 3) == expected
    code, text, _ = call("predict", run, "--queries", file, "--top", 1)
    assert code == 0
    assert all(title in text for title in ("parent(man2, ?)", "sibling(?, a0)", "?(a5, b5)"))
    out = tmp_path / "answers.parquet"
    told = answer(call, "predict", run, "--queries", file, "--top", 3, "--out", out)
    assert (told["out"], told["written"]) == (str(out), len(expected))
    assert pq.read_table(out).to_pylist() == expected


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl", ".parquet", ".tsv.gz", ".csv.gz", ".jsonl.gz", ".nt"])
def test_completion_to_a_file_which_is_judged_again_to_the_same(
    call: Call, run: Path, model: PLogicNet, tmp_path: Path, ending: str
) -> None:
    if ending == ".nt":
        pytest.importorskip("pyoxigraph")
    out, again = tmp_path / f"missing{ending}", tmp_path / f"again{ending}"
    told = answer(call, "predict", run, "--complete", "--min-probability", 0.1, "--out", out)
    best = json_of(model.complete(0.1))
    assert told["written"] == len(best) > 20
    assert told["predictions"] == best[:10]
    judged = rows_of(call, "predict", run, "--triples", out)
    assert sorted(judged, key=str) == sorted(best, key=str)
    answer(call, "predict", run, "--triples", out, "--out", again)
    assert out.read_bytes() == again.read_bytes()


def test_completion_on_the_screen_and_of_the_best(call: Call, run: Path, model: PLogicNet, tmp_path: Path) -> None:
    best = json_of(model.complete(0.0))
    code, text, said = call("predict", run, "--complete", "--min-probability", 0)
    assert code == 0
    assert "candidates (pairs of entities that a relation was seen with, and what rules conclude), about 1 s" in said
    assert "--out FILE writes all" in said
    assert text.count("by rules") + text.count("by neural model") == 10
    assert rows_of(call, "predict", run, "--complete", "--min-probability", 0, "--top", 7) == best[:7]
    out = tmp_path / "best.jsonl"
    answer(call, "predict", run, "--complete", "--min-probability", 0, "--top", 7, "--out", out)
    assert [json.loads(line) for line in out.read_text().splitlines()] == best[:7]
    every = answer(call, "predict", run, "--complete", "--min-probability", 0, "--all-pairs", "--out", out)
    n, m = len(model.fitted.graph.entities), len(model.fitted.graph.relations)
    assert every["written"] == n * n * m - len(model.fitted.graph.train) > len(best)


def test_the_title_says_of_how_many_the_shown_are_the_best(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "missing.tsv"
    complete = ("predict", run, "--complete", "--min-probability", 0.1, "--out", out)
    text = call(*complete)[1]
    written = len(out.read_text().splitlines()) - 1
    assert written > 20
    assert text.startswith(f"the 10 most probable of {written} triples")
    assert f"{written} predictions written to" in text
    few = call(*complete, "--top", 7)[1]
    assert few.startswith("7 triples")
    assert "7 predictions written to" in few
    one = call(*complete, "--top", 1)[1]
    assert one.startswith("1 triple ")
    assert "1 prediction written to" in one


def test_a_completion_is_written_by_relation_and_head_and_for_each_the_most_probable_first(
    call: Call, run: Path, model: PLogicNet, tmp_path: Path
) -> None:
    out, graph = tmp_path / "missing.parquet", model.fitted.graph
    answer(call, "predict", run, "--complete", "--min-probability", 0.1, "--out", out)
    order = [
        (graph.relations.id(row["relation"]), graph.entities.id(row["head"]), -row["probability"])
        for row in pq.read_table(out).to_pylist()
    ]
    assert order == sorted(order)


def test_triples_in_their_order_or_the_best_of_them(call: Call, run: Path, model: PLogicNet, tmp_path: Path) -> None:
    graph = model.fitted.graph
    file = tmp_path / "asked.csv"
    file.write_text("".join(",".join(graph.names(t)) + "\n" for t in graph.test))
    judged = rows_of(call, "predict", run, "--triples", file)
    assert judged == json_of(model.judge(graph.test))
    best = rows_of(call, "predict", run, "--triples", file, "--top", 3)
    assert best == sorted(judged, key=lambda row: -row["probability"])[:3]
    likely = rows_of(call, "predict", run, "--triples", file, "--min-probability", best[-1]["probability"])
    assert [row for row in judged if row in best] == likely


def test_a_format_may_be_named(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.dat"
    answer(call, "predict", run, *options(QUERIES[0]), "--out", out, "--format", "jsonl")
    assert all(json.loads(line)["head"] == "man2" for line in out.read_text().splitlines())
    assert [p.name for p in tmp_path.iterdir()] == ["out.dat"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "ask one thing: two of --head, --relation, --tail; or --queries FILE; or --triples FILE; or --complete"),
        (("--head", "man1"), "ask one thing"),
        (("--head", "man1", "--relation", "parent", "--tail", "a0"), "ask one thing"),
        (("--complete", "--triples", "x.tsv"), "ask one thing"),
        (("--queries", "x.tsv", "--head", "man1"), "ask one thing"),
        (("--head", "man1", "--tail", "a0", "--all-pairs"), "--all-pairs goes with --complete"),
        (("--complete", "--include-known"), "--include-known is for queries"),
        (("--complete", "--format", "csv"), "--format goes with --out FILE"),
        (("--complete", "--out", "x.xls"), "x.xls: its ending names no format; end it with one of .tsv"),
        (("--complete", "--out", "x.tsv", "--format", "xls"), "format: 'xls' is not allowed"),
        (("--complete", "--out", "no/x.tsv"), "--out no/x.tsv: there is no directory no"),
        (("--complete", "--min-probability", "1.5"), "--min-probability"),
        (("--complete", "--top", "0"), "--top"),
        (("--queries", "no.tsv"), "no.tsv: no such file"),
        (("--queries", "."), "a directory where a file of triples is meant"),
        (("--head", "mann1", "--relation", "parent"), "unknown entity 'mann1'. Did you mean"),
    ],
)
def test_what_is_refused(
    call: Call, run: Path, words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, said = call("predict", run, *words)
    assert (code, out) == (2, "")
    assert message in said
    assert not list(tmp_path.iterdir())


def test_a_bad_file_of_queries_leaves_the_old_answers(call: Call, run: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "answers.tsv", tmp_path / "queries.tsv"
    out.write_text("before")
    file.write_text("man1\tparent\t?\nman1\tparent\ta0\n")
    code, _, said = call("predict", run, "--queries", file, "--out", out)
    assert code == 2
    assert f"{file}, line 2: no part is open" in said
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answers.tsv", "queries.tsv"]


def test_export(call: Call, run: Path, tmp_path: Path) -> None:
    told = answer(call, "export", run, "--out", tmp_path / "out", "--min-probability", 0.3, "--format", "parquet")
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert set(told["files"]) == files
    assert files == {
        *("entities.npy", "entities.tsv", "relations.npy", "relations.tsv", "platt.npy"),
        *("rules.txt", "predictions.parquet", "completed.parquet"),
    }
    assert told["predictions"]["predictions"] == pq.read_metadata(tmp_path / "out" / "predictions.parquet").num_rows
    code, text, _ = call("export", run, "--out", tmp_path / "rules", "--parts", "rules", "--fixed-weights")
    assert code == 0
    assert text.strip() == str(tmp_path / "rules" / "rules.txt")
    code, _, said = call("refit", run, "--rules", tmp_path / "rules" / "rules.txt")
    assert code == 0, said
    code, _, said = call("export", run, "--out", tmp_path / "rules")
    assert code == 2
    assert "the directory is not empty" in said
