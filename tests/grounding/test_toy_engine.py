"""An engine from another package passes the contract tests of engines."""

from contracts.engines import check_engine
from toy_modules import toy


def test_the_toy_engine_passes_the_contract() -> None:
    check_engine(toy("toy_engine").PLAIN, 15)
