"""Tables and text for the terminal."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plogicnet.diagnostics.finding import LEVELS, DiagnosticReport
from plogicnet.evaluation.metrics import Metric, columns
from plogicnet.support.errors import pluralize
from plogicnet.support.numbers import format_probability

if TYPE_CHECKING:
    from plogicnet.graph import IntArray
    from plogicnet.grounding.groundings import GroundNetwork
    from plogicnet.inference.explanation import Explanation
    from plogicnet.inference.facts import Update
    from plogicnet.inference.fitted import Prediction
    from plogicnet.rules import RuleIndex, RuleTable
    from plogicnet.training.state import Iteration
    from plogicnet.tuning.trials import Trial

HOW_TO_FIND_RULES = "Use --relation, --pattern and --search to find rules, or --top 0 to show all."
NO_LABELS: Mapping[str, str] = {}
TEST_COMPETES = "On valid, answers that are in test count as wrong, so the MRR can be far below that on test."
"""A note for tables of validation metrics."""


class PipeConsole(Console):
    """A console that leaves a closed pipe to the program's exit code. Rich's own would exit with code 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


def console() -> Console:
    """Return the console on stdout. It is 140 columns wide if stdout is not a terminal.

    Example:
        >>> console().print("hello")
        hello
    """
    plain = PipeConsole()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else PipeConsole(width=140)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> Table:
    """Return a table with right-aligned numbers, and a note below it."""
    result = Table(title=escape(title), title_justify="left", title_style="bold", header_style="")
    result.box, result.collapse_padding, result.pad_edge = SIMPLE_HEAD, True, False
    result.caption, result.caption_justify = note or None, "left"
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float) or row[index] in ("", "–") for row in rows)
        longest_word = max(map(len, column.split()), default=0)
        result.add_column(
            escape(column), justify="right" if numeric else "left", overflow="fold", min_width=longest_word
        )
    for row in rows:
        result.add_row(*(escape(f"{cell:,}" if type(cell) is int else str(cell)) for cell in row))
    return result


def metrics_table(title: str, result: Mapping[str, Any], titles: Mapping[str, str], note: str = "") -> Table:
    """Return a table with one row per ranking and one column per metric.

    A metric is a number, or {"mean": …, "sd": …} for several seeds.

    Example:
        >>> metrics_table("test", {"plogicnet": {"mrr": 1.0}}, {"plogicnet": "pLogicNet"}).row_count
        1
    """
    keys = [key for key in titles if key in result]
    shown = [metric for metric in columns() if all(metric.key in result[key] for key in keys)]
    rows = [[titles[key], *(_metric_text(metric, result[key][metric.key]) for metric in shown)] for key in keys]
    return table(title, ["ranking", *(metric.title for metric in shown)], rows, note)


