"""What is picked for the report against slow obvious ways of picking it."""

from dataclasses import replace

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.evaluation.metrics import summary
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.explanation import Contribution, Path
from plogicnet.report import findings
from plogicnet.report.figures import rank_shares
from plogicnet.report.findings import Ranked, ask, ranked
from plogicnet.report.markup import Names
from plogicnet.report.reasons import prediction_card
from small import fitted


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    """One that makes mistakes: a short training, by which alone it ranks."""
    return fitted({"neural.steps": 20, "em.lambda": 0.0})


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
        truth = query.truth.triple
        for answer in query.answers:
            kept = slice(1, 3) if query.side == "head" else slice(0, 2)
            assert answer.triple[kept] == truth[kept]
            assert answer.triple not in known
        assert [a.probability for a in query.answers] == sorted((a.probability for a in query.answers), reverse=True)


def test_believed_by_rules_are_the_most_doubted(model: PLogicNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "SHORTLIST", 3)
    hidden = model.judge(model.fitted.outcome.rule_model.groundings.hidden)
    halves = [(p.p_w, p.q or 0.0, p.triple) for p in hidden]
    doubted = sorted(halves, key=lambda half: -half[0] * (1 - half[1]))
    expected = {triple for p_w, q, triple in doubted[:3] if p_w > q}
    found = findings.believed_by_rules(model)
    assert {why.triple for why in found} == expected
    assert [why.probability for why in found] == sorted((why.probability for why in found), reverse=True)
    assert all(why.reached and not why.known for why in found)


def test_believed_by_the_neural_model_prefers_q_without_rules(model: PLogicNet, told: Ranked) -> None:
    found = findings.believed_by_neural(model, ask(model, told))
    assert found
    assert all(why.q is not None and why.q > why.p_w for why in found)
    assert not any(why.known for why in found)


def test_ranked_badly_are_reached_and_worst(model: PLogicNet, told: Ranked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "BADLY", 1)
    worst: dict[str, float] = {}
    for row, judged in enumerate(told.judged):
        for side in (0, 1):
            place = float(told.ranks["plogicnet*"].realistic[row, side])
            if judged.in_hidden and place > 1:
                worst[judged.relation] = max(worst.get(judged.relation, 0.0), place)
    found = findings.ranked_badly(model, told)
    assert found
    assert [asked.places["plogicnet*"] for asked, _ in found] == sorted(worst.values(), reverse=True)[: findings.SHOWN]
    assert all(why.rules for _, why in found)


def test_confidently_wrong_beats_a_truth_that_is_not_first(model: PLogicNet, told: Ranked) -> None:
    asked = ask(model, told)
    found = findings.confidently_wrong(model, asked)
    assert found
    for query, why in found:
        assert why.probability > query.truth.probability
        assert query.places["plogicnet*"] > 1
    top = max(
        q.answers[0].probability
        for q in asked
        if q.answers and q.answers[0].probability > q.truth.probability and q.places["plogicnet*"] > 1
    )
    assert found[0][1].probability == pytest.approx(top, rel=1e-9)


def test_no_rule_is_the_reason_for_what_rules_doubt(model: PLogicNet) -> None:
    entry = Contribution("knows(X, Y) => likes(X, Y)", 1.0, 1, 0, 1.0, ((("anna", "knows", "ben"),),))
    some = model.explain("man0", "parent", "a0")
    doubted = replace(some, triple=("anna", "likes", "ben"), rules=(entry,), neighbours=(), q=0.9, p_w=0.02)
    names = Names(rules={entry.rule: model.rules.rules[0]})
    said = prediction_card(doubted, names)
    assert "the rules doubt it" in said
    assert "since" not in said
    assert "since" in prediction_card(replace(doubted, p_w=0.95), names)
    by_paths = replace(doubted, paths=(Path((("anna", "knows", "ben"),), 0.8),))
    said = prediction_card(by_paths, names)
    assert "the neural model reaches it by" in said
    assert "Paths from head to tail" in said
    assert "0.80" in said


def test_a_query_that_every_answer_is_known_to() -> None:
    rows = [(a, "knows", b) for a in ("anna", "ben") for b in ("anna", "ben")]
    graph = KnowledgeGraph.from_names(rows, valid=[("ben", "likes", "anna")], test=[("anna", "knows", "ben")])
    model = fitted({"neural.steps": 1, "neural.batch": 1}, graph)
    told = ranked(model, "test")
    asked = ask(model, told)
    assert [query.answers for query in asked] == [[], []]
    assert findings.confidently_wrong(model, asked) == []
