"""The cache of the first E-step and the inspection of test ranks do not change a training."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.runs.origins import read_origins
from plogicnet.support.progress import Timer
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Outcome
from reproduction.first_e_step import MODEL_FILE, fit_or_load
from reproduction.inspection import rank_test
from small import SMALL, small_graph
from stopping import StoppedError, different, files_of, stop_at

SOFTMAX = {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}


def config_of(values: Mapping[str, object]) -> Config:
    return Config().with_values({**SMALL, **values})


def hooks_with_cache(cache: Path) -> Hooks:
    timer = Timer()
    return Hooks(clock=timer, fit_first=fit_or_load(cache, timer))


@pytest.mark.parametrize(
    "values", [{}, SOFTMAX, {"neural.validate_every": 5}], ids=["sampled", "one_vs_all", "validated"]
)
def test_shared_first_e_step_does_not_change_the_run(tmp_path: Path, values: dict[str, object]) -> None:
    """Trainings that differ only in their rules share the first E-step; a damaged cache file is trained again."""
    cache, graph = tmp_path / "cache", small_graph()
    PLogicNet(config_of(values)).fit(graph, out=tmp_path / "first", hooks=hooks_with_cache(cache))
    other = config_of({**values, "rules.patterns": ["inverse"]})
    PLogicNet(other).fit(graph, out=tmp_path / "loaded", hooks=hooks_with_cache(cache))
    PLogicNet(other).fit(graph, out=tmp_path / "alone")
    (saved,) = cache.glob(f"*/{MODEL_FILE}")
    saved.write_bytes(saved.read_bytes()[:-1] + b"x")
    again = PLogicNet(other).fit(graph, out=tmp_path / "again", hooks=hooks_with_cache(cache))
    timings = [read_origins(tmp_path / name)["0001"].seconds for name in ("first", "loaded", "alone")]
    assert [("e_step_shared" in t) for t in (*timings, again.seconds)] == [False, True, False, False]
    assert different(tmp_path / "loaded", tmp_path / "alone") == []
    assert different(tmp_path / "again", tmp_path / "alone") == []


@pytest.mark.parametrize("values", [{"seed": 1}, {"neural.vectors.dim": 9}, {"neural.learning_rate": 0.01}])
def test_other_settings_use_another_cache_entry(tmp_path: Path, values: dict[str, object]) -> None:
    for config in (config_of({}), config_of(values)):
        PLogicNet(config).fit(small_graph(), hooks=hooks_with_cache(tmp_path))
    assert len(list(tmp_path.glob(f"*/{MODEL_FILE}"))) == 2


def test_other_triples_use_another_cache_entry(tmp_path: Path) -> None:
    graph, config = small_graph(), config_of({"neural.validate_every": 5})
    moved = np.concatenate([graph.train[-1:], graph.valid])
    for valid in (graph.valid, moved):  # one triple removed, then moved to valid
        fewer = KnowledgeGraph("fewer", graph.entities, graph.relations, graph.train[:-1], valid, graph.test)
        PLogicNet(config).fit(fewer, hooks=hooks_with_cache(tmp_path))
    PLogicNet(config).fit(graph, hooks=hooks_with_cache(tmp_path))
    assert len(list(tmp_path.glob(f"*/{MODEL_FILE}"))) == 3


def test_test_ranks_are_recorded_and_do_not_change_the_run(tmp_path: Path) -> None:
    config, graph = config_of({"em.iterations": 3, "em.patience": 1}), small_graph()
    PLogicNet(config).fit(graph, out=tmp_path / "plain")
    hooks = Hooks(inspect=rank_test(config, "abc1234"))
    PLogicNet(config).fit(graph, out=tmp_path / "inspected", hooks=hooks)
    assert different(tmp_path / "plain", tmp_path / "inspected") == ["history.jsonl"]
    lines = [json.loads(line) for line in files_of(tmp_path / "inspected")["history.jsonl"].splitlines()]
    for line in lines:
        assert line["made"]["commit"] == "abc1234"
        assert set(line["test"]) > {"neural", "plogicnet", "plogicnet*"}


def test_resumed_training_keeps_inspected_values(tmp_path: Path) -> None:
    seen: list[int] = []

    def inspect(_: KnowledgeGraph, now: Outcome) -> dict[str, Any]:
        seen.append(now.iteration)
        return {"seen": len(seen)}

    stopping = Hooks(progress=stop_at("training", time=2), inspect=inspect)
    with pytest.raises(StoppedError):
        PLogicNet(config_of({})).fit(small_graph(), out=tmp_path / "run", hooks=stopping)
    model = PLogicNet.resume(tmp_path / "run", hooks=Hooks(inspect=inspect))
    assert seen == [1, 2]
    assert [line.to_json()["seen"] for line in model.history] == [1, 2]
