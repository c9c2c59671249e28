"""The sections of the settings, with the default, description and range of each setting.

Sections and equations in the descriptions refer to the pLogicNet paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, Literal

from plogicnet.config.fields import overlays, setting
from plogicnet.config.registries import ENGINES, MODELS, SYSTEMS
from plogicnet.config.shapes import CHAIN_SHAPES, NEGATIVE_PATTERNS

if TYPE_CHECKING:
    Pattern = str
    NegativePattern = str
else:
    Pattern = Literal[tuple(shape.name for shape in CHAIN_SHAPES)]
    NegativePattern = Literal[NEGATIVE_PATTERNS]
Auto = Literal["auto"]
Blocks = Mapping[str, Any]
"""The blocks of an extensible section by name. Each block is an instance of its extension's dataclass."""
Overlays = tuple[Mapping[str, Any], ...]
"""Several sets of settings of one section. Each contains only the settings that differ from the section's own."""

_THRESHOLDS = [(shape.name, shape.min_precision, shape.description) for shape in CHAIN_SHAPES]
FormulaGroup = Literal["best", "popularity", "other", "linked"]
MinPrecision: Any = make_dataclass(
    "MinPrecision",
    [
        (name, float, setting(default, description, low=0, high=1))
        for name, default, description in (
            *_THRESHOLDS,
            ("chain", 0.6, "other chains, such as a(X, Y) & b(Z, Y) => c(X, Z)"),
            ("constant", 0.1, "a(X, d) => b(X, c) and a(X, Y) => b(X, c), where c and d are entities"),
            ("irreflexive", 0.99, "=> not a(X, X); precision: 1 - self-loops of a / triples of a"),
            ("functional", 0.9, "a(X, Z) & Z != Y => not a(X, Y) and a(Z, Y) & Z != X => not a(X, Y)"),
            ("disjoint", 0.99, "a(X, Y) => not b(X, Y) and a(Y, X) => not b(X, Y)"),
        )
    ],
    frozen=True,
    namespace={"__module__": __name__, "__doc__": "The minimum precision of a mined rule, per pattern."},
)


@dataclass(frozen=True)
class Rules:
    """Which rules are mined and kept."""

    mine: bool = setting(True, "mine rules from the training triples")
    patterns: tuple[Pattern, ...] = setting(tuple(shape.name for shape in CHAIN_SHAPES), "patterns to mine")
    min_precision: Any = field(
        default_factory=MinPrecision, metadata={"description": "minimum precision of a rule, per pattern (Sec. 5.1)"}
    )
    min_support: int = setting(1, "minimum number of triples that a rule concludes", low=1)
    counting: Literal["distinct", "paths"] = setting(
        "distinct", "unit of support and hits; distinct: triples (paper); paths: groundings (authors' program)"
    )
    irreflexive: bool = setting(
        True, "mine constraints that exclude a(X, X); triples that they exclude are ranked last"
    )
    negative: tuple[NegativePattern, ...] = setting((), "patterns of negative evidence to mine")
    max_length: int = setting(2, "maximum number of steps of a mined chain", low=1, high=3)
    backward: bool = setting(False, "mine chains of two or three steps of which some lead from tail to head")
    constants: bool = setting(False, "mine rules with constants")
    max_constants: int = setting(300_000, "maximum number of mined rules with constants; the best are kept", low=1)
    min_hits: int = setting(
        1, "minimum number of training triples that a longer chain or a rule with constants concludes", low=1
    )
    propose: Literal["none", "paths"] = setting(
        "none",
        "who proposes more chains of two or three steps; paths: a path model, whose paths for some facts become"
        " candidates after the first E-step",
    )
    proposal_facts: int = setting(500, "number of training triples whose paths propose chains", low=1)
    budget_s: float = setting(
        0.0,
        "seconds for mining chains of three steps, turned into sampled_walks and counted_paths before mining begins;"
        " 0: no sampling, unless sampled_walks is set",
        low=0,
    )
    sampled_walks: int = setting(
        0, "number of walks that propose chains of three steps; 0: all chains are found, without sampling", low=0
    )
    counted_paths: int = setting(
        0,
        "largest number of paths walked to count chains of three steps from sampled_walks or propose; 0: no limit",
        low=0,
    )


@dataclass(frozen=True)
class Grounding:
    """How rules are grounded."""

    engine: str = setting(
        "auto", "grounding engine; auto: for each rule, the first engine that supports it", registry=ENGINES
    )
    memory_mb: int = setting(0, "memory for groundings in MB; 0: half of the free memory", low=0)


@dataclass(frozen=True)
class Gradient:
    """Gradient ascent as in the paper, for mln.solver: gradient."""

    step: float = setting(1.0e-4, "step size", low=0)
    iterations: int = setting(1000, "number of steps", low=0)


@dataclass(frozen=True)
class QueryObjective:
    """Learning from queries, for mln.objective: query."""

    triples: int = setting(20_000, "number of training triples that are asked; all if there are fewer", low=1)
    candidates: int = setting(100, "number of candidates per query; the best by a noisy-or of their rules", low=2)
    hide: Literal["edge", "pair", "auto"] = setting(
        "auto",
        "facts hidden from a training query; edge: the asked triple; pair: all facts between its two entities;"
        " auto: pair if linked pairs are rarer in valid than in train",
    )
    formulas: tuple[FormulaGroup, ...] = setting(
        ("best", "popularity", "other"),
        "formulas beside the rules; best: confidence of the best rules; popularity: number of facts of head and tail;"
        " other: another head or tail is known; linked: head and tail have a fact in common",
    )
    hidden: int = setting(
        5, "number of hidden triples per training query, for the neural model; the best by a noisy-or", low=0
    )


