"""PLogicNet: fit, evaluate, predict, explain, save, load."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plogicnet.config import Config
from plogicnet.evaluation.calibration import Calibration
from plogicnet.graph import OPEN, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Mined
from plogicnet.grounding.network import Network
from plogicnet.grounding.rulebook import find_rules
from plogicnet.inference import prediction
from plogicnet.inference.evaluation import evaluate
from plogicnet.inference.explanation import PREMISES, Explanation, explain
from plogicnet.inference.facts import with_facts
from plogicnet.inference.fitted import Fitted, Judged, Prediction, fit_calibration, predictions
from plogicnet.inference.prediction import query_of
from plogicnet.mln import RuleModel
from plogicnet.rules import RuleTable, Statement, read_statements, statements_of
from plogicnet.runs import lifecycle, writing
from plogicnet.runs.directory import State, state_of
from plogicnet.runs.integrity import damage_as_input_error
from plogicnet.runs.reading import Unfinished, read_complete
from plogicnet.support.errors import InputError, many
from plogicnet.support.progress import Progress, silent
from plogicnet.systems.system import system_of
from plogicnet.training.em import begin, refit, run_em
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Iteration, Outcome

__all__ = ["Explanation", "Fitted", "Hooks", "PLogicNet", "Prediction"]
log = logging.getLogger(__name__)
Given = str | Path | None
"""A file or directory, or for rules a text in the rule syntax; None: nothing is given."""


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
        self.metrics: dict[str, Any] = {}
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
        self, graph: KnowledgeGraph, rules: Given = None, out: Given = None, hooks: Hooks | None = None
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
        statements, folder = self.statements(rules, graph), None if out is None else Path(out)
        with nullcontext() if folder is None else lifecycle.open_run(folder, new=True):
            graph = graph.with_validation(self.config.seed)
            if graph.held_out:
                told = many(graph.held_out, "training triple is", "training triples are")
                log.warning("no valid split: %s held out for λ and calibration", told)
            if folder is not None:
                writing.begin(folder, self.config, graph, statements)
            return self._train(Unfinished(self.config, graph, statements), hooks or Hooks(), folder)

    @classmethod
    def resume(
        cls, path: str | Path, settings: Mapping[str, object] | None = None, hooks: Hooks | None = None
    ) -> "PLogicNet":
        """Continues a training where it stopped; a complete run gets more EM iterations if settings ask for them.

        On a CPU the result is the same, bit by bit, as if it had never stopped.

        Example:
            >>> PLogicNet.resume("runs/family")  # doctest: +SKIP
        """
        with lifecycle.resumed_run(Path(path), settings or {}) as start:
            return cls(start.config)._train(start, hooks or Hooks(), Path(path))

    @classmethod
    def load_or_train(
        cls, path: str | Path, config: Config, graph: KnowledgeGraph, rules: Given = None, hooks: Hooks | None = None
    ) -> "PLogicNet":
        """The model of a run directory: loaded if the run is complete, resumed if it is unfinished, else trained.

        Example:
            >>> PLogicNet.load_or_train("runs/family", Config(), demo_family())  # doctest: +SKIP
        """
        state, here = state_of(Path(path)), {"device": config.device, "threads": config.threads}
        if state is State.COMPLETE:
            return cls.load(path, here)
        if state is State.UNFINISHED:
            return cls.resume(path, here, hooks)
        return cls(config).fit(graph, rules, path, hooks)

    def refit(self, rules: Given = None, out: Given = None, hooks: Hooks | None = None) -> "PLogicNet":
        """Learns the rule weights again, for other rules if given; the neural model stays as it is.

        Example:
            >>> PLogicNet.load("runs/family").refit(Path("edited.rules"))  # doctest: +SKIP
        """
        f, hooks, folder = self._as_trained, hooks or Hooks(), None if out is None else Path(out)
        with nullcontext() if folder is None else lifecycle.open_run(folder):
            found: RuleModel | Mined = f.outcome.rule_model
            if rules is not None:
                alone = self.config.with_values({"rules.mine": False})
                found = find_rules(f.graph, alone, self.statements(rules, f.graph), hooks.progress)
            last = refit(f.graph, self.config, f.outcome, found.rules, found.constraints, hooks)
            if folder is not None:
                if state_of(folder) is State.ABSENT:
                    writing.begin(folder, self.config, f.graph, None)
                writing.keep(folder, f.graph, f.candidates, last, last, final=True)
            return self._finish(f.graph, last, f.candidates, hooks, folder)

    def _train(self, start: Unfinished, hooks: Hooks, out: Path | None) -> "PLogicNet":
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
        if not start.final:
            saving = hooks if out is None else lifecycle.saving(out, graph, candidates, hooks)
            last = run_em(graph, self.config, last, saving, start.best)
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
            self.metrics = {"lambda": outcome.lambda_, "calibration": calibration.to_json()}
            self.metrics |= {"candidates": candidates, "iteration": outcome.iteration}
            splits = [split for split in ("valid", "test") if len(graph.split(split))]
            self.metrics |= {split: self.evaluate(split, hooks.progress) for split in splits}
        self.seconds = hooks.clock.seconds
        if out is not None:
            writing.publish(out, self.config, graph, outcome, self.metrics, self.seconds)
        return self

    def statements(self, rules: Given, graph: KnowledgeGraph) -> list[Statement]:
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
        Network.of(graph, body, self.config).require_engines()
        return statements

    def evaluate(self, split: str = "test", progress: Progress = silent) -> dict[str, object]:
        """Filtered ranks of a split by each half alone, pLogicNet and pLogicNet*, and how good the probabilities are.

        Example:
            >>> model.evaluate()["plogicnet*"]["mrr"]  # doctest: +SKIP
        """
        return evaluate(self._as_trained, self.config, split, progress).to_json()

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
        found = prediction.complete(self.fitted, min_probability, top, all_pairs, progress)
        return predictions(found, self.fitted.graph)

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

    def explain(self, head: str, relation: str, tail: str, premises: int = PREMISES) -> Explanation:
        """Why a triple is probable or not: each rule's contribution with its premises, and the neural model's reasons.

        The premises of at most so many groundings of each rule are given; all groundings are counted.

        Example:
            >>> model.explain("zoe_brandt", "mother", "anna_brandt").rules[0].premises  # doctest: +SKIP
        """
        return explain(self.fitted, head, relation, tail, premises)

    def with_facts(self, facts: Any) -> "PLogicNet":
        """This model in a graph that has more facts, also about entities that training never saw; itself it stays.

        Rules fire on the new facts at once; weights, base rates, the neural model's parameters and calibration are
        those of training. A triple with an entity that the neural model cannot score is judged by rules alone, and its
        q is None.

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

        Do not kill it while it replaces a complete run: in its first moments the old run is gone and the new one is
        not there yet.

        Example:
            >>> model.save("runs/family")  # doctest: +SKIP
        """
        f, folder = self._as_trained, Path(path)
        with lifecycle.open_run(folder):
            writing.begin(folder, self.config, f.graph, None)
            # so that it can be resumed if it is stopped on the way
            writing.keep(folder, f.graph, f.candidates, f.outcome, f.outcome)
            writing.publish(folder, self.config, f.graph, f.outcome, self.metrics, self.seconds)

    @classmethod
    def load(cls, path: str | Path, settings: Mapping[str, object] | None = None, edited: bool = False) -> "PLogicNet":
        """Opens a run directory; settings by dotted key, as the device, may differ from the run's own.

        With `edited`, its rules.tsv may have been changed by hand; then `refit` must be called before anything else.

        Example:
            >>> PLogicNet.load("runs/family").evaluate()  # doctest: +SKIP
        """
        config, graph, outcome, metrics = read_complete(Path(path), settings or {}, edited)
        _use_threads(config)
        model = cls(config)
        model.metrics = metrics
        with damage_as_input_error(Path(path)):
            calibration = Calibration.of_json(metrics["calibration"])
            model._fitted = Fitted.of(graph, config, outcome, calibration, metrics["candidates"])
        return model


def _use_threads(config: Config) -> None:
    """As many threads as asked for; else torch's own choice, all cores unless OMP_NUM_THREADS says otherwise."""
    if config.threads:
        torch.set_num_threads(config.threads)
