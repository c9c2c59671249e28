"""The settings: YAML round trips, --set, presets and error messages."""

import dataclasses
import re

import pytest
import yaml

from calling import Call
from plogicnet.config import MODELS, Config, preset_names
from plogicnet.config.tree import iter_settings
from plogicnet.support.errors import InputError


def leaves(node: object, prefix: str = "") -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value, _ in iter_settings(node):
        values |= leaves(value, f"{prefix}{name}.") if dataclasses.is_dataclass(value) else {prefix + name: value}
    return values


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
    comments = {line.split(":")[0].strip(): line.split("# ")[1] for line in text.splitlines()}
    assert comments["learning_rate"] == "learning rate of the optimizer; auto: default of the model (number | auto)"
    assert comments["rerank"].endswith("(integer | all)")
    assert comments["vectors"] == "settings of vector models"
    assert comments["blp"] == "settings of the system blp"


def test_later_assignments_override_earlier_ones() -> None:
    assert Config().with_assignments(["neural.steps=3", "neural.steps=5"]).neural.steps == 5
    config = Config().with_assignments(["neural.vectors.dim=3", "neural.vectors.dim=5"])
    assert config.neural.blocks["vectors"].dim == 5


def test_the_config_command_prints_every_block(call: Call) -> None:
    printed = yaml.safe_load(call("config")[1])
    assert printed["neural"]["vectors"]["dim"] == 200
    assert set(printed["systems"]) == {"blp", "ruge", "nne_aer"}


def test_a_broken_extension_only_raises_when_it_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS._entries, "Broken", "no_such_module:MODEL")
    assert Config().with_values({"neural.vectors.dim": 3}).completed.neural.blocks["vectors"].dim == 3
    with pytest.raises(InputError, match=r"neural model 'Broken': cannot import no_such_module:MODEL"):
        Config().with_values({"neural.model": "Broken"})


def test_a_completed_config_contains_its_blocks_and_round_trips_through_yaml() -> None:
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
        ("neural.model=foo", ["neural.model: unknown neural model 'foo'", "Available: TransE, RotatE"]),
        ("neural.vectors.dim=0", ["neural.vectors.dim must be at least 1 and at most 100,000, got 0"]),
        ("neural.vectors.dim=1.5", ["neural.vectors.dim must be an integer, got 1.5"]),
        ("seed=true", ["seed must be an integer, got True"]),
        ("em.tau_triplet=1.5", ["em.tau_triplet must be at least 0 and at most 1, got 1.5"]),
        ("em.tau_triplet=.nan", ["em.tau_triplet must be at least 0 and at most 1, got nan"]),
        ("em.lambda=.inf", ["em.lambda must be at least 0, got inf"]),
        ("em.lambda=much", ["em.lambda must be a number or auto, got 'much'"]),
        ("neural.steps=many", ["neural.steps must be an integer or auto, got 'many'"]),
        ("seed=-1", ["seed must be at least 0 and at most 2,147,483,647, got -1"]),
        ("em.rules=1", ["em.rules must be true or false, got 1"]),
        (
            "rules.patterns=inverse",
            ["must be a list such as [inverse], each item one of composition, ", "got 'inverse'"],
        ),
        ("rules.patterns=inverse,symmetric", ["a list such as [inverse, symmetric], each item"]),
        ("rules.patterns=circle", ["a list such as [composition], each item"]),
        ("rules.patterns=[circle]", ["rules.patterns must be a list such as [composition]", "got ['circle']"]),
        ("em.lambda_grid=much", ["em.lambda_grid must be a list such as [0.5], each item a number, got 'much'"]),
        ("mln.hidden_premises=true", ["one of false, sampled"]),
        ("neural=3", ["neural is a section. Set one of its settings: model, steps"]),
        ("neural.vectors=3", ["neural.vectors is a section. Set one of its settings: dim"]),
        ("system=plogicnett", ["system: unknown system 'plogicnett'. Did you mean 'plogicnet'"]),
        ("grounding.engine=3", ["grounding.engine must be one of auto, native, sql", "got 3"]),
        ("grounding.engine=prolog", ["unknown engine 'prolog'", "Available: auto, native, sql"]),
        ("neural.vectors.dim.x=3", ["neural.vectors.dim is a single value, not a section"]),
        ("neural.vectors.dim", ["expected key=value"]),
        ("neural.vectors.dim=[", ["is not valid YAML"]),
    ],
)
def test_an_invalid_assignment_raises_with_suggestions_or_allowed_values(assignment: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        Config().with_assignments([assignment])
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("key", [key for key, value in leaves(Config()).items() if isinstance(value, tuple) and value])
def test_the_example_list_in_a_message_is_accepted(key: str) -> None:
    item = leaves(Config())[key][-1]  # type: ignore[index]
    with pytest.raises(InputError) as caught:
        Config().with_assignments([f"{key}={item}"])
    examples = re.findall(r"a list such as (\[.*?\])", str(caught.value))
    assert leaves(Config().with_assignments([f"{key}={examples[0]}"]))[key] == (item,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "neural:\n  steps: 3\n  vectors:\n    dum: 4\n",
            "my.yaml, line 4, column 5: unknown setting 'neural.vectors.dum'",
        ),
        ("neural: {vectors: {dim: x}}\n", "my.yaml, line 1, column 20: neural.vectors.dim must be an integer"),
        ("neural: [\n", "my.yaml, line 2, column 1: invalid YAML"),
        ("- 3\n", "my.yaml: expected settings"),
    ],
)
def test_an_invalid_file_raises_with_line_and_column(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Config().with_yaml(text, "my.yaml")
    assert str(caught.value).startswith(words)


def test_every_preset_loads() -> None:
    assert "best/family" in preset_names()
    for name in preset_names():
        assert Config().with_preset(name) != Config()
    with pytest.raises(InputError, match=r"unknown preset 'best/famly'\. Did you mean 'best/family'"):
        Config().with_preset("best/famly")
