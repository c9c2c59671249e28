"""The option `--search`."""

import pytest

from plogicnet.config import Choices, Config, Range, parse_search
from plogicnet.support.errors import InputError


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("neural.learning_rate=1e-4..1e-1:log", Range(0.0001, 0.1, log=True)),
        ("neural.learning_rate=1..2", Range(1.0, 2.0)),
        ("neural.vectors.dim = 50..200", Range(50, 200)),
        ("neural.vectors.dim=50, 100,200", Choices((50, 100, 200))),
        ("neural.model=complex,Paths", Choices(("ComplEx", "Paths"))),
        ("em.lambda=auto,0.5", Choices(("auto", 0.5))),
        ("mln.hidden_premises=false,sampled", Choices((False, "sampled"))),
        ("rules.patterns=[inverse],[inverse, composition]", Choices((("inverse",), ("inverse", "composition")))),
    ],
)
def test_ranges_and_choices_have_the_types_of_the_setting(text: str, domain: Range | Choices) -> None:
    ((_, parsed),) = parse_search([text], Config()).items()
    assert parsed == domain
    assert repr(parsed) == repr(domain)  # 1 and 1.0 are equal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neural.vectors.dim", "expected key=values, for example"),
        ("neural.vectors.dim=", "expected key=values, for example"),
        ("neural.vectors.dimm=8,16", "unknown setting 'neural.vectors.dimm'. Did you mean 'neural.vectors.dim'?"),
        ("neural.vectors.dim=8,many", "neural.vectors.dim must be an integer, got 'many'"),
        ("neural.vectors.dim=0..8", "neural.vectors.dim must be at least 1"),
        ("neural.vectors.dim=8,8", "a value is listed twice"),
        ("neural.vectors.dim=16..8", "the first number must be less than the second"),
        ("neural.vectors.dim=8..16:linear", "unknown scale 'linear'"),
        ("neural.learning_rate=0..0.1:log", "greater than 0 on a log scale"),
        ("neural.model=ComplEx..TransE", "a range needs two numbers"),
        ("em.lambda=0,1..2", "a range needs two numbers"),
        ("neural.model=Complexx", "Did you mean 'ComplEx'?"),
        ("neural.steps=[1", "is not a range or a list"),
        ("neural.vectors=8", "is a section"),
        ("seed=1,2", "seed cannot be searched"),
    ],
)
def test_invalid_searches_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_search([text], Config())
    assert f"--search {text}" in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("domain", "value", "rounded"),
    [
        (Range(1_001, 1_004), 1_003, 1_003),
        (Range(1_001, 1_004), 1_002.5, 1_002),
        (Range(10_000, 10_100), 10_057, 10_057),
        (Range(1.0001, 1.0004), 1.00025, 1.00025),
        (Range(1_000, 9_000), 1_234, 1_230),
        (Range(1_234, 9_000), 1_234, 1_234),
        (Range(1e-4, 0.1, log=True), 0.000123456, 0.000123),
    ],
)
def test_values_are_rounded_if_the_range_is_wide(domain: Range, value: float, rounded: float) -> None:
    assert domain.round(value) == rounded


def test_a_later_search_replaces_an_earlier_one() -> None:
    assert parse_search(["em.lambda=0..1", "em.lambda=auto"], Config()) == {"em.lambda": Choices(("auto",))}
