"""NNE-AER: ComplEx with entity vectors in [0, 1], and with a penalty that makes relations follow the rules.

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
from plogicnet.neural.vectors.geometry import split_complex
from plogicnet.neural.vectors.model import Loss, VectorModel
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.systems.system import TRAINED_ONCE, GuidedComplEx


@dataclass(frozen=True)
class NneAerSettings:
    """The block `systems.nne_aer`."""

    mu: float = setting(0.1, "mu, weight of the penalty for violated rules", low=0)


@dataclass(frozen=True)
class Entailments:
    """An extra objective: a penalty for violated entailments, and bounds on the entity vectors.

    An entailment is a rule with one premise: relation p implies relation q, or p implies the inverse of q.

    Attributes:
        premise, conclusion: the ids of the relations p and q of each entailment.
        sign: 1, or -1 if the entailment concludes the inverse of q.
        confidence: the confidence λ of each entailment.
        mu: the weight of the penalty.
    """

    premise: IntArray
    conclusion: IntArray
    sign: FloatArray
    confidence: FloatArray
    mu: float

    @property
    def digest(self) -> bytes:
        """A digest of all entailments and of mu."""
        arrays = (self.premise, self.conclusion, self.sign, self.confidence)
        return hashlib.sha256(b"".join(a.tobytes() for a in arrays) + repr(self.mu).encode()).digest()

    def term(self, model: VectorModel, seed: int) -> Loss:  # noqa: ARG002
        """Return the penalty on the relation vectors, including reciprocal relations, since p ⇒ q implies p⁻¹ ⇒ q⁻¹.

        The NNE-AER paper sums the loss over a batch. Here the loss is the mean, so the penalty is also divided by the
        batch size.
        """
        tables = range(1 + model.geometry.reciprocal)
        rows = [np.concatenate([a + i * model.n_relations for i in tables]) for a in (self.premise, self.conclusion)]
        weights = [np.tile(a, len(tables)).astype(np.float32) for a in (self.sign, self.confidence)]
        p, q, sign, confidence = (torch.from_numpy(a).to(model.device) for a in (*rows, *weights))
        mu = self.mu / model.settings.batch

        def loss(step: int) -> torch.Tensor:  # noqa: ARG001
            return mu * penalty(embedding(p, model.relation), embedding(q, model.relation), sign, confidence)

        return loss

    def project(self, model: VectorModel) -> None:
        """Clamp the real and imaginary parts of the entity vectors to [0, 1]."""
        model.entity.clamp_(0.0, 1.0)


def penalty(p: torch.Tensor, q: torch.Tensor, sign: torch.Tensor, confidence: torch.Tensor) -> torch.Tensor:
    """Compute Σ λ (Σ [Re p - Re q]₊ + Σ (Im p ∓ Im q)²) over entailments from relation p to relation q.

    It is zero if, for entity vectors in [0, 1], every triple scores at least as high with q as with p.

    Example:
        >>> p, q = torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, -1.0]])  # 2 + i and ½ - i
        >>> penalty(p, q, torch.ones(1), torch.ones(1)), penalty(p, q, -torch.ones(1), torch.ones(1))
        (tensor(5.5000), tensor(1.5000))
    """
    (p_real, p_imaginary), (q_real, q_imaginary) = split_complex(p), split_complex(q)
    difference = p_imaginary - sign[:, None] * q_imaginary
    return (confidence[:, None] * (torch.relu(p_real - q_real) + difference * difference)).sum()


def make_nne_aer(rules: RuleTable, graph: KnowledgeGraph, mu: float) -> Entailments:
    """Create the extra objective from rules. The confidence of a rule is its precision.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a")])
        >>> rules = RuleTable.of([parse_rule("husband(X, Y) => wife(Y, X)")], support=[1], hits=[1])
        >>> make_nne_aer(rules, graph, mu=0.1).sign
        array([-1.])
    """
    for rule in rules.rules:
        if rule.chain is None or len(rule.chain) != 1:
            raise InputError(
                f"{rule}: NNE-AER supports only a(X, Y) => b(X, Y) and a(X, Y) => b(Y, X)."
                " Remove the rule, or use system=ruge."
            )
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
    """The system NNE-AER."""

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Require rules with one premise."""
        yield from super().contradictions(config)
        has_compositions = config.rules.mine and any(
            len(shape.forward) > 1 for shape in shapes_of(config.rules.patterns)
        )
        yield has_compositions, "supports only rules with one premise: set rules.patterns=[inverse,subrelation]"

    def guide(self, graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:
        """Return the extra objective with entailments and bounds."""
        return make_nne_aer(model.rules, graph, self.own_settings(config).mu)


NNE_AER = NneAer(
    "NNE-AER",
    without_rules_text="is ComplEx with entity vectors in [0, 1]",
    hidden_triples_text="the {count:,} triples are not training examples. Rules only add a penalty on the relations.",
    block="nne_aer",
    settings=NneAerSettings,
    implied_settings={**TRAINED_ONCE, "rules.patterns": ["inverse", "subrelation"]},
)
