"""Helpers for error messages."""

import pytest

from plogicnet.support.errors import pluralize


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 triples"), (1, "1 triple"), (2, "2 triples"), (1_000, "1,000 triples")]
)
def test_pluralize_adds_an_s_unless_the_count_is_one(count: int, expected: str) -> None:
    assert pluralize(count, "triple") == expected


def test_pluralize_uses_an_irregular_plural() -> None:
    assert [pluralize(n, "entity is", "entities are") for n in (0, 1, 2)] == [
        "0 entities are",
        "1 entity is",
        "2 entities are",
    ]
