"""Every system, a toy from outside the package too, keeps the contract; contradictions are refused."""

import pytest

from contracts.systems import check_system
from plogicnet.config import SYSTEMS, Config
from plogicnet.support.errors import InputError
from plogicnet.systems.system import system_of
from toy_modules import toy

OTHERS = [name for name in SYSTEMS.names() if name != SYSTEMS.default()]


@pytest.mark.parametrize("name", SYSTEMS.names())
def test_the_contract(name: str) -> None:
    config = Config().with_values({"system": name})
    check_system(system_of(config), config)


def test_a_system_from_outside_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS._entries, "frequency", toy("toy_system").FREQUENCY)
    config = Config().with_values({"system": "frequency"})
    check_system(system_of(config), config)


@pytest.mark.parametrize("name", OTHERS)
def test_a_contradiction_is_refused_with_what_to_set(name: str) -> None:
    config = Config().with_values({"system": name, "em.rules": False})
    with pytest.raises(InputError, match=f"system={name} works by rules: set em.rules=true"):
        system_of(config).check(config)
