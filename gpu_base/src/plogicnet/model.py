"""PLogicNet: fit, evaluate, predict, explain, save, load."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plogicnet import prediction, run
from plogicnet.baselines import report as report_on_rules
from plogicnet.baselines import require_sense, vectors_alone
from plogicnet.config import Config
from plogicnet.em import Outcome, Watch, begin, refit, run_em, systems, ties
from plogicnet.errors import InputError, many
from plogicnet.evaluation import (
    Calibration,
    calibrate_twice,
    columns_of,
    filter_splits,
    rank,
    reliability,
    report,
    sample,
)
from plogicnet.explanation import PREMISES, explain
from plogicnet.facts import with_facts
from plogicnet.fitted import Fitted, Judged, Prediction, prediction_rows, predictions
from plogicnet.graph import OPEN, IntArray, KnowledgeGraph
from plogicnet.grounding import Mined, Network, find_rules
from plogicnet.kge import Checkpoint
from plogicnet.prediction import query_of
from plogicnet.progress import Clock, Progress, silent
from plogicnet.rules import RuleTable, Statement, read_statements, statements_of
from plogicnet.seals import damage_said

__all__ = ["Announce", "Fitted", "PLogicNet", "Prediction", "prediction_rows"]
log = logging.getLogger(__name__)
FEW = 50
"""Probabilities that are calibrated on fewer triples are not to be relied on."""
Announce = Callable[[Mapping[str, Any]], None]


class PLogicNet:
    """A Markov logic network and an embedding trained together; rank by both, and say why.

    Example:
        >>> from plogicnet.graph import demo_family
        >>> model = PLogicNet(Config().with_preset("best/family")).fit(demo_family())  # doctest: +SKIP
        >>> model.predict(head="anna_brandt", relation="mother")  # doctest: +SKIP
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
    def _as_trained(self) -> Fitted:
        """The same; an error where facts were added since."""
        if self.fitted.added:
            raise InputError(
                "facts were added to this model, which then predicts and explains; to save it, evaluate it or refit it,"
                " take the one without them"
            )
        return self.fitted

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
            told = many(graph.held_out, "training triple is", "training triples are")
            log.warning("no valid split: %s held out for λ and calibration", told)
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
        f, config = self._as_trained, self.config
        old = f.outcome.rule_model
        table, constraints = old.rules, old.constraints
        if rules is not None:
            alone = config.with_values({"rules.mine": False})
            found = find_rules(f.graph, alone, self.statements(rules, f.graph), progress)
            table, constraints = found.rules, found.constraints
        last = refit(f.graph, config, f.outcome, table, constraints, self.clock, progress)
        if out is not None:
            if not run.is_run(Path(out)):
                run.begin(Path(out), config, f.graph, None)
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
        if 0 < len(graph.valid) < FEW:
            log.warning(
                "only %s: λ, probabilities and figures on valid are rough; %d or more are better",
                many(len(graph.valid), "validation triple"),
                FEW,
            )
        labels = sample(graph, "valid", ["train", "valid"], config.seed)
        labels = labels.take(~scores.forbidden(labels.triples))  # these are not judged by the regression
        columns = columns_of(outcome.embedding, scores, labels.triples)
        if vectors_alone(config):
            columns[:, 1:] = 0.0
        calibration = calibrate_twice(columns, labels)
        self._fitted = Fitted(graph, outcome, calibration, candidates, ties(config, outcome))
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
        f = self._as_trained
        if not len(f.graph.split(split)):
            raise InputError(f"the graph has no {split} triples to evaluate on")
        if split == "train":
            raise InputError("train is what the model learned from; evaluate on valid or test")
        embedding, memory = f.outcome.embedding, self.config.evaluation.batch_memory_mb
        ranks = rank(f.graph, split, embedding, f.rules, systems(self.config, f.outcome.lambda_), memory, progress)
        labels = sample(f.graph, split, filter_splits(split), self.config.seed)
        calibrated, raw = f.probabilities(labels.triples).T
        uncalibrated = {k: v for k, v in reliability(raw, labels).items() if k != "curve"}
        return {
            "split": split,
            "lambda": f.outcome.lambda_,
            **{name: report(f.graph, split, r) for name, r in ranks.items()},
            "calibration": reliability(calibrated, labels) | {"uncalibrated": uncalibrated},
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

        They are ordered by probability, and equals as pLogicNet* ranks them. Training triples are left out.

        Example:
            >>> model.predict(head="anna_brandt", relation="mother", top=3)  # doctest: +SKIP
        """
        f = self.fitted
        query = query_of(f.graph, head, relation, tail)
        if OPEN not in query:
            return f.judge(query)
        return [p for _, found in self.answers(query, top, include_known) for p in predictions(found, f.graph)]

    def answers(
        self, queries: IntArray, top: int = 10, include_known: bool = False, progress: Progress = silent
    ) -> Iterator[tuple[IntArray, Judged]]:
        """The most probable answers to many queries, in numbers: some queries at a time, with each answer's query.

        Example:
            >>> for query, judged in model.answers(read_queries(Path("queries.tsv"), graph)):  # doctest: +SKIP
            ...     ...
        """
        memory = self.config.evaluation.batch_memory_mb
        return prediction.answers(self.fitted, queries, top, include_known, memory, progress)

    def complete(
        self, min_probability: float, top: int | None = None, progress: Progress = silent, all_pairs: bool = False
    ) -> list[Prediction]:
        """The missing facts of at least this probability, most probable first.

        Candidates are what rules conclude and, for each relation, the pairs of entities seen at its two ends, or with
        `all_pairs` all pairs of entities. `missing` gives the same piece by piece.

        Example:
            >>> model.complete(min_probability=0.9)  # doctest: +SKIP
        """
        f = self.fitted
        return predictions(prediction.complete(f, min_probability, top, all_pairs, progress), f.graph)

    def missing(self, min_probability: float, progress: Progress = silent, all_pairs: bool = False) -> Iterator[Judged]:
        """The missing facts in numbers, in pieces of bounded size: by relation, by head, then the most probable first.

        Example:
            >>> for judged in model.missing(min_probability=0.9):  # doctest: +SKIP
            ...     ...
        """
        return prediction.completions(self.fitted, lambda: min_probability, all_pairs, progress)

    def judge(self, triples: IntArray) -> list[Prediction]:
        """Judges given triples, in their order.

        Example:
            >>> model.judge(graph.test[:3])  # doctest: +SKIP
        """
        return self.fitted.judge(triples)

    def explain(self, head: str, relation: str, tail: str, premises: int = PREMISES) -> dict[str, object]:
        """Why a triple is held probable: each rule's contribution to the log-odds with its premises, and similar facts.

        The premises of at most so many groundings of each rule are given; all groundings are counted.

        Example:
            >>> model.explain("zoe_brandt", "mother", "anna_brandt")["rules"]  # doctest: +SKIP
        """
        return explain(self.fitted, head, relation, tail, premises)

    def with_facts(self, facts: Any) -> "PLogicNet":
        """This model in a graph that has more facts, also about entities that training never saw; itself it stays.

        Rules fire on the new facts at once; weights, base rates, vectors and calibration are those of training. A
        triple with an entity that has no vector is judged by rules alone, and its q is None.

        Args:
            facts: a file of triples, a data frame, or rows of three names; relations must be known ones.

        Example:
            >>> PLogicNet.load("runs/family").with_facts([("kim", "sister", "anna_brandt")])  # doctest: +SKIP
        """
        model = PLogicNet(self.config)
        model.metrics = dict(self.metrics)
        model._fitted = with_facts(self.fitted, facts)
        return model

    def save(self, path: str | Path) -> None:
        """Writes a run directory; a run that is there already is replaced.

        To save over a finished run is the one thing not to be killed: in its first moments the old run is gone and the
        new one not there yet.

        Example:
            >>> model.save("runs/family")  # doctest: +SKIP
        """
        f = self._as_trained
        run.begin(Path(path), self.config, f.graph, None)
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
        with damage_said(Path(path)):
            calibration = Calibration.of_json(metrics["calibration"])
            model._fitted = Fitted(graph, outcome, calibration, metrics["candidates"], ties(config, outcome))
        return model


def _use_threads(config: Config) -> None:
    """As many threads as asked for; else torch's own choice, all cores unless OMP_NUM_THREADS says otherwise."""
    if config.threads:
        torch.set_num_threads(config.threads)
