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
from plogicnet.kge.sampling import Passes
from plogicnet.kge.vector_model import Loss
from plogicnet.mln import RuleModel

STREAM = 8
"""The random numbers that the order of softly labelled triples is drawn from."""


@dataclass(frozen=True)
class Ruge:
    """A guide by soft labels: each step takes some hidden triples, labels them, and learns from them by cross-entropy.

    Attributes:
        hidden: the hidden triples.
        lift: how far the rules lift each one's label.
        weight: what their mean loss counts beside the observed triples'.
        batch: how many a step takes.
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

        def loss(step: int) -> torch.Tensor:
            b = passes.queries(step)
            score = model.answers(b)
            label = soft_labels(torch.sigmoid(score.detach()), b.weight)
            return self.weight * binary_cross_entropy_with_logits(score, label)

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
    """C · Σ λ_l · truth(premises) for each triple of O ∪ H, over the groundings that conclude it.

    How much a grounding asks of its hypothesis s: by the product t-norm its truth is 1 - π + π·s, π the product of its
    premises' truth, which grows by π with s.

    Example:
        >>> from plogicnet.graph import TripleSet
        >>> from plogicnet.grounding import Chain, Move, ground_network
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> network = ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct")
        >>> lifts(network, np.ones(2), np.array([0.8]), c=0.5)
        array([0. , 0.4])
    """
    premises = np.append(truth, 1.0)[groundings.premises].prod(axis=1)  # row -1, the padding, is true
    asked = confidence[groundings.rule] * premises
    return np.asarray(c * np.bincount(groundings.hypothesis, asked, len(groundings.triples)), dtype=np.float64)


def make_ruge(model: RuleModel, settings: Baselines) -> Ruge | None:
    """The guide by these rules, each with its precision as its confidence; None where they conclude nothing new.

    H is what rules conclude from observed premises, so every premise's truth is 1.

    Example:
        >>> make_ruge(model, config.baselines)  # doctest: +SKIP
    """
    groundings = model.groundings
    truth = groundings.observed.astype(np.float64)
    lift = lifts(groundings, truth, model.rules.precision, settings.ruge_c)[~groundings.observed]
    hidden = groundings.hidden
    return Ruge(hidden, lift, settings.ruge_weight, settings.ruge_batch) if len(hidden) else None
