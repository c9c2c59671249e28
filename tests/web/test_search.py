"""Finding names: against the obvious way, one name after the other."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from plogicnet.web.search import Search, folded

LETTERS = st.text(alphabet="abAÁäñ _ÅŞ\u0301\nß", max_size=6)


def obvious(names: list[str], labels: dict[str, str], counts: list[int], query: str, most: int) -> list[int]:
    """By how a name or label holds the query: as a whole, at its beginning, at a word's, anywhere; then by count."""
    wanted = folded(query)
    if not wanted:
        return sorted(range(len(names)), key=lambda i: -counts[i])[:most]

    def tier(text: str) -> int:
        line = folded(text)
        tests = (line == wanted, line.startswith(wanted), f" {wanted}" in line, wanted in line)
        return tests.index(True) if any(tests) else 4

    tiers = [min(tier(name), tier(labels.get(name, name))) for name in names]
    order = sorted(range(len(names)), key=lambda i: (tiers[i], -counts[i]))
    return [i for i in order if tiers[i] < 4][:most]


@given(
    st.lists(st.tuples(LETTERS, LETTERS, st.integers(0, 5)), unique_by=lambda row: row[0], max_size=12),
    LETTERS,
    st.integers(1, 20),
)
def test_search_finds_what_one_by_one_finds(rows: list[tuple[str, str, int]], query: str, most: int) -> None:
    names, counts = [name for name, _, _ in rows], [count for _, _, count in rows]
    labels = {name: label for name, label, _ in rows if label}
    assert Search(names, labels, counts).find(query, most) == obvious(names, labels, counts, query, most)


def test_case_accents_and_underscores_do_not_matter() -> None:
    search = Search(["Zoë_Ångström", "zoe", "İstanbul", "ﬁn", "שלום"], {}, [1, 2, 3, 4, 5])
    assert search.find("ZOE ANG", 5) == [0]
    assert search.find("zoë", 5) == [1, 0]
    assert search.find("istan", 5) == [2]
    assert search.find("fin", 5) == [3]
    assert search.find("של", 5) == [4]
    assert unicodedata.normalize("NFD", "Å") != "Å"
    assert search.find(unicodedata.normalize("NFD", "Ångström"), 5) == [0]


def test_the_number_of_answers_is_bounded() -> None:
    search = Search([f"name {i}" for i in range(1000)], {}, range(1000))
    assert search.find("na", 20) == list(range(999, 979, -1))
    assert search.find("", 3) == [999, 998, 997]
    assert search.find("no such", 20) == []
