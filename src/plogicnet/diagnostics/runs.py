"""What a careful person checks in a trained run before believing its figures, and what to do about it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from plogicnet.config import Config
from plogicnet.diagnostics.finding import EXAMPLES, MANY, SOME, Checkup, Finding, Level, Scale, graded, part_of, verdict
from plogicnet.diagnostics.graphs import shared
from plogicnet.evaluation.calibration import Sample, sample
from plogicnet.evaluation.figures import RankingFigures, Reliability, SplitFigures
from plogicnet.evaluation.ranking import filter_splits
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph
from plogicnet.inference.fitted import Fitted, Judged
from plogicnet.neural.protocol import Table
from plogicnet.rules import RuleTable
from plogicnet.systems.system import MORE_RULES, NEURAL, RULES, STAR, System, system_of
from plogicnet.training.state import Iteration

HALF = 0.5
HUGE = 20.0
"""A weight of this size gives a probability of 1 - 2e-9 by one grounding, which no number of triples justifies."""
STILL = 1e-3
"""Below this, no weight has moved from its start."""
FEW = 0.05
"""The share of accepted hidden triples below which they teach hardly anything."""
AT_THE_PRIOR = 0.99
"""The prior alone leaves a standard error of 1/√l2; from this part of it on, the triples do not tell the weight."""
SPREAD = 1e-3
"""Vectors that differ by less than this part of their size are all alike."""
DROP, WIDE_DROP = 0.001, 0.01
"""Differences of MRR that are a note, and a warning."""
TIE, WIDE_TIE = 0.02, 0.1
"""Differences of MRR between optimistic and pessimistic ranks that are a note, and a warning."""


def examine_run(name: str, f: Fitted, config: Config, metrics: Mapping[str, Any]) -> Checkup:
    """Every check of a run; one about a half that the run does not have is left out.

    Args:
        name: what the run is called.
        f: the trained model.
        config: the run's settings.
        metrics: the content of metrics.json.
    """
    split = "test" if len(f.graph.test) else "valid"
    figures = SplitFigures.of_json(metrics[split]) if split in metrics else None
    labels = sample(f.graph, split, filter_splits(split), config.seed)
    rules, neural, system = f.outcome.rule_model.rules, f.outcome.neural, system_of(config)
    findings = (
        *shared(f.graph),
        *_evaluated_on(f.graph, split),
        *(_tables(f.graph, neural.tables()) if neural is not None else ()),
        *_scores(f.judged(labels.triples), neural is not None),
        *(_rankings(figures.rankings, len(f.graph.entities), config) if figures else ()),
        *(_weights(rules, system, config.mln.l2) if len(rules) else ()),
        *(_hidden(config, len(rules), f.outcome.accepted) if config.em.rules else ()),
        *(_lambda(f.outcome.lambda_, config) if neural is not None and len(rules) else ()),
        *_iterations(f.outcome.history, f.outcome.iteration),
        *(_probabilities(figures.calibration, labels, config) if figures else ()),
    )
    return Checkup(name, "run", findings, {"split": split})


def _evaluated_on(graph: KnowledgeGraph, split: str) -> Iterator[Finding]:
    """Whether the figures are of triples that decided nothing."""
    total = len(graph.train) + len(graph.valid)
    if graph.held_out:
        share = graph.held_out / total
        message = (
            f"the graph had no valid split, so {graph.held_out:,} of its {total:,} training triples"
            f" ({100 * share:.1f} %) were held out for λ and calibration; give a valid split to choose which"
        )
        yield verdict("held-out share", "warning" if share > MANY else "note", share, message, graph.held_out)
    check = "held-out figures"
    if split == "test":
        yield verdict(check, "ok", 0.0, f"on {len(graph.test):,} test triples, which decided nothing")
        return
    message = (
        "there is no test split, so the figures are of the valid triples that λ and calibration were fitted on, and"
        " too good; keep a part of the graph for a test split (`--split 0.8,0.1,0.1`)"
    )
    yield verdict(check, "warning", 1.0, message, len(graph.valid))


def _tables(graph: KnowledgeGraph, tables: Mapping[str, Table]) -> Iterator[Finding]:
    """Learned numbers that are not finite; vectors that do not tell entities apart, where entities have vectors."""
    if not tables:
        return
    bad = {name: int((~np.isfinite(table.values)).sum()) for name, table in tables.items()}
    means = "training diverged; train again with a smaller neural.learning_rate, or fetch the file again"
    scale = Scale("as it should be", means, warning=0.0)
    what, size = "learned numbers are infinite or not a number", sum(table.values.size for table in tables.values())
    examples = [f"{name}: {count:,}" for name, count in bad.items() if count]
    yield part_of("vectors that are not finite", sum(bad.values()), size, what, scale, examples)
    by_entity = [table.values.reshape(len(table.values), -1) for table in tables.values() if table.rows == "entity"]
    if not by_entity:
        return
    vectors = np.concatenate(by_entity, axis=1)
    twins = _equal_rows(vectors)
    means = "the model cannot tell them apart; train longer (neural.steps), or check that they are in train"
    scale = Scale("each has its own", means, SOME, MANY)
    what, examples = "entities have the vector of another one", graph.entities.take(twins[:EXAMPLES])
    yield part_of("equal vectors", len(twins), len(vectors), what, scale, examples)
    spread = _spread(vectors)
    alike = spread < SPREAD and len(vectors) > 1
    meaning = "they have collapsed; train again with another neural.learning_rate" if alike else "they differ enough"
    message = f"entities' vectors differ by at most {100 * spread:.2g} % of their size; {meaning}"
    level: Level = "warning" if alike else "ok"
    yield verdict("vectors all alike", level, float(alike), message, alike * len(vectors))


def _equal_rows(table: FloatArray) -> IntArray:
    """The rows that another row equals, bit by bit."""
    table = np.ascontiguousarray(table)
    rows = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, place, counts = np.unique(rows, return_inverse=True, return_counts=True)
    return np.flatnonzero(counts[place] > 1)


def _spread(table: FloatArray) -> float:
    """The largest standard deviation of a column of the finite rows, as a part of the largest number."""
    finite = table[np.isfinite(table).all(axis=1)]
    size = float(np.abs(finite).max(initial=0.0))
    return float(finite.std(axis=0).max()) / size if size else 0.0


def _scores(judged: Judged, neural: bool) -> Iterator[Finding]:
    """Scores and probabilities that are the same for all triples."""
    kinds = [("score", judged.score, "see the findings about vectors, and train longer")] if neural else []
    kinds += [("probability", judged.probability, f"see the findings about {'scores' if neural else 'rules'}")]
    # Rules alone give most candidates the same probability, that of a triple that no rule reaches.
    often = HALF if neural else 1.0
    few = "too few to matter" if neural else "those that no rule reaches are tied without a neural model"
    for noun, values, advice in kinds:
        most = _commonest(judged.triples[:, RELATION], values)
        tied = "all" if most == len(values) else "most"
        means = f"{tied} triples are tied, so their ranks are arbitrary and no {noun} means anything; {advice}"
        scale = Scale(f"the {noun} tells triples apart", means, often, often, few)
        check = "constant scores" if noun == "score" else "constant probabilities"
        what = f"sampled triples have the commonest {noun} of their relation"
        yield part_of(check, most, len(values), what, scale)


def _commonest(relations: IntArray, values: FloatArray) -> int:
    """How many values are the commonest of their relation; relations alone may make them differ."""
    _, value = np.unique(values, return_inverse=True)  # NaNs are equal here
    pairs, counts = np.unique(np.stack([relations, value], axis=1), axis=0, return_counts=True)
    commonest = np.zeros(int(relations.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(commonest, pairs[:, 0], counts)
    return int(commonest.sum())


def _rankings(rankings: Mapping[str, RankingFigures], entities: int, config: Config) -> Iterator[Finding]:
    """What the figures of the rankings depend on."""
    system, best = system_of(config), rankings[STAR].overall["mrr"]
    yield _ties(rankings, system)
    yield _chance(best, entities, _learn_more(config))
    if NEURAL in rankings and (system.rules_predict or config.em.lambda_ != 0):
        yield _better_together(rankings[NEURAL].overall["mrr"], best)


def _ties(rankings: Mapping[str, RankingFigures], system: System) -> Finding:
    """How much the figures depend on the order of tied candidates; rules alone tie where none reaches."""
    ends = {
        name: (figures.optimistic["mrr"], figures.pessimistic["mrr"])
        for name, figures in rankings.items()
        if name != RULES
    }
    wide = [name for name, (high, low) in ends.items() if high - low >= TIE]
    widest = max((high - low for high, low in ends.values()), default=0.0)
    alone = NEURAL not in rankings
    if not wide:
        meaning = "too few to matter"
    elif alone:
        meaning = "without a neural model all triples that no rule reaches are tied; " + system.instead_of_rules_alone
    else:
        meaning = "many are tied with the true one; compare the optimistic and pessimistic figures, see the vectors"
    message = f"MRR differs by up to {widest:.3f} between optimistic and pessimistic ranks; {meaning}"
    examples = (f"{name}: {ends[name][0]:.3f} to {ends[name][1]:.3f}" for name in wide)
    return verdict("ties", graded(widest, TIE, math.inf if alone else WIDE_TIE), widest, message, len(wide), examples)


def _learn_more(config: Config) -> str:
    """What to do where too little was learned."""
    return "train longer" if config.em.neural else MORE_RULES


def _chance(mrr: float, entities: int, advice: str) -> Finding:
    """Whether the ranks are better than random ones."""
    random = float((1.0 / np.arange(1, entities + 1)).mean())
    bad = not mrr > 2 * random
    meaning = f"nothing was learned: {advice}, and check the graph with `plogicnet doctor GRAPH`" if bad else "it is"
    message = f"MRR is {mrr:.3f}, a random ranking would give about {random:.3f}; {meaning}"
    return verdict("better than chance", "warning" if bad else "ok", None, message)


def _better_together(alone: float, both: float) -> Finding:
    """Whether rules and neural model together are worse than the neural model alone."""
    level = graded(alone - both, DROP, WIDE_DROP)
    harm = "the rules do harm: give a larger valid split for λ, or leave poor rules out by rules.min_precision"
    meaning = "the rules do no harm" if level == "ok" else harm
    message = f"MRR is {both:.3f} together and {alone:.3f} by the neural model alone; {meaning}"
    return verdict("worse than the neural model alone", level, max(alone - both, 0.0), message)


def _weights(rules: RuleTable, system: System, l2: float) -> Iterator[Finding]:
    """Weights that are larger than the triples justify, or that mean nothing."""
    huge = np.abs(rules.weight) >= HUGE
    means = f"one such grounding decides alone; a larger {system.weight_setting} keeps them small"
    what = f"rules have a weight of {HUGE:g} or more, positive or negative"
    yield _of_rules("huge weights", rules, huge, what, Scale("as it should be", means, warning=SOME))
    if system.standard_errors:
        yield from _learned(rules, l2)
    means = "nothing observed speaks for them; check that they are not the wrong way round, or take them out"
    scale = Scale("each has been right at least once", means, warning=HALF)
    yield _of_rules("rules without a hit", rules, rules.hits == 0, "rules lack an observed conclusion", scale)


def _of_rules(check: str, rules: RuleTable, rows: BoolArray, what: str, scale: Scale) -> Finding:
    """A finding about some of the rules; examples are those of the largest weights."""
    found = np.flatnonzero(rows)
    largest = found[np.argsort(-np.abs(rules.weight[found]), kind="stable")][:EXAMPLES]
    examples = [f"{rules.weight[at]:.3g}: {rules.rules[at]}" for at in largest.tolist()]
    return part_of(check, len(found), len(rules), what, scale, examples)


def _learned(rules: RuleTable, l2: float) -> Iterator[Finding]:
    """Whether the triples determine the weights, and whether these have moved from their start."""
    learned = np.isfinite(rules.weight) & ~rules.fixed
    # Without a prior, a weight that the triples do not determine has an infinite standard error.
    unsure = learned & (rules.standard_error >= (AT_THE_PRIOR / math.sqrt(l2) if l2 else HUGE))
    means = "their weights are guesses; raise rules.min_support, and do not read anything into them"
    scale = Scale("the triples determine each weight", means, MANY, HALF)
    what = "rules have a standard error that is the prior's own, or more"
    yield _of_rules("weights that the triples do not tell", rules, unsure, what, scale)
    still = bool(learned.any()) and float(np.abs(rules.weight[learned]).max()) < STILL
    message = "the learned weights have moved from 0; learning took place"
    if still:
        message = (
            "no learned weight has moved from 0, so the rules have no effect; more mln.gradient.iterations, a larger"
            " mln.gradient.step, or mln.solver=newton"
        )
    count = int(learned.sum()) if still else 0
    yield verdict("weights at their start", "warning" if still else "ok", float(still), message, count)


def _hidden(config: Config, rules: int, accepted: BoolArray) -> Iterator[Finding]:
    """Whether the rules conclude anything about triples that are not observed."""
    found, taken, system = len(accepted), int(accepted.sum()), system_of(config)
    level: Level = "ok"
    if not rules:
        level, message = "warning", f"there is no rule, so this is {system.without_rules(config)}; {MORE_RULES}"
    elif not found:
        level, message = "warning", "no rule concludes anything new; a lower rules.min_precision keeps rules that do"
    elif system.about_hidden:
        message = system.about_hidden.format(found=found)
    elif not config.em.neural:
        message = f"{taken:,} of {found:,} are taken as true; the rules rank by themselves, and teach no vectors"
    elif taken < FEW * found:
        level, message = "note", f"only {taken:,} of {found:,} were accepted; a lower em.tau_triplet accepts more"
    else:
        message = f"{taken:,} of {found:,} were accepted; the rules teach the neural model these"
    yield verdict("hidden triples", level, taken / found if found else None, message, found)


def _lambda(chosen: float, config: Config) -> Iterator[Finding]:
    """Whether λ stands at an end of what it was chosen from."""
    grid = sorted(set(config.em.lambda_grid))
    if config.em.lambda_ != "auto" or len(grid) < 2:
        return
    largest, smallest = chosen >= grid[-1], chosen <= grid[0]
    meaning = "a best one lies between the ends"
    if largest:
        meaning = "the largest was best on validation, and a larger one may be better: extend em.lambda_grid"
    elif smallest and chosen:
        meaning = "the smallest was best on validation, and a smaller one may be better: extend em.lambda_grid"
    elif smallest:
        meaning = "the smallest was best: the rules add nothing to the ranks, so check them (`plogicnet rules`)"
    message = f"λ is {chosen:g}, chosen from {grid[0]:g} to {grid[-1]:g}; {meaning}"
    yield verdict("λ at the end of its grid", "note" if largest or smallest else "ok", None, message)


def _iterations(history: Sequence[Iteration], kept: int) -> Iterator[Finding]:
    """Whether an earlier EM iteration was better on validation than the one that was kept."""
    merits = [line.merit for line in history]
    if len(merits) < 2:
        return
    best = int(np.argmax(merits))
    loss = merits[best] - merits[kept - 1]
    level = graded(loss, DROP, WIDE_DROP)
    meaning = "none was better by more than noise"
    if level != "ok":
        better = f"iteration {best + 1} had {merits[best]:.3f}"
        meaning = f"{better}, so train with em.patience=1, which keeps the best, or with em.iterations={best + 1}"
    message = f"iteration {kept} was kept, with MRR {merits[kept - 1]:.3f} on validation; {meaning}"
    worse = sum(after < before for before, after in pairwise(merits))
    examples = (f"iteration {at}: {merit:.3f}" for at, merit in enumerate(merits[:EXAMPLES], 1))
    yield verdict("EM iterations that got worse", level, loss, message, worse, examples)


def _probabilities(quality: Reliability, labels: Sample, config: Config) -> Iterator[Finding]:
    """Whether probabilities are better than the base rate, and whether they are calibrated."""
    base = float(labels.count @ labels.label / labels.count.sum())
    plain, before = base * (1 - base), quality.uncalibrated.brier if quality.uncalibrated else math.inf
    level: Level = "ok"
    meaning = "they are better than that"
    if not quality.brier < plain:
        level = "warning"
        meaning = (
            f"the base rate alone does as well, so do not use them; {_learn_more(config)}, or have more valid triples"
        )
    elif round(quality.brier, 4) > round(before, 4):  # as far as it is shown
        level, meaning = "note", "calibration made them worse: valid and test differ, or the valid split is too small"
    scores = f"Brier score {quality.brier:.4f}, of the base rate alone {plain:.4f}, uncalibrated {before:.4f}"
    yield verdict("probabilities", level, quality.brier, f"{scores}; {meaning}")
    level = graded(quality.ece, HALF * base, base)
    off = "0.9 does not mean nine in ten, so use them for their order alone, or give a larger valid split"
    meaning = "they are calibrated" if level == "ok" else off
    message = f"off by {quality.ece:.4f} on average, where {base:.4f} of the candidates are true; {meaning}"
    yield verdict("calibration", level, quality.ece, message)
