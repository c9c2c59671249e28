"""RUGE: ComplEx that learns from hidden triples too, by soft labels between its own belief and the rules'.

S. Guo, Q. Wang, L. Wang, B. Wang and L. Guo, Knowledge Graph Embedding with Iterative Guidance from Soft Rules, AAAI
2018.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from plogicnet.config import Baselines
from plogicnet.graph import FloatArray, IntArray
from plogicnet.grounding import Groundings
from plogicnet.kge import VectorModel
from plogicnet.kge.loss import weighted_mean
from plogicnet.kge.sampling import Passes
from plogicnet.kge.vector_model import Loss
from plogicnet.mln import RuleModel

STREAM = 8
"""The random numbers that the order of softly labelled triples is drawn from."""


@dataclass(frozen=True)
class Ruge:
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
        >>> from plogicnet.grounding import Chain, Move, ground_network
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> network = ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct")
        >>> lifts(network, np.ones(2), np.array([0.8]), c=0.5)
        array([0.4])
    """
    premises = np.append(truth, 1.0)[groundings.premises].prod(axis=1)  # row -1, the padding, is true
    return np.asarray(c * confidence[groundings.rule] * premises, dtype=np.float64)


def make_ruge(model: RuleModel, settings: Baselines) -> Ruge | None:
    """The guide by these rules, each with its precision as its confidence; None where they conclude nothing new.

    H is what rules conclude from observed premises, so every premise's truth is 1.

    Example:
        >>> make_ruge(model, config.baselines)  # doctest: +SKIP
    """
    groundings = model.groundings
    truth, new = groundings.observed.astype(np.float64), ~groundings.observed[groundings.hypothesis]
    lift = lifts(groundings, truth, model.rules.precision, settings.ruge_c)[new]
    hidden = groundings.triples.triples[groundings.hypothesis[new]]
    return Ruge(hidden, lift, settings.ruge_weight, settings.ruge_batch) if len(hidden) else None
