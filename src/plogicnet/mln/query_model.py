"""The rule model for mln.objective: query, with many rules and formulas, whose conclusions are found query by query.

The weights maximise the probability that the answer of a training query is the best of its candidates. The training
triple itself is hidden from its query. If the answer is not among the candidates, the query is dropped: to add it would
teach that candidates with little support are true.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import optimize, special

from plogicnet import config
from plogicnet.config import Config
from plogicnet.graph import (
    HEAD,
    RELATION,
    SIDES,
    TAIL,
    BoolArray,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    TripleSet,
    choose_hiding,
)
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.conclusions import Conclusions, Queries, conclude
from plogicnet.grounding.native.rule_index import RuleIndex
from plogicnet.grounding.rulebook import count_again
from plogicnet.mln.formulas import ALWAYS, formula_columns, formula_rules, formula_weights
from plogicnet.mln.query_scores import QueryScores, Weights
from plogicnet.mln.rule_model import Reason, RuleModel, build_rule_model
from plogicnet.mln.softmax import QueryExamples, SoftmaxObjective, log_odds, maximise_softmax
from plogicnet.rules import RuleTable
from plogicnet.rules.rule import FORMULA_PREFIX, FORMULAS
from plogicnet.support.errors import InputError
from plogicnet.support.memory import require_bytes
from plogicnet.support.progress import Progress, no_progress

PRIOR_TRIPLES = 2_000
"""The number of training triples from which the weights of formulas that all relations share are learned."""
PRIOR_L2 = 1.0
"""The penalty of these weights, and of the distance of a relation's weights from them."""
ENTITY_BYTES = 200
"""The memory per entity and thread of `conclude`."""


