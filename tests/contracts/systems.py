"""The contract of systems, checked for any registered system."""

import numpy as np

from plogicnet.config import Config
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.neural.protocol import Examples
from plogicnet.neural.registry import make_model
from plogicnet.systems.system import RANKING_TITLES, System
from plogicnet.training.selection import ranking_orders
from small import SMALL, small_graph


def check_system(system: System, config: Config) -> None:
    """Check the whole contract on the small graph; the settings select the system."""
    check_settings(system, config)
    check_titles(system, config)
    check_rule_model(system, config.with_values(SMALL))


def check_settings(system: System, config: Config) -> None:
    """Check that the implied settings are allowed, and that the block has defaults and descriptions."""
    system.check(config)
    assert bool(system.block) == (system.settings is not None)
    if system.block:
        completed = config.completed
        assert completed.systems.blocks[system.block] == system.settings()  # type: ignore[misc]
        assert Config().with_yaml(completed.to_yaml(comments=True), "file") == completed


def check_titles(system: System, config: Config) -> None:
    """Check that titles have the keys of the rankings in order, and that only the main ranking has another title."""
    assert list(system.titles) == list(RANKING_TITLES)
    changed = [key for key, title in system.titles.items() if title != RANKING_TITLES[key]]
    assert changed == ([system.main_ranking] if system.main_ranking else [])
    assert set(changed) <= set(ranking_orders(config, 0.0))
    assert system.without_rules(config)
    assert system.ties_advice


def check_rule_model(system: System, config: Config) -> None:
    """Check that weights are finite and reproducible, that fixed weights are kept, and that a guide can be used."""
    graph = small_graph()
    mined = collect_rules(graph, config)
    fixed = np.zeros(len(mined.rules), dtype=bool)
    fixed[0] = True
    given = np.where(fixed, 1.5, np.nan)
    rules = type(mined.rules)(**{**vars(mined.rules), "given": given, "fixed": fixed})
    model = system.rule_model(graph, config, rules, mined.constraints)
    hidden_q = np.full(len(model.groundings.hidden), 0.25)
    learned, again = (system.m_step(model, hidden_q, config, seed=1) for _ in range(2))
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
