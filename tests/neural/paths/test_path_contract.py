"""The contract of neural models, for the path model."""

from pathlib import Path

import pytest

from contracts.models import check_model
from plogicnet.config import Config
from plogicnet.neural.registry import make_model

SMALL_PATHS = {
    "neural.model": "Paths",
    "neural.steps": 4,
    "neural.batch": 8,
    "neural.paths.dim": 8,
    "neural.paths.layers": 3,
    "device": "cpu",
}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"neural.paths.averaging": 0.0, "neural.paths.message_graph": "accepted", "neural.paths.hide": "pair"},
        {"neural.kernels": "plain"},
        {"neural.paths.frontier": 3},
    ],
)
def test_the_path_model_fulfils_the_contract(values: dict[str, object], tmp_path: Path) -> None:
    config = Config().with_values(SMALL_PATHS | values)
    check_model(lambda graph: make_model(graph, config), tmp_path)
