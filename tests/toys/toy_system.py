"""A system from outside the package: rule weights are log-odds of the rules' own precision, and nothing is learned."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from plogicnet.config import Config, setting
from plogicnet.graph import FloatArray
from plogicnet.mln.rule_model import RuleModel
from plogicnet.systems.system import System


@dataclass(frozen=True)
class FrequencySettings:
    """The block `systems.frequency`."""

    smoothing: float = setting(1.0, "hits and misses that every rule begins with", low=1e-6)


@dataclass(frozen=True)
class Frequency(System):
    """pLogicNet without learned weights."""

    def learn(self, model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:  # noqa: ARG002
        """Each rule's weight by its precision, smoothed."""
        settings: FrequencySettings = config.systems.blocks.get("frequency", FrequencySettings())
        rules, more = model.rules, settings.smoothing
        weights = special.logit((rules.hits + more) / (rules.support + 2 * more))
        return replace(model, rules=rules.with_weights(np.where(rules.fixed, rules.given, weights)))


FREQUENCY = Frequency(
    "Frequency",
    own_figures="rules",
    weight_setting="systems.frequency.smoothing",
    block="frequency",
    settings=FrequencySettings,
)
