"""The state of EM after an iteration. A run stores it, and the next iteration starts from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from plogicnet.graph import BoolArray, FloatArray
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import NeuralModel
from plogicnet.systems.system import PLOGICNET_STAR_KEY


@dataclass(frozen=True)
class Iteration:
    """The metrics of one EM iteration, stored as one line of history.jsonl.

    Attributes:
        iteration: the number of the iteration, from 1.
        hidden: the number of hidden triples.
        accepted: the number of accepted hidden triples (p_w ≥ em.tau_triplet).
        accepted_precision: the share of accepted triples that are in valid or test; None if no triple is accepted.
        elbo: the parts of the evidence lower bound that can be computed: "pseudolikelihood" and "entropy".
        lambda_: λ, chosen on validation.
        valid: the validation metrics of each ranking.
        extra: the result of the hook `inspect`.
    """

    iteration: int
    hidden: int
    accepted: int
    accepted_precision: float | None
    elbo: Mapping[str, float]
    lambda_: float
    valid: Mapping[str, Mapping[str, float]]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def validation_mrr(self) -> float:
        """The MRR of pLogicNet* on valid."""
        return float(self.valid[PLOGICNET_STAR_KEY]["mrr"])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; the keys of `extra` are at the top level."""
        values = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**values, **self.extra}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Iteration":
        """Create an instance from the output of `to_json`.

        Example:
            >>> line = {"iteration": 1, "hidden": 0, "accepted": 0, "accepted_precision": None}
            >>> line |= {"elbo": {}, "lambda": 0.5, "valid": {}, "note": 1}
            >>> Iteration.from_json(line).to_json() == line
            True
        """
        names = {f.name.rstrip("_"): f.name for f in fields(cls) if f.name != "extra"}
        extra = {key: value for key, value in line.items() if key not in names}
        return cls(**{name: line[key] for key, name in names.items()}, extra=extra)


@dataclass(frozen=True)
class Outcome:
    """The state of EM after an iteration.

    Attributes:
        neural: the neural model; None for rules alone.
        rule_model: the rule model with its weights.
        hidden_q: q of each hidden triple; NaN if the neural model cannot score it.
        accepted: whether each hidden triple was accepted.
        lambda_: λ, chosen on validation.
        history: the metrics of each iteration, including later ones if they were worse.
        iteration: the number of the iteration, from 1; 0 before the first.
    """

    neural: NeuralModel | None
    rule_model: RuleModel
    hidden_q: FloatArray
    accepted: BoolArray
    lambda_: float
    history: tuple[Iteration, ...]
    iteration: int

    @property
    def validation_mrr(self) -> float:
        """The MRR of pLogicNet* on valid."""
        return self.history[self.iteration - 1].validation_mrr
