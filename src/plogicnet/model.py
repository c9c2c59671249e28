"""PLogicNet: fit, evaluate, predict, explain, save, load."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import special

from plogicnet import run
from plogicnet.baselines import report as report_on_rules
from plogicnet.baselines import require_sense, vectors_alone
from plogicnet.config import Config
from plogicnet.em import Outcome, Watch, begin, refit, run_em, systems
from plogicnet.errors import InputError
from plogicnet.evaluation import (
    Calibration,
    calibrate,
    columns_of,
    filter_splits,
    rank,
    reliability,
    report,
    sample,
)
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding import Mined, Network, find_rules
from plogicnet.kge import Checkpoint
from plogicnet.mln import Reason, RuleScores, probability
from plogicnet.progress import Clock, Progress, silent
from plogicnet.rules import RuleTable, Statement, read_statements, statements_of

log = logging.getLogger(__name__)
JUDGE_AT_ONCE = 262_144
KEEP_AT_MOST = 1_000_000
NEIGHBOURS = 5
Announce = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Prediction:
    """One judged triple, in names.

    Attributes:
        probability: calibrated on validation triples: of such candidates, at least so many are right (a true fact
            that neither train nor valid holds was counted as wrong).
        q: the embedding's own probability; None without an embedding.
        p_w: the rules' own probability.
        known: whether it is a training triple.
        in_hidden: whether a rule concludes it from training triples.
    """

    head: str
    relation: str
    tail: str
    probability: float
    q: float | None
    p_w: float
    known: bool
    in_hidden: bool


@dataclass(frozen=True)
class Fitted:
    """A trained model: the graph, what EM left behind, and the calibration; with what is derived from them."""

    graph: KnowledgeGraph
    outcome: Outcome
    calibration: Calibration
    candidates: int

    @cached_property
    def rules(self) -> RuleScores:
        """The rule model's answers."""
        return self.outcome.rule_model.scores(self.graph)

    def probability(self, triples: IntArray) -> FloatArray:
        """The calibrated probability of triples; a constraint makes it zero."""
        p = self.calibration.probability(columns_of(self.outcome.embedding, self.rules, triples))
        return np.where(self.rules.forbidden(triples), 0.0, p)

    def judge(self, triples: IntArray, rules: RuleScores) -> list[Prediction]:
        """Judges given triples, in their order, by the vectors and by what the rules say of them."""
        columns = columns_of(self.outcome.embedding, rules, triples)
        p = np.where(rules.forbidden(triples), 0.0, self.calibration.probability(columns))
        odds, reached = rules.of_triples(triples)
        known = self.graph.observed.contains(triples)
        embedded = self.outcome.embedding is not None
        rows = zip(
            triples,
            p.tolist(),
            special.expit(columns[:, 0]).tolist(),
            probability(odds).tolist(),
            known.tolist(),
            (reached & ~known).tolist(),
            strict=True,
        )
        return [Prediction(*self.graph.names(t), p, q if embedded else None, *rest) for t, p, q, *rest in rows]


