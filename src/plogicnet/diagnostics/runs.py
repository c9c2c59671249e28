"""Checks of a trained run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from plogicnet.config import Config
from plogicnet.diagnostics.finding import (
    MAX_EXAMPLES,
    ONE_PERCENT,
    TEN_PERCENT,
    DiagnosticReport,
    Finding,
    Level,
    Thresholds,
    grade,
    make_finding,
    share_finding,
)
from plogicnet.diagnostics.graphs import overlaps
from plogicnet.evaluation.calibration import Sample, sample
from plogicnet.evaluation.ranking import filter_splits
from plogicnet.evaluation.results import CalibrationQuality, RankingMetrics, SplitMetrics
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph
from plogicnet.inference.fitted import FittedModel, PredictionBatch
from plogicnet.neural.protocol import ParameterTable
from plogicnet.rules import RuleTable
from plogicnet.systems.system import MORE_RULES, NEURAL, PLOGICNET_STAR_KEY, RULES, System, system_of
from plogicnet.training.state import Iteration

HALF = 0.5
HUGE_WEIGHT = 20.0
"""One grounding with this weight gives a probability of 1 - 2e-9, which needs more evidence than any graph has."""
WEIGHT_TOLERANCE = 1e-3
"""If all absolute weights are smaller than this, training has not changed them from their initial value 0."""
MIN_ACCEPTED = 0.05
"""Minimum share of accepted hidden triples. Fewer have little effect on the neural model."""
PRIOR_ERROR = 0.99
"""The prior of a weight has the standard deviation 1/√l2.

If the standard error is at least this share of it, the triples do not determine the weight.
"""
MIN_SPREAD = 1e-3
"""Minimum spread of entity vectors, relative to their size."""
DROP_NOTE, DROP_WARNING = 0.001, 0.01
"""Differences of MRR for a note and a warning."""
TIES_NOTE, TIES_WARNING = 0.02, 0.1
"""Differences of MRR between optimistic and pessimistic ranks for a note and a warning."""


def examine_run(name: str, fitted: FittedModel, config: Config, metrics: Mapping[str, Any]) -> DiagnosticReport:
    """Run all checks of a run. Checks that need a neural model or rules are skipped if the run has none.

    Args:
        name: name of the run.
        fitted: the trained model.
        config: settings of the run.
        metrics: content of metrics.json.
    """
    split = "test" if len(fitted.graph.test) else "valid"
    results = SplitMetrics.from_json(metrics[split]) if split in metrics else None
    labels = sample(fitted.graph, split, filter_splits(split), config.seed, fitted.outcome.neural)
    neural, system = fitted.outcome.neural, system_of(config)
    rules = fitted.outcome.rule_model.rules
    rules = rules.take(~rules.formulas)  # their weights say nothing about single rules
    findings = (
        *overlaps(fitted.graph),
        *_held_out(fitted.graph, split),
        *(_tables(fitted.graph, neural.tables()) if neural is not None else ()),
        *_scores(fitted.predict_batch(labels.triples), neural is not None),
        *(_rankings(results.rankings, len(fitted.graph.entities), config) if results else ()),
        *(_weights(rules, system, config.mln.l2) if len(rules) else ()),
        *(_hidden(config, len(rules), fitted.outcome.accepted) if config.em.rules else ()),
        *(_lambda(fitted.outcome.lambda_, config) if neural is not None and len(rules) else ()),
        *_iterations(fitted.outcome.history, fitted.outcome.iteration),
        *(_probabilities(results.calibration, labels, config) if results else ()),
    )
    return DiagnosticReport(name, "run", findings, {"split": split})


def _held_out(graph: KnowledgeGraph, split: str) -> Iterator[Finding]:
    """Check whether the metrics are on triples that were not used for training or selection."""
    total = len(graph.train) + len(graph.valid)
    if graph.moved_to_valid:
        share = graph.moved_to_valid / total
        message = (
            f"the graph has no valid split, so {graph.moved_to_valid:,} of its {total:,} training triples"
            f" ({100 * share:.1f}%) were held out. They are used for λ and calibration, not for training."
            " Provide a valid split to choose them yourself."
        )
        yield make_finding(
            "held-out share", "warning" if share > TEN_PERCENT else "note", share, message, graph.moved_to_valid
        )
    check = "held-out metrics"
    if split == "test":
        yield make_finding(
            check, "ok", 0.0, f"the metrics are on {len(graph.test):,} test triples, which training did not use."
        )
        return
    message = (
        "the graph has no test split, so the metrics are on valid. λ and calibration were fitted on these triples, so"
        " the metrics are too good. Create a test split, for example with `--split 0.8,0.1,0.1`."
    )
    yield make_finding(check, "warning", 1.0, message, len(graph.valid))


def _tables(graph: KnowledgeGraph, tables: Mapping[str, ParameterTable]) -> Iterator[Finding]:
    """Check whether the neural model's parameters are finite, and whether the vectors of entities differ."""
    if not tables:
        return
    bad = {name: int((~np.isfinite(table.values)).sum()) for name, table in tables.items()}
    meaning = (
        "Training diverged, or the file is damaged. Train again with a smaller neural.learning_rate,"
        " or copy the file again."
    )
    thresholds = Thresholds("The neural model is usable.", meaning, warning=0.0)
    description, size = "parameters are infinite or NaN", sum(table.values.size for table in tables.values())
    examples = [f"{name}: {count:,}" for name, count in bad.items() if count]
    yield share_finding("vectors that are not finite", sum(bad.values()), size, description, thresholds, examples)
    by_entity = [table.values.reshape(len(table.values), -1) for table in tables.values() if table.row_kind == "entity"]
    if not by_entity:
        return
    vectors = np.concatenate(by_entity, axis=1)
    equal = _equal_rows(vectors)
    meaning = (
        "The neural model cannot distinguish them. Train longer (neural.steps), or check whether they are in train."
    )
    thresholds = Thresholds("The neural model can distinguish all entities.", meaning, ONE_PERCENT, TEN_PERCENT)
    description, examples = "entities have the same vector as another", graph.entities.take(equal[:MAX_EXAMPLES])
    yield share_finding("equal vectors", len(equal), len(vectors), description, thresholds, examples)
    spread = _spread(vectors)
    collapsed = spread < MIN_SPREAD and len(vectors) > 1
    meaning = (
        ". They have collapsed, so the neural model cannot distinguish entities. Train again with another"
        " neural.learning_rate."
        if collapsed
        else ", so the neural model can distinguish entities."
    )
    message = f"the vectors of entities differ by up to {100 * spread:.2g}% of their size{meaning}"
    level: Level = "warning" if collapsed else "ok"
    yield make_finding("spread of the vectors", level, float(collapsed), message, collapsed * len(vectors))


