"""A system: what `system:` names. The class is pLogicNet itself; other systems override what they do otherwise."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plogicnet.config import SYSTEMS, Config
from plogicnet.graph import BoolArray, FloatArray, KnowledgeGraph
from plogicnet.mln import RuleModel, build_rule_model, m_step
from plogicnet.mln import report as report_on_rules
from plogicnet.neural.protocol import Guide
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, silent

log = logging.getLogger(__name__)
MORE_RULES = "a lower rules.min_precision or rules.min_support keeps more rules, --rules adds your own"
NEURAL, RULES, PLAIN, STAR = "neural", "rules", "plogicnet", "plogicnet*"
"""The rankings that are compared, by their keys: each half alone, pLogicNet and pLogicNet*."""
FIGURES: Mapping[str, str] = {
    NEURAL: "neural model alone",
    RULES: "rules alone",
    PLAIN: "pLogicNet",
    STAR: "pLogicNet*",
}
"""The title of each ranking, in the order in which they are shown."""


@dataclass(frozen=True)
class System:
    """pLogicNet: a Markov logic network and a neural model that teach each other.

    Attributes:
        title: what people call it.
        own_figures: the key of the figures that are its own, where they have another title than in pLogicNet.
        rules_predict: whether rules take part in predictions; else they only teach the neural model.
        guides: whether its neural model is held to the rules while it is trained.
        weight_setting: the setting that keeps rule weights small.
        standard_errors: whether the weights have standard errors, and begin at zero.
        kind: the class of its rule model.
        alone: what a training without rules is, in words.
        about_hidden: what it does with hidden triples, of which there are {found:,}, where pLogicNet does otherwise.
        instead_of_rules_alone: what to do where rules alone leave too many candidates tied.
        block, settings, implied: see `config.registries.Extension`.
    """

    title: str = "pLogicNet"
    own_figures: str = ""
    rules_predict: bool = True
    guides: bool = False
    weight_setting: str = "mln.l2"
    standard_errors: bool = True
    kind: type[RuleModel] = RuleModel
    alone: str = "the neural model alone"
    about_hidden: str = ""
    instead_of_rules_alone: str = "train with em.neural=true"
    block: str = ""
    settings: type | None = None
    implied: Mapping[str, object] = field(default_factory=dict)

    def check(self, config: Config) -> None:
        """Raises an InputError where settings contradict the system."""
        for wrong, instead in self.contradictions(config):
            if wrong:
                raise InputError(f"system={config.system} {instead}")

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:  # noqa: ARG002
        """For each contradiction: whether it is there, and what to set instead."""
        return iter(())

    def rule_model(
        self,
        graph: KnowledgeGraph,
        config: Config,
        rules: RuleTable,
        constraints: RuleTable,
        assumed: BoolArray | None = None,
        progress: Progress = silent,
    ) -> RuleModel:
        """The rule model before its weights are learned."""
        model = build_rule_model(graph, config, rules, constraints, assumed, progress)
        return self.kind(model.rules, model.constraints, model.evidence)

    def learn(self, model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:
        """The M-step."""
        return m_step(model, hidden_q, config, seed)

    def report(self, model: RuleModel, hidden_q: FloatArray, config: Config) -> RuleTable:  # noqa: ARG002
        """The rules with the number of their groundings and the standard errors of their weights."""
        return report_on_rules(model, config)

    def guide(self, graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:  # noqa: ARG002
        """What the neural model is held to besides its examples."""
        return None

    def warn(self, config: Config, model: RuleModel) -> None:
        """Warns where the rules leave nothing of the system."""

    def without_rules(self, config: Config) -> str:
        """What a training without rules is, in words."""
        return self.alone if config.em.neural else LEVEL

    def own_settings(self, config: Config) -> Any:
        """Its block of settings."""
        return config.systems.blocks.get(self.block) or (self.settings and self.settings())

    @property
    def titles(self) -> Mapping[str, str]:
        """The titles of the figures of its runs; those that are its own have its name.

        Example:
            >>> System("RUGE", own_figures="neural").titles["neural"]
            'RUGE (neural model alone)'
        """
        own = self.own_figures
        return {**FIGURES, own: f"{self.title} ({FIGURES[own]})"} if own else FIGURES


LEVEL = "one probability for all of a relation's triples, which ranks nothing"
PLOGICNET = System()


@dataclass(frozen=True)
class RuleUser(System):
    """What the other systems have in common: they need rules, with observed premises alone."""

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Rules are needed, and the plain Markov blanket."""
        local = config.mln.blanket == "hypothesis" and not config.mln.hidden_premises
        yield not config.em.rules, "works by rules: set em.rules=true"
        yield not local, "takes observed premises alone: set mln.blanket=hypothesis and mln.hidden_premises=false"

    def warn(self, config: Config, model: RuleModel) -> None:
        """Warns where no rule is left."""
        if not len(model.rules):
            log.warning("no rule is left, so %s is %s; %s", self.title, self.without_rules(config), MORE_RULES)


@dataclass(frozen=True)
class GuidedComplEx(RuleUser):
    """What RUGE and NNE-AER have in common: ComplEx, trained once, held to the rules while it is trained."""

    own_figures: str = "neural"
    rules_predict: bool = False
    guides: bool = True

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """It needs ComplEx, plain steps and a single E-step."""
        yield from super().contradictions(config)
        model = config.neural.model
        yield not config.em.neural, "trains vectors: set em.neural=true"
        yield model != "ComplEx", f"is made for ComplEx: set neural.model=ComplEx (now {model})"
        yield config.neural.kernels == "fused", "has a loss of its own, which fused steps lack: set neural.kernels=auto"
        yield config.em.iterations > 1, "is trained once, without EM: set em.iterations=1"


TRAINED_ONCE: Mapping[str, object] = {
    "neural.model": "ComplEx",
    "rules.irreflexive": False,
    "em.iterations": 1,
    "em.lambda": 0.0,
}
"""What choosing such a system sets besides."""


def system_of(config: Config) -> System:
    """The system that the settings name.

    Example:
        >>> system_of(Config()).title
        'pLogicNet'
    """
    found: System = SYSTEMS.get(config.system)
    return found
