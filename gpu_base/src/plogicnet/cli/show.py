"""Tables and trees for people."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plogicnet.errors import many
from plogicnet.titles import titles_of

NO_LABELS: Mapping[str, str] = {}
TEST_COMPETES = "On valid, facts of test compete (train and valid alone are left out): MRR may be far below test's."
"""Why figures on valid are lower, for a table of them where there are figures on test too."""


def console() -> Console:
    """Where tables go: stdout, wide enough for a table when it is no terminal.

    Example:
        >>> console().print("hello")
        hello
    """
    plain = Console()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Console(width=140)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table with numbers to the right.

    Example:
        >>> console().print(table("people", ["name"], [["anna"]]))  # doctest: +SKIP
    """
    result = Table(title=escape(title), title_justify="left", title_style="bold", header_style="")
    for at, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[at], int | float) or row[at] in ("", "–") for row in rows)
        result.add_column(escape(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        result.add_row(*(escape(_text(cell)) for cell in row))
    return result


def metrics_table(title: str, result: Mapping[str, Any], system: str, note: str = "") -> Table:
    """The figures of a run of a system side by side, with a note below.

    Example:
        >>> figures = dict.fromkeys(("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10"), 1.0)
        >>> metrics_table("test", {"plogicnet": figures}, "plogicnet").row_count
        1
    """
    keys = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
    rows = [
        [named, *(f"{result[key][k]:.3f}" for k in keys), f"{result[key]['mr']:.1f}"]
        for key, named in titles_of(system).items()
        if key in result
    ]
    return _noted(table(title, ["system", "MRR", "Hits@1", "Hits@3", "Hits@10", "MR"], rows), note)


def seeds_table(title: str, figures: Mapping[str, Any], system: str) -> Table:
    """The figures of a system's runs over several seeds.

    Example:
        >>> seeds_table("test", {}, "plogicnet").row_count
        0
    """
    keys = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
    rows = [
        [named, *(f"{figures[key][k]['mean']:.3f} ± {figures[key][k]['sd']:.3f}" for k in keys)]
        for key, named in titles_of(system).items()
        if key in figures
    ]
    return table(title, ["system", "MRR", "Hits@1", "Hits@3", "Hits@10"], rows)


def history_table(history: Sequence[Mapping[str, Any]], system: str, note: str = "") -> Table:
    """One row per EM iteration, with a note below.

    Example:
        >>> history_table([], "plogicnet").row_count
        0
    """
    titles, rows = titles_of(system), []
    for line in history:
        precision = line["accepted_precision"]
        shown = [f"{line['valid'][name]['mrr']:.3f}" if name in line["valid"] else "–" for name in titles]
        rows.append(
            [
                line["iteration"],
                line["hidden"],
                line["accepted"],
                "–" if precision is None else f"{precision:.1%}",
                *shown,
                f"{line['lambda']:g}",
            ]
        )
    columns = [
        "iteration",
        "hidden",
        "accepted",
        "confirmed by held-out facts",
        *(f"{n} MRR" for n in titles.values()),
        "λ",
    ]
    return _noted(table("EM iterations (MRR on valid)", columns, rows), note)


def _noted(result: Table, note: str) -> Table:
    result.caption, result.caption_justify = note or None, "left"
    return result


def rules_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rules with weight, where it is learned, its standard error, precision and the counts behind it.

    Example:
        >>> rules_table("rules", []).row_count
        0
    """
    learned = any(row["weight"] is not None for row in rows)
    counted = any(row["groundings"] is not None for row in rows)
    cells = [
        [
            *([_weight(row)] if learned else []),
            row["rule"],
            row["pattern"],
            f"{row['precision']:.2f}",
            f"{row['hits']:,} of {row['support']:,}",
            *(["–" if row["groundings"] is None else row["groundings"]] if counted else []),
        ]
        for row in rows
    ]
    columns = ["rule", "pattern", "precision", "hits of support"]
    return table(title, ["weight"] * learned + columns + ["groundings"] * counted, cells)


def _weight(row: Mapping[str, Any]) -> str:
    if row["weight"] is None:
        return "–"
    error = row["standard_error"]
    return f"{row['weight']:.2f}" + ("" if error is None else f" ± {error:.2f}")


def predictions_table(
    title: str, rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str] = NO_LABELS, left_out: int = 0
) -> Table:
    """Judged triples, under their labels where they have some; with how many were left out, being known.

    Example:
        >>> predictions_table("answers", []).row_count
        0
    """
    cells = [
        [
            f"{row['probability']:.3f}",
            *(labels.get(row[part], row[part]) for part in ("head", "relation", "tail")),
            "no vector" if row["q"] is None else f"{row['q']:.3f}",
            f"{row['p_w']:.3f}",
            ("known" if row["known"] else "by rules" if row["in_hidden"] else "–" if row["q"] is None else "by vectors")
            + (", held out" if row.get("held_out") else ""),
        ]
        for row in rows
    ]
    alone = sum(row["q"] is None for row in rows)
    result = table(title, ["probability", "head", "relation", "tail", "vectors (q)", "rules (p_w)", "reached"], cells)
    held_out = sum(bool(row.get("held_out")) for row in rows)
    notes = [f"{alone:,} of {len(rows):,} judged by rules alone: no vector"] if alone else []
    notes += [f"{left_out:,} more known already (--include-known shows them)"] if left_out else []
    notes += [f"{held_out:,} held out: facts of valid or test, which training did not see"] if held_out else []
    return _noted(result, "; ".join(notes))


def checkup_table(checkup: Mapping[str, Any]) -> Table:
    """A doctor's findings, warnings first.

    Example:
        >>> checkup_table({"graph": "family", "level": "ok", "findings": []}).row_count
        0
    """
    order = ("warning", "note", "ok")
    findings = sorted(checkup["findings"], key=lambda finding: order.index(finding["level"]))
    rows = [[f["level"], "\n".join([f["message"], *(f"  {example}" for example in f["examples"])])] for f in findings]
    name = checkup.get("run") or checkup["graph"]
    return table(f"{name}: {checkup['level']}", ["level", "finding"], rows)


def mined_text(counts: Mapping[str, Any]) -> str:
    """What mining found, in a sentence.

    Example:
        >>> mined_text({"candidates": 5, "rules": {"inverse": 2}, "irreflexive": 0, "hidden": 3, "groundings": 9})
        '2 rules (2 inverse) and 0 constraints, of 5 candidates mined; they conclude 3 hidden triples by 9 groundings.'
    """
    kinds = ", ".join(f"{n:,} {pattern}" for pattern, n in counts["rules"].items())
    return (
        f"{many(sum(counts['rules'].values()), 'rule')} ({kinds}) and {many(counts['irreflexive'], 'constraint')},"
        f" of {many(counts['candidates'], 'candidate')} mined;"
        f" they conclude {many(counts['hidden'], 'hidden triple')} by {many(counts['groundings'], 'grounding')}."
    )


def fact(triple: Sequence[str], labels: Mapping[str, str] = NO_LABELS) -> str:
    """A triple in words.

    Example:
        >>> fact(["anna", "mother", "ben"])
        'mother(anna, ben)'
    """
    head, relation, tail = (labels.get(name, name) for name in triple)
    return f"{relation}({head}, {tail})"


def best_reason(reason: Mapping[str, Any]) -> str:
    """The strongest reason in one line of words.

    Example:
        >>> best_reason({"rules": [], "neighbours": []})
        'the vectors alone'
    """
    for entry in reason["rules"]:
        if entry["contribution"] > 0 and entry["premises"]:
            premises = " and ".join(fact(p) for p in entry["premises"][0])
            others = sum(other["contribution"] > 0 for other in reason["rules"]) - 1
            return f"{premises}, since {entry['rule']}" + (f" (+{many(others, 'more rule')})" if others else "")
    if reason["neighbours"]:
        return f"the vectors alone: like {fact(reason['neighbours'][0]['fact'])}"
    return "the vectors alone"


def _text(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, int):
        return str(cell)
    return f"{cell:,}"
