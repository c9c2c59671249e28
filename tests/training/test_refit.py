"""Refit: weights are learned again for the same, edited or other rules, and the vectors are kept."""

from pathlib import Path

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.training.hooks import Hooks
from small import SMALL, small_graph
from stopping import StoppedError, different, files_of, stop_at

VARIANTS: list[dict[str, object]] = [
    {},
    {"mln.hidden_premises": "sampled", "mln.blanket": "full"},
    {
        "neural.model": "ComplEx",
        "neural.vectors.recipe": "one_vs_all",
        "neural.learning_rate": 0.1,
        "em.patience": 1,
        "em.iterations": 9,
    },
    {"em.neural": False},
]


def trained(run: Path, values: dict[str, object] | None = None) -> PLogicNet:
    config = Config().with_values(SMALL | {"neural.steps": 70} | (values or {}))
    return PLogicNet(config).fit(small_graph(), out=run)


def weights(model: PLogicNet) -> dict[str, float]:
    rules = model.rules.take(~model.rules.constraints)
    return dict(zip(map(str, rules.rules), rules.weight.tolist(), strict=True))


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_the_same_rules_get_the_same_weights(values: dict[str, object], tmp_path: Path) -> None:
    """The whole run is the same, except for iterations after the best one."""
    trained(tmp_path / "run", values).save(tmp_path / "before")
    PLogicNet.load(tmp_path / "run").refit(out=tmp_path / "run")
    changed = different(tmp_path / "before", tmp_path / "run")
    assert changed == (["history.jsonl", "metrics.json"] if "em.patience" in values else [])
    model = PLogicNet.load(tmp_path / "run")
    assert len(model.history) == model.fitted.outcome.iteration


def test_a_removed_rule_and_a_given_weight_are_used(tmp_path: Path) -> None:
    """The other columns of the edited table stay as they were."""
    run = tmp_path / "run"
    before = weights(trained(run))
    vectors = files_of(run)["neural.safetensors"]
    header, *lines = (run / "rules.tsv").read_text().splitlines()
    rules = [line.split("\t")[1] for line in lines]
    removed, kept = rules[0], rules[1]
    edited = [header + "\tgiven"] + [line + ("\t=0.75" if i == 1 else "\t") for i, line in enumerate(lines) if i]
    (run / "rules.tsv").write_text("\n".join(edited) + "\n")
    with pytest.raises(InputError, match="plogicnet refit"):
        PLogicNet.load(run)
    PLogicNet.load(run, edited=True).refit(out=run)
    model = PLogicNet.load(run)
    after = weights(model)
    assert set(after) == set(before) - {removed}
    assert after[kept] == 0.75
    assert files_of(run)["neural.safetensors"] == vectors
    # given this weight, the other weights are at the maximum
    outcome = model.fitted.outcome
    matrix, observed = outcome.rule_model.matrix.toarray(), outcome.rule_model.groundings.observed
    target = np.ones(len(observed))
    target[~observed] = outcome.hidden_q
    table = outcome.rule_model.rules
    slope = matrix.T @ (target - 1 / (1 + np.exp(-outcome.rule_model.log_odds))) - table.weight
    assert np.abs(slope[~table.fixed]).max() < 1e-6
    assert np.isnan(table.standard_error).tolist() == table.fixed.tolist()


def test_a_rule_file_replaces_all_rules(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "new.rules"
    trained(run)
    vectors = files_of(run)["neural.safetensors"]
    file.write_text("=2.5: husband(X, Y) => wife(Y, X)\nparent(X, Y) => child(Y, X)\n=> not parent(X, X)\n")
    PLogicNet.load(run).refit(file, out=run)
    model = PLogicNet.load(run)
    assert set(weights(model)) == {"husband(X, Y) => wife(Y, X)", "parent(X, Y) => child(Y, X)"}
    assert weights(model)["husband(X, Y) => wife(Y, X)"] == 2.5
    assert model.explain("man0", "parent", "man0").forbidden is True
    assert model.explain("man0", "wife", "man0").forbidden is False
    assert files_of(run)["neural.safetensors"] == vectors
    assert model.metrics["test"] == model.evaluate()


def test_a_stopped_refit_leaves_a_readable_or_resumable_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    before = weights(trained(run))
    old = PLogicNet.load(run).evaluate()
    for progress in (stop_at("grounding"), stop_at("ranking valid"), stop_at("ranking test")):
        with pytest.raises(StoppedError):
            PLogicNet.load(run).refit("husband(X, Y) => wife(Y, X)", run, Hooks(progress))
        assert weights(PLogicNet.load(run)) == before
        assert PLogicNet.load(run).evaluate() == old

    def fail(*_: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:  # metrics.json is removed and only some files are new
        patch.setattr("plogicnet.runs.files._write_hidden", fail_after_one(fail))
        with pytest.raises(StoppedError):
            PLogicNet.load(run).refit("husband(X, Y) => wife(Y, X)", out=run)
    with pytest.raises(InputError, match="plogicnet resume"):
        PLogicNet.load(run)
    PLogicNet.resume(run)
    assert set(weights(PLogicNet.load(run))) == {"husband(X, Y) => wife(Y, X)"}
    assert not (run / "checkpoint").exists()


def fail_after_one(fail: object) -> object:
    """Return a writer with a normal first call, into the checkpoint, and a failing second call."""
    from plogicnet.runs import files as run_files

    real, calls = run_files._write_hidden, []

    def write(*arguments: object) -> None:
        calls.append(1)
        (real if len(calls) == 1 else fail)(*arguments)  # type: ignore[operator]

    return write


def test_edited_rules_require_a_refit_if_hidden_triples_are_premises(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, {"mln.hidden_premises": "sampled"})
    table = RuleTable.read(run / "rules.tsv")
    assert PLogicNet.load(run).fitted.outcome.rule_model.truth.any()
    table.take(np.arange(len(table)) > 2).write(run / "rules.tsv")
    with pytest.raises(InputError, match="plogicnet refit"):
        PLogicNet.load(run).evaluate()
    PLogicNet.load(run, edited=True).refit(out=run)
    PLogicNet.load(run).evaluate()


def test_a_refitted_run_can_be_resumed_with_more_iterations(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, {"em.iterations": 1})
    PLogicNet.load(run).refit("husband(X, Y) => wife(Y, X)", out=run)
    model = PLogicNet.resume(run, {"em.iterations": 2})
    assert [line.iteration for line in model.history] == [1, 2]
    assert set(weights(model)) == {"husband(X, Y) => wife(Y, X)"}


def test_a_refit_into_another_directory_creates_a_run(tmp_path: Path) -> None:
    model = trained(tmp_path / "run").refit("husband(X, Y) => wife(Y, X)", out=tmp_path / "other")
    assert weights(PLogicNet.load(tmp_path / "other")) == weights(model)


def test_an_added_rule_needs_no_counts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run)
    file = run / "rules.tsv"
    columns = len(file.read_text().split("\n", 1)[0].split("\t"))
    written = "wife(X, Y) & parent(X, Z) => parent(Y, Z)"
    file.write_text(file.read_text() + f"\t{written}" + "\t" * (columns - 2) + "\n")
    PLogicNet.load(run, edited=True).refit(file, out=run)
    table = PLogicNet.load(run).rules
    row = [str(rule) for rule in table.rules].index(written)
    assert table.support[row] > 0
    assert np.isfinite(table.weight[row])
