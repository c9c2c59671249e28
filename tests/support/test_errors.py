"""Words for messages."""

import pytest

from plogicnet.support.errors import many


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 triples"), (1, "1 triple"), (2, "2 triples"), (1_000, "1,000 triples")]
)
def test_a_count_with_its_noun(count: int, words: str) -> None:
    assert many(count, "triple") == words


def test_a_plural_of_its_own() -> None:
    assert [many(n, "entity is", "entities are") for n in (0, 1, 2)] == [
        "0 entities are",
        "1 entity is",
        "2 entities are",
    ]
