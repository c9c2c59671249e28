"""A graph with hostile names: HTML, scripts, control characters, right-to-left text and long names."""

import dataclasses

from plogicnet.graph import KnowledgeGraph
from small import family_rows

IMAGE = "<img src=x onerror=\"document.title='broken'\">"
SCRIPT = "\"></title></style><script>document.title='broken'</script>"
HEBREW = "\u202eאבא של <b>דוד</b>\u202e"
LONG = "x" * 5000
CONTROL = "\x00\x01\x1b[31m\x85&amp;'"
HOSTILE = {
    "man0": IMAGE,
    "woman0": SCRIPT,
    "a0": HEBREW,
    "b0": LONG,
    "c0": CONTROL.replace("\x00", ""),
    "parent": "<i onmouseover=alert(1)>" + HEBREW,
    "sibling": LONG + "r",
}


def hostile_graph() -> KnowledgeGraph:
    rows = [(HOSTILE.get(h, h), HOSTILE.get(r, r), HOSTILE.get(t, t)) for h, r, t in family_rows()]
    graph = KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:], "<script>graph</script>")
    return dataclasses.replace(graph, labels={"man1": SCRIPT, "child": "</svg>" + IMAGE})
