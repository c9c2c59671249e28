"""The search: proposals, pruning, and the value of a trial."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from plogicnet.config import Choices, Config, Range, SearchSpace
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance, no_progress
from plogicnet.tuning import trials as trials_module
from plogicnet.tuning.study import Tuning, propose, run_search, run_trial
from plogicnet.tuning.trials import BEST_FILE, COMPLETE, FAILED, PRUNED, TRIALS_FILE, Trial, best_trial
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
    assert not (tmp_path / TRIALS_FILE).read_text()


def failing(trial: int, error: BaseException) -> Callable[[str, int], AbstractContextManager[Advance]]:
    """Return a progress callback that raises an error in a trial."""

    def progress(step: str, total: int) -> AbstractContextManager[Advance]:
        if step.startswith(f"trial {trial}:"):
            raise error
        return no_progress(step, total)

    return progress


def without_seconds(trials: list[Trial]) -> list[Trial]:
    return [replace(trial, seconds=0.0) for trial in trials]


def test_a_trial_that_ends_the_program_twice_is_skipped(tmp_path: Path) -> None:
    crash = failing(1, TypeError("a bug"))
    for _ in range(2):
        with pytest.raises(TypeError):
            run_search(tuning(), tmp_path, 3, progress=crash)
    trials = run_search(tuning(), tmp_path, 3, progress=crash)
    assert [trial.state for trial in trials] == [COMPLETE, FAILED, COMPLETE]
    assert trials[1].error == "the program ended 2 times in this trial"


def test_interrupts_do_not_change_the_trials(tmp_path: Path) -> None:
    whole = run_search(tuning(), tmp_path / "whole", 3)
    stopped = tmp_path / "stopped"
    for error in (KeyboardInterrupt, KeyboardInterrupt, KeyboardInterrupt, TypeError):
        with pytest.raises(error):
            run_search(tuning(), stopped, 3, progress=failing(1, error()))
    assert without_seconds(run_search(tuning(), stopped, 3)) == without_seconds(whole)


def test_an_error_of_the_device_is_a_failed_trial_unless_it_is_the_first(tmp_path: Path) -> None:
    error = RuntimeError("CUDA error")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="CUDA error"):
            run_search(tuning(), tmp_path, 2, progress=failing(0, error))
    trials = run_search(tuning(), tmp_path, 2, progress=failing(1, error))
    assert [(trial.state, trial.error) for trial in trials] == [(COMPLETE, ""), (FAILED, "CUDA error")]


def test_missing_best_settings_are_written_again(tmp_path: Path) -> None:
    run_search(tuning(), tmp_path, 2)
    best = (tmp_path / BEST_FILE).read_bytes()
    (tmp_path / BEST_FILE).unlink()
    run_search(tuning(), tmp_path, 2)
    assert (tmp_path / BEST_FILE).read_bytes() == best


def test_settings_can_be_corrected_if_the_first_trial_failed(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(InputError, match="requires a model that uses dot products"):
            run_search(tuning({"neural.vectors.recipe": "one_vs_all"}), tmp_path, 1)
    assert [trial.state for trial in run_search(tuning(), tmp_path, 1)] == [COMPLETE]


def test_equal_settings_are_trained_once(tmp_path: Path) -> None:
    search = tuning(space={"neural.vectors.dim": Choices((4, 8))})
    trials = run_search(search, tmp_path, 4)
    assert [trial.settings.get("neural.vectors.dim", 8) for trial in trials[:2]] == [8, 4]
    assert [trial.same_as for trial in trials[:2]] == [None, None]
    for trial in trials[2:]:
        assert trial.same_as is not None
        assert trial == replace(trials[trial.same_as], trial=trial.trial, seconds=0.0, same_as=trial.same_as)
    assert run_search(search, tmp_path, 4) == trials


def test_rules_are_mined_again_only_if_their_settings_differ(tmp_path: Path) -> None:
    steps: list[str] = []

    def progress(step: str, total: int) -> AbstractContextManager[Advance]:
        steps.append(step)
        return no_progress(step, total)

    run_search(tuning(), tmp_path / "same", 3, progress=progress)
    assert {step.partition(":")[0] for step in steps if "mining" in step} == {"trial 0"}
    steps.clear()
    other = tuning(space={"rules.min_support": Choices((3,))})
    run_search(other, tmp_path / "other", 2, progress=progress)
    assert {step.partition(":")[0] for step in steps if "mining" in step} == {"trial 0", "trial 1"}


def test_another_version_or_start_is_another_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "neural.learning_rate"
    run_search(tuning(space={key: Range(0.01, 0.1, start=0.02)}), tmp_path, 1)
    with pytest.raises(
        InputError, match=r"another search \(TransE .*: 0.01..0.1, first 0.02, now 0.01..0.1, first 0.03"
    ):
        run_search(tuning(space={key: Range(0.01, 0.1, start=0.03)}), tmp_path, 1)
    monkeypatch.setattr(trials_module, "VERSION", "9.9")
    with pytest.raises(InputError, match=r"another search \(version: .*, now 9.9\)"):
        run_search(tuning(space={key: Range(0.01, 0.1, start=0.02)}), tmp_path, 1)
