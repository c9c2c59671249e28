"""The base class of systems. `System` implements pLogicNet. Other systems inherit from it and override methods."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plogicnet.config import SYSTEMS, Config
from plogicnet.graph import BoolArray, FloatArray, KnowledgeGraph
from plogicnet.mln import RuleModel, build_rule_model, query_rule_model
from plogicnet.neural.protocol import Guide, ProposingKind
from plogicnet.neural.registry import model_kind
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
MORE_RULES = "lower rules.min_precision or rules.min_support, or add rules with --rules"
"""How to get more rules, for messages."""
NEURAL, RULES, PLOGICNET_KEY, PLOGICNET_STAR_KEY = "neural", "rules", "plogicnet", "plogicnet*"
"""The keys of the rankings: neural model alone, rules alone, pLogicNet and pLogicNet*."""
RANKING_TITLES: Mapping[str, str] = {
    NEURAL: "neural model alone",
    RULES: "rules alone",
    PLOGICNET_KEY: "pLogicNet",
    PLOGICNET_STAR_KEY: "pLogicNet*",
}
"""The title of each ranking, in display order."""


@dataclass(frozen=True)
class System:
    """pLogicNet: a Markov logic network and a neural model that learn from each other.

    Attributes:
        title: display name.
        main_ranking: the key of the ranking that is titled with the name of the system; empty for pLogicNet.
        rules_predict: whether predictions use the rules; otherwise the rules are used only in training.
        guides: whether `guide` returns an extra objective for the training of the neural model.
        weight_setting: the setting to increase if rule weights are too large.
        standard_errors: whether the rule weights start at zero and have standard errors.
        rule_model_class: the class of the rule model.
        without_rules_text: what the system does or is without rules, for messages: a verb and its object.
        hidden_triples_text: how the system uses hidden triples, for `doctor`, with `{count:,}` for their number. If
            empty, `doctor` reports how many were accepted.
        ties_advice: what to do if rules without a neural model leave many candidates tied.
        block, settings, implied_settings: see `config.registries.Extension`.
    """

    title: str = "pLogicNet"
    main_ranking: str = ""
    rules_predict: bool = True
    guides: bool = False
    weight_setting: str = "mln.l2"
    standard_errors: bool = True
    rule_model_class: type[RuleModel] = RuleModel
    without_rules_text: str = "ranks by the neural model alone"
    hidden_triples_text: str = ""
    ties_advice: str = "train with em.neural=true"
    block: str = ""
    settings: type | None = None
    implied_settings: Mapping[str, object] = field(default_factory=dict)

    def check(self, config: Config) -> None:
        """Raise InputError if the settings violate a requirement of the system."""
        for is_violated, message in self.contradictions(config):
            if is_violated:
                raise InputError(f"system={config.system} {message}")
        _check_proposals(config)

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:  # noqa: ARG002
        """Yield (is violated, message) for each requirement of the system. The message names the setting to change."""
        return iter(())

    def rule_model(
        self,
        graph: KnowledgeGraph,
        config: Config,
        rules: RuleTable,
        constraints: RuleTable,
        assumed_true: BoolArray | None = None,
        progress: Progress = no_progress,
    ) -> RuleModel:
        """Build the rule model, before its weights are learned."""
        if config.mln.objective == "query":
            return query_rule_model(graph, config, rules, constraints, progress)
        model = build_rule_model(graph, config, rules, constraints, assumed_true, progress)
        return self.rule_model_class(model.rules, model.constraints, model.assignment)

    def m_step(self, model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:
        """Learn the rule weights. `hidden_q` is q of each hidden triple, NaN if the neural model cannot score it."""
        return model.learn(hidden_q, config, seed)

    def report(self, model: RuleModel, hidden_q: FloatArray, config: Config) -> RuleTable:
        """Return the rules with their numbers of groundings and the standard errors of their weights."""
        return model.report(hidden_q, config)

    def guide(self, graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:  # noqa: ARG002
        """Return the extra objective for the training of the neural model, or None."""
        return None

    def warn(self, config: Config, model: RuleModel) -> None:
        """Log a warning if the rules have no effect."""

    def without_rules(self, config: Config) -> str:
        """Describe the system without rules, for messages. The text starts with a verb."""
        return self.without_rules_text if config.em.neural else ALL_TIED

    def own_settings(self, config: Config) -> Any:
        """Return the system's block of settings, its defaults if it is not set, or None if the system has no block."""
        return config.systems.blocks.get(self.block) or (self.settings and self.settings())

    @property
    def titles(self) -> Mapping[str, str]:
        """The titles of the rankings, by key; the title of the main ranking contains the system's name.

        Example:
            >>> System("RUGE", main_ranking="neural").titles["neural"]
            'RUGE (neural model alone)'
        """
        main = self.main_ranking
        return {**RANKING_TITLES, main: f"{self.title} ({RANKING_TITLES[main]})"} if main else RANKING_TITLES


