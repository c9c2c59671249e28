"""PLogicNet: fit, evaluate, predict, explain, save, load."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plogicnet.config import Config
from plogicnet.evaluation import Calibration
from plogicnet.graph import OPEN, IntArray, KnowledgeGraph
from plogicnet.grounding import Mined, Network, find_rules
from plogicnet.inference import prediction
from plogicnet.inference.evaluation import evaluate
from plogicnet.inference.explanation import PREMISES, explain
from plogicnet.inference.facts import with_facts
from plogicnet.inference.fitted import Fitted, Judged, Prediction, fit_calibration, prediction_rows, predictions
from plogicnet.inference.prediction import query_of
from plogicnet.neural.protocol import Checkpoint
from plogicnet.rules import RuleTable, Statement, read_statements, statements_of
from plogicnet.runs import directory
from plogicnet.runs.integrity import damage_said
from plogicnet.support.errors import InputError, many
from plogicnet.support.progress import Progress, silent
from plogicnet.systems.system import system_of
from plogicnet.training.em import begin, refit, run_em
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Iteration, Outcome

__all__ = ["Fitted", "Hooks", "PLogicNet", "Prediction", "prediction_rows"]
log = logging.getLogger(__name__)


class PLogicNet:
    """A Markov logic network and a neural model trained together; ranks by both, and says why.

    Example:
        >>> from plogicnet.graph import demo_family
        >>> model = PLogicNet(Config().with_preset("best/family")).fit(demo_family())  # doctest: +SKIP
        >>> model.predict(head="anna_brandt", relation="mother")  # doctest: +SKIP
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = (config or Config()).completed
        system_of(self.config).check(self.config)
        self.metrics: dict[str, object] = {}
        self.seconds: Mapping[str, float] = {}
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
    def titles(self) -> Mapping[str, str]:
        """The title of each key of the figures."""
        return system_of(self.config).titles

    @property
    def history(self) -> tuple[Iteration, ...]:
        """One entry per EM iteration."""
        return self.fitted.outcome.history

    def fit(
        self,
        graph: KnowledgeGraph,
        rules: str | Path | None = None,
        out: str | Path | None = None,
        hooks: Hooks | None = None,
    ) -> "PLogicNet":
        """Mines rules, then trains the neural model and the rule weights in turn; calibrates and evaluates at the end.

        Args:
            graph: what to learn from.
            rules: rules to add to the mined ones: a file's path, or a text in the rule syntax.
            out: a run directory in which the training is saved as it goes, so that it can be resumed.
            hooks: what is called on the way: progress, figures of each EM iteration.

        Example:
            >>> PLogicNet().fit(graph, rules="=2: husband(X, Y) => wife(Y, X)")  # doctest: +SKIP
        """
        statements = self.statements(rules, graph)
        graph = graph.with_validation(self.config.seed)
        if graph.held_out:
            told = many(graph.held_out, "training triple is", "training triples are")
            log.warning("no valid split: %s held out for λ and calibration", told)
        if out is not None:
            if directory.is_complete(Path(out)):
                raise InputError(f"{out}: a finished run is there; name another directory or remove it")
            directory.begin(Path(out), self.config, graph, statements)
        start = directory.Unfinished(self.config, graph, statements, None, None, 0)
        return self._train(start, hooks or Hooks(), None if out is None else Path(out))

    @classmethod
    def resume(
        cls, path: str | Path, settings: Mapping[str, object] | None = None, hooks: Hooks | None = None
    ) -> "PLogicNet":
        """Continues a training where it stopped; a complete run gets more EM iterations if settings ask for them.

        On a CPU the result is the same, bit by bit, as if it had never stopped.

        Example:
            >>> PLogicNet.resume("runs/family")  # doctest: +SKIP
        """
        start = directory.read_unfinished(Path(path), settings or {})
        if start.complete and start.last is not None:
            directory.reopen(Path(path), start.config, start.graph, start.last, start.candidates)
        return cls(start.config)._train(start, hooks or Hooks(), Path(path))

    def refit(
        self, rules: str | Path | None = None, out: str | Path | None = None, hooks: Hooks | None = None
    ) -> "PLogicNet":
        """Learns the rule weights again, for other rules if given; the neural model stays as it is.

        Example:
            >>> PLogicNet.load("runs/family").refit(Path("edited.rules"))  # doctest: +SKIP
        """
        f, config, hooks = self._as_trained, self.config, hooks or Hooks()
        table, constraints = f.outcome.rule_model.rules, f.outcome.rule_model.constraints
        if rules is not None:
            alone = config.with_values({"rules.mine": False})
            found = find_rules(f.graph, alone, self.statements(rules, f.graph), hooks.progress)
            table, constraints = found.rules, found.constraints
        last = refit(f.graph, config, f.outcome, table, constraints, hooks)
        if out is not None:
            if not directory.is_run(Path(out)):
                directory.begin(Path(out), config, f.graph, None)
            directory.keep(Path(out), f.graph, last, f.candidates, last.iteration, final=True)
        return self._finish(f.graph, last, f.candidates, hooks, None if out is None else Path(out))

    def _train(self, start: directory.Unfinished, hooks: Hooks, out: Path | None) -> "PLogicNet":
        """Mines, unless that is done, runs the EM iterations that are left, and finishes."""
        _use_threads(self.config)
        graph, candidates, last = start.graph, start.candidates, start.last
        if last is None:
            nothing = RuleTable.of([], [], [])
            with hooks.clock("mine"):
                mined = Mined(nothing, nothing, 0)
                if self.config.em.rules:
                    mined = find_rules(graph, self.config, start.statements, hooks.progress)
            candidates = mined.candidates
            with hooks.clock("ground"):
                last = begin(graph, self.config, mined.rules, mined.constraints, hooks)

        def save(now: Outcome, best: Outcome) -> None:
            if out is not None:
                directory.keep(out, graph, now, candidates, best.iteration)

        checkpoint = None if out is None else Checkpoint(out / directory.CHECKPOINT / directory.E_STEP)
        if not start.final:
            last = run_em(graph, self.config, last, replace(hooks, save=save, checkpoint=checkpoint), start.best)
        return self._finish(graph, last, candidates, hooks, out)

    def _finish(
        self, graph: KnowledgeGraph, outcome: Outcome, candidates: int, hooks: Hooks, out: Path | None
    ) -> "PLogicNet":
        """Reports on the rules, calibrates, evaluates and, where there is a run directory, writes its files."""
        with hooks.clock("report"):
            rules = system_of(self.config).report(outcome.rule_model, outcome.hidden_q, self.config)
            outcome = replace(outcome, rule_model=replace(outcome.rule_model, rules=rules))
        calibration = fit_calibration(graph, self.config, outcome)
        self._fitted = Fitted.of(graph, self.config, outcome, calibration, candidates)
        with hooks.clock("evaluate"):
            self.metrics = {
                "lambda": outcome.lambda_,
                "calibration": calibration.to_json(),
                "candidates": candidates,
                "iteration": outcome.iteration,
            }
            splits = [split for split in ("valid", "test") if len(graph.split(split))]
            self.metrics |= {split: self.evaluate(split, hooks.progress) for split in splits}
        self.seconds = hooks.clock.seconds
        if out is not None:
            directory.write(out, self.config, graph, outcome, self.metrics, self.seconds)
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
        return evaluate(self._as_trained, self.config, split, progress)

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
        directory.begin(Path(path), self.config, f.graph, None)
        directory.keep(
            Path(path), f.graph, f.outcome, f.candidates, f.outcome.iteration
        )  # should it be stopped on the way
        directory.write(Path(path), self.config, f.graph, f.outcome, self.metrics, self.seconds)

    @classmethod
    def load(cls, path: str | Path, settings: Mapping[str, object] | None = None, edited: bool = False) -> "PLogicNet":
        """Opens a run directory; settings by dotted key, as the device, may differ from the run's own.

        With `edited`, its rules.tsv may have been changed by hand; then `refit` must be called before anything else.

        Example:
            >>> PLogicNet.load("runs/family").evaluate()  # doctest: +SKIP
        """
        config, graph, outcome, metrics = directory.read(Path(path), settings or {}, edited)
        _use_threads(config)
        model = cls(config)
        model.metrics = metrics
        with damage_said(Path(path)):
            calibration = Calibration.of_json(metrics["calibration"])
            model._fitted = Fitted.of(graph, config, outcome, calibration, metrics["candidates"])
        return model


def _use_threads(config: Config) -> None:
    """As many threads as asked for; else torch's own choice, all cores unless OMP_NUM_THREADS says otherwise."""
    if config.threads:
        torch.set_num_threads(config.threads)
