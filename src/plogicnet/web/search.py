"""Finding names while they are typed: over names and labels, without regard to case and accents."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from plogicnet.graph import IntArray


def folded(text: str) -> str:
    """A text without case, accents and the difference between blanks and underscores.

    Example:
        >>> folded("Zoë_Ångström")
        'zoe angstrom'
    """
    parts = unicodedata.normalize("NFKD", text.casefold())
    return re.sub(r"[\s_]+", " ", "".join(c for c in parts if not unicodedata.combining(c)))


class Search:
    """All names and labels as one text, the most frequent first, so that searching is the text's own find.

    Example:
        >>> search = Search(["anna", "joanna", "ben"], {"ben": "Ánna's brother"}, [1, 5, 3])
        >>> search.find("ann", 2), search.find("anna", 9)
        ([2, 0], [0, 2, 1])
    """

    def __init__(self, names: Sequence[str], labels: Mapping[str, str], counts: Sequence[int] | IntArray) -> None:
        self.names, self.counts = names, counts
        order = sorted(range(len(names)), key=lambda i: -counts[i])
        texts = [(i, text) for i in order for text in dict.fromkeys((names[i], labels.get(names[i], names[i])))]
        lines = [folded(text) for _, text in texts]
        self.owners = [i for i, _ in texts]
        self.starts = list(accumulate((len(line) + 1 for line in lines), initial=1))  # each after its line break
        self.text = "\n" + "".join(line + "\n" for line in lines)

    def find(self, query: str, most: int) -> list[int]:
        """The numbers of names that are the query, then those that begin so, hold a word that does, or hold it."""
        wanted = folded(query)
        found: dict[int, None] = {}
        for pattern in (f"\n{wanted}\n", f"\n{wanted}", f" {wanted}", wanted) if wanted else ("\n",):
            for owner in self._owners(pattern):
                found[owner] = None
                if len(found) == most:
                    return list(found)
        return list(found)

    def _owners(self, pattern: str) -> Iterator[int]:
        """Whose lines hold a pattern, each line once."""
        at = self.text.find(pattern)
        while 0 <= at < len(self.text) - 1:  # the last line break begins no line
            line = bisect_right(self.starts, at + pattern.startswith("\n")) - 1
            yield self.owners[line]
            at = self.text.find(pattern, self.starts[line + 1] - 1)
