"""What is picked for the report against slow obvious ways of picking it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from plogicnet import PLogicNet
from plogicnet.evaluation import summary
from plogicnet.graph import KnowledgeGraph
from plogicnet.model import Prediction
from plogicnet.report import findings
from plogicnet.report.figures import rank_shares
from plogicnet.report.findings import Explained, Ranked, ask, names_of, ranked
from plogicnet.report.markup import Names
from plogicnet.report.reasons import prediction_card
from small import fitted


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    """One that makes mistakes: a short training, by which alone it ranks."""
    return fitted({"neural.steps": 20, "em.lambda": 0.0})


@pytest.fixture(scope="module")
def run(model: PLogicNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    model.save(path)
    return path


@pytest.fixture(scope="module")
def told(model: PLogicNet) -> Ranked:
    return ranked(model, "test")


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_sample_is_ranked_as_in_the_whole(model: PLogicNet, monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    whole = ranked(model, split)
    for system, ranks in whole.ranks.items():
        figures = summary(ranks.realistic)
        told: object = model.metrics[split]
        assert isinstance(told, dict)
        assert figures["mrr"] == told[system]["mrr"]
    monkeypatch.setattr(findings, "RANKED_MOST", 7)
    part = ranked(model, split)
    assert (len(part.triples), part.of) == (7, len(whole.triples))
    rows = [next(i for i, t in enumerate(whole.triples.tolist()) if t == own) for own in part.triples.tolist()]
    for system, ranks in part.ranks.items():
        np.testing.assert_array_equal(ranks.realistic, whole.ranks[system].realistic[rows])


def test_bins_of_ranks_add_up_to_hits(told: Ranked) -> None:
    for ranks in told.ranks.values():
        shares = rank_shares(ranks.realistic, [1, 3, 10, 30])
        figures = summary(ranks.realistic)
        expected = [figures[f"hits_at_{k}"] for k in (1, 3, 10)]
        np.testing.assert_allclose(np.cumsum(shares), [*expected, 1.0])


def test_answers_are_in_no_split(model: PLogicNet, told: Ranked) -> None:
    graph = model.fitted.graph
    known = {graph.names(t) for split in ("train", "valid", "test") for t in graph.split(split)}
    asked = ask(model, told)
    assert len(asked) == 2 * len(graph.test)
    for query in asked:
        truth = names_of(query.truth)
        for answer in query.answers:
            kept = slice(1, 3) if query.side == "head" else slice(0, 2)
            assert names_of(answer)[kept] == truth[kept]
            assert names_of(answer) not in known
        assert [a.probability for a in query.answers] == sorted((a.probability for a in query.answers), reverse=True)


def test_believed_by_rules_are_the_most_doubted(model: PLogicNet, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "SHORTLIST", 3)
    hidden = pq.read_table(run / "hidden.parquet").to_pylist()
    doubted = sorted(hidden, key=lambda row: -row["p_w"] * (1 - row["q"]))
    expected = {(r["head"], r["relation"], r["tail"]) for r in doubted[:3] if r["p_w"] > r["q"]}
    found = findings.believed_by_rules(model, run)
    assert {e.names for e in found} == expected
    assert [e.judged.probability for e in found] == sorted((e.judged.probability for e in found), reverse=True)
    for e in found:
        assert e.why["triple"] == list(e.names)
        assert e.judged.in_hidden


def test_believed_by_vectors_prefers_q_without_rules(model: PLogicNet, run: Path, told: Ranked) -> None:
    found = findings.believed_by_vectors(model, run, ask(model, told))
    assert found
    assert all(e.judged.q is not None and e.judged.q > e.judged.p_w for e in found)
    assert not any(e.judged.known for e in found)


def test_ranked_badly_are_reached_and_worst(model: PLogicNet, told: Ranked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "BADLY", 1)
    worst: dict[str, float] = {}
    for row, judged in enumerate(told.judged):
        for side in (0, 1):
            place = told.place("plogicnet*", row, side)
            if judged.in_hidden and place > 1:
                worst[judged.relation] = max(worst.get(judged.relation, 0.0), place)
    found = findings.ranked_badly(model, told)
    assert found
    assert [m.places["plogicnet*"] for m in found] == sorted(worst.values(), reverse=True)[: findings.SHOWN]
    assert all(m.explained.why["rules"] for m in found)


def test_confidently_wrong_beats_a_truth_that_is_not_first(model: PLogicNet, told: Ranked) -> None:
    asked = ask(model, told)
    found = findings.confidently_wrong(model, told, asked)
    assert found
    for mistake in found:
        assert mistake.explained.judged.probability > mistake.asked.truth.probability
        assert mistake.places["plogicnet*"] > 1
    top = max(
        q.answers[0].probability
        for q in asked
        if q.answers
        and q.answers[0].probability > q.truth.probability
        and told.place("plogicnet*", q.row, ("head", "tail").index(q.side)) > 1
    )
    assert found[0].explained.judged.probability == top


def test_no_rule_is_the_reason_for_what_rules_doubt() -> None:
    entry = {"rule": "knows(X, Y) => likes(X, Y)", "weight": 1.0, "groundings": 1, "broken": 0, "contribution": 1.0}
    entry["premises"] = [[["anna", "knows", "ben"]]]
    why: dict[str, Any] = {"triple": ["anna", "likes", "ben"], "base": -5.0, "log_odds": -4.0, "aggregate": "sum"}
    why |= {"rules": [entry], "neighbours": []}
    doubted = Prediction("anna", "likes", "ben", 0.5, 0.9, 0.02, False, True)
    said = prediction_card(Explained(doubted, None, why), Names(), {})
    assert "the rules doubt it" in said
    assert "since" not in said
    believed = replace(doubted, p_w=0.95)
    assert "since" in prediction_card(Explained(believed, None, why), Names(), {})


def test_examples_follow_from_facts(model: PLogicNet) -> None:
    graph = model.fitted.graph
    facts = {graph.names(t) for t in graph.train}
    test = {graph.names(t) for t in graph.test}
    for rule in model.fitted.outcome.rule_model.rules.rules:
        examples = findings.examples_of(model, rule)
        assert examples
        for example in examples:
            assert set(example.premises) <= facts
            assert example.known == (example.hypothesis in facts)
            assert (example.found_in == "test") == (example.hypothesis in test)
            assert [p[1] for p in example.premises] == [atom.relation for atom in rule.body][: len(example.premises)]


def test_a_query_that_every_answer_is_known_to() -> None:
    rows = [(a, "knows", b) for a in ("anna", "ben") for b in ("anna", "ben")]
    graph = KnowledgeGraph.from_names(rows, valid=[("ben", "likes", "anna")], test=[("anna", "knows", "ben")])
    model = fitted({"neural.steps": 1, "neural.batch": 1}, graph)
    told = ranked(model, "test")
    asked = ask(model, told)
    assert [query.answers for query in asked] == [[], []]
    assert findings.confidently_wrong(model, told, asked) == []