@dataclass(frozen=True)
class MLN:
    """The rule model p_w."""

    objective: Literal["pseudolikelihood", "query"] = setting(
        "pseudolikelihood",
        "objective of weight learning; pseudolikelihood: each triple is true or false (paper);"
        " query: the answer is the best candidate of its query",
    )
    aggregate: Literal["sum", "mean", "saturating"] = setting(
        "sum",
        "aggregation of the weights of a triple's groundings; sum: MLN; mean: authors' program;"
        " saturating: n groundings of a rule count as log2(1 + n)",
    )
    blanket: Literal["hypothesis", "full"] = setting(
        "hypothesis",
        "Markov blanket of a triple; hypothesis: groundings that conclude it; full: also those with it as a premise",
    )
    hidden_premises: Literal[False, "sampled"] = setting(
        False, "truth values of hidden premises; false: all are false; sampled: sampled from q (Sec. 4.2)"
    )
    unit_clauses: bool = setting(True, "p_w before rules count; true: base rate of the relation; false: 0.5 (paper)")
    solver: Literal["newton", "gradient"] = setting(
        "newton", "method of learning the weights; newton: exact maximum; gradient: gradient ascent (paper)"
    )
    l2: float = setting(1.0, "penalty l2/2 * |w|^2 on the sum of losses", low=0)
    gradient: Gradient = field(default_factory=Gradient, metadata={"description": "settings of solver: gradient"})
    query: QueryObjective = field(
        default_factory=QueryObjective, metadata={"description": "settings of objective: query"}
    )


@dataclass(frozen=True)
class Neural:
    """The neural model q_theta: the settings that all models have. A model can also have its own block."""

    model: str = setting(None, "name of the neural model", registry=MODELS)
    steps: int | Auto = setting(
        "auto", "maximum number of training steps per E-step; auto: default of the model", low=0
    )
    batch: int | Auto = setting("auto", "positive triples per step; auto: default of the model", low=1)
    optimizer: Literal["auto", "adam", "adagrad"] = setting("auto", "optimizer; auto: default of the model")
    learning_rate: float | Auto = setting("auto", "learning rate of the optimizer; auto: default of the model", low=0)
    validate_every: int = setting(0, "training steps between validations; 0: never validate", low=0)
    patience: int = setting(
        10, "validations without improvement before training stops; the best parameters are kept", low=1
    )
    kernels: Literal["auto", "plain", "fused"] = setting(
        "auto",
        "implementation of a training step; auto: fused GPU kernels if possible, compiled code on a CPU;"
        " plain: PyTorch; fused: require fused kernels",
    )
    mixture: Overlays = overlays(
        "several neural models as one, for example [{model: Paths}, {model: ComplEx, steps: 2000}]; each entry changes"
        " the settings of this section; []: one model"
    )
    blocks: Blocks = field(default_factory=dict, metadata={"registry": MODELS})

    @property
    def title(self) -> str:
        """The names of the neural models, for display.

        Example:
            >>> Neural(mixture=({"model": "Paths"}, {"model": "ComplEx"})).title
            'Paths + ComplEx'
        """
        return " + ".join(entry.get("model", self.model) for entry in self.mixture) or self.model


@dataclass(frozen=True)
class Systems:
    """The settings of individual systems, one block per system."""

    blocks: Blocks = field(default_factory=dict, metadata={"registry": SYSTEMS})


@dataclass(frozen=True)
class EM:
    """The EM loop, in which the rules and the neural model learn from each other."""

    iterations: int = setting(2, "number of EM iterations", low=1)
    patience: int = setting(
        0,
        "iterations without improvement on validation before EM stops and keeps the best; 0: run all and keep the last",
        low=0,
    )
    rules: bool = setting(True, "use rules; false: neural model alone")
    neural: bool = setting(True, "train a neural model; false: rules alone")
    targets: Literal["hard", "soft"] = setting(
        "hard",
        "hidden triples to train as positives; hard: those with p_w >= tau_triplet; soft: all, weighted by p_w (Eq. 7)",
    )
    tau_triplet: float = setting(0.5, "minimum p_w of an accepted hidden triple", low=0, high=1)
    hidden_negatives: Literal["none", "explicit"] = setting(
        "none", "use of rejected hidden triples; none: not used; explicit: additional negatives"
    )
    warm_start: bool = setting(False, "start training from the parameters of the previous iteration")
    combine: Literal["probability", "log_odds"] = setting(
        "probability",
        "score of pLogicNet*; probability: q + lambda * p_w (Eq. 10);"
        " log_odds: neural score + lambda * log-odds of the rules",
    )
    lambda_: float | Literal["auto"] = setting(
        "auto", "weight of the rules in pLogicNet*; auto: selected on validation from lambda_grid", low=0
    )
    lambda_grid: tuple[float, ...] = setting(
        (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0), "candidates for lambda", low=0
    )


@dataclass(frozen=True)
class Evaluation:
    """Filtered ranking."""

    rerank: int | Literal["all"] = setting(
        "all",
        "number of the neural model's best candidates that pLogicNet* ranks again; the others stay below them;"
        " all: all candidates",
        low=1,
    )
    batch_memory_mb: int = setting(0, "memory for one batch of queries in MB; 0: based on the free memory", low=0)