def _check_proposals(config: Config) -> None:
    """Raise InputError if rules are to be proposed, but other settings do not permit it."""
    kind, rules = model_kind(config), config.rules
    for is_violated, message in (
        (not config.em.rules, "needs em.rules=true"),
        (not config.em.neural, "needs em.neural=true"),
        (
            not (isinstance(kind, ProposingKind) and kind.proposes_rules),
            "needs a path model: set neural.model=Paths, or add one to neural.mixture",
        ),
        (rules.counting == "paths", "counts only with rules.counting=distinct"),
    ):
        if rules.propose != "none" and is_violated:
            raise InputError(f"rules.propose={rules.propose} {message}")


ALL_TIED = "gives all triples of a relation the same probability"
"""What every system does without rules and without a neural model, for messages."""
PLOGICNET = System()


@dataclass(frozen=True)
class RuleBasedSystem(System):
    """Base class of all systems except pLogicNet. They need rules, and use only observed premises."""

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Require rules, and groundings with observed premises only."""
        observed_only = config.mln.blanket == "hypothesis" and not config.mln.hidden_premises
        yield not config.em.rules, "needs rules: set em.rules=true"
        yield (
            config.mln.objective != "pseudolikelihood",
            "has its own objective: set mln.objective=pseudolikelihood",
        )
        yield bool(config.rules.negative), "has no negative evidence: set rules.negative=[]"
        yield config.rules.propose != "none", "does not use proposed rules: set rules.propose=none"
        yield not observed_only, "uses only observed premises: set mln.blanket=hypothesis and mln.hidden_premises=false"

    def rule_model(
        self,
        graph: KnowledgeGraph,
        config: Config,
        rules: RuleTable,
        constraints: RuleTable,
        assumed_true: BoolArray | None = None,
        progress: Progress = no_progress,
    ) -> RuleModel:
        """Build the rule model. Raise InputError if a rule is negative evidence."""
        if rules.negative.any():
            rule = rules.rules[int(np.argmax(rules.negative))]
            raise InputError(
                f"{rule}: {self.title} has no negative evidence. Remove the rule, or use system=plogicnet."
            )
        return super().rule_model(graph, config, rules, constraints, assumed_true, progress)

    def warn(self, config: Config, model: RuleModel) -> None:
        """Log a warning if there are no rules."""
        if not len(model.rules):
            log.warning(
                "there are no rules, so %s %s. To get rules, %s", self.title, self.without_rules(config), MORE_RULES
            )


@dataclass(frozen=True)
class GuidedComplEx(RuleBasedSystem):
    """Base class of RUGE and NNE-AER: ComplEx, trained once, with an extra objective from the rules."""

    main_ranking: str = "neural"
    rules_predict: bool = False
    guides: bool = True

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Require ComplEx, no fused kernels, and a single E-step."""
        yield from super().contradictions(config)
        model = config.neural.model
        yield not config.em.neural, "needs a neural model: set em.neural=true"
        yield model != "ComplEx", f"supports only ComplEx: set neural.model=ComplEx (now {model})"
        yield bool(config.neural.mixture), "trains one neural model: set neural.mixture=[]"
        yield (
            config.neural.kernels == "fused",
            "adds a term to the loss, which fused kernels do not support: set neural.kernels=auto",
        )
        yield config.em.iterations > 1, "is trained once, without EM: set em.iterations=1"


TRAINED_ONCE: Mapping[str, object] = {
    "neural.model": "ComplEx",
    "rules.irreflexive": False,
    "em.iterations": 1,
    "em.lambda": 0.0,
}
"""Settings that RUGE and NNE-AER imply."""


def system_of(config: Config) -> System:
    """Return the system that the settings select.

    Example:
        >>> system_of(Config()).title
        'pLogicNet'
    """
    system: System = SYSTEMS.get(config.system)
    return system
