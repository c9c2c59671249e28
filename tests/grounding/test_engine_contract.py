"""The built-in engines pass the contract tests of engines."""

import pytest

from contracts.engines import check_engine
from plogicnet.config import ENGINES


@pytest.mark.parametrize(("name", "examples"), [("native", 60), ("sql", 12)])
def test_built_in_engines_pass_the_contract(name: str, examples: int) -> None:
    check_engine(ENGINES.get(name), examples)
