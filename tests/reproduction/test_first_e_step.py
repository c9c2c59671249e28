"""Trainings that begin alike share the first E-step, and end as they would without; watching changes nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.training.em import Outcome
from reproduction.watching import watching
from small import SMALL, small_graph
from stopping import StoppedError, different, stop_at

SOFTMAX = {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}


def config_of(values: Mapping[str, object]) -> Config:
    return Config().with_values({**SMALL, **values})


@pytest.mark.parametrize(
    "values", [{}, SOFTMAX, {"neural.validate_every": 5}], ids=["sampled", "one_vs_all", "validated"]
)
def test_a_shared_first_e_step_changes_nothing(tmp_path: Path, values: dict[str, object]) -> None:
    """Rules differ, vectors begin alike; the second training takes the first one's."""
    shared, graph = tmp_path / "shared", small_graph()
    PLogicNet(config_of(values)).fit(graph, out=tmp_path / "first", shared=shared)
    other = config_of({**values, "rules.patterns": ["inverse"]})
    PLogicNet(other).fit(graph, out=tmp_path / "taken", shared=shared)
    PLogicNet(other).fit(graph, out=tmp_path / "alone")
    timings = {name: json.loads((tmp_path / name / "timings.json").read_text()) for name in ("first", "taken", "alone")}
    assert [("e_step_shared" in t) for t in timings.values()] == [False, True, False]
    assert different(tmp_path / "taken", tmp_path / "alone") == []


@pytest.mark.parametrize("values", [{"seed": 1}, {"neural.vectors.dim": 9}, {"neural.learning_rate": 0.01}])
def test_trainings_that_begin_otherwise_share_nothing(tmp_path: Path, values: dict[str, object]) -> None:
    graph = small_graph()
    for config in (config_of({}), config_of(values)):
        PLogicNet(config).fit(graph, shared=tmp_path)
    assert len(list(tmp_path.glob("*/neural.safetensors"))) == 2


def test_other_triples_are_another_beginning(tmp_path: Path) -> None:
    graph = small_graph()
    fewer = KnowledgeGraph("fewer", graph.entities, graph.relations, graph.train[:-1], graph.valid, graph.test)
    for each in (graph, fewer):
        PLogicNet(config_of({})).fit(each, shared=tmp_path)
    assert len(list(tmp_path.glob("*/neural.safetensors"))) == 2


def test_triples_moved_from_train_to_valid_are_another_beginning(tmp_path: Path) -> None:
    graph, config = small_graph(), config_of({"neural.validate_every": 5})
    valid = np.concatenate([graph.train[-1:], graph.valid])
    moved = KnowledgeGraph("moved", graph.entities, graph.relations, graph.train[:-1], valid, graph.test)
    for each in (graph, moved):
        PLogicNet(config).fit(each, shared=tmp_path)
    assert len(list(tmp_path.glob("*/neural.safetensors"))) == 2


def test_what_is_watched_is_in_the_history_and_decides_nothing(tmp_path: Path) -> None:
    config, graph = config_of({"em.iterations": 3, "em.patience": 1}), small_graph()
    PLogicNet(config).fit(graph, out=tmp_path / "plain")
    PLogicNet(config).fit(graph, out=tmp_path / "watched", watch=watching(config, "abc1234"))
    assert different(tmp_path / "plain", tmp_path / "watched") == ["history.jsonl", "metrics.json"]  # its checksum
    lines = [json.loads(line) for line in (tmp_path / "watched" / "history.jsonl").read_text().splitlines()]
    for line in lines:
        assert line["made"]["commit"] == "abc1234"
        assert set(line["test"]) > {"neural", "plogicnet", "plogicnet*"}


def test_a_watched_training_that_was_stopped_keeps_what_was_seen(tmp_path: Path) -> None:
    config, graph = config_of({}), small_graph()
    seen: list[int] = []

    def watch(_: KnowledgeGraph, now: Outcome) -> dict[str, Any]:
        seen.append(now.iteration)
        return {"seen": len(seen)}

    with pytest.raises(StoppedError):
        PLogicNet(config).fit(graph, stop_at("training", time=2), out=tmp_path / "run", watch=watch)
    model = PLogicNet.resume(tmp_path / "run", watch=watch)
    assert seen == [1, 2]
    assert [line["seen"] for line in model.history] == [1, 2]
