"""The contract of neural models for a model from outside the package, which scores new entities and has no tables."""

from pathlib import Path

from contracts.models import check_model
from plogicnet.config import Config
from toy_modules import toy


def test_the_toy_model_fulfils_the_contract(tmp_path: Path) -> None:
    module = toy("toy_model")
    check_model(lambda graph: module.MESSAGES.make(graph, Config()), tmp_path)
