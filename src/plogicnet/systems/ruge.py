"""RUGE: ComplEx that also learns from hidden triples, with soft labels from its own predictions and the rules.

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
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.mln import RuleModel
from plogicnet.neural.loss import weighted_mean
from plogicnet.neural.protocol import Guide
from plogicnet.neural.sampling import ShuffledEpochs
from plogicnet.neural.vectors.model import Loss, VectorModel
from plogicnet.systems.system import MORE_RULES, TRAINED_ONCE, GuidedComplEx

log = logging.getLogger(__name__)
STREAM = 8
"""The random number stream that shuffles the triples with soft labels."""


@dataclass(frozen=True)
class RugeSettings:
    """The block `systems.ruge`."""

    c: float = setting(0.01, "C, how much a rule with confidence 1 raises a soft label", low=0)
    weight: float = setting(1.0, "weight of the loss on soft labels relative to the loss on observed triples", low=0)
    batch: int = setting(1024, "groundings per step", low=1)


@dataclass(frozen=True)
class SoftLabels:
    """An extra objective with soft labels for hidden triples.

    Each step draws groundings, labels the triples that they conclude, and trains on the labels. As in RUGE's published
    program, a label sums over the drawn groundings, not over all groundings. Otherwise the label of a triple with
    hundreds of groundings would be 1 from the first step on, even if each rule is uncertain.

    Attributes:
        hidden: the hidden triple that each grounding concludes, (groundings, 3).
        lift: how much each grounding raises the label of its triple.
        weight: weight of the mean loss on soft labels relative to the loss on observed triples.
        batch: number of groundings per step.
    """

    hidden: IntArray
    lift: FloatArray
    weight: float
    batch: int

    @property
    def digest(self) -> bytes:
        """A digest of all groundings and settings."""
        settings = repr((self.weight, self.batch)).encode()
        return hashlib.sha256(settings + self.hidden.tobytes() + self.lift.tobytes()).digest()

    def term(self, model: VectorModel, seed: int) -> Loss:
        """Return the loss: the weighted mean cross-entropy of soft labels, which each step computes anew."""
        epochs = ShuffledEpochs(self.hidden, self.lift, self.batch, seed, model.device, STREAM)
        entities = len(model.entity)

        def loss(step: int) -> torch.Tensor:
            batch = epochs.queries(step)
            key = (batch.relation * entities + batch.known) * entities + batch.answer
            _, triple, count = torch.unique(key, return_inverse=True, return_counts=True)
            lift = torch.zeros(len(count), device=model.device).index_add(0, triple, batch.weight)[triple]
            score = model.answer_scores(batch)
            label = soft_labels(torch.sigmoid(score.detach()), lift)
            losses = binary_cross_entropy_with_logits(score, label, reduction="none")
            return self.weight * weighted_mean(losses, 1 / count[triple])  # each triple counts once

        return loss

    def project(self, model: VectorModel) -> None:
        """Do nothing: the vectors are unconstrained."""


def soft_labels(q: torch.Tensor, lift: torch.Tensor) -> torch.Tensor:
    """Return the labels s in [0, 1] that minimise ½(s - q)² - lift · s, a compromise between q and the rules.

    Example:
        >>> soft_labels(torch.tensor([0.5, 0.875]), torch.tensor([0.25, 0.25]))
        tensor([0.7500, 1.0000])
    """
    return (q + lift).clamp(0.0, 1.0)


def compute_lifts(groundings: InMemoryGroundNetwork, truth: FloatArray, confidence: FloatArray, c: float) -> FloatArray:
    """Compute C · λ_l · π for each grounding of a rule l with confidence λ_l. A label is raised by the sum of these.

    π is the product of the truth values of the premises. By the product t-norm, the truth of a grounding is
    1 - π + π·s if the truth value of its hypothesis is s, so π is the derivative with respect to s.

    Example:
        >>> from plogicnet.graph import TripleSet
        >>> one, triples = np.array([1]), TripleSet.of([(0, 0, 1), (1, 1, 0)], entities=2)
        >>> inverse = InMemoryGroundNetwork(triples, np.array([True, False]), 1, one - 1, one, np.array([[0]]))
        >>> compute_lifts(inverse, np.ones(2), np.array([0.8]), c=0.5)
        array([0.4])
    """
    premise_truth = np.append(truth, 1.0)[groundings.premises].prod(axis=1)  # premise -1 is padding and counts as true
    return np.asarray(c * confidence[groundings.rule] * premise_truth, dtype=np.float64)


def make_ruge(model: RuleModel, settings: RugeSettings) -> SoftLabels | None:
    """Create the extra objective from a rule model; None if its rules conclude no hidden triple.

    The confidence of a rule is its precision. All premises are observed, so their truth is 1.
    """
    groundings = model.groundings
    truth, is_hidden = groundings.observed.astype(np.float64), ~groundings.observed[groundings.hypothesis]
    lift = compute_lifts(groundings, truth, model.rules.precision, settings.c)[is_hidden]
    hidden = groundings.triples.triples[groundings.hypothesis[is_hidden]]
    return SoftLabels(hidden, lift, settings.weight, settings.batch) if len(hidden) else None


@dataclass(frozen=True)
class Ruge(GuidedComplEx):
    """The system RUGE."""

    def guide(self, graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:  # noqa: ARG002
        """Return the extra objective with soft labels, or None if there is no hidden triple."""
        return make_ruge(model, self.own_settings(config))

    def warn(self, config: Config, model: RuleModel) -> None:
        """Log a warning if there are no rules, or no hidden triples to label."""
        super().warn(config, model)
        if len(model.rules) and not len(model.hidden):
            reason = "no rule concludes a triple that is not observed"
            log.warning(
                "%s, so %s %s. To get more rules, %s", reason, self.title, self.without_rules(config), MORE_RULES
            )


RUGE = Ruge(
    "RUGE",
    without_rules_text="is plain ComplEx",
    hidden_triples_text="the neural model learns all {count:,} triples with soft labels.",
    block="ruge",
    settings=RugeSettings,
    implied_settings={**TRAINED_ONCE, "rules.patterns": ["composition", "inverse"]},
)
