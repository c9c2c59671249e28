"""The sections of the settings: every setting with its default, its meaning and its range."""

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, Literal

from plogicnet.config.fields import setting
from plogicnet.config.registries import ENGINES, MODELS, SYSTEMS
from plogicnet.config.shapes import CHAIN_SHAPES

if TYPE_CHECKING:
    Pattern = str
else:
    Pattern = Literal[tuple(shape.name for shape in CHAIN_SHAPES)]
Auto = Literal["auto"]
Blocks = Mapping[str, Any]
"""The blocks of an open section, by name; each is checked by the dataclass of its owner."""


_THRESHOLDS = [(shape.name, shape.min_precision, shape.meaning) for shape in CHAIN_SHAPES]
MinPrecision: Any = make_dataclass(
    "MinPrecision",
    [
        (name, float, setting(default, meaning, low=0, high=1))
        for name, default, meaning in (*_THRESHOLDS, ("irreflexive", 0.99, "1 - self-loops of r / triples of r"))
    ],
    frozen=True,
    namespace={"__module__": __name__, "__doc__": "The precision from which on a rule of each pattern is kept."},
)


@dataclass(frozen=True)
class Rules:
    """Where rules come from and which are kept."""

    mine: bool = setting(True, "mine rules from the training triples")
    patterns: tuple[Pattern, ...] = setting(tuple(shape.name for shape in CHAIN_SHAPES), "the patterns that are mined")
    min_precision: Any = field(default_factory=MinPrecision, metadata={"meaning": "kept at or above (Sec. 5.1)"})
    min_support: int = setting(1, "kept at or above this number of concluded triples", low=1)
    counting: Literal["distinct", "paths"] = setting(
        "distinct", "distinct: triples, as in the paper; paths: every grounding, as in the authors' program"
    )
    irreflexive: bool = setting(True, "mine the constraint that r(x, x) does not hold; it ranks (e, r, e) last")


@dataclass(frozen=True)
class Grounding:
    """How rules are grounded."""

    engine: str = setting("auto", "auto: rule by rule, the first engine that can ground it", names=ENGINES)
    memory_mb: int = setting(0, "memory for groundings; 0: half of what is free", low=0)


@dataclass(frozen=True)
class Gradient:
    """The paper's plain ascent, for mln.solver: gradient."""

    step: float = setting(1.0e-4, "step size", low=0)
    iterations: int = setting(1000, "number of steps", low=0)


@dataclass(frozen=True)
class MLN:
    """The rule model p_w."""

    aggregate: Literal["sum", "mean"] = setting(
        "sum", "of the weights of a triple's groundings: sum (MLN) or mean (authors)"
    )
    blanket: Literal["hypothesis", "full"] = setting("hypothesis", "full: a triple's role as a premise counts too")
    hidden_premises: Literal[False, "sampled"] = setting(False, "sampled: draw hidden premises from q (Sec. 4.2)")
    unit_clauses: bool = setting(True, "a triple that no rule reaches has its relation's base rate, not 0.5")
    solver: Literal["newton", "gradient"] = setting("newton", "newton: the exact maximum; gradient: the paper's ascent")
    l2: float = setting(1.0, "penalty l2/2 * |w|^2 on the sum of losses", low=0)
    gradient: Gradient = field(default_factory=Gradient, metadata={"meaning": "for solver: gradient"})


@dataclass(frozen=True)
class Neural:
    """The neural model q_theta: what every kind of model shares. A kind has a block of its own besides."""

    model: str = setting(None, "which neural model", names=MODELS)
    steps: int | Auto = setting("auto", "training steps of each E-step, at most; auto: the model's default", low=0)
    batch: int | Auto = setting("auto", "positives a step; auto: the model's default", low=1)
    optimizer: Literal["auto", "adam", "adagrad"] = setting("auto", "auto: the model's default")
    learning_rate: float | Auto = setting("auto", "the optimizer's rate; auto: the model's default", low=0)
    validate_every: int = setting(0, "steps between two looks at the validation triples; 0: never", low=0)
    patience: int = setting(10, "training stops after so many looks without gain; the best parameters are kept", low=1)
    kernels: Literal["auto", "plain", "fused"] = setting(
        "auto", "auto: the GPU's own kernels where they serve, compiled code on a CPU; plain: PyTorch's own"
    )
    blocks: Blocks = field(default_factory=dict, metadata={"registry": MODELS})


@dataclass(frozen=True)
class Systems:
    """What each system needs besides: a block each."""

    blocks: Blocks = field(default_factory=dict, metadata={"registry": SYSTEMS})


@dataclass(frozen=True)
class EM:
    """The loop in which the rules and the neural model teach each other."""

    iterations: int = setting(2, "EM iterations", low=1)
    patience: int = setting(
        0, "stop after so many iterations without gain on validation, keep the best; 0: run all, keep the last", low=0
    )
    rules: bool = setting(True, "false: the neural model alone")
    neural: bool = setting(True, "false: the rules alone")
    targets: Literal["hard", "soft"] = setting(
        "hard",
        "hard: hidden triples with p_w >= tau_triplet are positives; soft: all of them, weighted by p_w (Eq. 7)",
    )
    tau_triplet: float = setting(0.5, "p_w from which on a hidden triple is accepted", low=0, high=1)
    hidden_negatives: Literal["none", "explicit"] = setting(
        "none", "explicit: rejected hidden triples are extra negatives"
    )
    warm_start: bool = setting(False, "true: go on from the last iteration's parameters")
    combine: Literal["probability", "log_odds"] = setting(
        "probability", "pLogicNet*: q + lambda * p_w (Eq. 10), or score + lambda * rule log-odds"
    )
    lambda_: float | Literal["auto"] = setting("auto", "auto: chosen on validation from lambda_grid", low=0)
    lambda_grid: tuple[float, ...] = setting(
        (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0), "what lambda is chosen from", low=0
    )


@dataclass(frozen=True)
class Evaluation:
    """Filtered ranking."""

    rerank: int | Literal["all"] = setting("all", "a number: re-rank only that many of the neural model's best", low=1)
    batch_memory_mb: int = setting(0, "memory for one batch of queries; 0: chosen from what is free", low=0)
