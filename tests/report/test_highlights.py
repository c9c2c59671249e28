"""The selection of predictions and mistakes for the report, compared with brute force."""

from dataclasses import replace

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.explanation import Contribution, Path
from plogicnet.report import highlights
from plogicnet.report.figures import rank_shares
from plogicnet.report.highlights import RankedTriples, answer_queries, rank_split
from plogicnet.report.markup import NameFormatter
from plogicnet.report.reasons import prediction_card
from small import fitted


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    """Train a model that makes mistakes: few steps, and ranks by the neural model alone."""
    return fitted({"neural.steps": 20, "em.lambda": 0.0})


@pytest.fixture(scope="module")
def ranked(model: PLogicNet) -> RankedTriples:
    return rank_split(model, "test")


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_sample_has_the_ranks_of_the_whole_split(
    model: PLogicNet, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    whole = rank_split(model, split)
    for name, ranks in whole.ranks.items():
        saved: object = model.metrics[split]
        assert isinstance(saved, dict)
        assert compute_metrics(ranks.realistic)["mrr"] == saved[name]["mrr"]
    monkeypatch.setattr(highlights, "MAX_RANKED", 7)
    sample = rank_split(model, split)
    assert (len(sample.triples), sample.total) == (7, len(whole.triples))
    rows = [next(i for i, t in enumerate(whole.triples.tolist()) if t == triple) for triple in sample.triples.tolist()]
    for name, ranks in sample.ranks.items():
        np.testing.assert_array_equal(ranks.realistic, whole.ranks[name].realistic[rows])


def test_bins_of_ranks_add_up_to_hits(ranked: RankedTriples) -> None:
    for ranks in ranked.ranks.values():
        shares = rank_shares(ranks.realistic, [1, 3, 10, 30])
        metrics = compute_metrics(ranks.realistic)
        expected = [metrics[f"hits_at_{k}"] for k in (1, 3, 10)]
        np.testing.assert_allclose(np.cumsum(shares), [*expected, 1.0])


def test_answers_are_in_no_split(model: PLogicNet, ranked: RankedTriples) -> None:
    graph = model.fitted.graph
    known = {graph.names(t) for split in ("train", "valid", "test") for t in graph.split(split)}
    results = answer_queries(model, ranked)
    assert len(results) == 2 * len(graph.test)
    for result in results:
        correct = result.correct.triple
        for answer in result.answers:
            kept = slice(1, 3) if result.side == "head" else slice(0, 2)
            assert answer.triple[kept] == correct[kept]
            assert answer.triple not in known
        assert [a.probability for a in result.answers] == sorted((a.probability for a in result.answers), reverse=True)


def test_facts_supported_by_rules_have_the_highest_p_w_times_one_minus_q(
    model: PLogicNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(highlights, "SHORTLIST", 3)
    hidden = model.predict_triples(model.fitted.outcome.rule_model.groundings.hidden)
    probabilities = [(p.p_w, p.q or 0.0, p.triple) for p in hidden]
    disputed = sorted(probabilities, key=lambda p: -p[0] * (1 - p[1]))
    expected = {triple for p_w, q, triple in disputed[:3] if p_w > q}
    found = highlights.supported_by_rules(model)
    assert {why.triple for why in found} == expected
    assert [why.probability for why in found] == sorted((why.probability for why in found), reverse=True)
    assert all(why.reached and not why.known for why in found)


def test_facts_supported_by_the_neural_model_have_a_higher_q_than_p_w(model: PLogicNet, ranked: RankedTriples) -> None:
    found = highlights.supported_by_neural(model, answer_queries(model, ranked))
    assert found
    assert all(why.q is not None and why.q > why.p_w for why in found)
    assert not any(why.known for why in found)


def test_badly_ranked_triples_are_concluded_by_a_rule_and_the_worst_come_first(
    model: PLogicNet, ranked: RankedTriples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(highlights, "MAX_GOOD_RANK", 1)
    worst: dict[str, float] = {}
    for row, prediction in enumerate(ranked.predictions):
        for side in (0, 1):
            rank = float(ranked.ranks["plogicnet*"].realistic[row, side])
            if prediction.in_hidden and rank > 1:
                worst[prediction.relation] = max(worst.get(prediction.relation, 0.0), rank)
    found = highlights.badly_ranked(model, ranked)
    assert found
    assert [result.ranks["plogicnet*"] for result, _ in found] == sorted(worst.values(), reverse=True)[
        : highlights.MAX_SHOWN
    ]
    assert all(why.rules for _, why in found)


def test_wrong_answers_are_more_probable_than_the_correct_one(model: PLogicNet, ranked: RankedTriples) -> None:
    results = answer_queries(model, ranked)
    found = highlights.wrong_answers(model, results)
    assert found
    for result, why in found:
        assert why.probability > result.correct.probability
        assert result.ranks["plogicnet*"] > 1
    top = max(
        q.answers[0].probability
        for q in results
        if q.answers and q.answers[0].probability > q.correct.probability and q.ranks["plogicnet*"] > 1
    )
    assert found[0][1].probability == pytest.approx(top, rel=1e-9)


def test_a_rule_is_not_the_reason_if_p_w_is_low(model: PLogicNet) -> None:
    entry = Contribution("knows(X, Y) => likes(X, Y)", False, 1.0, 1, 0, 1.0, 1.0, ((("anna", "knows", "ben"),),))
    base = model.explain("man0", "parent", "a0")
    disputed = replace(base, triple=("anna", "likes", "ben"), rules=(entry,), neighbours=(), q=0.9, p_w=0.02)
    names = NameFormatter(rules={entry.rule: model.rules.rules[0]})
    card = prediction_card(disputed, names)
    assert "the neural model gives the triple a probability of 0.900, the rules 0.020" in card
    assert "by the rule" not in card
    assert "by the rule" in prediction_card(replace(disputed, p_w=0.95), names)
    by_paths = replace(disputed, paths=(Path((("anna", "knows", "ben"),), 0.8),))
    card = prediction_card(by_paths, names)
    assert "The neural model supports the triple by the path" in card
    assert "Paths from head to tail" in card
    assert "0.80" in card


def test_a_query_with_only_known_answers_has_no_results() -> None:
    rows = [(a, "knows", b) for a in ("anna", "ben") for b in ("anna", "ben")]
    graph = KnowledgeGraph.from_names(rows, valid=[("ben", "likes", "anna")], test=[("anna", "knows", "ben")])
    model = fitted({"neural.steps": 1, "neural.batch": 1}, graph)
    ranked = rank_split(model, "test")
    results = answer_queries(model, ranked)
    assert [result.answers for result in results] == [[], []]
    assert highlights.wrong_answers(model, results) == []
