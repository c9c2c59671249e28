"""The search: proposals, pruning, and the value of a trial."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plogicnet.config import Choices, Config, Range, SearchSpace
from plogicnet.support.errors import InputError
from plogicnet.tuning.study import Tuning, propose, run_search, run_trial
from plogicnet.tuning.trials import COMPLETE, PRUNED, TRIALS_FILE, Trial, best_trial
from small import SMALL, fitted, small_graph

SPACE: SearchSpace = {"neural.vectors.dim": Choices((4, 8)), "neural.learning_rate": Range(0.01, 0.1, log=True)}


def tuning(values: dict[str, object] | None = None, space: SearchSpace = SPACE) -> Tuning:
    base = Config().with_values(SMALL | {"em.iterations": 1} | (values or {}))
    return replace(Tuning.of(small_graph(), base, [], ["TransE"], {}), spaces={"TransE": space})


def finished(n: int, validations: tuple[float, ...]) -> list[Trial]:
    return [Trial(i, COMPLETE, 0.5 + i / 100, 1.0, {"neural.learning_rate": 0.02}, validations) for i in range(n)]


def test_proposals_are_in_the_space_and_depend_on_the_seed_and_the_history() -> None:
    search, other = tuning(), tuning({"seed": 1})
    proposals = []
    for n in (10, 10, 11, 30):
        _, settings = propose(search, finished(n, ()))
        assert settings["neural.model"] == "TransE"
        assert all(settings[key] in domain for key, domain in SPACE.items())
        proposals.append(settings)
    assert proposals[0] == proposals[1] != proposals[2]
    assert propose(other, finished(10, ()))[1] != proposals[0]


def test_lists_words_and_flags_can_be_searched() -> None:
    space: SearchSpace = {
        "rules.patterns": Choices((("inverse",), ("inverse", "composition"))),
        "em.lambda": Choices(("auto", 0.5, 1.0)),
        "em.warm_start": Choices((False, True)),
        "neural.vectors.dim": Range(4, 8),
    }
    search = tuning(space=space)
    trials = finished(3, ())
    for n in range(3, 12):
        _, settings = propose(search, trials)
        assert all(settings[key] in domain for key, domain in space.items())
        read_again = json.loads(json.dumps(Trial(n, COMPLETE, 0.1, 1.0, settings).to_json()))
        trials.append(Trial.from_json(read_again))


def test_the_value_of_a_trial_is_the_mrr_of_a_training_without_validation() -> None:
    search = tuning({"em.iterations": 2})
    trial = run_trial(search, [])
    assert trial.mrr == fitted().history[-1].validation_mrr
    assert len(trial.validations) == 10  # five per E-step
    assert trial.settings == {"neural.model": "TransE"}


def test_early_stopping_in_the_base_settings_stays_in_effect() -> None:
    values: dict[str, object] = {"em.rules": False, "neural.validate_every": 2, "neural.patience": 1}
    trial = run_trial(tuning(values), [])
    assert trial.mrr == fitted(values).history[-1].validation_mrr == max(trial.validations)
    assert len(trial.validations) < 10


def test_a_bad_trial_is_pruned_after_two_validations() -> None:
    trial = run_trial(tuning(), finished(5, (1.0,) * 5))
    assert (trial.state, trial.mrr, len(trial.validations)) == (PRUNED, None, 2)
    assert run_trial(tuning(), finished(4, (1.0,) * 5)).state == COMPLETE
    assert run_trial(tuning(), finished(5, (0.0,) * 5)).state == COMPLETE


def test_a_trial_that_diverges_does_not_end_the_search(tmp_path: Path) -> None:
    space: SearchSpace = {"neural.learning_rate": Choices((1e38,))}
    trials = run_search(tuning(space=space), tmp_path, 3)
    assert [trial.state for trial in trials] == ["complete", "failed", "failed"]
    assert "Use a smaller" in trials[1].error
    assert best_trial(trials) == trials[0]


def test_base_settings_that_cannot_be_trained_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="requires a model that uses dot products"):
        run_search(tuning({"neural.vectors.recipe": "one_vs_all"}), tmp_path, 2)
    assert not (tmp_path / TRIALS_FILE).exists()
