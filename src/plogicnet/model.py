"""The class PLogicNet, which trains, evaluates, predicts, explains, saves and loads a model."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.config import UPDATE_STEPS, Config
from plogicnet.evaluation.calibration import Calibration
from plogicnet.graph import MISSING, SPLITS, IntArray, KnowledgeGraph, Side
from plogicnet.grounding.engine import MiningResult
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.rulebook import add_rules as with_added
from plogicnet.grounding.rulebook import collect_rules, plan_mining
from plogicnet.inference import prediction
from plogicnet.inference.evaluation import evaluate
from plogicnet.inference.explanation import PREMISES, Explanation, explain
from plogicnet.inference.facts import Update, update_model, with_facts
from plogicnet.inference.fitted import FittedModel, Prediction, PredictionBatch, fit_calibration, predictions
from plogicnet.inference.pool import Effort, choose_efforts
from plogicnet.inference.prediction import RECALL, query_of
from plogicnet.mln import RuleModel
from plogicnet.neural.device import use_threads
from plogicnet.rules import RuleTable, Statement, parse_statements, read_rule_file
from plogicnet.runs import lifecycle
from plogicnet.runs.checkpoints import ResumePoint, iteration_folder, write_start
from plogicnet.runs.directory import (
    BASE_LOG_ODDS_KEY,
    CONFIG_FILE,
    GRAPH_FILES,
    NEURAL_FILE,
    START_DIR,
    State,
    state_of,
)
from plogicnet.runs.integrity import SavedFile, damage_as_input_error, saved_files
from plogicnet.runs.origins import Origin, read_origins
from plogicnet.runs.snapshots import (
    KEEP,
    UNCHANGED_BY_REFIT,
    Content,
    Snapshot,
    publish,
    read_content,
)
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, no_progress
from plogicnet.systems.system import system_of
from plogicnet.training.em import base_in, mine_and_ground, refit, run_em
from plogicnet.training.hooks import Hooks
from plogicnet.training.selection import with_validation
from plogicnet.training.state import Iteration, Outcome

__all__ = ["Explanation", "FittedModel", "Hooks", "PLogicNet", "Prediction"]
log = logging.getLogger(__name__)
RulesSource = str | Path | None
"""The path of a rule file, or text in the rule syntax; None for no rules."""


class PLogicNet:
    """A Markov logic network and a neural model, trained together.

    Example:
        >>> from plogicnet.graph import demo_family
        >>> config = Config().with_values({"em.neural": False})  # rules alone, which train in a second
        >>> model = PLogicNet(config).fit(demo_family())
        >>> [p.tail for p in model.predict(head="zoe_brandt", relation="mother", top=2)]
        ['ruth_brandt', 'anna_brandt']
        >>> model.explain("zoe_brandt", "mother", "anna_brandt").rules[0].premises
        ((('anna_brandt', 'daughter', 'zoe_brandt'),),)
        >>> model.evaluate()["plogicnet*"]["mrr"] > 0.9
        True
        >>> model.with_facts([("kim", "sister", "anna_brandt")]).predict("anna_brandt", "sibling", "kim")[0].in_hidden
        True
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = (config or Config()).completed
        system_of(self.config).check(self.config)
        self.metrics: dict[str, Any] = {}
        self.seconds: Mapping[str, float] = {}
        self.snapshot: Snapshot | None = None
        """The snapshot from which this model was loaded or that was last published from it."""
        self.last_update: Update | None = None
        """What the last call of `update` changed."""
        self._saved_files: Mapping[str, SavedFile] = {}
        """The files of `snapshot` with the content of this model, by name."""
        self._fitted: FittedModel | None = None

    @property
    def fitted(self) -> FittedModel:
        """The trained model. Raises InputError before training."""
        if self._fitted is None:
            raise InputError("the model is not trained. Call fit(graph) or PLogicNet.load(run).")
        return self._fitted

    @property
    def _as_trained(self) -> FittedModel:
        """The trained model. Raises InputError if facts were added to it."""
        if self.fitted.added:
            raise InputError(
                "a model with added facts can only predict and explain. To save, evaluate or refit it, use the model"
                " without these facts, or add them with its method `update`."
            )
        return self.fitted

    @property
    def rules(self) -> RuleTable:
        """The rules by decreasing weight, then the constraints."""
        model = self.fitted.outcome.rule_model
        return model.rules.by_weight().concat(model.constraints)

    @property
    def titles(self) -> Mapping[str, str]:
        """The title of each ranking in the metrics, by key."""
        return system_of(self.config).titles

    @property
    def history(self) -> tuple[Iteration, ...]:
        """The metrics of each EM iteration."""
        return self.fitted.outcome.history

    def fit(
        self,
        graph: KnowledgeGraph,
        rules: RulesSource = None,
        out: str | Path | None = None,
        hooks: Hooks | None = None,
    ) -> "PLogicNet":
        """Mine rules, train the neural model and the rule weights alternately, then calibrate and evaluate.

        Args:
            graph: the graph to train on.
            rules: rules to add to the mined ones, as the path of a file or as text in the rule syntax.
            out: run directory for checkpoints and results. If training is interrupted, it can be resumed from there.
            hooks: callbacks for progress and for the metrics of each EM iteration.
        """
        statements, folder = self.statements(rules, graph), None if out is None else Path(out)
        self.snapshot, self._saved_files = None, {}
        with nullcontext() if folder is None else lifecycle.open_run(folder, new=True):
            graph = with_validation(graph, self.config)
            if self.config.em.rules:
                self.config = plan_mining(graph, self.config, hooks.progress if hooks else no_progress)
            if folder is not None:
                write_start(folder, self.config, graph, statements)
            return self._train(ResumePoint(self.config, graph, statements), hooks or Hooks(), folder, "train")

    @classmethod
    def resume(
        cls,
        path: str | Path,
        settings: Mapping[str, object] | None = None,
        hooks: Hooks | None = None,
        keep: int = KEEP,
    ) -> "PLogicNet":
        """Continue an interrupted run, or train a complete run for more EM iterations if `settings` increase them.

        On a CPU the result is bitwise equal to that of an uninterrupted run. `keep` is the number of snapshots to keep.
        """
        with lifecycle.resume_run(Path(path), settings or {}) as start:
            return cls(start.config)._train(start, hooks or Hooks(), Path(path), "resume", keep)

    @classmethod
    def load_or_train(
        cls,
        path: str | Path,
        config: Config,
        graph: KnowledgeGraph,
        rules: RulesSource = None,
        hooks: Hooks | None = None,
    ) -> "PLogicNet":
        """Load the run at `path` if it is complete, resume it if it is unfinished, otherwise train a new run."""
        state, settings = state_of(Path(path)), {"device": config.device, "threads": config.threads}
        if state is State.COMPLETE:
            return cls.load(path, settings)
        if state is State.UNFINISHED:
            return cls.resume(path, settings, hooks)
        return cls(config).fit(graph, rules, path, hooks)

    def refit(
        self,
        rules: RulesSource = None,
        out: str | Path | None = None,
        hooks: Hooks | None = None,
        keep: int = KEEP,
        add_rules: RulesSource = None,
    ) -> "PLogicNet":
        """Learn the rule weights again, optionally with other rules. The neural model does not change.

        Args:
            rules: rules that replace those of the model, as the path of a file or as text in the rule syntax.
            out: run directory in which the result is published as a new snapshot.
            hooks: callbacks for progress.
            keep: the number of snapshots to keep.
            add_rules: rules that are added to those of the model, instead of replacing them.
        """
        if rules is not None and add_rules is not None:
            raise InputError("rules replaces the rules of the model, and add_rules adds to them: give only one")
        fitted, hooks, folder = self._as_trained, hooks or Hooks(), None if out is None else Path(out)
        with nullcontext() if folder is None else lifecycle.open_run(folder):
            if folder is not None:
                lifecycle.require_finished(folder)
                lifecycle.require_current(folder, self.snapshot)
            source: RuleModel | MiningResult = fitted.outcome.rule_model
            if rules is not None:
                without_mining = self.config.with_values({"rules.mine": False})
                source = collect_rules(
                    fitted.graph, without_mining, self.statements(rules, fitted.graph), hooks.progress
                )
            if add_rules is not None:
                new = self.statements(add_rules, fitted.graph)
                source = with_added(fitted.graph, self.config, source.rules, source.constraints, new, hooks.progress)
            last = refit(fitted.graph, self.config, fitted.outcome, source.rules, source.constraints, hooks)
            self._saved_files = {n: file for n, file in self._saved_files.items() if n in UNCHANGED_BY_REFIT}
            self._finish(fitted.graph, last, fitted.candidates, hooks)
            if folder is not None:
                self._publish(folder, "refit", self._saved_files, keep)
        return self

    def update(
        self,
        facts: Any,
        out: str | Path | None = None,
        steps: int = UPDATE_STEPS,
        evaluate: bool = False,
        hooks: Hooks | None = None,
        keep: int = KEEP,
    ) -> "PLogicNet":
        """Add facts to the graph, including facts about new entities. `last_update` is what changed.

        The rules are grounded again. Their weights and base rates, λ and the calibration do not change, and neither
        does the neural model. If it has parameters of entities, those of new entities are added and trained.

        Args:
            facts: as in `with_facts`. Those in valid or test are removed from there.
            out: run directory in which the result is published as a new snapshot. If its current snapshot already has
                the content of this model, no snapshot is published.
            steps: number of training steps for new entities; 0: the neural model cannot score new entities.
            evaluate: whether to evaluate the result; otherwise `metrics` has none of valid and test.
            hooks: callbacks for progress.
            keep: the number of snapshots to keep.
        """
        old, hooks, folder = self._as_trained, hooks or Hooks(), None if out is None else Path(out)
        with nullcontext() if folder is None else lifecycle.open_run(folder):
            if folder is not None:
                lifecycle.require_finished(folder)
                lifecycle.require_current(folder, self.snapshot)
            fitted, self.last_update = update_model(old, self.config, facts, steps, hooks)
            if not self.last_update.is_empty:
                unchanged = {CONFIG_FILE} if self.last_update.trained_steps else {CONFIG_FILE, NEURAL_FILE}
                self._saved_files = {n: file for n, file in self._saved_files.items() if n in unchanged}
                self._fitted = fitted
                kept = {key: value for key, value in self.metrics.items() if key not in SPLITS}
                self.metrics = kept | self._base_metrics
                if evaluate:
                    self._evaluate_splits(hooks)
                self.seconds = hooks.clock.seconds
            if folder is not None and not self._is_saved_in(folder):
                self._publish(folder, "update", self._saved_files, keep)
        return self

    def _train(self, start: ResumePoint, hooks: Hooks, out: Path | None, command: str, keep: int = KEEP) -> "PLogicNet":
        """Mine rules unless an EM iteration is done, run the remaining iterations, calibrate, evaluate and publish."""
        use_threads(self.config.threads)
        graph, candidates, last = start.graph, start.candidates, start.last
        if last is None:
            last, candidates = mine_and_ground(graph, self.config, start.statements, hooks)
        saving = hooks if out is None else lifecycle.saving_hooks(out, graph, candidates, hooks)
        last = run_em(graph, self.config, last, saving, start.best)
        self._finish(graph, last, candidates, hooks)
        if out is not None:
            saved = saved_files(iteration_folder(out.resolve(), last.iteration), [NEURAL_FILE])
            self._publish(out, command, saved | saved_files(out.resolve() / START_DIR, GRAPH_FILES), keep)
        return self

    def _finish(self, graph: KnowledgeGraph, outcome: Outcome, candidates: int, hooks: Hooks) -> None:
        """Compute standard errors and counts of the rules, calibrate, and evaluate."""
        with hooks.clock("report"):
            rules = system_of(self.config).report(outcome.rule_model, outcome.hidden_q, self.config)
            outcome = replace(outcome, rule_model=replace(outcome.rule_model, rules=rules))
        calibration = fit_calibration(graph, self.config, outcome)
        with hooks.clock("completion"):
            scores, hidden = outcome.rule_model.scores(graph), outcome.rule_model.hidden
            efforts = choose_efforts(graph, outcome.neural, scores, hidden, self.config.seed, hooks.progress)
        self._fitted = FittedModel.of(graph, self.config, outcome, calibration, candidates, efforts)
        self.metrics = {"lambda": outcome.lambda_, "calibration": calibration.to_json()}
        self.metrics["completion"] = [effort.to_json() for effort in efforts]
        self.metrics |= {"candidates": candidates, "iteration": outcome.iteration, **self._base_metrics}
        self._evaluate_splits(hooks)
        self.seconds = hooks.clock.seconds

    def _evaluate_splits(self, hooks: Hooks) -> None:
        """Add the metrics of valid and test."""
        with hooks.clock("evaluate"):
            splits = [split for split in ("valid", "test") if len(self.fitted.graph.split(split))]
            self.metrics |= {split: self.evaluate(split, hooks.progress) for split in splits}

    @property
    def _base_metrics(self) -> dict[str, Any]:
        """The base log-odds by relation, if they are those of a graph to which facts were added since; or nothing."""
        graph, model = self.fitted.graph, self.fitted.outcome.rule_model
        if np.array_equal(model.base, base_in(graph, self.config, model)):
            return {}
        return {BASE_LOG_ODDS_KEY: dict(zip(graph.relations.names, model.base.tolist(), strict=True))}

    def _is_saved_in(self, path: Path) -> bool:
        """Return whether `snapshot` is a snapshot of this run and has the content of this model."""
        snapshot = self.snapshot
        return snapshot is not None and snapshot.is_in(path) and self._saved_files.keys() >= snapshot.files.keys()

    def _publish(self, path: Path, command: str, unchanged: Mapping[str, SavedFile], keep: int) -> None:
        """Publish this model as a snapshot. The files in `unchanged` are linked."""
        content = Content(self.config, self.fitted.graph, self.fitted.outcome, self.metrics)
        self.snapshot = publish(path, content, Origin(command, self.seconds), unchanged, keep)
        self._saved_files = self.snapshot.files

    def statements(self, rules: RulesSource, graph: KnowledgeGraph) -> list[Statement]:
        """Parse rules from a file or text, and check that the graph and an engine support them.

        Example:
            >>> from plogicnet.graph import demo_family
            >>> [str(s) for s in PLogicNet().statements("=2: husband(X, Y) => wife(Y, X)", demo_family())]
            ['=2.0: husband(X, Y) => wife(Y, X)']
        """
        if rules is None:
            return []
        if not self.config.em.rules:
            raise InputError("cannot use rules with em.rules=false. Set em.rules=true.")
        # every rule contains an arrow, and hardly any path does
        is_path = isinstance(rules, Path) or "=>" not in rules
        statements = read_rule_file(Path(rules), graph) if is_path else parse_statements(str(rules), graph)
        body = tuple(s.rule for s in statements if not s.rule.negated)
        Grounder.of(graph, body, self.config).check_engines()
        return statements

    def evaluate(self, split: str = "test", progress: Progress = no_progress) -> dict[str, object]:
        """Compute the metrics of every ranking on a split, and the calibration quality of the probabilities."""
        return evaluate(self._as_trained, self.config, split, progress).to_json()

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        include_known: bool = False,
    ) -> list[Prediction]:
        """Return the most probable answers to a query with one missing part, or the prediction for a whole triple.

        Answers are sorted by probability, ties by pLogicNet*. Training triples are filtered unless `include_known`.
        """
        fitted = self.fitted
        query = query_of(fitted.graph, head, relation, tail)
        if MISSING not in query:
            return fitted.predict_triples(query)
        return [
            p for _, batch in self.iter_answers(query, top, include_known) for p in predictions(batch, fitted.graph)
        ]

    def missing_about(
        self, entity: str, as_tail: bool = False, top: int = 10, recall: float = RECALL
    ) -> list[Prediction]:
        """Return the most probable missing facts with an entity as head, or as tail.

        Only relations that probably apply to the entity are considered; see `complete` for `recall`.
        """
        graph = self.fitted.graph
        missing: Side = "head" if as_tail else "tail"
        batch = prediction.about(self.fitted, graph.entities.id(entity), missing, top, recall)
        return predictions(batch, graph)

    def iter_answers(
        self, queries: IntArray, top: int = 10, include_known: bool = False, progress: Progress = no_progress
    ) -> Iterator[tuple[IntArray, PredictionBatch]]:
        """Yield the most probable answers to many queries in batches: query index of each answer, and answers."""
        memory = self.config.evaluation.batch_memory_mb
        return prediction.iter_answers(self.fitted, queries, top, include_known, memory, progress)

    def complete(
        self,
        min_probability: float,
        top: int | None = None,
        progress: Progress = no_progress,
        all_pairs: bool = False,
        recall: float = RECALL,
        known: Sequence[str] = SPLITS,
    ) -> list[Prediction]:
        """Return the missing facts with at least this probability, most probable first.

        The triples of the splits `known` are not missing. To see which held-out facts are found, use `known=["train"]`.

        Candidates are the conclusions of rules and the best answers to queries that probably have an unknown answer:
        as many that they contain a share of `recall` of the facts of valid. With `all_pairs`, they are all pairs of
        entities.
        """
        batch = prediction.complete(self.fitted, min_probability, top, all_pairs, recall, known, progress)
        return predictions(batch, self.fitted.graph)

    def iter_missing(
        self,
        min_probability: float,
        progress: Progress = no_progress,
        all_pairs: bool = False,
        recall: float = RECALL,
        known: Sequence[str] = SPLITS,
    ) -> Iterator[PredictionBatch]:
        """Yield the facts of `complete` in batches of bounded size, sorted by relation, head and probability."""
        return prediction.iter_missing(self.fitted, lambda: min_probability, all_pairs, recall, known, progress)

    def predict_triples(self, triples: IntArray) -> list[Prediction]:
        """Predict triples, in the given order."""
        return self.fitted.predict_triples(triples)

    def explain(self, head: str, relation: str, tail: str, premises: int = PREMISES) -> Explanation:
        """Explain the probability of a triple: the contribution of each rule, and the neural model's reasons.

        At most `premises` groundings per rule are listed with their premises. All groundings are counted.
        """
        return explain(self.fitted, head, relation, tail, premises)

    def with_facts(self, facts: Any) -> "PLogicNet":
        """Return this model with more facts in its graph, including facts about new entities.

        Rules use the new facts at once. Rule weights, base rates, the neural model and the calibration do not change. A
        triple with an entity that the neural model cannot score is predicted by the rules alone, and its q is None.

        Args:
            facts: a file of triples, a data frame, or rows of three names. Relations must be in the graph.
        """
        model = PLogicNet(self.config)
        model.metrics = dict(self.metrics)
        model._fitted = with_facts(self.fitted, facts)
        return model

    def save(self, path: str | Path, keep: int = KEEP) -> None:
        """Write a new run directory, or publish a new snapshot in an existing one.

        The previous snapshot is kept. `keep` is the number of snapshots to keep. Raise InputError if this model was
        loaded from the run and another snapshot was published since then.
        """
        self._as_trained  # noqa: B018 (raises InputError if facts were added)
        with lifecycle.open_run(Path(path)):
            lifecycle.require_finished(Path(path))
            lifecycle.require_current(Path(path), self.snapshot)
            self._publish(Path(path), "save", self._saved_files, keep)

    @classmethod
    def load(
        cls, path: str | Path, settings: Mapping[str, object] | None = None, snapshot: str | None = None
    ) -> "PLogicNet":
        """Load a complete run.

        Args:
            path: the run directory.
            settings: settings by dotted key, such as the device, that override the settings of the run.
            snapshot: the name of a snapshot. Default: the current one.
        """
        content, found = read_content(Path(path), settings or {}, snapshot)
        use_threads(content.config.threads)
        model = cls(content.config)
        model.metrics, model.snapshot = content.metrics, found
        same_settings = not set(settings or ()) - {"device", "threads"}
        model._saved_files = {n: file for n, file in found.files.items() if n != CONFIG_FILE or same_settings}
        if origin := read_origins(Path(path)).get(found.name):
            model.seconds = origin.seconds
        with damage_as_input_error(Path(path)):
            calibration = Calibration.from_json(content.metrics["calibration"])
            efforts = tuple(Effort(**effort) for effort in content.metrics["completion"])
            model._fitted = FittedModel.of(
                content.graph, content.config, content.outcome, calibration, content.metrics["candidates"], efforts
            )
        return model
