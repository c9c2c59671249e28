"""The search space of each model, and the settings of the first trials."""

from dataclasses import replace

import pytest

from plogicnet.config import MODELS, Choices, Config, Range, SearchSpace
from plogicnet.neural.registry import make_model
from plogicnet.support.errors import InputError
from plogicnet.tuning.space import changed_settings, first_settings, search_spaces, trial_config, with_limited_steps
from plogicnet.tuning.trials import settings_yaml
from small import small_graph
from toy_modules import toy


@pytest.mark.parametrize("model", ["TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE", "Paths"])
def test_the_space_of_every_built_in_model_contains_only_valid_settings(model: str) -> None:
    graph, base = small_graph(), Config(device="cpu")
    large = replace(graph, train=graph.train.repeat(1_000, axis=0))
    for some_graph in (graph, large):
        spaces = search_spaces(some_graph, base, [model], {})
        assert {"neural.learning_rate", "neural.steps", "em.tau_triplet"} <= set(spaces[model])
        start = first_settings(base, spaces)[-1]
        for key, domain in spaces[model].items():
            assert start[key] in domain
            for value in domain.values if isinstance(domain, Choices) else (domain.low, domain.high):
                config = trial_config(base, {**start, key: value})
                if some_graph is graph:
                    make_model(graph, config)


def test_the_user_replaces_and_adds_domains() -> None:
    given: SearchSpace = {
        "neural.vectors.dim": Choices((8,)),
        "neural.paths.dim": Choices((4,)),
        "mln.l2": Range(0.1, 10.0),
    }
    spaces = search_spaces(small_graph(), Config(), ["ComplEx", "Paths"], given)
    assert spaces["ComplEx"]["neural.vectors.dim"] == Choices((8,))
    assert spaces["Paths"]["neural.paths.dim"] == Choices((4,))
    assert all(space["mln.l2"] == Range(0.1, 10.0) for space in spaces.values())
    assert "neural.paths.dim" not in spaces["ComplEx"]
    with pytest.raises(InputError, match=r"--search neural.paths.dim: none of the models ComplEx has this setting"):
        search_spaces(small_graph(), Config(), ["ComplEx"], given)


def test_a_model_that_states_no_space_needs_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS._entries, "Messages", toy("toy_model").MESSAGES)
    with pytest.raises(InputError, match=r"nothing to search: neural.model=Messages states no settings"):
        search_spaces(small_graph(), Config(), ["Messages"], {})
    given: SearchSpace = {"neural.messages.spread": Range(0.1, 1.0, log=True)}
    assert search_spaces(small_graph(), Config(), ["Messages"], given) == {"Messages": given}


def test_rules_alone_need_a_search() -> None:
    base = Config().with_values({"em.neural": False})
    with pytest.raises(InputError, match=r"nothing to search: em.neural=false.*--search mln.l2"):
        search_spaces(small_graph(), base, ["ComplEx"], {})
    given: SearchSpace = {"mln.l2": Range(0.1, 10.0)}
    assert search_spaces(small_graph(), base, ["ComplEx"], given) == {"TransE": given}


def test_the_first_trials_have_the_base_settings_and_the_start_of_each_model() -> None:
    base = Config().with_values({"em.tau_triplet": 0.7})
    spaces: dict[str, SearchSpace] = {
        "TransE": {"neural.steps": Range(10, 1000, log=True), "em.tau_triplet": Range(0.5, 0.9)},
        "ComplEx": {"neural.vectors.dim": Choices((8, 16)), "em.tau_triplet": Range(0.8, 0.9, start=0.8)},
    }
    assert first_settings(base, spaces) == [
        {"neural.model": "TransE"},
        {"neural.model": "TransE", "neural.steps": 100, "em.tau_triplet": 0.7},
        {"neural.model": "ComplEx", "neural.vectors.dim": 8, "em.tau_triplet": 0.8},
    ]
    same: dict[str, SearchSpace] = {"TransE": {"neural.vectors.dim": Choices((100, 200))}}
    assert first_settings(base, same)[1] == {"neural.model": "TransE", "neural.vectors.dim": 200}


def test_automatic_steps_are_limited_to_100_passes() -> None:
    graph = small_graph()
    assert with_limited_steps(graph, Config(), {}) == {"neural.steps": 500}
    assert with_limited_steps(graph, Config(), {"neural.batch": 2}) == {"neural.batch": 2, "neural.steps": 4300}
    assert with_limited_steps(graph, Config(), {"neural.model": "Paths", "neural.batch": 1})["neural.steps"] == 5000
    assert with_limited_steps(graph, Config(), {"neural.steps": 9}) == {"neural.steps": 9}


def test_saved_settings_restore_the_same_config() -> None:
    for values in (
        {"seed": 3, "neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 1e-5},
        {"system": "ruge", "em.lambda": "auto", "rules.patterns": ["inverse"], "em.lambda_grid": [0, 1]},
        {"neural.model": "Paths", "neural.paths.dim": 4, "rules.min_precision.inverse": 0.3},
        {},
    ):
        config = Config().with_values(values)
        assert Config().with_yaml(settings_yaml(config), "best.yaml").completed == config.completed
    assert changed_settings(Config(device="cpu", threads=2)) == {}
    assert changed_settings(Config(), {"neural.model", "em.lambda"}) == {"neural.model": "TransE", "em.lambda": "auto"}
