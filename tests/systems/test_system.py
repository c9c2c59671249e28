"""Every system, also one of another package, follows the contract and rejects contradictory settings."""

import pytest

from contracts.systems import check_system
from plogicnet.config import SYSTEMS, Config
from plogicnet.support.errors import InputError
from plogicnet.systems.system import system_of
from toy_modules import toy

OTHERS = [name for name in SYSTEMS.names() if name != SYSTEMS.default()]


@pytest.mark.parametrize("name", SYSTEMS.names())
def test_built_in_systems_follow_the_contract(name: str) -> None:
    config = Config().with_values({"system": name})
    check_system(system_of(config), config)


def test_a_system_of_another_package_follows_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS._entries, "frequency", toy("toy_system").FREQUENCY)
    config = Config().with_values({"system": "frequency"})
    check_system(system_of(config), config)


@pytest.mark.parametrize("name", OTHERS)
def test_a_contradiction_is_an_error_with_a_remedy(name: str) -> None:
    config = Config().with_values({"system": name, "em.rules": False})
    with pytest.raises(InputError, match=f"system={name} needs rules: set em.rules=true"):
        system_of(config).check(config)
