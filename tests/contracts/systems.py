"""The contract of a system: what EM, runs and faces rely on, checked of any registered system."""

import numpy as np

from plogicnet.config import Config
from plogicnet.grounding.rulebook import find_rules
from plogicnet.neural.protocol import Examples, make_model
from plogicnet.systems.system import FIGURES, System
from plogicnet.training.selection import rankings
from small import SMALL, small_graph


def check_system(system: System, config: Config) -> None:
    """All of the contract, on the small graph; the settings name the system."""
    check_settings(system, config)
    check_titles(system, config)
    check_rule_model(system, config.with_values(SMALL))


def check_settings(system: System, config: Config) -> None:
    """What it implies contradicts nothing; its block has defaults and a meaning for every setting."""
    system.check(config)
    assert bool(system.block) == (system.settings is not None)
    if system.block:
        completed = config.completed
        assert completed.systems.blocks[system.block] == system.settings()  # type: ignore[misc]
        assert Config().with_yaml(completed.to_yaml(comments=True), "file") == completed


def check_titles(system: System, config: Config) -> None:
    """The titles have the keys of the figures in their order; at most one is its own, and its runs have that one."""
    assert list(system.titles) == list(FIGURES)
    own = [key for key, title in system.titles.items() if title != FIGURES[key]]
    assert own == ([system.own_figures] if system.own_figures else [])
    assert set(own) <= set(rankings(config, 0.0))
    assert system.without_rules(config)
    assert system.instead_of_rules_alone


def check_rule_model(system: System, config: Config) -> None:
    """Weights are learned, finite and the same each time; given ones are kept; a guide fits the model it is for."""
    graph = small_graph()
    mined = find_rules(graph, config)
    fixed = np.zeros(len(mined.rules), dtype=bool)
    fixed[0] = True
    given = np.where(fixed, 1.5, np.nan)
    rules = type(mined.rules)(**{**vars(mined.rules), "given": given, "fixed": fixed})
    model = system.rule_model(graph, config, rules, mined.constraints)
    hidden_q = np.full(len(model.groundings.hidden), 0.25)
    learned, again = (system.learn(model, hidden_q, config, seed=1) for _ in range(2))
    assert np.isfinite(learned.rules.weight).all()
    np.testing.assert_array_equal(learned.rules.weight, again.rules.weight)
    assert learned.rules.weight[0] == 1.5
    assert len(learned.hidden_p_w) == len(hidden_q)
    assert ((learned.hidden_p_w > 0) & (learned.hidden_p_w < 1)).all()
    report = system.report(learned, hidden_q, config)
    assert (report.groundings > 0).all()
    assert system.standard_errors == bool(np.isfinite(report.standard_error).any())
    guide = system.guide(graph, config, model)
    assert system.guides == (guide is not None)
    if guide is not None:
        assert guide.digest == system.guide(graph, config, model).digest  # type: ignore[union-attr]
        make_model(graph, config, guide).fit(Examples.of(graph.train), seed=0)
