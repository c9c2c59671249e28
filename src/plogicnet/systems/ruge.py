"""RUGE: ComplEx that learns from hidden triples too, by soft labels between its own belief and the rules'.

S. Guo, Q. Wang, L. Wang, B. Wang and L. Guo, Knowledge Graph Embedding with Iterative Guidance from Soft Rules, AAAI
2018.
"""

import hashlib
import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from plogicnet.config import Config, setting
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.groundings import Groundings
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import Guide
from plogicnet.neural.vectors.loss import weighted_mean
from plogicnet.neural.vectors.model import Loss, VectorModel
from plogicnet.neural.vectors.sampling import Passes
from plogicnet.systems.system import MORE_RULES, TRAINED_ONCE, GuidedComplEx

log = logging.getLogger(__name__)
STREAM = 8
"""The random numbers that the order of softly labelled triples is drawn from."""


@dataclass(frozen=True)
class RugeSettings:
    """The block `systems.ruge`."""

    c: float = setting(0.01, "C, how far a rule of confidence 1 lifts a soft label", low=0)
    weight: float = setting(1.0, "what the softly labelled triples count beside the observed ones", low=0)
    batch: int = setting(1024, "groundings a step", low=1)


@dataclass(frozen=True)
class SoftLabels:
    """A guide by soft labels: each step takes some groundings, labels what they conclude, and learns it.

    As in RUGE's own program a step sums over the groundings that it takes, not over all of them: where a triple has
    hundreds, their sum would make its label 1 at once, however unsure each rule is.

    Attributes:
        hidden: the hidden triple that each grounding concludes.
        lift: how far each grounding lifts its label.
        weight: what the triples' mean loss counts beside the observed ones'.
        batch: how many groundings a step takes.
    """

    hidden: IntArray
    lift: FloatArray
    weight: float
    batch: int

    @property
    def digest(self) -> bytes:
        """All of it."""
        settings = repr((self.weight, self.batch)).encode()
        return hashlib.sha256(settings + self.hidden.tobytes() + self.lift.tobytes()).digest()

    def term(self, model: VectorModel, seed: int) -> Loss:
        """The softly labelled triples' mean cross-entropy; labels are made anew from the vectors as they stand."""
        passes = Passes(self.hidden, self.lift, self.batch, seed, model.device, STREAM)
        entities = len(model.entity)

        def loss(step: int) -> torch.Tensor:
            b = passes.queries(step)
            key = (b.relation * entities + b.known) * entities + b.answer
            _, triple, times = torch.unique(key, return_inverse=True, return_counts=True)
            lift = torch.zeros(len(times), device=model.device).index_add(0, triple, b.weight)[triple]
            score = model.answers(b)
            label = soft_labels(torch.sigmoid(score.detach()), lift)
            each = binary_cross_entropy_with_logits(score, label, reduction="none")
            return self.weight * weighted_mean(each, 1 / times[triple])  # a triple counts once

        return loss

    def bound(self, model: VectorModel) -> None:
        """Vectors are free."""


def soft_labels(q: torch.Tensor, lift: torch.Tensor) -> torch.Tensor:
    """The labels s that minimise ½(s - q)² - lift · s within [0, 1]: near to what q says, and to what rules ask for.

    Example:
        >>> soft_labels(torch.tensor([0.5, 0.875]), torch.tensor([0.25, 0.25]))
        tensor([0.7500, 1.0000])
    """
    return (q + lift).clamp(0.0, 1.0)


def lifts(groundings: Groundings, truth: FloatArray, confidence: FloatArray, c: float) -> FloatArray:
    """C · λ_l · truth(premises) of each grounding; a label is lifted by their sum.

    How much a grounding asks of its hypothesis s: by the product t-norm its truth is 1 - π + π·s, π the product of its
    premises' truth, which grows by π with s.

    Example:
        >>> from plogicnet.graph import TripleSet
        >>> one, triples = np.array([1]), TripleSet.of([(0, 0, 1), (1, 1, 0)], entities=2)
        >>> inverse = Groundings(triples, np.array([True, False]), 1, one - 1, one, np.array([[0]]))
        >>> lifts(inverse, np.ones(2), np.array([0.8]), c=0.5)
        array([0.4])
    """
    premises = np.append(truth, 1.0)[groundings.premises].prod(axis=1)  # row -1, the padding, is true
    return np.asarray(c * confidence[groundings.rule] * premises, dtype=np.float64)


def make_ruge(model: RuleModel, settings: RugeSettings) -> SoftLabels | None:
    """The guide by these rules, each with its precision as its confidence; None where they conclude nothing new.

    H is what rules conclude from observed premises, so every premise's truth is 1.

    Example:
        >>> make_ruge(model, RugeSettings())  # doctest: +SKIP
    """
    groundings = model.groundings
    truth, new = groundings.observed.astype(np.float64), ~groundings.observed[groundings.hypothesis]
    lift = lifts(groundings, truth, model.rules.precision, settings.c)[new]
    hidden = groundings.triples.triples[groundings.hypothesis[new]]
    return SoftLabels(hidden, lift, settings.weight, settings.batch) if len(hidden) else None


@dataclass(frozen=True)
class Ruge(GuidedComplEx):
    """RUGE."""

    def guide(self, graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:  # noqa: ARG002
        """Soft labels."""
        return make_ruge(model, self.own_settings(config))

    def warn(self, config: Config, model: RuleModel) -> None:
        """Without hidden triples there is nothing to label."""
        super().warn(config, model)
        if len(model.rules) and not len(model.hidden):
            why = "no rule concludes a triple that is not observed"
            log.warning("%s, so %s is %s; %s", why, self.title, self.without_rules(config), MORE_RULES)


RUGE = Ruge(
    "RUGE",
    alone="plain ComplEx",
    about_hidden="the rules teach the neural model all {found:,}, by soft labels",
    block="ruge",
    settings=RugeSettings,
    implied={**TRAINED_ONCE, "rules.patterns": ["composition", "inverse"]},
)