@dataclass(frozen=True)
class QueryRuleModel(RuleModel):
    """A rule model whose conclusions are found for each query.

    `rules` are the mined and written rules, which the grounder of `assignment` has too, and then the formulas.

    Attributes:
        mining: the settings of mining, which decide whether a rule would have been mined without one of its hits.
        query: the settings of the objective.
    """

    mining: config.Rules
    query: config.QueryObjective

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph."""
        return self.assignment.grounder.graph

    @cached_property
    def plain_rules(self) -> RuleTable:
        """The rules without the formulas."""
        return self.rules.take(np.arange(len(self.assignment.grounder.rules)))

    @cached_property
    def adjacency(self) -> Adjacency:
        """The facts as edges."""
        return Adjacency.of(self.graph.observed, len(self.graph.relations))

    @cached_property
    def index(self) -> RuleIndex:
        """The rules, arranged for queries."""
        return RuleIndex.of(self.graph, self.plain_rules, self.mining, self.adjacency)

    @cached_property
    def hide_pair(self) -> bool:
        """Whether all facts between the two entities of a training query are hidden."""
        return (choose_hiding(self.graph) if self.query.hide == "auto" else self.query.hide) == "pair"

    @cached_property
    def weights(self) -> Weights:
        """The weights of rules and formulas. Weights that are not learned yet are 0."""
        plain = np.nan_to_num(self.plain_rules.weight)
        formulas = formula_weights(self.rules.take(np.arange(len(plain), len(self.rules))), self.graph.relations)
        return Weights(self.adjacency, self.index, plain, formulas, self.assignment.grounder.resources.threads)

    @cached_property
    def hidden(self) -> IntArray:
        """The best `mln.query.hidden` conclusions of each training query that are not in train, by a noisy-or."""
        if not self.query.hidden or not len(self.plain_rules):
            return np.empty((0, 3), np.int64)
        train, n = self.graph.train, len(self.graph.entities)
        both = [np.unique(train[:, [RELATION, column]], axis=0) for column in (HEAD, TAIL)]
        direction = np.repeat([0, 1], [len(pairs) for pairs in both])
        relation, known = np.ascontiguousarray(np.concatenate(both).T)
        queries = Queries(known, relation, direction, np.full(len(known), -1))
        resources = self.assignment.grounder.resources
        start, triples = 0, [self.graph.train[:0]]
        with resources.progress("hidden triples, queries", len(queries)) as advance:
            parts = conclude(
                self.adjacency,
                self.index,
                queries,
                self.query.hidden,
                self._excluded(queries),
                threads=resources.threads,
            )
            for part in parts:
                n_queries = len(part.begin) - 1
                asked = replace(queries.take(start + part.query), answer=part.entity)
                triples.append(asked.triples)
                start += n_queries
                advance(n_queries)
        return TripleSet.of(np.concatenate(triples), n).triples

    @property
    def triples(self) -> TripleSet:
        """O ∪ H."""
        return TripleSet.of(np.concatenate([self.graph.train, self.hidden]), len(self.graph.entities))

    @property
    def observed(self) -> BoolArray:
        """Whether each triple of O ∪ H is in O."""
        return self.graph.observed.contains(self.triples.triples)

    @property
    def truth(self) -> BoolArray:
        """Whether each triple of O ∪ H is true as a premise."""
        return self.observed

    @cached_property
    def log_odds_of_hidden(self) -> FloatArray:
        """The log-odds of the hidden triples."""
        return self.scores(self.graph).of_triples(self.hidden)[0]

    @property
    def hidden_p_w(self) -> FloatArray:
        """p_w of the hidden triples."""
        return np.asarray(special.expit(self.log_odds_of_hidden))

    @property
    def groundings(self) -> InMemoryGroundNetwork:
        """Not available: the groundings are found for one triple at a time."""
        raise InputError("with mln.objective=query, the groundings of all rules are not kept in memory")

    @property
    def aggregate(self) -> Literal["saturating"]:
        """How groundings are aggregated."""
        return "saturating"

    def require_memory(self) -> None:
        """Raise InputError if the memory limit is too low for the arrays with which each thread finds conclusions."""
        n_threads = self.assignment.grounder.resources.threads or os.cpu_count() or 1
        needed = ENTITY_BYTES * len(self.graph.entities) * n_threads
        require_bytes(needed, f"conclusions about {len(self.graph.entities):,} entities", "use fewer --threads")

    def likelihood(self, hidden_q: FloatArray) -> dict[str, float]:  # noqa: ARG002
        """Return nothing: the pseudolikelihood is not the objective."""
        return {}

    def reasons(self, triple: IntArray, max_groundings: int | None = None) -> list[Reason]:
        """Return the contributions of rules and formulas to a triple's log-odds. Those without weight are left out.

        The premises of a formula about confidence are those of the rule on which it rests.
        """
        is_known = bool(self.graph.observed.contains(triple[None, :])[0])
        head, relation, tail = triple.tolist()
        query = Queries(*(np.array([x]) for x in (head, relation, 0, tail)))
        hidden = query if is_known else replace(query, answer=np.array([-1]))
        (part,) = conclude(self.adjacency, self.index, hidden)
        position = int(np.searchsorted(part.entity, tail))
        if position == len(part.entity) or part.entity[position] != tail:
            return []
        rows = slice(int(part.rule_begin[position]), int(part.rule_begin[position + 1]))
        rules, values = part.rule[rows], part.rule_value[rows].astype(np.float64)
        grounder = replace(
            self.assignment.grounder, rules=tuple(self.plain_rules.rules[i] for i in rules.tolist()), engine="auto"
        )
        found = grounder.groundings_of_triple(triple)
        nothing = triple[:0].reshape(0, 1, 3)
        premises = {rule: found.get(i, nothing) for i, rule in enumerate(rules.tolist())}
        pairs = zip(rules.tolist(), values.tolist(), strict=True)
        reasons = [(rule, value, premises[rule]) for rule, value in pairs if self.weights.rule[rule]]
        formulas = zip(FORMULAS, part.values[position].astype(np.float64).tolist(), strict=True)
        best = self._best_rules(rules, is_known)
        for name, value in formulas:
            row = self.formula_rows.get((relation, name))
            if row is not None and value * self.rules.weight[row]:
                reasons.append((row, value, premises[best[name]] if name in best else nothing))
        return [
            Reason(rule, value, len(groundings), 0, [p[p[:, 0] >= 0] for p in groundings[:max_groundings]])
            for rule, value, groundings in reasons
        ]

    @cached_property
    def formula_rows(self) -> dict[tuple[int, str], int]:
        """The row of each formula in `rules`, by its relation and name."""
        n, ids = len(self.plain_rules), self.graph.relations
        rows = enumerate(self.rules.rules[n:], n)
        return {(ids.id(rule.head.relation), rule.body[0].relation.removeprefix(FORMULA_PREFIX)): i for i, rule in rows}

    def _best_rules(self, rules: IntArray, is_known: bool) -> dict[str, int]:
        """Return the rule on which each formula about confidence rests, of the rules that conclude a triple."""
        arrays = self.index.arrays
        confidence = (arrays.left_out if is_known else arrays.confidence)[rules]
        ordered = rules[np.argsort(-confidence, kind="stable")]
        best = dict(zip(("best_rule", "second_rule"), ordered.tolist(), strict=False))
        for kind, name in enumerate(("best_chain", "best_tail_constant", "best_head_constant")):
            of_kind = ordered[arrays.kind[ordered] == kind]
            if len(of_kind):
                best[name] = int(of_kind[0])
        return best

    def scores(self, graph: KnowledgeGraph) -> QueryScores:
        """Return the scores for ranking, prediction and calibration."""
        nothing = TripleSet.of([], len(graph.entities))
        irreflexive = self.irreflexive_relations(graph)
        return QueryScores(nothing, np.empty(0), self.base, irreflexive, graph.observed, self.weights)

    def counted_again(self) -> "QueryRuleModel":
        """Return the model with support and hits of the rules counted in its graph."""
        rules, constraints = count_again(self.assignment.grounder, self.plain_rules, self.constraints)
        formulas = self.rules.take(np.arange(len(self.plain_rules), len(self.rules)))
        return replace(self, rules=rules.concat(formulas), constraints=constraints)

    def learn(self, hidden_q: FloatArray, config: Config, seed: int) -> "QueryRuleModel":  # noqa: ARG002
        """Return the model with weights learned from queries. Only observed triples are asked, so q is not used."""
        return learn_from_queries(self, config, seed)

    def report(self, hidden_q: FloatArray, config: Config) -> RuleTable:  # noqa: ARG002
        """Return the rules. Standard errors and numbers of groundings are unknown."""
        return self.rules

    def with_weights(self, weights: FloatArray) -> "QueryRuleModel":
        """Return the model with other weights."""
        return self._keeping_index(replace(self, rules=self.rules.with_weights(weights)))

    def with_base(self, base: FloatArray) -> "QueryRuleModel":
        """Return the model with other base log-odds."""
        return self._keeping_index(replace(self, assignment=replace(self.assignment, base=base)))

    def _keeping_index(self, model: "QueryRuleModel") -> "QueryRuleModel":
        """Return a model of the same graph and rules with what is already computed."""
        same = ("adjacency", "index", "hidden", "hide_pair")
        model.__dict__.update({name: self.__dict__[name] for name in same if name in self.__dict__})
        return model

    def _excluded(self, queries: Queries) -> tuple[IntArray, IntArray]:
        """Return the entities to leave out: known answers, and the known entity if a constraint excludes r(x, x)."""
        known_answers = self.graph.observed_answers
        irreflexive = self.irreflexive_relations(self.graph)[queries.relation]
        query, entity = [np.flatnonzero(irreflexive)], [queries.known[irreflexive]]
        for side in SIDES:
            rows = np.flatnonzero(queries.direction == (0 if side == "tail" else 1))
            index, answers, _ = known_answers[side].lookup(queries.known[rows], queries.relation[rows])
            query.append(rows[index])
            entity.append(answers)
        all_queries, all_entities = np.concatenate(query), np.concatenate(entity)
        order = np.argsort(all_queries, kind="stable")
        return np.searchsorted(all_queries[order], np.arange(len(queries) + 1)), all_entities[order]

    def examples(self, triples: IntArray, columns: IntArray, threads: int) -> tuple[QueryExamples, IntArray]:
        """Return the training queries of triples of one relation, for learning, and the group of each column.

        Args:
            triples: the triples.
            columns: the columns of the formulas.
            threads: number of threads.
        """
        known, asked = np.concatenate(triples[:, [HEAD, TAIL]].T), np.concatenate(triples[:, [TAIL, HEAD]].T)
        queries = Queries(known, np.tile(triples[:, RELATION], 2), np.repeat([0, 1], len(triples)), asked)
        parts = conclude(
            self.adjacency,
            self.index,
            queries,
            self.query.candidates,
            self._excluded(queries),
            self.hide_pair,
            threads,
        )
        return _collect(parts, queries, columns, self.index)


def query_rule_model(
    graph: KnowledgeGraph, settings: Config, rules: RuleTable, constraints: RuleTable, progress: Progress = no_progress
) -> QueryRuleModel:
    """Return the model of rules. Formulas are added, with their weights if the rules contain them."""
    _require_supported(settings)
    learned, plain = rules.take(rules.formulas), rules.take(~rules.formulas)
    if plain.negative.any():
        rule = plain.rules[int(np.argmax(plain.negative))]
        raise InputError(
            f"{rule}: with mln.objective=query, negative evidence consists of the formulas `other` and `linked` of"
            " mln.query.formulas. Remove the rule, and set rules.negative=[]."
        )
    # formulas apply only to candidates, and only rules conclude candidates
    formulas = formula_rules(graph.relations.names if len(plain) else (), settings.mln.query.formulas)
    row_of = learned.row_of
    formulas = formulas.with_weights(
        np.array([learned.weight[row_of[rule]] if rule in row_of else np.nan for rule in formulas.rules])
    )
    model = build_rule_model(graph, settings, plain, constraints, progress=progress)
    return QueryRuleModel(plain.concat(formulas), constraints, model.assignment, settings.rules, settings.mln.query)


def _require_supported(settings: Config) -> None:
    """Raise InputError for settings that the objective cannot respect."""
    mln = settings.mln
    for is_set, setting in (
        (mln.blanket != "hypothesis", f"mln.blanket={mln.blanket}"),
        (bool(mln.hidden_premises), f"mln.hidden_premises={mln.hidden_premises}"),
        (settings.rules.counting != "distinct", f"rules.counting={settings.rules.counting}"),
    ):
        if is_set:
            raise InputError(f"{setting} cannot be used with mln.objective=query. Change one of them.")


def learn_from_queries(model: QueryRuleModel, settings: Config, seed: int) -> QueryRuleModel:
    """Return the model with learned weights.

    First, the weights of formulas that all relations share are learned from some triples. Then each relation learns the
    weights of its rules and formulas. The latter are pulled to the shared weights.
    """
    model = model.with_weights(np.nan_to_num(model.rules.given))
    columns, train = formula_columns(model.query.formulas), model.graph.train
    sample = np.random.default_rng([seed, 13]).permutation(len(train))[: model.query.triples]
    shared = _shared_weights(model, train[sample[:PRIOR_TRIPLES]], columns, settings.threads)
    by_relation = [train[np.sort(sample[train[sample, RELATION] == r])] for r in range(len(model.graph.relations))]
    resources = model.assignment.grounder.resources
    rule_weights = model.rules.weight.copy()
    n_plain = len(model.plain_rules)
    formulas = np.zeros((len(by_relation), len(FORMULAS)))
    learned: list[int] = []
    with resources.progress("learning from queries, triples", len(sample)) as advance:
        for relation, triples in enumerate(by_relation):
            formulas[relation, columns] = shared
            examples, groups = model.examples(triples, columns, settings.threads)
            if len(examples):
                weights = _learn(model, examples, groups, shared, settings.mln.l2)
                formulas[relation, columns] = weights[: len(columns)]
                rule_weights[:n_plain] = _spread(model, groups, weights[len(columns) :], rule_weights[:n_plain])
                offset = _offset(log_odds(examples, weights), examples) - model.base[relation]
                formulas[relation, FORMULAS.index(ALWAYS)] += offset
                learned.append(relation)
            advance(len(triples))
    unlearned = np.setdiff1d(np.arange(len(by_relation)), learned)
    if learned:  # of relations without training queries, only the offset of the others is known
        formulas[unlearned, FORMULAS.index(ALWAYS)] = np.median(formulas[learned, FORMULAS.index(ALWAYS)])
    for (relation, name), row in model.formula_rows.items():
        rule_weights[row] = formulas[relation, FORMULAS.index(name)]
    return model.with_weights(rule_weights)


def _shared_weights(model: QueryRuleModel, triples: IntArray, columns: IntArray, threads: int) -> FloatArray:
    """Return weights of formulas, without rules, that are learned from all relations together."""
    examples, _ = model.examples(triples, columns, threads)
    dense = replace(
        examples,
        column_begin=np.zeros_like(examples.column_begin),
        column=examples.column[:0],
        value=examples.value[:0],
        n_columns=0,
    )
    return maximise_softmax(SoftmaxObjective(dense, np.zeros(len(columns)), np.full(len(columns), PRIOR_L2)))


def _learn(
    model: QueryRuleModel, examples: QueryExamples, groups: IntArray, shared: FloatArray, l2: float
) -> FloatArray:
    """Return the weights of formulas and groups of one relation. Given weights are the prior, or fixed."""
    first = np.unique(model.index.arrays.group, return_index=True)[1][groups]
    prior = np.concatenate([shared, model.rules.weight[first]])
    penalty = np.concatenate([np.full(len(shared), PRIOR_L2), np.full(len(groups), l2)])
    is_fixed = np.concatenate([np.zeros(len(shared), dtype=bool), model.rules.fixed[first]])
    return maximise_softmax(SoftmaxObjective(examples, prior, penalty, is_fixed))


def _spread(model: QueryRuleModel, groups: IntArray, weights: FloatArray, old: FloatArray) -> FloatArray:
    """Return the weights of the rules: that of their group if it was learned, otherwise the old one."""
    of_group, is_learned = np.zeros(model.index.n_groups), np.zeros(model.index.n_groups, dtype=bool)
    of_group[groups], is_learned[groups] = weights, True
    group = model.index.arrays.group
    return np.where(is_learned[group], of_group[group], old)


def _offset(scores: FloatArray, examples: QueryExamples) -> float:
    """Return the number b for which Σ σ(score + b) over all candidates is the number of answers."""
    n_answers = len(examples)
    if n_answers == len(scores):
        return 0.0

    def excess(b: float) -> float:
        return float(special.expit(scores + b).sum() - n_answers)

    low, high = -1.0, 1.0
    while excess(low) > 0:
        low *= 2
    while excess(high) < 0:
        high *= 2
    return float(optimize.brentq(excess, low, high, xtol=1e-9))


def _collect(
    parts: Iterable[Conclusions], queries: Queries, columns: IntArray, index: RuleIndex
) -> tuple[QueryExamples, IntArray]:
    """Return the queries whose answers are among several candidates, and the group of each column."""
    begin: list[IntArray] = [np.zeros(1, np.int64)]
    column_begin: list[IntArray] = [np.zeros(1, np.int64)]
    answer, dense, group, value = [], [], [], []
    start = n_candidates = n_values = 0
    for part in parts:
        n, query = len(part.begin) - 1, part.query
        is_answer = part.entity == queries.answer[start + query]
        size = np.diff(part.begin)
        is_kept = (np.bincount(query[is_answer], minlength=n) > 0) & (size > 1)
        rows = is_kept[query]
        entries = np.repeat(rows, np.diff(part.rule_begin))
        answer.append(np.flatnonzero(is_answer[rows]) + n_candidates)
        begin.append(np.cumsum(size[is_kept]) + n_candidates)
        column_begin.append(np.cumsum(np.diff(part.rule_begin)[rows]) + n_values)
        dense.append(part.values[rows][:, columns])
        group.append(index.arrays.group[part.rule[entries]])
        value.append(part.rule_value[entries])
        start, n_candidates, n_values = start + n, n_candidates + int(rows.sum()), n_values + int(entries.sum())
    empty, empty32 = np.empty(0, np.int64), np.empty(0, np.float32)
    groups, column = np.unique(np.concatenate([empty, *group]), return_inverse=True)
    examples = QueryExamples(
        begin=np.concatenate(begin),
        answer=np.concatenate([empty, *answer]),
        dense=np.concatenate([np.empty((0, len(columns)), np.float32), *dense]),
        column_begin=np.concatenate(column_begin),
        column=column.astype(np.int32),
        value=np.concatenate([empty32, *value]),
        n_columns=len(groups),
    )
    return examples, groups
