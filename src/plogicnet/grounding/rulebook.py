"""The rules of a run: mined rules, written rules, or both."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from plogicnet.config import Config
from plogicnet.config.shapes import shapes_of
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Engine, MiningResult, Resources, iter_engines
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.native.planning import plan_sampling
from plogicnet.grounding.negative import count_negative, mine_negative
from plogicnet.rules import Rule, RuleTable, Statement
from plogicnet.rules.table import file_columns
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
MAX_WARNINGS = 5
"""The largest number of rules that are shown with the same problem."""


def collect_rules(
    graph: KnowledgeGraph, config: Config, statements: Sequence[Statement] = (), progress: Progress = no_progress
) -> MiningResult:
    """Mine rules, if `rules.mine` is set, and add the written rules. Thresholds do not apply to written rules.

    Negative evidence comes after all other rules.

    Example:
        >>> from plogicnet.rules import parse_statements
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")])
        >>> written = parse_statements("=2: wife(A, B) => husband(B, A)", graph)
        >>> rules = collect_rules(graph, Config(), written).rules
        >>> [(str(rule), bool(fixed)) for rule, fixed in zip(rules.rules, rules.fixed)]
        [('husband(X, Y) => wife(Y, X)', False), ('wife(X, Y) => husband(Y, X)', True)]
    """
    empty = RuleTable.of([], [], [])
    mined = MiningResult(empty, empty, 0)
    if config.rules.mine:
        config = plan_mining(graph, config, progress)
        resources = _resources(config, progress)
        mined = _select_miner(config).mine(graph, config.rules, resources)
        negative, n_negative = mine_negative(graph, config.rules)
        mined = replace(mined, rules=mined.rules.concat(negative), n_candidates=mined.n_candidates + n_negative)
    mined = _add_statements(mined, graph, config, statements, progress) if statements else mined
    return replace(mined, rules=mined.rules.positive_first())


def add_rules(
    graph: KnowledgeGraph,
    config: Config,
    rules: RuleTable,
    constraints: RuleTable,
    statements: Sequence[Statement],
    progress: Progress = no_progress,
) -> MiningResult:
    """Add written rules to the rules and constraints of a model.

    A rule that the model has already gets the weight that is written, if any.
    """
    present = MiningResult(rules.take(~rules.formulas), constraints, 0)
    added = _add_statements(present, graph, config, statements, progress)
    return replace(added, rules=added.rules.positive_first())


def plan_mining(graph: KnowledgeGraph, config: Config, progress: Progress = no_progress) -> Config:
    """Turn `rules.budget_s` into numbers of walks and paths, and set it to 0. Mining with the result ignores the clock.

    Example:
        >>> from plogicnet.graph import demo_family
        >>> plan_mining(demo_family(), Config()) == Config()  # without a budget
        True
    """
    if not (config.rules.mine and config.rules.budget_s) or config.rules.sampled_walks:
        return config
    counts = plan_sampling(graph, config.rules, _resources(config, progress))
    log.info("rules.budget_s=%g: %s", config.rules.budget_s, ", ".join(f"rules.{k}={v}" for k, v in counts.items()))
    return config.with_values({"rules.budget_s": 0.0, **{f"rules.{name}": n for name, n in counts.items()}})


def _resources(config: Config, progress: Progress) -> Resources:
    return Resources(config.threads, config.grounding.memory_mb, progress, config.seed)


def _select_miner(config: Config) -> Engine:
    """Return the first engine that can mine all patterns of the settings."""
    setting, shapes = config.grounding.engine, shapes_of(config.rules.patterns)
    for _, engine in iter_engines(setting):
        if all(map(engine.supports_shape, shapes)):
            return engine
    raise InputError(
        f"rules.patterns: no engine of grounding.engine={setting} can mine all of {', '.join(config.rules.patterns)}."
        " Remove a pattern or use --set grounding.engine=auto."
    )


def _add_statements(
    mined: MiningResult, graph: KnowledgeGraph, config: Config, statements: Sequence[Statement], progress: Progress
) -> MiningResult:
    """Set the given weights of written rules that were also mined, and append the other written rules."""
    row_of_rule = {rule.canonical: i for i, rule in enumerate(mined.rules.rules)}
    given, fixed = mined.rules.given.copy(), mined.rules.fixed.copy()
    file_counts = mined.rules.file_counts
    unmatched: list[Statement] = []
    for statement in statements:
        row = row_of_rule.get(statement.rule.canonical)
        if row is None:
            unmatched.append(statement)
        else:
            file_counts[row] = statement.file_counts
            if statement.weight is not None:
                given[row], fixed[row] = statement.weight, statement.fixed
    file_support, file_hits = file_columns(file_counts)
    rules = replace(mined.rules, given=given, fixed=fixed, file_support=file_support, file_hits=file_hits)
    positive = [s for s in unmatched if not s.rule.negated]
    negative = [s for s in unmatched if s.rule.is_negative]
    written = [*positive, *negative]
    rules_written = tuple(s.rule for s in written)
    grounder = Grounder.of(graph, rules_written[: len(positive)], config, progress=progress)
    support, hits = _counts(grounder, rules_written[len(positive) :])
    _warn_about(rules_written, support == 0, "no conclusions from the training triples")
    _warn_about(rules_written, (support > 0) & (hits == 0), "no hits in the training triples")
    table = RuleTable.of(
        rules_written,
        support.tolist(),
        hits.tolist(),
        None,
        list(map(_given_weight, written)),
        [s.fixed for s in written],
        file_counts=[s.file_counts for s in written],
    )
    mined_constraints = set(mined.constraints.rules)
    constraints = [
        s.rule for s in unmatched if s.rule.pattern == "irreflexive" and s.rule.canonical not in mined_constraints
    ]
    return MiningResult(
        rules.concat(table),
        mined.constraints.concat(_constraint_table(graph, constraints)),
        mined.n_candidates,
        mined.mined,
    )


def count_again(grounder: Grounder, rules: RuleTable, constraints: RuleTable) -> tuple[RuleTable, RuleTable]:
    """Return the rules of a model and the constraints, with support and hits counted in the grounder's graph.

    The grounder has all rules except negative evidence, which comes last in `rules`.
    """
    support, hits = _counts(grounder, rules.rules[len(grounder.rules) :])
    counted = _constraint_table(grounder.graph, constraints.rules)
    return (
        replace(rules, support=support, hits=hits),
        replace(constraints, support=counted.support, hits=counted.hits),
    )


def _counts(grounder: Grounder, negative: Sequence[Rule]) -> tuple[IntArray, IntArray]:
    """Return support and hits of the grounder's rules, then of negative evidence."""
    parts = zip(grounder.counts(), count_negative(grounder.graph, negative), strict=True)
    support, hits = (np.concatenate(part) for part in parts)
    return support, hits


def _warn_about(rules: Sequence[Rule], selected: BoolArray, problem: str) -> None:
    """Log a warning about each selected rule, up to a limit, because a file can have 100,000 rules."""
    indices = np.flatnonzero(selected)
    for i in indices[:MAX_WARNINGS]:
        log.warning("%s: %s", rules[i], problem)
    if len(indices) > MAX_WARNINGS:
        log.warning("%s: %s", pluralize(len(indices) - MAX_WARNINGS, "other rule"), problem)


def _given_weight(statement: Statement) -> float:
    return float("nan") if statement.weight is None else statement.weight


def _constraint_table(graph: KnowledgeGraph, rules: Sequence[Rule]) -> RuleTable:
    """Return the constraints. Support is the number of facts of the relation, hits the number without self-loops."""
    ids = [graph.relations.id(rule.head.relation) for rule in rules]
    facts = [graph.train[graph.train[:, RELATION] == i] for i in ids]
    n_without_loops = [int(np.sum(rows[:, HEAD] != rows[:, TAIL])) for rows in facts]
    return RuleTable.of([rule.canonical for rule in rules], [len(rows) for rows in facts], n_without_loops)
