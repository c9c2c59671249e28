"""The mixture of several neural models: contract, weights, resumption, new entities, settings and commands."""

import json
import math
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calling import Call, call_json
from contracts.models import check_model
from plogicnet.config import Config
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph, Side, add_facts, as_triples
from plogicnet.neural.mixture import weights
from plogicnet.neural.mixture.model import MixtureModel
from plogicnet.neural.mixture.weights import QueryScores, Weights, fit_weights
from plogicnet.neural.protocol import Checkpoint, Examples, ScoredPath
from plogicnet.neural.registry import make_model, model_kind
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance, no_progress
from plogicnet.tuning.space import search_spaces
from small import TableModel, small_graph, write_small_graph

PATHS = "{model: Paths, steps: 4, paths: {dim: 4, layers: 1}}"
DISTMULT = "{model: DistMult, learning_rate: 0.3, vectors: {dim: 8, recipe: one_vs_all}}"
ASSIGNMENTS = ["device=cpu", "threads=1", "neural.steps=20", "neural.batch=16", f"neural.mixture=[{PATHS}, {DISTMULT}]"]
CONFIG = Config().with_assignments(ASSIGNMENTS)
EXAMPLES = Examples.of(small_graph().train)


def mixture(graph: KnowledgeGraph) -> MixtureModel:
    model = make_model(graph, CONFIG)
    assert isinstance(model, MixtureModel)
    return model


def test_the_mixture_fulfils_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_better_part", lambda *_: None)  # both parts are used
    check_model(mixture, tmp_path)


# Weights.


def random_graph(seed: int, n: int = 8, triples: int = 40, relations: int = 2) -> KnowledgeGraph:
    rng = np.random.default_rng(seed)
    rows = as_triples([(h, r, t) for h in range(n) for r in range(relations) for t in range(n)])
    chosen = rng.permutation(rows)[: 2 * triples]
    names = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in [*[(i, 0, i) for i in range(n)], (0, relations - 1, 0)]]
    graph = KnowledgeGraph.from_names(names)
    return replace(graph, train=chosen[:triples], valid=chosen[triples:])


def parts_with_signal(graph: KnowledgeGraph, seed: int, signals: list[list[float]]) -> list[TableModel]:
    """Return models with normal scores, to which `signals[part][relation]` is added for facts."""
    rng, n = np.random.default_rng(seed), len(graph.entities)
    tables = rng.normal(size=(len(signals), len(graph.relations), n, n))
    for h, r, t in np.concatenate([graph.train, graph.valid]):
        tables[:, r, h, t] += [signal[r] for signal in signals]
    return [TableModel(table) for table in tables]


def slow_loss(parts: list[TableModel], graph: KnowledgeGraph, w: FloatArray) -> float:
    """Return the filtered cross-entropy of both queries of each valid triple, one candidate at a time."""
    table = np.sum([float(x) * part.table.double().numpy() for x, part in zip(w, parts, strict=True)], axis=0)
    known, loss = {tuple(t) for t in np.concatenate([graph.train, graph.valid]).tolist()}, 0.0
    for h, r, t in graph.valid.tolist():
        for candidates in ([(e, r, t) for e in range(8)], [(h, r, e) for e in range(8)]):
            scores = [table[b, a, c] for a, b, c in candidates if (a, b, c) == (h, r, t) or (a, b, c) not in known]
            loss += math.log(sum(map(math.exp, scores))) - table[r, h, t]
    return loss


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_minimise_the_cross_entropy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(seed)
    parts = parts_with_signal(graph, seed, [[1.5, 1.5], [0.7, 0.7]])
    scores = QueryScores.of(parts, graph, graph.valid, no_progress)
    for w in ([0.3, 1.0], [2.0, 0.0]):
        loss, gradient = scores.cross_entropy(np.array(w))
        assert loss == pytest.approx(slow_loss(parts, graph, np.array(w)))
        step = [scores.cross_entropy(np.array(w) + d)[0] for d in 1e-6 * np.eye(2)]
        np.testing.assert_allclose((np.array(step) - loss) / 1e-6, gradient, rtol=1e-3, atol=1e-3)
    for ridge in (0.0, 30.0):
        monkeypatch.setattr(weights, "RIDGE", ridge)
        prior, spread = np.full(2, 0.5) / scores.spread, scores.spread

        def objective(w: FloatArray) -> float:
            return slow_loss(parts, graph, w) + ridge / 2 * float((((w - prior) * spread) ** 2).sum())  # noqa: B023

        found = weights._minimise(scores, prior)
        grid = [np.array([a, b]) for a in np.linspace(0, 3, 31) for b in np.linspace(0, 3, 31)]
        best = min(grid, key=objective)
        assert objective(found) <= objective(best) + 1e-9
        assert np.abs(found - best).max() <= 0.11


