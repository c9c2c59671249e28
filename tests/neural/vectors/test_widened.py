"""A neural model among entities that it has no vectors for: its own scores where it has them, NaN elsewhere."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from plogicnet.graph import Side, as_triples
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings

KNOWN, WIDE, RELATIONS = 5, 8, 2
SIDES: tuple[Side, Side] = ("head", "tail")


@pytest.fixture(params=["TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE"])
def own(request: pytest.FixtureRequest) -> VectorModel:
    settings = VectorSettings(model=request.param, dim=16, steps=2, batch=2, negatives=2)
    model = VectorModel(KNOWN, RELATIONS, settings)
    model.fit(Examples.of(as_triples([(0, 0, 1), (1, 1, 2), (3, 0, 4)])), seed=0)
    return model


def test_scores_are_its_own_or_none(own: VectorModel) -> None:
    wide = Widened(own, KNOWN, WIDE)
    grid = np.indices((WIDE, RELATIONS, WIDE)).reshape(3, -1).T
    has = (grid[:, [0, 2]] < KNOWN).all(axis=1)
    scores = wide.score(grid)
    assert torch.isnan(scores).tolist() == (~has).tolist()
    torch.testing.assert_close(scores[torch.from_numpy(has)], own.score(grid[has]))
    assert wide.score(as_triples([])).shape == (0,)
    assert wide.vectors() is own.vectors()


@pytest.mark.parametrize("asked", [[0, 6, 3, 7, 4], [5, 6, 7], [0, 1]], ids=str)
def test_queries_against_all_entities(own: VectorModel, asked: list[int]) -> None:
    known = np.array(asked, dtype=np.int64)
    relations = known % RELATIONS
    for side in SIDES:
        scores = Widened(own, KNOWN, WIDE).score_all(known, relations, side)
        assert scores.shape == (len(known), WIDE)
        for row in np.flatnonzero(known < KNOWN).tolist():
            [own_scores] = own.score_all(known[[row]], relations[[row]], side)
            torch.testing.assert_close(scores[row, :KNOWN], own_scores)
        lacking = (known >= KNOWN)[:, None] | (np.arange(WIDE) >= KNOWN)
        np.testing.assert_array_equal(torch.isnan(scores).numpy(), lacking)


def test_it_is_for_asking_only(own: VectorModel, tmp_path: Path) -> None:
    wide = Widened(own, KNOWN, WIDE)
    calls: list[Callable[[], object]] = [
        lambda: wide.fit(Examples.of(as_triples([(0, 0, 1)])), seed=0),
        lambda: wide.rescale(2.0, 0.0),
        lambda: wide.save(tmp_path / "x"),
        lambda: wide.load(tmp_path / "x"),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()
