"""A system of another package: rule weights are the log-odds of precision, so they are not learned."""

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

    smoothing: float = setting(1.0, "pseudo-count added to the hits and to the misses of each rule", low=1e-6)


@dataclass(frozen=True)
class Frequency(System):
    """pLogicNet without learned weights."""

    def m_step(self, model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:  # noqa: ARG002
        """Set each weight to the log-odds of the smoothed precision."""
        settings: FrequencySettings = config.systems.blocks.get("frequency", FrequencySettings())
        rules, smoothing = model.rules, settings.smoothing
        weights = special.logit((rules.hits + smoothing) / (rules.support + 2 * smoothing))
        return replace(model, rules=rules.with_weights(np.where(rules.fixed, rules.given, weights)))


FREQUENCY = Frequency(
    "Frequency",
    main_ranking="rules",
    weight_setting="systems.frequency.smoothing",
    block="frequency",
    settings=FrequencySettings,
)