def test_a_harmful_part_gets_no_weight() -> None:
    graph = random_graph(0, triples=60)
    parts = parts_with_signal(graph, 0, [[2.0, 2.0], [-2.0, -2.0]])
    fitted = fit_weights(parts, ["a", "b"], graph, 0, no_progress)
    assert (fitted.together[:, 0] > 0).all()
    np.testing.assert_array_equal(fitted.together[:, 1], 0)


def test_relations_with_enough_triples_have_their_own_weights() -> None:
    graph = random_graph(1, n=20, triples=200)
    parts = parts_with_signal(graph, 1, [[2.0, 0.0], [0.0, 2.0]])
    together = fit_weights(parts, ["a", "b"], graph, 0, no_progress).together
    assert together[0, 0] > 2 * together[0, 1]
    assert together[1, 1] > 2 * together[1, 0]
    first = graph.valid[graph.valid[:, 1] == 0]
    few = np.concatenate([first, graph.valid[graph.valid[:, 1] == 1][: weights.MIN_TRIPLES - 1]])
    shared = fit_weights(parts, ["a", "b"], replace(graph, valid=few), 0, no_progress).together
    assert shared[1, 0] > shared[1, 1]  # those of all triples, most of which have the first relation


def test_a_clearly_better_part_is_used_alone() -> None:
    graph = random_graph(2, triples=60)
    parts = parts_with_signal(graph, 2, [[4.0, 4.0], [0.0, 0.0]])
    scores = QueryScores.of(parts, graph, graph.valid, no_progress)
    assert weights._better_part(scores, Weights.only(0, 2, 2).together, "ab") is None
    assert weights._better_part(scores, Weights.only(1, 2, 2).together, "ab") == 0
    spoiled = TableModel(parts[0].table.double().numpy())
    for h, r, t in graph.valid[::6]:  # a few certain mistakes make the weight of a part with a high MRR small
        spoiled.table[r, h, t] = -60.0
    fitted = fit_weights([spoiled, parts[1]], "ab", graph, 0, no_progress)
    np.testing.assert_array_equal(fitted.together, [[1.0, 0.0]] * 2)


def test_ranks_are_realistic_and_filtered() -> None:
    graph = random_graph(3)
    table = np.random.default_rng(3).integers(0, 3, (2, 8, 8)).astype(float)
    scores = QueryScores.of([TableModel(table)], graph, graph.valid, no_progress)
    found = sorted(scores.reciprocal_ranks(np.ones((len(scores.relation), 1))).tolist())
    known, expected = {tuple(t) for t in np.concatenate([graph.train, graph.valid]).tolist()}, []
    for h, r, t in graph.valid.tolist():
        for others in ([(e, r, t) for e in range(8)], [(h, r, e) for e in range(8)]):
            rivals = [table[b, a, c] for a, b, c in others if (a, b, c) not in known]
            better, tied = (sum(compare(x, table[r, h, t]) for x in rivals) for compare in (np.greater, np.equal))
            expected.append(1 / (1 + better + tied / 2))
    assert found == pytest.approx(sorted(expected))


