"""NNE-AER: ComplEx with entities in [0, 1] and relations held to approximate entailments.

B. Ding, Q. Wang, B. Wang and L. Guo, Improving Knowledge Graph Embedding Using Simple Constraints, ACL 2018.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding

from plogicnet.config import Config, setting
from plogicnet.config.shapes import shapes_of
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import Guide
from plogicnet.neural.vectors.geometry import halves
from plogicnet.neural.vectors.model import Loss, VectorModel
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.systems.system import TRAINED_ONCE, GuidedComplEx


@dataclass(frozen=True)
class NneAerSettings:
    """The block `systems.nne_aer`."""

    mu: float = setting(0.1, "mu, the weight of the entailments' penalty", low=0)


@dataclass(frozen=True)
class Entailments:
    """A guide by entailments r_p ⇒ r_q, or r_p ⇒ r_q⁻¹, and by bounds on the entities.

    Attributes:
        premise, conclusion: p and q of each.
        sign: 1, or -1 where it concludes the inverse.
        confidence: λ of each.
        mu: the weight of the penalty.
    """

    premise: IntArray
    conclusion: IntArray
    sign: FloatArray
    confidence: FloatArray
    mu: float

    @property
    def digest(self) -> bytes:
        """All of it."""
        arrays = (self.premise, self.conclusion, self.sign, self.confidence)
        return hashlib.sha256(b"".join(a.tobytes() for a in arrays) + repr(self.mu).encode()).digest()

    def term(self, model: VectorModel, seed: int) -> Loss:  # noqa: ARG002
        """The penalty on the relations' vectors, reciprocal ones too: p ⇒ q says as much of p⁻¹ and q⁻¹.

        A step's loss is the mean over its batch where the paper has the sum, so the penalty is divided as well.
        """
        tables = range(1 + model.geometry.reciprocal)
        rows = [np.concatenate([a + i * model.relations for i in tables]) for a in (self.premise, self.conclusion)]
        weights = [np.tile(a, len(tables)).astype(np.float32) for a in (self.sign, self.confidence)]
        p, q, sign, confidence = (torch.from_numpy(a).to(model.device) for a in (*rows, *weights))
        mu = self.mu / model.settings.batch

        def loss(step: int) -> torch.Tensor:  # noqa: ARG001
            return mu * penalty(embedding(p, model.relation), embedding(q, model.relation), sign, confidence)

        return loss

    def bound(self, model: VectorModel) -> None:
        """Entities within [0, 1], real and imaginary parts alike."""
        model.entity.clamp_(0.0, 1.0)


def penalty(p: torch.Tensor, q: torch.Tensor, sign: torch.Tensor, confidence: torch.Tensor) -> torch.Tensor:
    """Σ λ (Σ [Re p - Re q]₊ + Σ (Im p ∓ Im q)²): zero where entities in [0, 1] make q at least as probable as p.

    Example:
        >>> p, q = torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, -1.0]])  # 2 + i and ½ - i
        >>> penalty(p, q, torch.ones(1), torch.ones(1)), penalty(p, q, -torch.ones(1), torch.ones(1))
        (tensor(5.5000), tensor(1.5000))
    """
    (p_real, p_imaginary), (q_real, q_imaginary) = halves(p), halves(q)
    apart = p_imaginary - sign[:, None] * q_imaginary
    return (confidence[:, None] * (torch.relu(p_real - q_real) + apart * apart)).sum()


def make_nne_aer(rules: RuleTable, graph: KnowledgeGraph, mu: float) -> Entailments:
    """The guide by these rules, each with its precision as its confidence.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a")])
        >>> rules = RuleTable.of([parse_rule("husband(X, Y) => wife(Y, X)")], support=[1], hits=[1])
        >>> make_nne_aer(rules, graph, mu=0.1).sign
        array([-1.])
    """
    for rule in rules.rules:
        if rule.chain is None or len(rule.chain) != 1:
            raise InputError(f"{rule}: an entailment of NNE-AER has one premise; leave it out, or use system=ruge")
    steps = [step for rule in rules.rules for step in rule.chain or ()]
    return Entailments(
        graph.relations.ids(step.relation for step in steps),
        graph.relations.ids(rule.head.relation for rule in rules.rules),
        np.array([1.0 if step.forward else -1.0 for step in steps]),
        rules.precision,
        mu,
    )


@dataclass(frozen=True)
class NneAer(GuidedComplEx):
    """NNE-AER."""

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Its entailments have one premise."""
        yield from super().contradictions(config)
        composed = config.rules.mine and any(len(shape.steps) > 1 for shape in shapes_of(config.rules.patterns))
        yield composed, "holds to entailments of one premise: set rules.patterns=[inverse,subrelation]"

    def guide(self, graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:
        """Entailments and bounds."""
        return make_nne_aer(model.rules, graph, self.own_settings(config).mu)


NNE_AER = NneAer(
    "NNE-AER",
    alone="ComplEx with entities in [0, 1]",
    about_hidden="of the {found:,} none is learned from; a penalty holds the relations' vectors to the rules instead",
    block="nne_aer",
    settings=NneAerSettings,
    implied={**TRAINED_ONCE, "rules.patterns": ["inverse", "subrelation"]},
)
