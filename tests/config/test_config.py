"""The settings: YAML in and out, --set, and errors that teach."""

import dataclasses
import re

import pytest
import yaml

from calling import Call
from plogicnet.config import MODELS, Config, preset_names
from plogicnet.config.tree import children
from plogicnet.support.errors import InputError


def leaves(node: object, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value, _ in children(node):
        found |= leaves(value, f"{prefix}{name}.") if dataclasses.is_dataclass(value) else {prefix + name: value}
    return found


def test_yaml_round_trip_of_the_defaults_and_of_changes() -> None:
    changed = Config().with_assignments(["em.lambda=0.25", "rules.patterns=[inverse]", "neural.learning_rate=5e-05"])
    for config in (Config(), changed):
        assert Config().with_yaml(config.to_yaml(), "file") == config
        assert Config().with_yaml(config.to_yaml(comments=True), "file") == config


def test_every_setting_can_be_set_by_its_dotted_key_and_has_a_comment() -> None:
    every = Config().with_all_blocks
    text = every.to_yaml(comments=True)
    plain = yaml.safe_load(text)
    assert {"neural.vectors.dim", "systems.blp.prior", "systems.ruge.c", "systems.nne_aer.mu"} <= set(leaves(every))
    for key, value in leaves(every).items():
        assert every.with_values({key: list(value) if isinstance(value, tuple) else value}) == every
        node = plain
        for part in key.split("."):
            node = node[part]
        assert f"{key.split('.')[-1]}:" in text
    assert all("#" in line for line in text.splitlines())


def test_later_wins_over_earlier() -> None:
    assert Config().with_assignments(["neural.steps=3", "neural.steps=5"]).neural.steps == 5
    config = Config().with_assignments(["neural.vectors.dim=3", "neural.vectors.dim=5"])
    assert config.neural.blocks["vectors"].dim == 5


def test_the_command_shows_every_block(call: Call) -> None:
    shown = yaml.safe_load(call("config")[1])
    assert shown["neural"]["vectors"]["dim"] == 200
    assert set(shown["systems"]) == {"blp", "ruge", "nne_aer"}


def test_a_part_that_cannot_be_imported_harms_only_who_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS._entries, "Broken", "no_such_module:MODEL")
    assert Config().with_values({"neural.vectors.dim": 3}).completed.neural.blocks["vectors"].dim == 3
    with pytest.raises(InputError, match=r"neural model 'Broken': its entry point no_such_module:MODEL"):
        Config().with_values({"neural.model": "Broken"})


def test_a_completed_config_holds_the_blocks_that_it_uses_and_survives_yaml() -> None:
    completed = Config().with_values({"system": "ruge"}).completed
    assert set(completed.neural.blocks) == {"vectors"}
    assert set(completed.systems.blocks) == {"ruge"}
    assert completed.neural.model == "ComplEx"
    assert Config().with_yaml(completed.to_yaml(), "file") == completed == completed.completed


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        (
            "neural.vectors.dimm=3",
            ["unknown setting 'neural.vectors.dimm'", "'neural.vectors.dim'", "in neural.vectors:"],
        ),
        ("neural.vektors.dim=3", ["unknown setting 'neural.vektors.dim'", "Did you mean 'neural.vectors'"]),
        ("systems.blq.prior=3", ["unknown setting 'systems.blq.prior'", "Did you mean 'systems.blp'"]),
        ("sede=3", ["unknown setting 'sede'", "'seed'"]),
        ("neural.model=foo", ["neural.model: unknown neural model 'foo'", "There are: TransE, RotatE"]),
        ("neural.vectors.dim=0", ["neural.vectors.dim: 0 is out of range; it is at least 1"]),
        ("neural.vectors.dim=1.5", ["neural.vectors.dim: 1.5 is not allowed; a whole number"]),
        ("seed=true", ["seed: True is not allowed; a whole number"]),
        ("em.tau_triplet=1.5", ["em.tau_triplet: 1.5 is out of range; it is at least 0 and at most 1"]),
        ("em.tau_triplet=.nan", ["out of range"]),
        ("em.lambda=.inf", ["out of range"]),
        ("em.lambda=much", ["em.lambda: 'much' is not allowed; a number or one of auto"]),
        ("em.rules=1", ["em.rules: 1 is not allowed; true or false"]),
        ("rules.patterns=inverse", ["'inverse' is not allowed; a list, as [inverse], each item one of composition, "]),
        ("rules.patterns=inverse,symmetric", ["a list, as [inverse, symmetric], each item"]),
        ("rules.patterns=circle", ["a list, as [composition], each item"]),
        ("rules.patterns=[circle]", ["rules.patterns: ['circle'] is not allowed"]),
        ("em.lambda_grid=much", ["em.lambda_grid: 'much' is not allowed; a list, as [0.5], each item a number"]),
        ("mln.hidden_premises=true", ["one of false, sampled"]),
        ("neural=3", ["neural holds the settings model, steps"]),
        ("neural.vectors=3", ["neural.vectors holds the settings dim"]),
        ("system=plogicnett", ["system: unknown system 'plogicnett'. Did you mean 'plogicnet'"]),
        ("grounding.engine=3", ["grounding.engine: 3 is not allowed; one of"]),
        ("neural.vectors.dim.x=3", ["neural.vectors.dim is one value and holds no settings"]),
        ("neural.vectors.dim", ["expected key=value"]),
        ("neural.vectors.dim=[", ["no value in YAML"]),
    ],
)
def test_a_mistake_is_named_with_the_nearest_key_or_the_allowed_values(assignment: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        Config().with_assignments([assignment])
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("key", [key for key, value in leaves(Config()).items() if isinstance(value, tuple)])
def test_where_a_list_is_meant_the_message_shows_one_that_is_accepted(key: str) -> None:
    item = leaves(Config())[key][-1]  # type: ignore[index]
    with pytest.raises(InputError) as caught:
        Config().with_assignments([f"{key}={item}"])
    shown = re.findall(r"a list, as (\[.*?\])", str(caught.value))
    assert leaves(Config().with_assignments([f"{key}={shown[0]}"]))[key] == (item,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "neural:\n  steps: 3\n  vectors:\n    dum: 4\n",
            "my.yaml, line 4, column 5: unknown setting 'neural.vectors.dum'",
        ),
        ("neural: {vectors: {dim: x}}\n", "my.yaml, line 1, column 20: neural.vectors.dim: 'x' is not allowed"),
        ("neural: [\n", "my.yaml, line 2, column 1: not YAML"),
        ("- 3\n", "my.yaml: expected settings"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Config().with_yaml(text, "my.yaml")
    assert str(caught.value).startswith(words)


def test_every_preset_loads() -> None:
    assert "best/family" in preset_names()
    for name in preset_names():
        assert Config().with_preset(name) != Config()
    with pytest.raises(InputError, match=r"unknown preset 'best/famly'\. Did you mean 'best/family'"):
        Config().with_preset("best/famly")