class PLogicNet:
    """A Markov logic network and an embedding trained together; rank by both, and say why.

    Example:
        >>> from plogicnet.graph import demo_family
        >>> model = PLogicNet(Config().with_preset("best/family")).fit(demo_family())  # doctest: +SKIP
        >>> model.predict(head="anna_berg", relation="mother")  # doctest: +SKIP
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        require_sense(self.config)
        self.clock = Clock()
        self.metrics: dict[str, object] = {}
        self._fitted: Fitted | None = None

    @property
    def fitted(self) -> Fitted:
        """What training left behind; an error before it."""
        if self._fitted is None:
            raise InputError("this model is not trained yet: call fit(graph), or PLogicNet.load(run)")
        return self._fitted

    @property
    def rules(self) -> RuleTable:
        """The learned rules, strongest first, then the constraints."""
        model = self.fitted.outcome.rule_model
        return model.rules.by_weight().joined(model.constraints)

    @property
    def history(self) -> tuple[dict[str, object], ...]:
        """One entry per EM iteration."""
        return self.fitted.outcome.history

    def fit(
        self,
        graph: KnowledgeGraph,
        progress: Progress = silent,
        rules: str | Path | None = None,
        out: str | Path | None = None,
        announce: Announce = lambda _: None,
        watch: Watch = lambda *_: {},
        shared: str | Path | None = None,
    ) -> "PLogicNet":
        """Mines rules, then trains vectors and rule weights in turn; calibrates and evaluates at the end.

        Args:
            graph: what to learn from.
            progress: how long steps are shown.
            rules: rules to add to the mined ones: a file's path, or a text in the rule syntax.
            out: a run directory that training is kept in as it goes, so that it can be resumed.
            announce: is told what each EM iteration reached.
            watch: looks at each EM iteration and adds to its line of the history; it decides nothing.
            shared: a directory in which trainings that begin alike leave their first E-step's vectors to each other.

        Example:
            >>> PLogicNet().fit(graph, rules="=2: husband(X, Y) => wife(Y, X)")  # doctest: +SKIP
        """
        config = self.config
        statements = self.statements(rules, graph)
        _use_threads(config)
        graph = graph.with_validation(config.seed)
        if graph.held_out:
            log.warning("no valid split: %d training triples are held out for λ and calibration", graph.held_out)
        if out is not None:
            if run.is_complete(Path(out)):
                raise InputError(f"{out}: a finished run is there; name another directory or remove it")
            run.begin(Path(out), config, graph, statements)
        start = run.Unfinished(config, graph, statements, None, None, 0)
        return self._trained(start, progress, out, announce, watch, shared)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        settings: Mapping[str, object] | None = None,
        progress: Progress = silent,
        announce: Announce = lambda _: None,
        watch: Watch = lambda *_: {},
        shared: str | Path | None = None,
    ) -> "PLogicNet":
        """Goes on with a training where it stopped; a complete run is given more EM iterations if settings ask for it.

        On a CPU the result is the same, bit by bit, as if it had never stopped.

        Example:
            >>> PLogicNet.resume("runs/family")  # doctest: +SKIP
        """
        unfinished = run.read_unfinished(Path(path), settings or {})
        model = cls(unfinished.config)
        _use_threads(unfinished.config)
        if unfinished.complete and unfinished.last is not None:
            run.reopen(Path(path), unfinished.config, unfinished.graph, unfinished.last, unfinished.candidates)
        return model._trained(unfinished, progress, path, announce, watch, shared)

    def refit(
        self, rules: str | Path | None = None, progress: Progress = silent, out: str | Path | None = None
    ) -> "PLogicNet":
        """Learns the rule weights again, for other rules if given; the vectors stay as they are.

        Example:
            >>> PLogicNet.load("runs/family").refit(Path("edited.rules"))  # doctest: +SKIP
        """
        f, config = self.fitted, self.config
        old = f.outcome.rule_model
        table, constraints = old.rules, old.constraints
        if rules is not None:
            alone = config.with_values({"rules.mine": False})
            found = find_rules(f.graph, alone, self.statements(rules, f.graph), progress)
            table, constraints = found.rules, found.constraints
        last = refit(f.graph, config, f.outcome, table, constraints, self.clock, progress)
        if out is not None:
            if not (Path(out) / run.BEGUN).exists():
                run.begin(Path(out), config, f.graph, [])
            run.keep(Path(out), f.graph, last, f.candidates, last.iteration, final=True)
        return self._finished(f.graph, last, f.candidates, progress, out)

    def _trained(
        self,
        start: run.Unfinished,
        progress: Progress,
        out: str | Path | None,
        announce: Announce,
        watch: Watch,
        shared: str | Path | None,
    ) -> "PLogicNet":
        """Mines, unless that is done, iterates as often as is left, and finishes."""
        config, graph, candidates, last = start.config, start.graph, start.candidates, start.last
        if last is None:
            nothing = RuleTable.of([], [], [])
            with self.clock("mine"):
                mined = Mined(nothing, nothing, 0)
                if config.em.rules:
                    mined = find_rules(graph, config, start.statements, progress)
            candidates = mined.candidates
            with self.clock("ground"):
                last = begin(graph, config, mined.rules, mined.constraints, progress)
        checkpoint = None if out is None else Checkpoint(Path(out) / run.CHECKPOINT / run.E_STEP)

        def reached(now: Outcome, best: Outcome) -> None:
            announce(now.history[-1])
            if out is not None:
                run.keep(Path(out), graph, now, candidates, best.iteration)

        if start.final:
            return self._finished(graph, last, candidates, progress, out)
        place = None if shared is None else Path(shared)
        outcome = run_em(graph, config, last, self.clock, progress, checkpoint, reached, start.best, watch, place)
        return self._finished(graph, outcome, candidates, progress, out)

    def _finished(
        self, graph: KnowledgeGraph, outcome: Outcome, candidates: int, progress: Progress, out: str | Path | None
    ) -> "PLogicNet":
        """Reports on the rules, calibrates, evaluates and, where there is a run directory, writes its files."""
        config = self.config
        with self.clock("report"):
            rules = report_on_rules(outcome.rule_model, outcome.hidden_q, config)
            outcome = replace(outcome, rule_model=replace(outcome.rule_model, rules=rules))
        scores = outcome.rule_model.scores(graph)
        labels = sample(graph, "valid", ["train", "valid"], config.seed)
        labels = labels.take(~scores.forbidden(labels.triples))  # these are not judged by the regression
        columns = columns_of(outcome.embedding, scores, labels.triples)
        if vectors_alone(config):
            columns[:, 1:] = 0.0
        calibration = calibrate(columns, labels)
        self._fitted = Fitted(graph, outcome, calibration, candidates)
        with self.clock("evaluate"):
            self.metrics = {
                "lambda": outcome.lambda_,
                "calibration": calibration.to_json(),
                "candidates": candidates,
                "iteration": outcome.iteration,
            }
            self.metrics |= {s: self.evaluate(s, progress) for s in ("valid", "test") if len(graph.split(s))}
        if out is not None:
            run.write(Path(out), config, graph, outcome, self.metrics, self.clock.seconds)
        return self

    def statements(self, rules: str | Path | None, graph: KnowledgeGraph) -> list[Statement]:
        """The rules that a person gives, read and checked against the graph, before any work is done with them.

        Example:
            >>> PLogicNet().statements("husband(X, Y) => wife(Y, X)", graph)  # doctest: +SKIP
        """
        if rules is None:
            return []
        if not self.config.em.rules:
            raise InputError("rules are given, but em.rules=false leaves all rules out")
        # no rule is without an arrow, and hardly a file's name with one
        named = isinstance(rules, Path) or "=>" not in rules
        statements = read_statements(Path(rules), graph) if named else statements_of(str(rules), graph)
        body = tuple(s.rule for s in statements if not s.rule.negated)
        Network(graph, body, self.config.rules.counting, settings=self.config.grounding).require_engines()
        return statements

    def evaluate(self, split: str = "test", progress: Progress = silent) -> dict[str, object]:
        """Filtered ranks of a split by each half alone, pLogicNet and pLogicNet*, and how good the probabilities are.

        Example:
            >>> model.evaluate()["plogicnet*"]["mrr"]  # doctest: +SKIP
        """
        f = self.fitted
        if not len(f.graph.split(split)):
            raise InputError(f"the graph has no {split} triples to evaluate on")
        if split == "train":
            raise InputError("train is what the model learned from; evaluate on valid or test")
        embedding, memory = f.outcome.embedding, self.config.evaluation.batch_memory_mb
        ranks = rank(f.graph, split, embedding, f.rules, systems(self.config, f.outcome.lambda_), memory, progress)
        labels = sample(f.graph, split, filter_splits(split), self.config.seed)
        columns = columns_of(embedding, f.rules, labels.triples)
        raw = special.expit(columns[:, 0]) if embedding else columns[:, 1]  # q, or without vectors p_w
        uncalibrated = {k: v for k, v in reliability(raw, labels).items() if k != "curve"}
        return {
            "split": split,
            "lambda": f.outcome.lambda_,
            **{name: report(f.graph, split, r) for name, r in ranks.items()},
            "calibration": reliability(f.probability(labels.triples), labels) | {"uncalibrated": uncalibrated},
        }

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        include_known: bool = False,
    ) -> list[Prediction]:
        """The most probable answers to a query with one part left open, or the judgement of a whole triple.

        Example:
            >>> model.predict(head="anna_berg", relation="mother", top=3)  # doctest: +SKIP
        """
        if top < 1:
            raise InputError(f"top: {top} answers cannot be given; ask for 1 or more")
        graph = self.fitted.graph
        names = (head, relation, tail)
        sizes = (len(graph.entities), len(graph.relations), len(graph.entities))
        vocabularies = (graph.entities, graph.relations, graph.entities)
        open_parts = [i for i in (HEAD, RELATION, TAIL) if names[i] is None]
        if len(open_parts) > 1:
            raise InputError("leave one of head, relation and tail open, not more")
        count = sizes[open_parts[0]] if open_parts else 1
        triples = np.empty((count, 3), dtype=np.int64)
        for i, (name, vocabulary) in enumerate(zip(names, vocabularies, strict=True)):
            triples[:, i] = np.arange(count) if name is None else vocabulary.id(name)
        if open_parts and not include_known:
            triples = triples[~graph.observed.contains(triples)]
        return self.judge(self._best(triples, top))

    def complete(self, min_probability: float, top: int | None = None, progress: Progress = silent) -> list[Prediction]:
        """The missing facts of at least this probability, most probable first.

        Candidates are what rules conclude and, for each relation, the pairs of entities seen at its two ends.

        Example:
            >>> model.complete(min_probability=0.9)  # doctest: +SKIP
        """
        graph, found = self.fitted.graph, [np.empty((0, 3), dtype=np.int64)]
        with progress("completing, candidates", self._completion_size()) as advance:
            for chunk in self._completions():
                found.append(chunk[self.fitted.probability(chunk) >= min_probability])
                if top is not None and sum(map(len, found)) > KEEP_AT_MOST:
                    found = [self._best(TripleSet.of(np.concatenate(found), len(graph.entities)).triples, top)]
                advance(len(chunk))
        missing = TripleSet.of(np.concatenate(found), len(graph.entities)).triples
        return self.judge(self._best(missing, len(missing) if top is None else top))

    def judge(self, triples: IntArray) -> list[Prediction]:
        """Judges given triples, in their order.

        Example:
            >>> model.judge(graph.test[:3])  # doctest: +SKIP
        """
        return self.fitted.judge(triples, self.fitted.rules)

    def explain(self, head: str, relation: str, tail: str) -> dict[str, object]:
        """Why a triple is held probable: each rule's contribution to the log-odds with its premises, and similar facts.

        Example:
            >>> model.explain("anna_berg", "mother", "ben_berg")["rules"]  # doctest: +SKIP
        """
        f = self.fitted
        model, triple = f.outcome.rule_model, f.graph.numbers(head, relation, tail)
        reasons = model.reasons(triple)
        base = float(model.base[triple[RELATION]])
        sums = sum(reason.value * float(model.rules.weight[reason.rule]) for reason in reasons)
        odds = float(model.log_odds_of(np.array([sums]), triple[[RELATION]])[0])
        # what the rules say of this triple alone: the whole network is not needed for it
        scores = model.scores_of(f.graph, triple, odds if reasons else None)
        judged = f.judge(triple[None, :], scores)[0]
        return {
            "triple": [head, relation, tail],
            "probability": judged.probability,
            "q": judged.q,
            "p_w": judged.p_w,
            "log_odds": odds,
            "base": base,
            "known": judged.known,
            "forbidden": bool(scores.forbidden(triple[None, :])[0]),
            "rules": self._contributions(reasons),
            "neighbours": self._neighbours(triple),
        }

    def save(self, path: str | Path) -> None:
        """Writes a run directory.

        Example:
            >>> model.save("runs/family")  # doctest: +SKIP
        """
        f = self.fitted
        run.begin(Path(path), self.config, f.graph, [])
        run.keep(Path(path), f.graph, f.outcome, f.candidates, f.outcome.iteration)  # should it be stopped on the way
        run.write(Path(path), self.config, f.graph, f.outcome, self.metrics, self.clock.seconds)

    @classmethod
    def load(cls, path: str | Path, settings: Mapping[str, object] | None = None, edited: bool = False) -> "PLogicNet":
        """Opens a run directory; settings by dotted key, as the device, may differ from the run's own.

        With `edited`, its rules.tsv may have been changed by hand; then `refit` must be called before anything else.

        Example:
            >>> PLogicNet.load("runs/family").evaluate()  # doctest: +SKIP
        """
        config, graph, outcome, metrics = run.read(Path(path), settings or {}, edited)
        _use_threads(config)
        model = cls(config)
        model.metrics = metrics
        model._fitted = Fitted(graph, outcome, Calibration(**metrics["calibration"]), metrics["candidates"])
        return model

    def _best(self, triples: IntArray, top: int) -> IntArray:
        """The most probable of some triples, in order."""
        order = np.argsort(-self.fitted.probability(triples), kind="stable")
        return triples[order[:top]]

    def _completions(self) -> Iterator[IntArray]:
        """Candidates for completion, none of them known, in pieces of bounded size."""
        f = self.fitted
        hidden = f.outcome.rule_model.groundings.hidden
        yield from (hidden[start : start + JUDGE_AT_ONCE] for start in range(0, len(hidden), JUDGE_AT_ONCE))
        for relation in range(len(f.graph.relations)):
            facts = f.graph.train[f.graph.train[:, RELATION] == relation]
            heads, tails = np.unique(facts[:, HEAD]), np.unique(facts[:, TAIL])
            step = max(1, JUDGE_AT_ONCE // max(1, len(tails)))
            for start in range(0, len(heads), step):
                grid = np.meshgrid(heads[start : start + step], relation, tails, indexing="ij")
                triples = np.stack([g.ravel() for g in grid], axis=1)
                yield triples[~f.graph.observed.contains(triples)]

    def _completion_size(self) -> int:
        """About how many candidates there are; known ones are left out later."""
        train = self.fitted.graph.train
        n = len(self.fitted.graph.entities)
        ends = [np.unique(train[:, RELATION] * n + train[:, column]) // n for column in (HEAD, TAIL)]
        heads, tails = (np.bincount(relation, minlength=len(self.fitted.graph.relations)) for relation in ends)
        return int(heads @ tails) + len(self.fitted.outcome.rule_model.groundings.hidden)

    def _contributions(self, reasons: list[Reason]) -> list[dict[str, object]]:
        """Each rule's part in a triple's log-odds, the largest first: value × weight, and the premises behind it."""
        rules, names = self.fitted.outcome.rule_model.rules, self.fitted.graph.names
        entries = [
            {
                "rule": str(rules.rules[reason.rule]),
                "weight": float(rules.weight[reason.rule]),
                "groundings": len(reason.premises),
                "contribution": float(reason.value * rules.weight[reason.rule]),
                "premises": [[list(names(t)) for t in premises] for premises in reason.premises],
            }
            for reason in reasons
        ]
        return sorted(entries, key=lambda entry: -abs(float(str(entry["contribution"]))))

    def _neighbours(self, triple: IntArray) -> list[dict[str, object]]:
        """The entities most similar to the head (tail) that are known to have the same fact with the tail (head)."""
        f = self.fitted
        vectors = f.outcome.embedding.vectors() if f.outcome.embedding else None
        if vectors is None:
            return []
        found: list[dict[str, object]] = []
        for column, other in ((HEAD, TAIL), (TAIL, HEAD)):
            same: BoolArray = (f.graph.train[:, RELATION] == triple[RELATION]) & (
                f.graph.train[:, other] == triple[other]
            )
            entities = np.setdiff1d(f.graph.train[same][:, column], triple[column])
            own = vectors[int(triple[column])][None, :]
            similarity = (
                torch.cosine_similarity(vectors[torch.from_numpy(entities).to(vectors.device)], own).cpu().numpy()
            )
            for at in np.argsort(-similarity, kind="stable")[:NEIGHBOURS]:
                fact = triple.copy()
                fact[column] = entities[at]
                found.append(
                    {
                        "entity": f.graph.entities.names[entities[at]],
                        "similar_to": f.graph.entities.names[triple[column]],
                        "similarity": float(similarity[at]),
                        "fact": list(f.graph.names(fact)),
                    }
                )
        return found


def _use_threads(config: Config) -> None:
    """As many threads as asked for; else torch's own choice, all cores unless OMP_NUM_THREADS says otherwise."""
    if config.threads:
        torch.set_num_threads(config.threads)


def prediction_rows(predictions: list[Prediction]) -> list[dict[str, object]]:
    """Predictions as dictionaries, for JSON.

    Example:
        >>> prediction_rows([Prediction("a", "r", "b", 0.5, 0.5, 0.5, False, False)])[0]["head"]
        'a'
    """
    return [asdict(p) for p in predictions]