def test_ranks_of_a_query_with_many_answers_need_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    n, few = 2_000, 10_000
    competes = np.arange(n) >= n // 2  # as many answers as competitors
    table = np.random.default_rng(0).permutation(n).astype(np.float32)
    answer = np.arange(n // 2)
    scores = QueryScores(table[None, None], competes[None], np.zeros(1, dtype=np.int64), 0 * answer, answer)
    monkeypatch.setattr(weights, "CHUNK_CELLS", few)
    tracemalloc.start()
    try:
        found = scores.reciprocal_ranks(np.ones((1, 1)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * few  # all answers at once need 200 times the cells
    np.testing.assert_allclose(1 / found, [1 + (table[n // 2 :] > table[a]).sum() for a in answer])


def test_parts_that_can_score_no_answer_have_the_same_influence() -> None:
    graph = random_graph(6)
    parts = [TableModel(np.full((2, 8, 8), np.nan)), *parts_with_signal(graph, 6, [[1.0, 1.0]])]
    together = fit_weights(parts, "ab", graph, 0, no_progress).together
    np.testing.assert_array_equal(together, 0.5)  # no scores can be compared, so their standard deviation is 1


def test_without_valid_triples_all_parts_have_the_same_influence() -> None:
    graph = replace(random_graph(4), valid=as_triples([]))
    one = parts_with_signal(graph, 4, [[1.0, 1.0]])[0]
    large = TableModel(10 * one.table.double().numpy())
    together = fit_weights([one, large], "ab", graph, 0, no_progress).together
    np.testing.assert_allclose(together[:, 0], 10 * together[:, 1], rtol=1e-5)


def test_the_sample_of_valid_is_bounded_and_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, sampled = random_graph(5), []
    parts = parts_with_signal(graph, 5, [[1.0, 1.0], [1.0, 1.0]])
    original = QueryScores.of

    def record(*arguments: Any) -> QueryScores:
        sampled.append(arguments[2])
        return original(*arguments)

    monkeypatch.setattr(QueryScores, "of", record)
    monkeypatch.setattr(weights, "MAX_SCORE_BYTES", 2 * 8 * 9 * 12)
    for seed in (0, 0, 1):
        fit_weights(parts, "ab", graph, seed, no_progress)
    assert [len(triples) for triples in sampled] == [12, 12, 12]
    assert np.array_equal(sampled[0], sampled[1])
    assert not np.array_equal(sampled[0], sampled[2])


# The model.


@pytest.mark.parametrize("stopped_at", ["training DistMult", "fitting the mixture"])
def test_a_fit_that_stops_between_parts_continues_with_the_same_bits(stopped_at: str, tmp_path: Path) -> None:
    graph, steps, is_interrupted = small_graph(), list[str](), True

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        steps.append(f"{step}: {total}")
        if is_interrupted and step.startswith(stopped_at):
            raise KeyboardInterrupt
        with no_progress(step, total) as advance:
            yield advance

    whole, stopped, resumed = (mixture(graph) for _ in range(3))
    whole.fit(EXAMPLES, seed=3)
    checkpoint = Checkpoint(tmp_path / "e_step.safetensors", every_steps=2)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(EXAMPLES, 3, progress=progress, checkpoint=checkpoint)
    is_interrupted = False
    steps.clear()
    resumed.fit(EXAMPLES, 3, progress=progress, checkpoint=checkpoint)
    assert steps[0] == "training Paths, steps after the first 4: 0"
    for name, table in whole.tables().items():
        assert np.array_equal(resumed.tables()[name].values, table.values), name


def test_validation_measures_the_part_that_is_being_trained() -> None:
    graph = small_graph()
    config = CONFIG.with_values({"neural.validate_every": 3})
    model = make_model(graph, config)
    assert isinstance(model, MixtureModel)
    used: list[list[int]] = []

    def validate() -> float:
        used.append(model.weights.together[0].tolist())
        return -float(len(used))

    model.fit(EXAMPLES, 0, validate=validate)
    assert used == [[1, 0]] * 2 + [[0, 1]] * 7
    one = replace(CONFIG.neural, mixture=({"model": "DistMult", "validate_every": 5},))
    assert [c.neural.validate_every for c in replace(CONFIG, neural=one).model_configs] == [5]


def test_new_entities_are_scored_by_the_parts_that_can() -> None:
    graph = small_graph()
    model = mixture(graph)
    model.fit(EXAMPLES, seed=3)
    model.weights = replace(model.weights, together=np.tile([0.5, 0.25], (len(graph.relations), 1)))
    wide = add_facts(graph, [("newcomer", "parent", "man0"), ("man1", "parent", "newcomer")])
    bound, new = model.bind(wide), wide.entities.id("newcomer")
    assert not bound.unscorable.any()
    paths, vectors = bound.parts
    known, relations = np.array([0, new]), np.zeros(2, dtype=np.int64)
    slope, offset = model.weights.alone[0]
    for side in ("head", "tail"):
        direction: Side = "head" if side == "head" else "tail"
        scores = bound.score_all(known, relations, direction)
        by_path, by_vector = (part.score_all(known, relations, direction) for part in (paths, vectors))
        torch.testing.assert_close(scores[0, :new], 0.5 * by_path[0, :new] + 0.25 * by_vector[0, :new])
        torch.testing.assert_close(scores[0, new], slope * by_path[0, new] + offset)
        torch.testing.assert_close(scores[1], slope * by_path[1] + offset)


def fall_without(model: MixtureModel, triple: IntArray, paths: Sequence[ScoredPath]) -> float:
    """Return by how much the score of a triple falls if the facts of paths are removed."""
    removed, train = np.concatenate([path.triples for path in paths]), model.graph.train
    smaller = replace(model.graph, train=train[~(train[:, None] == removed).all(-1).any(1)])
    return float(model.score(triple[None])[0] - model.bind(smaller).score(triple[None])[0])


@pytest.mark.parametrize("other", [DISTMULT, "{model: Paths, steps: 30, paths: {dim: 8, layers: 2}}"])
def test_shares_of_paths_are_shares_of_the_mixtures_score(other: str) -> None:
    graph = small_graph()
    trained_paths = "{model: Paths, steps: 60, paths: {dim: 8, layers: 3}}"
    config = CONFIG.with_assignments([f"neural.mixture=[{trained_paths}, {other}]"])
    model = make_model(graph, config)
    assert isinstance(model, MixtureModel)
    model.fit(EXAMPLES, seed=3)
    model.weights = replace(model.weights, together=np.tile([0.5, 0.25], (len(graph.relations), 1)))
    model.rescale(2.0, -1.0)
    wide = add_facts(graph, [("newcomer", "parent", "man0"), ("man1", "parent", "newcomer")])
    for bound, head in ((model, "man0"), (model.bind(wide), "newcomer")):
        pairs = np.indices((len(graph.relations), len(graph.entities))).reshape(2, -1)
        triples = np.insert(pairs.T, 0, bound.graph.entities.id(head), axis=1)
        triple, paths = next((t, found) for t in triples if len(found := bound.reasons(t).paths) > 1)
        for n in range(1, len(paths) + 1):
            fall = fall_without(bound, triple, paths[:n])
            assert sum(path.share for path in paths[:n]) == pytest.approx(fall, abs=1e-4)
        alone = [fall_without(bound, triple, [path]) for path in paths]
        assert alone == sorted(alone, reverse=True)
        assert alone[-1] > 0
        assert len({path.triples.tobytes() for path in paths}) == len(paths) <= 5


def test_files_of_other_mixtures_are_refused(tmp_path: Path) -> None:
    graph, file = small_graph(), tmp_path / "neural.safetensors"
    model = mixture(graph)
    model.save(file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    for changed, words in (
        ("[{model: Paths}]", "expected weights of shape"),
        (f"[{PATHS}, {{model: DistMult}}]", "neural.safetensors, part1: expected entity of shape"),
    ):
        other = make_model(graph, CONFIG.with_assignments([f"neural.mixture={changed}"]))
        with pytest.raises(InputError, match=words):
            other.load(file)


# Settings.


def test_entries_overlay_the_shared_settings_and_are_saved() -> None:
    config = Config().with_assignments(
        [
            "neural.mixture=[{model: paths}, {model: complex, steps: 7, vectors: {dim: 5}}, {}]",
            "neural.steps=3",
            "neural.vectors={dim: 4, gamma: 6}",
        ]
    )
    parts = [c.neural for c in config.model_configs]
    assert [(p.model, p.steps) for p in parts] == [("Paths", 3), ("ComplEx", 7), ("TransE", 3)]
    assert [p.blocks["vectors"].dim for p in parts] == [4, 5, 4]
    assert config.neural.title == "Paths + ComplEx + TransE"
    completed = config.completed
    assert set(completed.neural.blocks) == {"vectors", "paths"}
    for comments in (False, True):
        again = Config().with_yaml(completed.to_yaml(comments), "config.yaml").completed
        assert again == completed
        assert again.to_yaml() == completed.to_yaml()  # also the order of the blocks


def test_the_cost_is_that_of_the_largest_part_and_of_all_steps() -> None:
    config = Config().with_assignments(
        ["neural.mixture=[{model: ComplEx, steps: 7}, {model: DistMult, steps: 3, vectors: {dim: 900}}]"]
    )
    mixed, small, large = (model_kind(c).cost(small_graph(), c) for c in (config, *config.model_configs))
    assert small.bytes < large.bytes
    assert (mixed.bytes, mixed.purpose, mixed.remedy) == (large.bytes, large.purpose, large.remedy)
    assert mixed.steps == small.steps + large.steps == 10


OWN_STEPS = "neural.mixture=[{model: Paths, steps: 3}, {model: ComplEx, steps: 7, vectors: {dim: 5}}]"


def test_a_setting_of_one_entry_can_be_assigned() -> None:
    changes = ["neural.mixture[1].steps=12", "neural.mixture[1].vectors.gamma=3", "neural.mixture[0]={batch: 8}"]
    parts = [c.neural for c in Config().with_assignments([OWN_STEPS, *changes]).model_configs]
    assert [(p.model, p.steps, p.batch) for p in parts] == [("Paths", 3, 8), ("ComplEx", 12, "auto")]
    assert (parts[1].blocks["vectors"].dim, parts[1].blocks["vectors"].gamma) == (5, 3.0)


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        ("neural.steps=9", "neural.mixture[0].steps"),
        ("neural.vectors.dim=9", "neural.mixture[1].vectors.dim"),  # the path model has no vectors
        ("neural.vectors={dim: 9, gamma: 3}", "neural.mixture[1].vectors.dim"),
        ("neural.model=TransE", "neural.mixture[0].model"),
    ],
)
def test_an_assignment_that_every_entry_overrides_is_an_error(change: str, entry: str) -> None:
    for assignments in ([OWN_STEPS, change], [change, OWN_STEPS]):
        with pytest.raises(InputError, match=r"has no effect.*neural\.mixture=\[\] for one model") as caught:
            Config().with_assignments(assignments)
        assert f"such as {entry}, or" in str(caught.value)


@pytest.mark.parametrize("change", ["neural.vectors.gamma=3", "neural.batch=9", "neural.steps=7", "neural.mixture=[]"])
def test_an_assignment_that_reaches_an_entry_is_valid(change: str) -> None:
    Config().with_assignments([OWN_STEPS, change])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[{model: Paths}, {model: Complx}]", "neural.mixture[1].model: unknown neural model 'Complx'"),
        ("[{vectors: {dimm: 3}}]", "unknown setting 'neural.mixture[0].vectors.dimm'. Did you mean"),
        ("[{model: Paths}, {stepz: 3}]", "unknown setting 'neural.mixture[1].stepz'"),
        ("[{}, {steps: -1}]", "neural.mixture[1].steps must be at least 0, got -1"),
        ("[{mixture: [{}]}]", "neural.mixture[0].mixture: an entry of neural.mixture cannot contain another mixture"),
        ("Paths", "neural.mixture must be a list of mappings such as"),
        ("[Paths]", "neural.mixture must be a list of mappings such as"),
        ("[{}]; neural.mixture[1].steps=3", "neural.mixture[1].steps: neural.mixture has 1 entry, counted from 0"),
        ("[{}]; neural.mixture[0].vectors.dimm=3", "unknown setting 'neural.mixture[0].vectors.dimm'. Did you mean"),
        ("[{}]; neural.mixture[0]=3", "neural.mixture must be a list of mappings such as"),
        ("[{}]; neural.mixture[x].steps=3", "unknown setting 'neural.mixture[x].steps'"),
        ("[{}]; neural.steps[0]=3", "unknown setting 'neural.steps[0]'"),
    ],
)
def test_an_invalid_mixture_is_refused(value: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Config().with_assignments(f"neural.mixture={value}".split("; "))
    assert words in str(caught.value)


def test_guides_and_searches_are_refused(call: Call) -> None:
    config = CONFIG.with_values({"system": "ruge"})
    with pytest.raises(InputError, match=r"system=ruge cannot train a mixture. Set neural.mixture=\[\]"):
        make_model(small_graph(), config, object())  # type: ignore[arg-type]
    assert "trains one neural model" in call("train", "--out", "x", "--set", "system=ruge", "--set", ASSIGNMENTS[-1])[2]
    with pytest.raises(InputError, match="searches the settings of one neural model"):
        search_spaces(small_graph(), CONFIG, ["ComplEx"], {})


# Commands.


def test_all_commands_work_with_a_mixture(call: Call, tmp_path: Path) -> None:
    run, facts, out = tmp_path / "run", tmp_path / "facts.tsv", tmp_path / "export"
    folder = tmp_path / "graph"
    folder.mkdir()
    settings = [word for text in ASSIGNMENTS for word in ("--set", text)]
    code, _, errors = call("train", write_small_graph(folder), "--out", run, *settings)
    assert code == 0, errors
    assert 0 < call_json(call, "evaluate", run)["neural"]["mrr"] <= 1
    facts.write_text("man0\tparent\tnewcomer\nwoman0\tparent\tnewcomer\n")
    rows = call_json(call, "predict", run, "--head", "newcomer", "--relation", "child", "--facts", facts)["predictions"]
    assert all(row["q"] is not None for row in rows)
    why = call_json(call, "explain", run, "newcomer", "child", "man0", "--facts", facts)
    assert why["q"] is not None
    assert why["neighbours"] == []
    assert call_json(call, "explain", run, "man2", "parent", "a2")["neighbours"]
    code, _, errors = call("export", run, "--out", out)
    assert code == 0, errors
    assert {"part1_entities.tsv", "weights.tsv"} <= {path.name for path in out.iterdir()}
    assert call("doctor", run)[0] == 0
    assert call("report", run, "--out", tmp_path / "report.html")[0] == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Paths + DistMult" in page
    assert "{model: Paths, steps: 4, paths: {dim: 4, layers: 1}}" in page
    assert json.loads(call("runs", "list", run, "--json")[1])
