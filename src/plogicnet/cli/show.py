"""Tables and sentences for people."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plogicnet.diagnostics.finding import LEVELS, Checkup
from plogicnet.evaluation.metrics import Metric, columns
from plogicnet.support.errors import many

if TYPE_CHECKING:
    from plogicnet.grounding.groundings import Grounded
    from plogicnet.inference.explanation import Explanation
    from plogicnet.inference.fitted import Prediction
    from plogicnet.rules import RuleTable
    from plogicnet.training.state import Iteration

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


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> Table:
    """A table with numbers to the right, and a note below."""
    result = Table(title=escape(title), title_justify="left", title_style="bold", header_style="")
    result.caption, result.caption_justify = note or None, "left"
    for at, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[at], int | float) or row[at] in ("", "–") for row in rows)
        result.add_column(escape(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        result.add_row(*(escape(f"{cell:,}" if type(cell) is int else str(cell)) for cell in row))
    return result


def metrics_table(title: str, result: Mapping[str, Any], titles: Mapping[str, str], note: str = "") -> Table:
    """One row a ranking, one column a metric that all figures have: of a run, or mean and deviation over seeds.

    Example:
        >>> metrics_table("test", {"plogicnet": {"mrr": 1.0}}, {"plogicnet": "pLogicNet"}).row_count
        1
    """
    there = [key for key in titles if key in result]
    shown = [metric for metric in columns() if all(metric.key in result[key] for key in there)]
    rows = [[titles[key], *(_figure(metric, result[key][metric.key]) for metric in shown)] for key in there]
    return table(title, ["system", *(metric.title for metric in shown)], rows, note)


def _figure(metric: Metric, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{metric.show(value['mean'])} ± {metric.show(value['sd'])}"
    return metric.show(value)


def history_table(history: "Sequence[Iteration]", titles: Mapping[str, str], note: str = "") -> Table:
    """One row per EM iteration, with a note below.

    Example:
        >>> history_table([], {}).row_count
        0
    """
    rows = []
    for line in history:
        confirmed = "–" if line.accepted_precision is None else f"{line.accepted_precision:.1%}"
        mrr = [f"{line.valid[name]['mrr']:.3f}" if name in line.valid else "–" for name in titles]
        rows.append([line.iteration, line.hidden, line.accepted, confirmed, *mrr, f"{line.lambda_:g}"])
    counts = ["iteration", "hidden", "accepted", "confirmed by held-out facts"]
    return table("EM iterations (MRR on valid)", [*counts, *(f"{n} MRR" for n in titles.values()), "λ"], rows, note)


def rules_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rules with weight, where it is learned, its standard error, precision and the counts behind it.

    Example:
        >>> rules_table("rules", []).row_count
        0
    """
    learned, counted = (any(row[key] is not None for row in rows) for key in ("weight", "groundings"))
    cells: list[list[object]] = []
    for row in rows:
        counts = [f"{row['precision']:.2f}", f"{row['hits']:,} of {row['support']:,}"]
        groundings = "–" if row["groundings"] is None else row["groundings"]
        cells.append([_weight(row)] * learned + [row["rule"], row["pattern"], *counts] + [groundings] * counted)
    columns = ["rule", "pattern", "precision", "hits of support"]
    return table(title, ["weight"] * learned + columns + ["groundings"] * counted, cells)


def _weight(row: Mapping[str, Any]) -> str:
    weight, error = row["weight"], row["standard_error"]
    return "–" if weight is None else f"{weight:.2f}" + ("" if error is None else f" ± {error:.2f}")


def predictions_table(
    title: str, found: "Sequence[Prediction]", labels: Mapping[str, str] = NO_LABELS, left_out: int = 0
) -> Table:
    """Judged triples, under their labels where they have some; `left_out` known ones are counted below.

    Example:
        >>> predictions_table("answers", []).row_count
        0
    """
    rows = []
    for p in found:
        reached = "known" if p.known else "by rules" if p.in_hidden else "–" if p.q is None else "by neural model"
        parts = ["–" if p.q is None else f"{p.q:.3f}", f"{p.p_w:.3f}", reached + (", held out" if p.held_out else "")]
        rows.append([f"{p.probability:.3f}", *(labels.get(name, name) for name in p.triple), *parts])
    alone, held_out = sum(p.q is None for p in found), sum(p.held_out is not None for p in found)
    notes = {
        f"{alone:,} of {len(found):,} judged by rules alone: no score by a neural model": alone,
        f"{left_out:,} more known already (--include-known shows them)": left_out,
        f"{held_out:,} held out: facts of valid or test, which training did not see": held_out,
    }
    columns = ["probability", "head", "relation", "tail", "neural (q)", "rules (p_w)", "reached"]
    return table(title, columns, rows, "; ".join(note for note, count in notes.items() if count))


def checkup_table(checkup: Checkup) -> Table:
    """The findings about a graph or a run, warnings first.

    Example:
        >>> checkup_table(Checkup("family", "graph", ())).row_count
        0
    """
    findings = sorted(checkup.findings, key=lambda finding: -LEVELS.index(finding.level))
    rows = [[f.level, "\n".join([f.message, *(f"  {example}" for example in f.examples)])] for f in findings]
    return table(f"{checkup.name}: {checkup.level}", ["level", "finding"], rows)


def mined_counts(candidates: int, rules: "RuleTable", constraints: "RuleTable", grounded: "Grounded") -> dict[str, Any]:
    """What mining found, in numbers."""
    found = {"candidates": candidates, "rules": rules.counts(), "irreflexive": len(constraints)}
    return found | {"hidden": len(grounded.hidden), "groundings": grounded.size}


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


def facts(triples: Sequence[Sequence[str]], labels: Mapping[str, str] = NO_LABELS) -> str:
    """Several triples in words.

    Example:
        >>> facts([["anna", "mother", "ben"], ["ben", "brother", "carl"]])
        'mother(anna, ben) and brother(ben, carl)'
    """
    return " and ".join(fact(triple, labels) for triple in triples)


def best_reason(why: "Explanation") -> str:
    """The strongest reason in one line of words."""
    reasons = [entry for entry in why.rules if entry.contribution > 0]
    entry = next((entry for entry in reasons if entry.premises), None)
    if entry is not None:
        others = f" (+{many(len(reasons) - 1, 'more rule')})" if len(reasons) > 1 else ""
        return f"{facts(entry.premises[0])}, since {entry.rule}{others}"
    if why.paths:
        return f"the neural model alone: {facts(why.paths[0].path)}"
    return "the neural model alone" + (f": like {fact(why.neighbours[0].fact)}" if why.neighbours else "")