def _metric_text(metric: Metric, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{metric.show(value['mean'])} ± {metric.show(value['sd'])}"
    return metric.show(value)


def history_table(history: "Sequence[Iteration]", titles: Mapping[str, str], note: str = "") -> Table:
    """Return a table with one row per EM iteration.

    Example:
        >>> history_table([], {}).row_count
        0
    """
    rows = []
    for line in history:
        confirmed = "–" if line.accepted_precision is None else f"{line.accepted_precision:.1%}"
        mrr = [f"{line.valid[name]['mrr']:.3f}" if name in line.valid else "–" for name in titles]
        rows.append([line.iteration, line.hidden, line.accepted, confirmed, *mrr, f"{line.lambda_:g}"])
    columns = ["iteration", "hidden", "accepted", "in valid/ test", *titles.values(), "λ"]
    narrow = [column.replace(" ", "\n") for column in columns]  # fits into 80 columns
    return table("EM iterations, MRR on valid", narrow, rows, note)


def trials_table(trials: "Sequence[Trial]", best: "Trial") -> Table:
    """Return a table of the trials of a search. It fits into 80 columns.

    Example:
        >>> from plogicnet.tuning.trials import Trial
        >>> first = Trial(0, "complete", 0.5, 1.0, {})
        >>> trials_table([first], first).row_count
        1
    """
    rows = []
    for trial in trials:
        names = {key: key.rpartition(".")[2] for key in trial.settings}
        settings = ", ".join(f"{names[key]} {value}" for key, value in trial.settings.items())
        mrr = "–" if trial.mrr is None else f"{trial.mrr:.4f}"
        rows.append([trial.trial, mrr, round(trial.seconds), trial.state, trial.error or settings])
    title = f"{pluralize(len(trials), 'trial')}. Best: trial {best.trial}, valid MRR {best.mrr:.4f}"
    return table(title, ["trial", "valid MRR", "seconds", "state", "settings"], rows)


def rules_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of rules with weight, standard error, precision and counts.

    Example:
        >>> rules_table("rules", []).row_count
        0
    """
    learned, counted = (any(row[key] is not None for row in rows) for key in ("weight", "groundings"))
    cells: list[list[object]] = []
    for row in rows:
        counts = [f"{row['precision']:.2f}", f"{row['hits']:,} / {row['support']:,}"]
        groundings = "–" if row["groundings"] is None else row["groundings"]
        cells.append([_weight(row)] * learned + [row["rule"], row["pattern"], *counts] + [groundings] * counted)
    with_errors = any(row["standard_error"] is not None for row in rows)
    weight = "weight ±\nstandard\nerror" if with_errors else "weight"
    columns = ["rule", "pattern", "precision", "hits / support"]
    return table(title, [weight] * learned + columns + ["groundings"] * counted, cells)


def print_rules(index: "RuleIndex", rows: "IntArray", n_matching: int) -> None:
    """Print rules in a table, those of a relation together, and how many of the matching ones are not shown."""
    title = pluralize(len(rows), "rule")
    if len(rows) < n_matching:
        title = f"{len(rows):,} of {pluralize(n_matching, 'rule')}, the most important of each relation first"
    screen = console()
    screen.print(rules_table(title, index.table.take(index.grouped(rows)).rows()))
    if len(rows) < n_matching:
        text = f"{pluralize(n_matching - len(rows), 'rule')} not shown. {HOW_TO_FIND_RULES}"
        screen.print(text, highlight=False)


def _weight(row: Mapping[str, Any]) -> str:
    weight, error = row["weight"], row["standard_error"]
    return "–" if weight is None else f"{weight:.2f}" + ("" if error is None else f" ± {error:.2f}")


def predictions_table(
    title: str, shown: "Sequence[Prediction]", labels: Mapping[str, str] = NO_LABELS, hidden_known: int = 0
) -> Table:
    """Return a table of predictions. A note below it counts the known answers that are not shown (`hidden_known`).

    Example:
        >>> predictions_table("answers", []).row_count
        0
    """
    rows = []
    for p in shown:
        source = "known" if p.known else "rules" if p.in_hidden else "–" if p.q is None else "neural model"
        probabilities = [format_probability(value) for value in (p.probability, p.q, p.p_w)]
        rows.append([fact(p.triple, labels), *probabilities, source, p.held_out or "–"])
    unscored, held_out = sum(p.q is None for p in shown), sum(p.held_out is not None for p in shown)
    notes = {
        f"{unscored:,} of {len(shown):,} have no q: no neural model scores them.": unscored,
        f"{pluralize(hidden_known, 'known answer')} not shown. Use --include-known to show all answers.": hidden_known,
        f"{pluralize(held_out, 'fact is', 'facts are')} held out: in valid or test, not used for training.": held_out,
    }
    columns = ["fact", "probability", "q", "p_w", "source", "held out"]
    legend = "q: probability by the neural model. p_w: probability by the rules." if shown else ""
    return table(title, columns, rows, " ".join([legend, *(note for note, count in notes.items() if count)]).strip())


def findings_table(report: DiagnosticReport) -> Table:
    """Return a table of findings, warnings first.

    Example:
        >>> findings_table(DiagnosticReport("family", "graph", ())).row_count
        0
    """
    findings = sorted(report.findings, key=lambda finding: -LEVELS.index(finding.level))
    rows = [[f.level, "\n".join([f.message, *(f"  {example}" for example in f.examples)])] for f in findings]
    warnings, notes = (sum(f.level == level for f in findings) for level in ("warning", "note"))
    title = f"{report.name}: {pluralize(warnings, 'warning')}, {pluralize(notes, 'note')}"
    return table(title, ["level", "finding"], rows, f"{report.summary}.")


def mined_counts(
    candidates: int, rules: "RuleTable", constraints: "RuleTable", grounded: "GroundNetwork"
) -> dict[str, Any]:
    """Return the counts of mining and grounding as a JSON object."""
    counts = {"candidates": candidates, "rules": rules.counts(), "irreflexive": len(constraints)}
    return counts | {"hidden": len(grounded.hidden), "groundings": grounded.size}


def mined_text(counts: Mapping[str, Any]) -> str:
    """Return the counts of mining as a sentence.

    Example:
        >>> mined_text({"candidates": 5, "rules": {"inverse": 2}, "irreflexive": 0, "hidden": 3, "groundings": 9})
        '2 rules (2 inverse) and 0 constraints from 5 candidates. They have 9 groundings and conclude 3 hidden triples.'
    """
    patterns = ", ".join(f"{n:,} {pattern}" for pattern, n in counts["rules"].items())
    rules = pluralize(sum(counts["rules"].values()), "rule")
    constraints = pluralize(counts["irreflexive"], "constraint")
    hidden, groundings = pluralize(counts["hidden"], "hidden triple"), pluralize(counts["groundings"], "grounding")
    return (
        f"{rules} ({patterns}) and {constraints} from {pluralize(counts['candidates'], 'candidate')}."
        f" They have {groundings} and conclude {hidden}."
    )


def update_text(change: "Update") -> str:
    """Return what an update changed, as sentences.

    Example:
        >>> from plogicnet.inference.facts import Update
        >>> update_text(Update(2, 1, 0, 1, 1, 100, 9))  # doctest: +NORMALIZE_WHITESPACE
        '2 facts added, 1 known before. 1 new entity. The neural model was trained on new entities for 100 steps.
        No longer held out: 0 facts of valid, 1 of test. The rules conclude 9 hidden triples.'
    """
    known = f", {change.known:,} known before" if change.known else ""
    entities = pluralize(change.entities, "new entity", "new entities")
    sentences = [f"{pluralize(change.facts, 'fact')} added{known}. {entities}."]
    if change.trained_steps:
        sentences.append(f"The neural model was trained on new entities for {pluralize(change.trained_steps, 'step')}.")
    if change.moved_from_valid or change.moved_from_test:
        valid = pluralize(change.moved_from_valid, "fact")
        sentences.append(f"No longer held out: {valid} of valid, {change.moved_from_test:,} of test.")
    return " ".join([*sentences, f"The rules conclude {pluralize(change.hidden, 'hidden triple')}."])


def fact(triple: Sequence[str], labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return a triple as text.

    Example:
        >>> fact(["anna", "mother", "ben"])
        'mother(anna, ben)'
    """
    head, relation, tail = (labels.get(name, name) for name in triple)
    return f"{relation}({head}, {tail})"


def facts(triples: Sequence[Sequence[str]], labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return several triples as text.

    Example:
        >>> facts([["anna", "mother", "ben"], ["ben", "brother", "carl"]])
        'mother(anna, ben) and brother(ben, carl)'
    """
    return " and ".join(fact(triple, labels) for triple in triples)


def best_reason(explanation: "Explanation") -> str:
    """Return the strongest reason of an explanation in one line."""
    reasons = [entry for entry in explanation.rules if entry.contribution > 0 and not entry.negative]
    entry = next((entry for entry in reasons if entry.premises), None)
    if entry is not None:
        others = f" (+{pluralize(len(reasons) - 1, 'more rule')})" if len(reasons) > 1 else ""
        return f"{facts(entry.premises[0])}, by the rule {entry.rule}{others}"
    if explanation.paths:
        return f"neural model only, through {facts(explanation.paths[0].path)}"
    return "neural model only" + (
        f", with the similar known fact {fact(explanation.neighbours[0].fact)}" if explanation.neighbours else ""
    )
