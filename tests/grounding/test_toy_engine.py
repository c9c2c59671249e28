"""An engine from outside the package keeps the contract of engines."""

from contracts.engines import check_engine
from toy_modules import toy


def test_the_contract() -> None:
    check_engine(toy("toy_engine").PLAIN, 15)