def _equal_rows(table: FloatArray) -> IntArray:
    """Return the rows that are bitwise equal to another row."""
    table = np.ascontiguousarray(table)
    rows = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, group, counts = np.unique(rows, return_inverse=True, return_counts=True)
    return np.flatnonzero(counts[group] > 1)


def _spread(table: FloatArray) -> float:
    """Return the largest standard deviation of a column, divided by the largest absolute value.

    Rows with infinite values or NaN are ignored.
    """
    finite = table[np.isfinite(table).all(axis=1)]
    size = float(np.abs(finite).max(initial=0.0))
    return float(finite.std(axis=0).max()) / size if size else 0.0


def _scores(batch: PredictionBatch, has_neural: bool) -> Iterator[Finding]:
    """Check whether scores and probabilities are the same for many triples."""
    columns = (
        [("score", batch.score, "Check the findings about the neural model, and train longer.")] if has_neural else []
    )
    columns += [("probability", batch.probability, f"Check the findings about {'scores' if has_neural else 'rules'}.")]
    # Rules alone give most candidates the same probability: that of a triple that no rule concludes.
    threshold = HALF if has_neural else 1.0
    few = (
        "These are too few to matter."
        if has_neural
        else "Without a neural model, triples that no rule concludes are tied."
    )
    for noun, values, advice in columns:
        count = _count_most_frequent(batch.triples[:, RELATION], values)
        tied = "All" if count == len(values) else "Most"
        meaning = f"{tied} triples are tied, so their ranks are arbitrary and the {noun} is useless. {advice}"
        thresholds = Thresholds(f"The {noun} distinguishes triples.", meaning, threshold, threshold, few)
        check = "constant scores" if noun == "score" else "constant probabilities"
        description = f"sampled triples share one {noun}, the most frequent of their relation"
        yield share_finding(check, count, len(values), description, thresholds)


