"""What systems are called: one line of each other system has its name, and every system has one."""

from typing import get_args, get_type_hints

import pytest
from plogicnet.systems.titles import TITLES, titles_of

from plogicnet.config import Config
from plogicnet.training.em import systems

SYSTEMS = get_args(get_type_hints(Config)["system"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_titles_have_the_keys_of_the_figures_in_their_order(system: str) -> None:
    assert list(titles_of(system)) == list(systems(Config(), 0.5))


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s != "plogicnet"])
def test_one_line_is_named_by_the_other_system(system: str) -> None:
    named = {key: title for key, title in titles_of(system).items() if title != TITLES[key]}
    ((key, title),) = named.items()
    assert title == f"{system.upper().replace('_', '-')} ({TITLES[key]})"
    # the line is one of those that a run of the system has
    assert key in systems(Config().with_values({"system": system}), 0.0)


def test_plogicnet_has_lines_of_its_own() -> None:
    assert titles_of("plogicnet") == TITLES
