"""What EM leaves behind after each iteration: everything that a run is made of, and that the next iteration needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from plogicnet.graph import BoolArray, FloatArray
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import NeuralModel
from plogicnet.systems.system import STAR


@dataclass(frozen=True)
class Iteration:
    """One EM iteration in figures; a line of history.jsonl.

    Attributes:
        hidden: the number of hidden triples.
        accepted: how many of them the rules accept.
        accepted_precision: the share of the accepted ones that valid or test holds; None where none is accepted.
        elbo: the parts of the evidence lower bound that can be computed.
        lambda_: λ, chosen on validation.
        valid: the figures of each ranking on validation.
        extra: what a hook added.
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
    def merit(self) -> float:
        """How good it is on validation: the MRR of pLogicNet*."""
        return float(self.valid[STAR]["mrr"])

    def to_json(self) -> dict[str, Any]:
        """One flat object."""
        own = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**own, **self.extra}

    @classmethod
    def of_json(cls, line: Mapping[str, Any]) -> "Iteration":
        """What `to_json` gave.

        Example:
            >>> line = {"iteration": 1, "hidden": 0, "accepted": 0, "accepted_precision": None}
            >>> line |= {"elbo": {}, "lambda": 0.5, "valid": {}, "made": 1}
            >>> Iteration.of_json(line).to_json() == line
            True
        """
        names = {f.name.rstrip("_"): f.name for f in fields(cls) if f.name != "extra"}
        extra = {key: value for key, value in line.items() if key not in names}
        return cls(**{name: line[key] for key, name in names.items()}, extra=extra)


@dataclass(frozen=True)
class Outcome:
    """The state of EM after an iteration.

    Attributes:
        iteration: how many EM iterations led here; the history is longer where later ones were no better.
    """

    neural: NeuralModel | None
    rule_model: RuleModel
    hidden_q: FloatArray
    accepted: BoolArray
    lambda_: float
    history: tuple[Iteration, ...]
    iteration: int

    @property
    def merit(self) -> float:
        """How good it is on the validation triples."""
        return self.history[self.iteration - 1].merit
