"""What a careful person checks in a trained run before believing its figures, in words and with what to do."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from plogicnet.baselines import MORE_RULES, vectors_alone, without_rules
from plogicnet.config import Config
from plogicnet.evaluation import Sample, filter_splits, sample
from plogicnet.fitted import Fitted, Judged
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph
from plogicnet.graph.doctor import EXAMPLES, MANY, SOME, Finding, Level, shared, worst
from plogicnet.rules import RuleTable

HALF = 0.5
HUGE = 20.0
"""A weight of this size is a probability of 1 - 2e-9 by one grounding: no number of triples says that."""
STILL = 1e-3
"""Below this, no weight has moved from where it began."""
FEW = 0.05
"""The share of hidden triples below which accepted ones teach hardly anything."""
AT_THE_PRIOR = 0.99
"""A standard error of 1/√l2 is the prior's own; one this near to it says that the triples told nothing."""
SPREAD = 1e-3
"""Vectors that differ by less than this part of their size are all alike."""
DROP, WIDE_DROP = 0.001, 0.01
"""Differences of MRR that are worth a word, and that matter."""
TIE, WIDE_TIE = 0.02, 0.1
"""MRR by the kindest and by the harshest way with ties: so far apart is worth a word, and matters."""
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class RunCheckup:
    """All findings about one run.

    Example:
        >>> RunCheckup("runs/family", "test", ()).to_json()["level"]
        'ok'
    """

    run: str
    split: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst level of any finding."""
        return worst(self.findings)

    def to_json(self) -> dict[str, object]:
        """Everything as `plogicnet doctor --json` prints it.

        Example:
            >>> list(RunCheckup("runs/family", "test", ()).to_json())
            ['run', 'split', 'level', 'findings']
        """
        findings = [asdict(finding) | {"examples": list(finding.examples)} for finding in self.findings]
        return {"run": self.run, "split": self.split, "level": self.level, "findings": findings}


def examine_run(
    name: str, f: Fitted, config: Config, metrics: Figures, vectors: Mapping[str, FloatArray]
) -> RunCheckup:
    """Every check of a run; one about a half that the run does not have is left out.

    Args:
        name: what the run is called.
        f: the trained model.
        config: the run's settings.
        metrics: what metrics.json holds.
        vectors: the tables of embeddings.safetensors; empty without an embedding.

    Example:
        >>> examine_run("runs/family", model.fitted, model.config, model.metrics, {}).level  # doctest: +SKIP
    """
    split = "test" if len(f.graph.test) else "valid"
    labels = sample(f.graph, split, filter_splits(split), config.seed)
    history = f.outcome.history
    rules = f.outcome.rule_model.rules
    findings = (
        *shared(f.graph),
        *_judged_on(f.graph, split),
        *_vectors(f.graph, vectors),
        *_scores(f.judged(labels.triples)),
        *(_ties(metrics[split], config) if split in metrics else ()),
        *(_chance(metrics[split], len(f.graph.entities), config) if split in metrics else ()),
        *(_better_together(metrics[split], config) if split in metrics else ()),
        *(_weights(rules, config) if len(rules) else ()),
        *(_hidden(config, len(rules), f.outcome.accepted) if config.em.rules else ()),
        *_lambda(f.outcome.lambda_, config, len(rules)),
        *_iterations(history, f.outcome.iteration),
        *(_calibration(metrics[split]["calibration"], labels, config) if split in metrics else ()),
    )
    return RunCheckup(name, split, findings)


def _judged_on(graph: KnowledgeGraph, split: str) -> Iterator[Finding]:
    """Whether the figures are of triples that decided nothing."""
    check, total = "held-out figures", len(graph.train) + len(graph.valid)
    if graph.held_out:
        share = graph.held_out / total
        yield Finding(
            "held-out share",
            "warning" if share > MANY else "note",
            graph.held_out,
            share,
            f"held-out share: the graph had no valid split, so {graph.held_out:,} of its {total:,} training triples"
            f" ({100 * share:.1f} %) were held out for λ and calibration and not learned from; give a valid split of"
            " your own to choose which",
        )
    if split == "test":
        yield Finding(check, "ok", 0, 0.0, f"{check}: on {len(graph.test):,} test triples, which decided nothing")
        return
    yield Finding(
        check,
        "warning",
        len(graph.valid),
        1.0,
        f"{check}: there is no test split, so the figures are of the valid triples that λ and calibration were fitted"
        " on, and too good; keep a part of the graph for a test split (`--split 0.8,0.1,0.1`)",
    )


def _vectors(graph: KnowledgeGraph, vectors: Mapping[str, FloatArray]) -> Iterator[Finding]:
    """Vectors that are not finite, or that do not tell entities apart."""
    if not vectors:
        return
    bad = {name: int((~np.isfinite(table)).sum()) for name, table in vectors.items()}
    yield _part(
        "vectors that are not finite",
        sum(bad.values()),
        sum(table.size for table in vectors.values()),
        "numbers in the vectors are infinite or no numbers",
        fine="as it should be",
        means="training went astray; train again with a smaller kge.learning_rate, or fetch the file again",
        note=0.0,
        warning=0.0,
        examples=[f"{name}: {count:,}" for name, count in bad.items() if count],
    )
    entity = np.ascontiguousarray(vectors["entity"])
    rows = entity.view(np.dtype((np.void, entity.dtype.itemsize * entity.shape[1]))).ravel()
    _, place, counts = np.unique(rows, return_inverse=True, return_counts=True)
    twins = np.flatnonzero(counts[place] > 1)
    yield _part(
        "equal vectors",
        len(twins),
        len(entity),
        "entities have the vector of another one",
        fine="each has its own",
        means="the embedding cannot tell them apart; train longer (kge.steps), or see whether they are in train at all",
        note=SOME,
        warning=MANY,
        examples=[graph.entities.names[at] for at in twins[:EXAMPLES].tolist()],
    )
    sound = entity[np.isfinite(entity).all(axis=1)]
    size = float(np.abs(sound).max(initial=0.0))
    spread = float(sound.std(axis=0).max()) / size if size else 0.0
    alike = spread < SPREAD and len(entity) > 1
    yield Finding(
        "vectors all alike",
        "warning" if alike else "ok",
        len(entity) if alike else 0,
        float(alike),
        f"vectors all alike: entities' vectors differ by {100 * spread:.2g} % of their size at most;"
        + (" they have collapsed, so train again with other settings (kge.learning_rate, kge.gamma)" if alike else "")
        + ("" if alike else " they tell entities apart"),
    )


def _scores(judged: Judged) -> Iterator[Finding]:
    """Scores and probabilities that are the same for all."""
    kinds = [("constant probabilities", judged.probability, "probability")]
    if judged.embedded:
        kinds.insert(0, ("constant scores", judged.score, "score"))
    for check, values, noun in kinds:
        most = _level_with_most(judged.triples[:, RELATION], values)
        few = most == len(values)
        see = f"see the findings about {'scores' if judged.embedded else 'rules'}"
        see = "see the findings about vectors, and train longer" if noun == "score" else see
        # rules alone give most candidates the same probability, that of a triple that no rule reaches
        often = HALF if judged.embedded else 1.0
        yield _part(
            check,
            most,
            len(values),
            f"triples that were looked at have their relation's commonest {noun}",
            fine=f"the {noun} tells triples apart",
            means=f"{'nothing tells triples apart' if few else 'most triples are not told apart'}, so their ranks are"
            f" ties and no {noun} means anything; {see}",
            some="too few to matter" if judged.embedded else "those that no rule reaches are level without vectors",
            note=often,
            warning=often if few or judged.embedded else math.inf,
        )


def _level_with_most(relations: IntArray, values: FloatArray) -> int:
    """How many values are the commonest of their relation; relations alone may make them differ."""
    _, value = np.unique(values, return_inverse=True)  # NaNs are equal here
    pairs, counts = np.unique(np.stack([relations, value], axis=1), axis=0, return_counts=True)
    commonest = np.zeros(int(relations.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(commonest, pairs[:, 0], counts)
    return int(commonest.sum())


def _ties(figures: Figures, config: Config) -> Iterator[Finding]:
    """How much of the figures hangs on the way with ties."""
    systems = {name: s for name, s in figures.items() if isinstance(s, Mapping) and "optimistic" in s}
    told = {name: s for name, s in systems.items() if name != "rules"}  # rules alone tie where none reaches
    gaps = {name: s["optimistic"]["mrr"] - s["pessimistic"]["mrr"] for name, s in told.items()}
    widest = max(gaps.values(), default=0.0)
    wide = [name for name, gap in gaps.items() if gap >= TIE]
    alone = "embedding" not in systems
    level: Level = "ok" if not wide else "warning" if widest >= WIDE_TIE and not alone else "note"
    meaning = "too few to matter"
    if wide:
        meaning = (
            "without vectors the triples that no rule reaches are all level; " + _vectors_instead(config)
            if alone
            else "many candidates are level with the truth, so the figures are what the way with ties makes them;"
            " see the findings about scores and vectors, and compare the optimistic and pessimistic figures"
        )
    yield Finding(
        "ties",
        level,
        len(wide),
        widest,
        f"ties: MRR differs by up to {widest:.3f} between the kindest and the harshest way with ties; {meaning}",
        tuple(
            f"{name}: {told[name]['optimistic']['mrr']:.3f} to {told[name]['pessimistic']['mrr']:.3f}" for name in wide
        ),
    )


def _vectors_instead(config: Config) -> str:
    """What to do where rules alone leave too much level."""
    if config.system == "blp":
        return f"{MORE_RULES}; system=plogicnet has vectors too"
    return "train with em.embedding=true"


def _more(config: Config) -> str:
    """What to do where too little was learned."""
    return "train longer" if config.em.embedding else MORE_RULES


def _chance(figures: Figures, entities: int, config: Config) -> Iterator[Finding]:
    """Whether the ranks are better than drawn by lot."""
    mrr = figures["plogicnet*"]["mrr"]
    lot = float((1.0 / np.arange(1, entities + 1)).mean())
    bad = not mrr > 2 * lot
    yield Finding(
        "better than chance",
        "warning" if bad else "ok",
        int(bad),
        None,
        f"better than chance: MRR is {mrr:.3f}, by lot it would be about {lot:.3f}; "
        + (
            f"nothing was learned: {_more(config)}, and check the graph with `plogicnet doctor GRAPH`"
            if bad
            else "it is"
        ),
    )


def _better_together(figures: Figures, config: Config) -> Iterator[Finding]:
    """Whether rules and vectors together are worse than vectors alone."""
    if "embedding" not in figures or (vectors_alone(config) and config.em.lambda_ == 0):
        return
    alone, both = figures["embedding"]["mrr"], figures["plogicnet*"]["mrr"]
    loss = alone - both
    level: Level = "ok" if loss < DROP else "warning" if loss >= WIDE_DROP else "note"
    yield Finding(
        "worse than the embedding alone",
        level,
        int(level != "ok"),
        max(loss, 0.0),
        f"worse than the embedding alone: MRR is {both:.3f} together and {alone:.3f} by the embedding alone; "
        + ("the rules do no harm" if level == "ok" else "the rules do harm here: a larger valid split chooses λ better")
        + ("" if level == "ok" else ", a higher rules.min_precision leaves poor rules out"),
    )


def _weights(rules: RuleTable, config: Config) -> Iterator[Finding]:
    """Weights that say more than the triples can, or nothing."""
    blp, total = config.system == "blp", len(rules)
    huge = np.abs(rules.weight) >= HUGE
    yield _part(
        "huge weights",
        int(huge.sum()),
        total,
        f"rules have a weight of {HUGE:g} or more, either way",
        fine="none is out of bounds",
        means="one such grounding decides alone, which no number of triples can justify; a larger"
        f" {'baselines.blp_prior' if blp else 'mln.l2'} holds them",
        note=0.0,
        warning=SOME,
        examples=_weighted(rules, huge),
    )
    if not blp:  # whose weights have no standard error, and begin at the rules' precision
        yield from _learned(rules, config.mln.l2)
    missed = rules.hits == 0
    yield _part(
        "rules without a hit",
        int(missed.sum()),
        total,
        "rules conclude no observed triple",
        fine="each has proved right at least once",
        means="nothing observed speaks for them; see whether they are meant the other way round, or take them out",
        note=0.0,
        warning=HALF,
        examples=_weighted(rules, missed),
    )


def _weighted(rules: RuleTable, rows: BoolArray) -> list[str]:
    """Some rules with their weights, the largest first."""
    found = np.flatnonzero(rows)
    found = found[np.argsort(-np.abs(rules.weight[found]), kind="stable")]
    return [f"{rules.weight[at]:.3g}: {rules.rules[at]}" for at in found[:EXAMPLES].tolist()]


def _learned(rules: RuleTable, l2: float) -> Iterator[Finding]:
    """Whether the triples tell the weights of a Markov logic network, and whether these were learned at all."""
    learned = np.isfinite(rules.weight) & ~rules.fixed
    # the prior alone leaves a standard error of 1/√l2; without one it is infinite
    unsure = learned & (rules.standard_error >= (AT_THE_PRIOR / math.sqrt(l2) if l2 else HUGE))
    yield _part(
        "weights that the triples do not tell",
        int(unsure.sum()),
        len(rules),
        "rules have a standard error that is the prior's own, or more",
        fine="the triples tell each weight",
        means="their weights are guesses; raise rules.min_support, and do not read anything into them",
        note=MANY,
        warning=HALF,
        examples=_weighted(rules, unsure),
    )
    still = bool(learned.any()) and float(np.abs(rules.weight[learned]).max()) < STILL
    yield Finding(
        "weights at their start",
        "warning" if still else "ok",
        int(learned.sum()) if still else 0,
        float(still),
        "weights at their start: "
        + (
            "no learned weight has moved from 0, so the rules say nothing; more mln.gradient.iterations, a larger"
            " mln.gradient.step, or mln.solver=newton"
            if still
            else "the learned weights have moved from 0; learning took place"
        ),
    )


def _hidden(config: Config, rules: int, accepted: BoolArray) -> Iterator[Finding]:
    """Whether the rules have something to say about triples that are not known."""
    check, found, taken = "hidden triples", len(accepted), int(accepted.sum())
    level: Level = "ok"
    if not rules:
        level, message = "warning", f"there is no rule, so this is {without_rules(config)}; {MORE_RULES}"
    elif config.system == "nne_aer":
        message = f"of the {found:,} none is learned from; a penalty holds the relations' vectors to the rules instead"
    elif not found:
        level, message = "warning", "no rule concludes a triple that is not observed, so the rules can add nothing; a"
        message += " lower rules.min_precision keeps rules that do"
    elif not config.em.embedding:
        message = f"{taken:,} of {found:,} are held for true (p_w of {config.em.tau_triplet:g} or more); the rules"
        message += " rank by themselves, and teach no vectors"
    elif config.system == "ruge":
        message = f"the rules teach the embedding all {found:,}, by soft labels"
    elif taken < FEW * found:
        level, message = "note", f"only {taken:,} of {found:,} were accepted, so the rules taught the embedding hardly"
        message += " anything; a lower em.tau_triplet accepts more"
    else:
        message = f"{taken:,} of {found:,} were accepted; the rules teach the embedding these"
    yield Finding(check, level, found, taken / found if found else None, f"{check}: {message}")


def _lambda(chosen: float, config: Config, rules: int) -> Iterator[Finding]:
    """Whether λ stands at an end of what it was chosen from."""
    grid = sorted(set(config.em.lambda_grid))
    if config.em.lambda_ != "auto" or not config.em.embedding or not rules or len(grid) < 2:
        return
    top, bottom = chosen >= grid[-1], chosen <= grid[0]
    message = f"λ at the end of its grid: λ is {chosen:g}, chosen from {grid[0]:g} to {grid[-1]:g}; "
    if top:
        message += "the largest was best on validation, and a larger one may be better: extend em.lambda_grid"
    elif bottom and chosen:
        message += "the smallest was best on validation, and a smaller one may be better: extend em.lambda_grid"
    elif bottom:
        message += "the smallest was best on validation: the rules add nothing to the ranks there, so see whether they"
        message += " are any good (`plogicnet rules`)"
    else:
        message += "a best one lies between the ends"
    ends = top or bottom
    yield Finding("λ at the end of its grid", "note" if ends else "ok", int(ends), None, message)


def _iterations(history: Sequence[Figures], kept: int) -> Iterator[Finding]:
    """Whether an earlier EM iteration was better on validation than the one that was kept."""
    merits = [float(line["valid"]["plogicnet*"]["mrr"]) for line in history]
    if len(merits) < 2:
        return
    best = int(np.argmax(merits))
    loss = merits[best] - merits[kept - 1]
    level: Level = "ok" if loss < DROP else "warning" if loss >= WIDE_DROP else "note"
    yield Finding(
        "EM iterations that got worse",
        level,
        sum(after < before for before, after in pairwise(merits)),
        loss,
        f"EM iterations that got worse: iteration {kept} was kept, with MRR {merits[kept - 1]:.3f} on validation; "
        + (
            "none was better by more than noise"
            if level == "ok"
            else f"iteration {best + 1} had {merits[best]:.3f}, so train with em.patience=1, which keeps the best, or"
            f" with em.iterations={best + 1}"
        ),
        tuple(f"iteration {at}: {merit:.3f}" for at, merit in enumerate(merits[:EXAMPLES], 1)),
    )


def _calibration(quality: Figures, labels: Sample, config: Config) -> Iterator[Finding]:
    """Whether probabilities are better than none, and mean what they say."""
    base = float(labels.count @ labels.label / labels.count.sum())
    brier, plain, uncalibrated = quality["brier"], base * (1 - base), quality["uncalibrated"]["brier"]
    useless, spoilt = not brier < plain, round(brier, 4) > round(uncalibrated, 4)  # as far as it is shown
    message = (
        f"probabilities: Brier score {brier:.4f}, by always saying the base rate {plain:.4f}, uncalibrated"
        f" {uncalibrated:.4f}; "
    )
    if useless:
        message += "the base rate alone does as well, so do not show these probabilities to anyone;"
        message += f" {_more(config)}, or give a larger valid split"
    elif spoilt:
        message += "calibration made them worse: valid and test differ, or the valid split is too small"
    else:
        message += "they are worth something"
    level: Level = "warning" if useless else "note" if spoilt else "ok"
    yield Finding("probabilities", level, int(level != "ok"), brier, message)
    error = quality["ece"]
    level = "warning" if error >= base else "note" if error >= HALF * base else "ok"
    yield Finding(
        "calibration",
        level,
        int(level != "ok"),
        error,
        f"calibration: probabilities are off by {error:.4f} on average, where {base:.4f} of the candidates are true; "
        + (
            "they mean what they say"
            if level == "ok"
            else "0.9 does not mean nine in ten here, so use them for their order alone, or give a larger valid split"
        ),
    )


def _part(
    check: str,
    count: int,
    total: int,
    what: str,
    *,
    fine: str,
    means: str,
    note: float,
    warning: float,
    examples: Iterable[str] = (),
    some: str = "too few to matter",
) -> Finding:
    """A finding about a part of a total: its level goes by the share; none at all is always fine."""
    share = count / max(total, 1)
    level: Level = "ok" if not count else "warning" if share >= warning else "note" if share >= note else "ok"
    meaning = means if level != "ok" else fine if not count else some
    return Finding(check, level, count, share, f"{check}: {count:,} of {total:,} {what}; {meaning}", tuple(examples))
