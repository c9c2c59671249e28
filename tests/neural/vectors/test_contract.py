"""The contract of neural models for every geometry and recipe."""

from pathlib import Path

import pytest

from contracts.models import check_model
from plogicnet.config import Config
from plogicnet.neural.registry import make_model
from plogicnet.neural.vectors import MODEL_NAMES
from small import SMALL

DISTANCES = ("TransE", "RotatE")
CASES = [(name, "sampled") for name in MODEL_NAMES] + [(n, "one_vs_all") for n in MODEL_NAMES if n not in DISTANCES]


@pytest.mark.parametrize(("name", "recipe"), CASES)
def test_vector_models_fulfil_the_contract(name: str, recipe: str, tmp_path: Path) -> None:
    values = SMALL | {"neural.model": name, "neural.vectors.recipe": recipe, "neural.steps": 12}
    config = Config().with_values(values)
    check_model(lambda graph: make_model(graph, config), tmp_path)
