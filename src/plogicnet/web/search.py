"""Search over names and labels that ignores case, accents and underscores."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from plogicnet.graph import IntArray


def normalize(text: str) -> str:
    """Return a text in lower case and without accents; white space and underscores become one space.

    Example:
        >>> normalize("Zoë_Ångström")
        'zoe angstrom'
    """
    parts = unicodedata.normalize("NFKD", text.casefold())
    return re.sub(r"[\s_]+", " ", "".join(c for c in parts if not unicodedata.combining(c)))


class Search:
    """A search index: one string with all names and labels, one per line, those with the highest counts first.

    Example:
        >>> search = Search(["anna", "joanna", "ben"], {"ben": "Ánna's brother"}, [1, 5, 3])
        >>> search.find("ann", 2), search.find("anna", 9)
        ([2, 0], [0, 2, 1])
    """

    def __init__(self, names: Sequence[str], labels: Mapping[str, str], counts: Sequence[int] | IntArray) -> None:
        self.names, self.counts = names, counts
        order = sorted(range(len(names)), key=lambda i: -counts[i])
        texts = [(i, text) for i in order for text in dict.fromkeys((names[i], labels.get(names[i], names[i])))]
        lines = [normalize(text) for _, text in texts]
        self.name_indices = [i for i, _ in texts]
        self.starts = list(accumulate((len(line) + 1 for line in lines), initial=1))  # position of each line in `text`
        self.text = "\n" + "".join(line + "\n" for line in lines)

    def find(self, query: str, limit: int) -> list[int]:
        """Return the indices of at most `limit` matching names.

        Names or labels that equal the query are first, then those that start with it, those in which another word
        starts with it, and those that contain it.
        """
        text = normalize(query)
        matches: dict[int, None] = {}
        for pattern in (f"\n{text}\n", f"\n{text}", f" {text}", text) if text else ("\n",):
            for index in self._find_lines(pattern):
                matches[index] = None
                if len(matches) == limit:
                    return list(matches)
        return list(matches)

    def _find_lines(self, pattern: str) -> Iterator[int]:
        """Yield the index of the name of each line that contains a pattern."""
        position = self.text.find(pattern)
        while 0 <= position < len(self.text) - 1:  # the last line break is not followed by a line
            line = bisect_right(self.starts, position + pattern.startswith("\n")) - 1
            yield self.name_indices[line]
            position = self.text.find(pattern, self.starts[line + 1] - 1)