def _count_most_frequent(relations: IntArray, values: FloatArray) -> int:
    """Return the number of triples whose value is the most frequent one of their relation."""
    _, value = np.unique(values, return_inverse=True)  # NaNs are equal here
    pairs, counts = np.unique(np.stack([relations, value], axis=1), axis=0, return_counts=True)
    highest = np.zeros(int(relations.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(highest, pairs[:, 0], counts)
    return int(highest.sum())


def _rankings(rankings: Mapping[str, RankingMetrics], n_entities: int, config: Config) -> Iterator[Finding]:
    """Check the metrics of the rankings."""
    system, mrr = system_of(config), rankings[PLOGICNET_STAR_KEY].overall["mrr"]
    yield _ties(rankings, system)
    yield _chance(mrr, n_entities, _learn_more(config))
    if NEURAL in rankings and (system.rules_predict or config.em.lambda_ != 0):
        yield _better_together(rankings[NEURAL].overall["mrr"], mrr)
    if NEURAL in rankings and RULES in rankings and system.rules_predict:
        yield _better_than_rules(rankings[RULES].overall["mrr"], mrr)


def _ties(rankings: Mapping[str, RankingMetrics], system: System) -> Finding:
    """Check how much the metrics depend on the order of ties. Rules alone are skipped, since they have many ties."""
    bounds = {
        name: (metrics.optimistic["mrr"], metrics.pessimistic["mrr"])
        for name, metrics in rankings.items()
        if name != RULES
    }
    wide = [name for name, (high, low) in bounds.items() if high - low >= TIES_NOTE]
    widest = max((high - low for high, low in bounds.values()), default=0.0)
    rules_alone = NEURAL not in rankings
    if not wide:
        meaning = "Ties have little effect on the metrics."
    elif rules_alone:
        meaning = "Without a neural model, all triples that no rule concludes are tied. " + _sentence(
            system.ties_advice
        )
    else:
        meaning = (
            "Many candidates are tied with the correct one. Compare the optimistic and pessimistic metrics, and check"
            " the findings about the neural model."
        )
    message = f"the MRR differs by up to {widest:.3f} between optimistic and pessimistic ranks. {meaning}"
    examples = (f"{system.titles[name]}: {bounds[name][0]:.3f} to {bounds[name][1]:.3f}" for name in wide)
    return make_finding(
        "ties",
        grade(widest, TIES_NOTE, math.inf if rules_alone else TIES_WARNING),
        widest,
        message,
        len(wide),
        examples,
    )


def _learn_more(config: Config) -> str:
    """Return what to do if too little was learned."""
    return "train longer" if config.em.neural else MORE_RULES


def _sentence(text: str) -> str:
    """Return a clause as a sentence.

    Example:
        >>> _sentence("train longer")
        'Train longer.'
    """
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _chance(mrr: float, n_entities: int, advice: str) -> Finding:
    """Check whether the ranks are better than random ranks."""
    random = float((1.0 / np.arange(1, n_entities + 1)).mean())
    bad = not mrr > 2 * random
    meaning = (
        f"The model learned nothing. {_sentence(advice)} Also check the graph with `plogicnet doctor GRAPH`."
        if bad
        else "The model is better than random."
    )
    message = f"the MRR is {mrr:.3f}, and that of random ranks is about {random:.3f}. {meaning}"
    return make_finding("chance level", "warning" if bad else "ok", None, message)


def _better_together(neural_mrr: float, combined_mrr: float) -> Finding:
    """Check whether the rules make the neural model's ranks worse."""
    harm = (
        "The rules make the ranks worse. Use a larger valid split to choose λ, or raise rules.min_precision to remove"
        " poor rules."
    )
    meanings = ("The rules do not make the ranks worse.", harm)
    return _compared("effect of the rules", "for the neural model alone", neural_mrr, combined_mrr, meanings)


def _better_than_rules(rules_mrr: float, combined_mrr: float) -> Finding:
    """Check whether the rules alone have better ranks."""
    harm = "Rules alone are better. Train the neural model longer or with other settings, or set em.neural=false."
    return _compared(
        "effect of the neural model", "for rules alone", rules_mrr, combined_mrr, ("Rules alone are not better.", harm)
    )


def _compared(check: str, other: str, other_mrr: float, combined_mrr: float, meanings: tuple[str, str]) -> Finding:
    """Compare the MRR of both halves with that of one. `meanings` are those of a good and of a bad result."""
    drop = other_mrr - combined_mrr
    level = grade(drop, DROP_NOTE, DROP_WARNING)
    message = f"the MRR is {combined_mrr:.3f} with both and {other_mrr:.3f} {other}. {meanings[level != 'ok']}"
    return make_finding(check, level, max(drop, 0.0), message)


def _weights(rules: RuleTable, system: System, l2: float) -> Iterator[Finding]:
    """Check for rule weights that are too large, and for rules that no training triple supports."""
    huge = np.abs(rules.weight) >= HUGE_WEIGHT
    meaning = f"A single grounding decides the prediction. Increase {system.weight_setting} to keep weights small."
    description = f"rules have a weight of at least {HUGE_WEIGHT:g}, positive or negative"
    yield _rules_finding(
        "large weights",
        rules,
        huge,
        description,
        Thresholds("All weights are plausible.", meaning, warning=ONE_PERCENT),
    )
    if system.standard_errors:
        yield from _learned(rules, l2)
    meaning = "No training triple supports them. Check whether premises and hypothesis are swapped, or remove them."
    check, without_hit = "rules without a hit", rules.hits == 0
    if not without_hit.any():
        message = f"all {len(rules):,} rules conclude at least one training triple."
        yield make_finding(check, "ok", 0.0, message)
        return
    thresholds = Thresholds("", meaning, warning=HALF)
    yield _rules_finding(check, rules, without_hit, "rules conclude no training triple", thresholds)


def _rules_finding(check: str, rules: RuleTable, rows: BoolArray, description: str, thresholds: Thresholds) -> Finding:
    """Return a finding about some of the rules. The examples are the rules with the largest absolute weights."""
    selected = np.flatnonzero(rows)
    largest = selected[np.argsort(-np.abs(rules.weight[selected]), kind="stable")][:MAX_EXAMPLES]
    examples = [f"weight {rules.weight[row]:.3g}: {rules.rules[row]}" for row in largest.tolist()]
    return share_finding(check, len(selected), len(rules), description, thresholds, examples)


def _learned(rules: RuleTable, l2: float) -> Iterator[Finding]:
    """Check whether the triples determine the weights, and whether the weights changed in training."""
    learned = np.isfinite(rules.weight) & ~rules.fixed
    # Without a prior, a weight that the triples do not determine has an infinite standard error.
    undetermined = learned & (rules.standard_error >= (PRIOR_ERROR / math.sqrt(l2) if l2 else HUGE_WEIGHT))
    meaning = "The triples do not determine their weights. Raise rules.min_support, and do not interpret these weights."
    thresholds = Thresholds("The triples determine every weight.", meaning, TEN_PERCENT, HALF)
    description = "rules have a weight whose standard error is as large as if there were no data"
    yield _rules_finding("undetermined weights", rules, undetermined, description, thresholds)
    unchanged = bool(learned.any()) and float(np.abs(rules.weight[learned]).max()) < WEIGHT_TOLERANCE
    message = "the learned weights differ from their initial value 0. Training changed them."
    if unchanged:
        message = (
            "no learned weight differs from its initial value 0. The rules have no effect. Increase"
            " mln.gradient.iterations or mln.gradient.step, or use mln.solver=newton."
        )
    count = int(learned.sum()) if unchanged else 0
    yield make_finding("learned weights", "warning" if unchanged else "ok", float(unchanged), message, count)


def _hidden(config: Config, rules: int, accepted: BoolArray) -> Iterator[Finding]:
    """Check whether the rules conclude new triples, and how many of them were accepted."""
    count, n_accepted, system = len(accepted), int(accepted.sum()), system_of(config)
    level: Level = "ok"
    if not rules:
        level, message = (
            "warning",
            f"the run has no rules, so it {system.without_rules(config)}. {_sentence(MORE_RULES)}",
        )
    elif not count and config.mln.objective == "query" and not config.mln.query.hidden:
        message = "none are computed (mln.query.hidden=0), so the neural model learns from observed triples alone."
    elif not count:
        level, message = (
            "warning",
            "the rules conclude no new triple, so they have no effect. Lower rules.min_precision to keep more rules.",
        )
    elif system.hidden_triples_text:
        message = system.hidden_triples_text.format(count=count)
    elif not config.em.neural:
        message = f"{n_accepted:,} of {count:,} were accepted as true. There is no neural model to train on them."
    elif n_accepted < MIN_ACCEPTED * count:
        level, message = (
            "note",
            f"only {n_accepted:,} of {count:,} are accepted, so the neural model can learn little from the rules."
            " Lower em.tau_triplet to accept more.",
        )
    else:
        message = (
            f"{n_accepted:,} of {count:,} are accepted after the last EM iteration. The next E-step would use them."
        )
    yield make_finding("hidden triples", level, n_accepted / count if count else None, message, count)


def _lambda(chosen: float, config: Config) -> Iterator[Finding]:
    """Check whether λ is at an end of its grid."""
    grid = sorted(set(config.em.lambda_grid))
    if config.em.lambda_ != "auto" or len(grid) < 2:
        return
    is_largest, is_smallest = chosen >= grid[-1], chosen <= grid[0]
    meaning = "The best value is between the ends of the grid."
    if is_largest:
        meaning = "The largest value was best on valid, and a larger one can be better. Extend em.lambda_grid."
    elif is_smallest and chosen:
        meaning = "The smallest value was best on valid, and a smaller one can be better. Extend em.lambda_grid."
    elif is_smallest:
        meaning = "Rules do not improve the ranks on valid. Check them with `plogicnet rules`."
    message = f"λ is {chosen:g}, chosen from {grid[0]:g} to {grid[-1]:g}. {meaning}"
    yield make_finding("choice of λ", "note" if is_largest or is_smallest else "ok", None, message)


def _iterations(history: Sequence[Iteration], selected: int) -> Iterator[Finding]:
    """Check whether another EM iteration was better on valid than the selected one."""
    mrr = [line.validation_mrr for line in history]
    if len(mrr) < 2:
        return
    best = int(np.argmax(mrr))
    loss = mrr[best] - mrr[selected - 1]
    level = grade(loss, DROP_NOTE, DROP_WARNING)
    meaning = "No other iteration was clearly better."
    if level != "ok":
        better = f"Iteration {best + 1} had {mrr[best]:.3f}"
        meaning = f"{better}. Train with em.iterations={best + 1}, or set em.patience to keep the best iteration."
    message = f"iteration {selected} was selected, with an MRR of {mrr[selected - 1]:.3f} on valid. {meaning}"
    worse = sum(after < before for before, after in pairwise(mrr))
    examples = (f"iteration {number}: {value:.3f}" for number, value in enumerate(mrr[:MAX_EXAMPLES], 1))
    yield make_finding("EM iterations", level, loss, message, worse, examples)


def _probabilities(quality: CalibrationQuality, labels: Sample, config: Config) -> Iterator[Finding]:
    """Check whether probabilities are better than the base rate, and whether they are calibrated."""
    base = float(labels.count @ labels.label / labels.count.sum())
    base_brier, uncalibrated = base * (1 - base), quality.uncalibrated.brier if quality.uncalibrated else math.inf
    level: Level = "ok"
    meaning = "The probabilities are better than a constant."
    if not quality.brier < base_brier:
        level = "warning"
        meaning = (
            "A constant is at least as good, so do not use the probabilities. "
            f"{_sentence(_learn_more(config))} Or use more validation triples."
        )
    elif round(quality.brier, 4) > round(uncalibrated, 4):  # rounded as displayed
        level, meaning = (
            "note",
            "Calibration made them worse, because valid and test differ or valid is small. Use a larger valid split.",
        )
    scores = f"{quality.brier:.4f} ({base_brier:.4f} for a constant probability, {uncalibrated:.4f} uncalibrated)"
    yield make_finding("probabilities", level, quality.brier, f"the Brier score is {scores}. {meaning}")
    level = grade(quality.ece, HALF * base, base)
    off = (
        "A probability of 0.900 does not mean that 90% are true. Use the probabilities only for sorting, or use a"
        " larger valid split."
    )
    meaning = "The probabilities are calibrated." if level == "ok" else off
    comparison = {"ok": "less than half of", "note": "at least half of", "warning": "at least"}[level]
    message = (
        "the expected calibration error (mean difference between the probabilities and the shares of true triples) is"
        f" {quality.ece:.4f}, {comparison} the share of true triples ({base:.4f}). {meaning}"
    )
    yield make_finding("calibration", level, quality.ece, message)
