"""Refit: weights are learned again for the same or other rules, and the vectors are kept."""

from pathlib import Path

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.runs.directory import snapshot_folder
from plogicnet.runs.snapshots import read_rules
from plogicnet.support.errors import InputError
from plogicnet.training.hooks import Hooks
from small import SMALL, small_graph
from stopping import StoppedError, different, files_of, leftovers, overwrite, stop_at, tree_of

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


def written_table(run: Path) -> Path:
    """Return the rules of a run as a table to edit, as `plogicnet rules RUN --out my.tsv` writes it."""
    read_rules(run).write(run.parent / "my.tsv")
    return run.parent / "my.tsv"


def weights(model: PLogicNet) -> dict[str, float]:
    rules = model.rules.take(~model.rules.constraints)
    return dict(zip(map(str, rules.rules), rules.weight.tolist(), strict=True))


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_the_same_rules_get_the_same_weights(values: dict[str, object], tmp_path: Path) -> None:
    """The whole snapshot is the same, except for iterations after the best one."""
    trained(tmp_path / "run", values).save(tmp_path / "before")
    PLogicNet.load(tmp_path / "run").refit(out=tmp_path / "run")
    assert snapshot_folder(tmp_path / "run").name == "0002"
    changed = different(tmp_path / "before", tmp_path / "run")
    assert changed == (["history.jsonl"] if "em.patience" in values else [])
    model = PLogicNet.load(tmp_path / "run")
    assert len(model.history) == model.fitted.outcome.iteration


def test_a_removed_rule_and_a_given_weight_are_used(tmp_path: Path) -> None:
    """The counts of the other rules stay as they were."""
    run = tmp_path / "run"
    before = weights(trained(run))
    vectors, file = files_of(run)["neural.safetensors"], written_table(run)
    header, *lines = file.read_text().splitlines()
    rules = [line.split("\t")[1] for line in lines]
    removed, kept = rules[0], rules[1]
    edited = [header + "\tgiven"] + [line + ("\t=0.75" if i == 1 else "\t") for i, line in enumerate(lines) if i]
    file.write_text("\n".join(edited) + "\n")
    PLogicNet.load(run).refit(file, out=run)
    model = PLogicNet.load(run)
    after = weights(model)
    assert set(after) == set(before) - {removed}
    assert after[kept] == 0.75
    assert weights(PLogicNet.load(run, snapshot="0001")) == before
    counts = [{row["rule"]: (row["support"], row["hits"]) for row in read_rules(run, n).rows()} for n in ("0001", None)]
    assert {rule: count for rule, count in counts[0].items() if rule != removed} == counts[1]
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


def test_a_stopped_refit_leaves_the_run_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing must be resumed: the refit is repeated."""
    run, rules = tmp_path / "run", "husband(X, Y) => wife(Y, X)"
    trained(run)
    before = tree_of(run)
    for progress in (stop_at("grounding"), stop_at("ranking valid"), stop_at("ranking test")):
        with pytest.raises(StoppedError):
            PLogicNet.load(run).refit(rules, run, Hooks(progress))
        assert tree_of(run) == before

    def fail(*_: object) -> None:
        raise StoppedError

    for name in ("files._write_hidden", "snapshots.write_manifest", "snapshots.write_text"):
        with monkeypatch.context() as patch:
            patch.setattr(f"plogicnet.runs.{name}", fail)
            with pytest.raises(StoppedError):
                PLogicNet.load(run).refit(rules, run)
        assert (snapshot_folder(run).name, leftovers(run)) == ("0001", [])
        assert {name: content for name, content in tree_of(run).items() if "0002" not in name} == before
        with pytest.raises(InputError, match="nothing to resume"):
            PLogicNet.resume(run)
    PLogicNet.load(run).refit(rules, run)
    assert set(weights(PLogicNet.load(run))) == {rules}
    assert leftovers(run) == []


def test_rules_edited_in_a_snapshot_are_refused(tmp_path: Path) -> None:
    """With sampled premises, the hidden triples of the snapshot would not match the rules."""
    run = tmp_path / "run"
    trained(run, {"mln.hidden_premises": "sampled"})
    assert PLogicNet.load(run).fitted.outcome.rule_model.truth.any()
    table, file = read_rules(run), written_table(run)
    table.take(np.arange(len(table)) > 2).write(file)
    rules_file = snapshot_folder(run) / "rules.tsv"
    original = rules_file.read_bytes()
    overwrite(rules_file, file.read_bytes())
    for call in (PLogicNet.load, read_rules):
        with pytest.raises(InputError, match=r"edited: .* `plogicnet rules RUN --out my.rules`.* `plogicnet refit RUN"):
            call(run)
    overwrite(rules_file, original)
    PLogicNet.load(run).refit(file, out=run)
    model = PLogicNet.load(run)
    assert len(model.rules) == len(table) - 3
    assert model.metrics["test"] == model.evaluate()


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
    file = written_table(run)
    columns = len(file.read_text().split("\n", 1)[0].split("\t"))
    written = "wife(X, Y) & parent(X, Z) => parent(Y, Z)"
    file.write_text(file.read_text() + f"\t{written}" + "\t" * (columns - 2) + "\n")
    PLogicNet.load(run).refit(file, out=run)
    table = PLogicNet.load(run).rules
    row = [str(rule) for rule in table.rules].index(written)
    assert table.support[row] > 0
    assert np.isfinite(table.weight[row])


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mln.objective": "query", "mln.aggregate": "saturating", "mln.query.hidden": 0},
        {"rules.negative": ["disjoint"]},
    ],
    ids=str,
)
def test_rules_are_added_to_those_of_the_run(values: dict[str, object], tmp_path: Path) -> None:
    """A rule that the run has, in any wording, is not added twice."""
    run = tmp_path / "run"
    before = trained(run, values)
    rules, new = set(before.rules.rules), "child(X, Y) & child(Z, Y) => sibling(X, Z)"
    added = f"{new}\n=0.5: husband(Man, Woman) => wife(Woman, Man)\n=> not husband(X, X)\n"
    PLogicNet.load(run).refit(out=run, add_rules=added)
    after = PLogicNet.load(run)
    assert {str(rule) for rule in set(after.rules.rules) - rules} == {new}
    assert rules <= set(after.rules.rules)
    assert len(after.rules.rules) == len(rules) + 1
    assert weights(after)["husband(X, Y) => wife(Y, X)"] == 0.5
    assert np.isfinite(weights(after)[new])
    with pytest.raises(InputError, match="give only one"):
        after.refit(rules=new, add_rules=new)
