"""Name search, compared with a linear search."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from plogicnet.web.search import Search, normalize

LETTERS = st.text(alphabet="abAÁäñ _ÅŞ\u0301\nß", max_size=6)


def linear_search(names: list[str], labels: dict[str, str], counts: list[int], query: str, limit: int) -> list[int]:
    """Sort matches by tier (equal, same start, word with the same start, anywhere), then by count."""
    wanted = normalize(query)
    if not wanted:
        return sorted(range(len(names)), key=lambda i: -counts[i])[:limit]

    def tier(text: str) -> int:
        line = normalize(text)
        tests = (line == wanted, line.startswith(wanted), f" {wanted}" in line, wanted in line)
        return tests.index(True) if any(tests) else 4

    tiers = [min(tier(name), tier(labels.get(name, name))) for name in names]
    order = sorted(range(len(names)), key=lambda i: (tiers[i], -counts[i]))
    return [i for i in order if tiers[i] < 4][:limit]


@given(
    st.lists(st.tuples(LETTERS, LETTERS, st.integers(0, 5)), unique_by=lambda row: row[0], max_size=12),
    LETTERS,
    st.integers(1, 20),
)
def test_search_equals_a_linear_search(rows: list[tuple[str, str, int]], query: str, limit: int) -> None:
    names, counts = [name for name, _, _ in rows], [count for _, _, count in rows]
    labels = {name: label for name, label, _ in rows if label}
    assert Search(names, labels, counts).find(query, limit) == linear_search(names, labels, counts, query, limit)


def test_case_accents_and_underscores_are_ignored() -> None:
    search = Search(["Zoë_Ångström", "zoe", "İstanbul", "ﬁn", "שלום"], {}, [1, 2, 3, 4, 5])
    assert search.find("ZOE ANG", 5) == [0]
    assert search.find("zoë", 5) == [1, 0]
    assert search.find("istan", 5) == [2]
    assert search.find("fin", 5) == [3]
    assert search.find("של", 5) == [4]
    assert unicodedata.normalize("NFD", "Å") != "Å"
    assert search.find(unicodedata.normalize("NFD", "Ångström"), 5) == [0]


def test_the_number_of_matches_is_limited() -> None:
    search = Search([f"name {i}" for i in range(1000)], {}, range(1000))
    assert search.find("na", 20) == list(range(999, 979, -1))
    assert search.find("", 3) == [999, 998, 997]
    assert search.find("no such", 20) == []
