"""Every setting, with its default, its meaning and its check.

The tree of frozen dataclasses below is the only list of settings: types say which values are allowed, `setting`
says what they mean and how far they range; YAML, `--set a.b=value` and `plogicnet config` all read it.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from plogicnet.errors import InputError, nearest
from plogicnet.files import require_file

Pattern = Literal["composition", "inverse", "symmetric", "subrelation"]
Model = Literal["TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE"]
_ALONE = {"kge.model": "ComplEx", "rules.irreflexive": False, "em.iterations": 1, "em.lambda": 0.0}
IMPLIED: Mapping[str, Mapping[str, object]] = {
    "plogicnet": {},
    "blp": {"em.embedding": False},
    "ruge": _ALONE | {"rules.patterns": ["composition", "inverse"]},
    "nne_aer": _ALONE | {"rules.patterns": ["inverse", "subrelation"]},
}
"""What naming a system sets besides; whatever is said after it wins."""


def setting(
    default: Any,
    meaning: str,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A field with its meaning and its range.

    Example:
        >>> @dataclass(frozen=True)
        ... class Box:
        ...     size: int = setting(3, "how large", low=1)
    """
    about = {"meaning": meaning, "low": low, "high": high}
    return field(default=default, metadata=about)


LONGEST, DEEPEST = 1_000_000, 20
"""The most characters of a text of settings, and the deepest nesting; real ones are far below both."""


@dataclass(frozen=True)
class MinPrecision:
    """The precision from which on a rule of each pattern is kept."""

    composition: float = setting(0.6, "two steps forwards", low=0, high=1)
    inverse: float = setting(0.1, "one step backwards, another relation", low=0, high=1)
    symmetric: float = setting(0.1, "one step backwards, the same relation", low=0, high=1)
    subrelation: float = setting(0.6, "one step forwards, another relation", low=0, high=1)
    irreflexive: float = setting(0.99, "1 - self-loops of r / triples of r", low=0, high=1)


@dataclass(frozen=True)
class Rules:
    """Where rules come from and which are kept."""

    mine: bool = setting(True, "mine rules from the training triples")
    patterns: tuple[Pattern, ...] = setting(
        ("composition", "inverse", "symmetric", "subrelation"), "the patterns that are mined"
    )
    min_precision: MinPrecision = field(
        default_factory=MinPrecision, metadata={"meaning": "kept at or above (Sec. 5.1)"}
    )
    min_support: int = setting(1, "kept at or above this number of concluded triples", low=1)
    counting: Literal["distinct", "paths"] = setting(
        "distinct", "distinct: triples, as in the paper; paths: every grounding, as in the authors' program"
    )
    irreflexive: bool = setting(True, "mine the constraint that r(x, x) does not hold; it ranks (e, r, e) last")


@dataclass(frozen=True)
class Grounding:
    """How rules are grounded."""

    engine: Literal["auto", "native", "sql"] = setting("auto", "auto: native for chains, sql for other rules")
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
class KGE:
    """The embedding model q_theta."""

    model: Model = setting("TransE", "how vectors make a score")  # noqa: RUF009
    dim: int = setting(200, "length of the vectors; for RotatE and ComplEx of complex numbers", low=1, high=100_000)
    recipe: Literal["sampled", "one_vs_all"] = setting(
        "sampled",
        "sampled: self-adversarial negatives (the paper's); one_vs_all: cross-entropy over all entities with reciprocal"
        " relations, for DistMult, ComplEx, HolE and ConvE",
    )
    gamma: float = setting(12.0, "margin in q = sigmoid(gamma - distance); vectors begin within (gamma + 2)/dim", low=0)
    adversarial_temperature: float = setting(1.0, "sampled: how much harder negatives weigh more", low=0)
    batch: int = setting(1024, "positives a step", low=1)
    negatives: int = setting(256, "sampled: negatives a positive", low=1)
    share_negatives: int = setting(64, "sampled: positives that share one set of negatives; 1: none", low=1)
    steps: int = setting(20000, "training steps of each E-step, at most", low=0)
    optimizer: Literal["auto", "adam", "adagrad"] = setting(
        "auto", "auto: adam for sampled, adagrad for one_vs_all (whose rate is some 0.1)"
    )
    learning_rate: float = setting(
        0.001, "the optimizer's rate; sampled: divided by ten at half of the steps, with fresh state", low=0
    )
    regularization: float = setting(
        0.0, "sampled: weight of the L3 penalty on all vectors; one_vs_all: of N3 on the batch's", low=0
    )
    dropout: float = setting(0.0, "share of each query's input coordinates that a step leaves out", low=0, high=0.9)
    validate_every: int = setting(0, "steps between two looks at the validation triples; 0: never", low=0)
    patience: int = setting(10, "training stops after so many looks without gain; the best vectors are kept", low=1)
    matmul: Literal["tf32", "float32"] = setting(
        "tf32", "dot products in training on a GPU: its matrix units, or in full float32"
    )
    kernels: Literal["auto", "plain", "fused"] = setting(
        "auto", "auto: the GPU's own kernels where they serve, compiled code on a CPU; plain: PyTorch's own"
    )


@dataclass(frozen=True)
class EM:
    """The loop in which rules and vectors teach each other."""

    iterations: int = setting(2, "EM iterations", low=1)
    patience: int = setting(
        0, "stop after so many iterations without gain on validation, keep the best; 0: run all, keep the last", low=0
    )
    rules: bool = setting(True, "false: the embedding alone")
    embedding: bool = setting(True, "false: the rules alone")
    targets: Literal["hard", "soft"] = setting(
        "hard",
        "hard: hidden triples with p_w >= tau_triplet are positives; soft: all of them, weighted by p_w (Eq. 7)",
    )
    tau_triplet: float = setting(0.5, "p_w from which on a hidden triple is accepted", low=0, high=1)
    hidden_negatives: Literal["none", "explicit"] = setting(
        "none", "explicit: rejected hidden triples are extra negatives"
    )
    warm_start: bool = setting(False, "true: go on from the last iteration's vectors")
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

    rerank: int | Literal["all"] = setting("all", "a number: re-rank only that many of the embedding's best", low=1)
    batch_memory_mb: int = setting(0, "memory for one batch of queries; 0: chosen from what is free", low=0)


@dataclass(frozen=True)
class Baselines:
    """What the other systems of the paper's tables need besides."""

    blp_prior: float = setting(
        1.0, "blp: groundings that fire, and as many that do not, that each rule begins with", low=1e-6
    )
    blp_iterations: int = setting(1000, "blp: steps of its EM, at most", low=0)
    ruge_c: float = setting(0.01, "ruge: C, how far a rule of confidence 1 lifts a soft label", low=0)
    ruge_weight: float = setting(1.0, "ruge: what the softly labelled triples count beside the observed ones", low=0)
    ruge_batch: int = setting(1024, "ruge: groundings a step", low=1)
    nne_aer_mu: float = setting(0.1, "nne_aer: mu, the weight of the entailments' penalty", low=0)


@dataclass(frozen=True)
class Config:
    """All settings of a run; frozen, so change them by `with_values` or `dataclasses.replace`.

    Example:
        >>> Config().with_values({"kge.dim": 64}).kge.dim
        64
    """

    seed: int = setting(0, "one seed for everything random", low=0, high=2**31 - 1)
    system: Literal["plogicnet", "blp", "ruge", "nne_aer"] = setting(
        "plogicnet",
        "what is trained; blp also sets em.embedding=false, ruge and nne_aer set kge.model=ComplEx, rules.patterns,"
        " rules.irreflexive=false, em.iterations=1 and em.lambda=0",
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: a GPU if there is one")
    threads: int = setting(0, "0: all cores", low=0, high=1024)
    rules: Rules = field(default_factory=Rules, metadata={"meaning": "which rules"})
    grounding: Grounding = field(default_factory=Grounding, metadata={"meaning": "from rules to groundings"})
    mln: MLN = field(default_factory=MLN, metadata={"meaning": "the rule model p_w"})
    kge: KGE = field(default_factory=KGE, metadata={"meaning": "the embedding model q"})
    em: EM = field(default_factory=EM, metadata={"meaning": "the EM loop"})
    evaluation: Evaluation = field(default_factory=Evaluation, metadata={"meaning": "ranking"})
    baselines: Baselines = field(
        default_factory=Baselines, metadata={"meaning": "the other systems of the paper's tables"}
    )

    def with_values(self, values: Mapping[str, object]) -> "Config":
        """A copy with dotted keys set; later ones win, and a system also sets what it needs.

        Example:
            >>> Config().with_values({"em.lambda": 0.5}).em.lambda_
            0.5
            >>> Config().with_values({"system": "ruge"}).kge.model
            'ComplEx'
        """
        config = self
        for key, value in values.items():
            config = _with(config, key.split("."), value, key)
            if key == "system":
                config = config.with_values(IMPLIED[config.system])
        return config

    def with_assignments(self, assignments: Sequence[str]) -> "Config":
        """A copy with `a.b=value` texts applied, as `--set` gives them.

        Example:
            >>> Config().with_assignments(["kge.dim=64", "em.lambda=auto"]).kge.dim
            64
        """
        return self.with_values(parse_assignments(assignments))

    def with_yaml(self, text: str, source: str) -> "Config":
        """A copy with the settings of a YAML text applied; a mistake is reported with its line and column.

        Example:
            >>> Config().with_yaml("kge: {dim: 64}", "my.yaml").kge.dim
            64
        """
        config = self
        for key, value, mark in _yaml_leaves(text, source):
            try:
                config = config.with_values({key: value})
            except InputError as error:
                raise InputError(f"{source}, line {mark.line + 1}, column {mark.column + 1}: {error}") from None
        return config

    def with_file(self, path: Path) -> "Config":
        """A copy with the settings of a YAML file applied.

        Example:
            >>> Config().with_file(Path("my.yaml"))  # doctest: +SKIP
        """
        require_file(path, "a settings file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise InputError(f"{path}: cannot be read as a settings file: {reason}") from None
        return self.with_yaml(text, str(path))

    def with_preset(self, name: str) -> "Config":
        """A copy with the settings of a preset that comes with the program applied.

        Example:
            >>> Config().with_preset("best/family").kge.model
            'TransE'
        """
        file = resources.files("plogicnet") / "presets" / f"{name}.yaml"
        if name not in preset_names():
            raise InputError(
                f"unknown preset {name!r}.{nearest(name, preset_names())} There are: {', '.join(preset_names())}."
            )
        return self.with_yaml(file.read_text(encoding="utf-8"), f"preset {name}")

    def to_yaml(self, comments: bool = False) -> str:
        """The complete tree as YAML, with each setting's meaning as a comment if asked for.

        Example:
            >>> print(Config().to_yaml().splitlines()[0])
            seed: 0
        """
        return "\n".join(_yaml_lines(self, 0, comments)) + "\n"


def parse_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """`a.b=value` texts as dotted keys and values; later ones win.

    Example:
        >>> parse_assignments(["kge.dim=64", "em.lambda=auto"])
        {'kge.dim': 64, 'em.lambda': 'auto'}
    """
    values: dict[str, object] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text}: expected key=value, as in --set kge.dim=100")
        values.pop(key.strip(), None)  # of two, the later stands where it was said
        try:
            require_plain(value, f"--set {key}")
            values[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError) as error:  # PyYAML's dates and numbers raise the latter
            if isinstance(error, InputError):
                raise
            raise InputError(f"--set {text}: {value!r} is no value in YAML") from None
    return values


def preset_names() -> list[str]:
    """The presets that come with the program.

    Example:
        >>> "best/family" in preset_names()
        True
    """
    root = Path(str(resources.files("plogicnet") / "presets"))
    return sorted(str(file.relative_to(root).with_suffix("")) for file in root.rglob("*.yaml"))


def _key(name: str) -> str:
    """`lambda` is a word of the language, so its field is `lambda_`."""
    return name.rstrip("_")


def _with(node: Any, path: list[str], value: object, key: str) -> Any:
    """The dataclass `node` with the setting at `path` replaced by the checked value."""
    names = {_key(f.name): f for f in fields(node)}
    if path[0] not in names:
        prefix = key[: len(key) - len(".".join(path))]
        hint = nearest(path[0], list(names), prefix)
        where = f" in {prefix[:-1]}" if prefix else ""
        raise InputError(f"unknown setting {key!r}.{hint} Known{where}: {', '.join(names)}.")
    found = names[path[0]]
    current = getattr(node, found.name)
    if is_dataclass(current):
        if len(path) > 1:
            return dataclasses.replace(node, **{found.name: _with(current, path[1:], value, key)})
        if not isinstance(value, Mapping):
            raise InputError(
                f"{key} holds the settings {', '.join(_key(f.name) for f in fields(current))}; set one of them"
            )
        for inner, inner_value in value.items():
            current = _with(current, [str(inner)], inner_value, f"{key}.{inner}")
        return dataclasses.replace(node, **{found.name: current})
    if len(path) > 1:
        raise InputError(f"{key}: {'.'.join(key.split('.')[: -len(path) + 1])} is one value and holds no settings")
    hint = get_type_hints(type(node))[found.name]
    return dataclasses.replace(node, **{found.name: _checked(value, hint, found.metadata, key)})


def _checked(value: object, hint: Any, about: Mapping[str, Any], key: str) -> object:
    """The value in the setting's type, within its range."""
    good, converted = _converted(value, hint)
    if not good:
        raise InputError(f"{key}: {value!r} is not allowed; {_allowed(hint, value)}")
    if isinstance(converted, tuple) and len(set(converted)) < len(converted):
        raise InputError(f"{key}: {value!r} gives the same twice")
    if converted == () and about.get("low") is not None:
        raise InputError(f"{key}: an empty list; give at least one number")
    for number in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            low, high = about.get("low"), about.get("high")
            # written so that a NaN is out of every range
            if not ((low is None or number >= low) and (high is None or number <= high) and abs(number) < float("inf")):
                limits = (
                    f"at least {low:g}" + ("" if high is None else f" and at most {high:g}")
                    if low is not None
                    else "finite"
                )
                raise InputError(f"{key}: {value!r} is out of range; it is {limits}")
    return converted


def _converted(value: object, hint: Any) -> tuple[bool, object]:
    """Whether the value fits the type, and the value in it (1 fits a float, "1e-4" too: YAML reads that as a text)."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        tries = (_converted(value, part) for part in get_args(hint))
        return next((t for t in tries if t[0]), (False, value))
    if origin is Literal:
        return next(((True, v) for v in get_args(hint) if _same(v, value)), (False, value))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        parts = [_converted(v, get_args(hint)[0]) for v in value]
        return all(good for good, _ in parts), tuple(v for _, v in parts)
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool), value
    if hint is float:
        try:
            return True, float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False, value
    return isinstance(value, hint), value


def _same(allowed: object, value: object) -> bool:
    if isinstance(allowed, str) and isinstance(value, str):
        return allowed.lower() == value.lower()
    return type(allowed) is type(value) and allowed == value


def _allowed(hint: Any, value: object) -> str:
    """The allowed values in words; of a list, also how the refused value is written as one."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_allowed(part, value) for part in get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(_scalar(v) for v in get_args(hint))
    if origin is tuple:
        return f"a list, as {_listed(value, hint)}, each item {_allowed(get_args(hint)[0], value)}"
    return {bool: "true or false", int: "a whole number", float: "a number"}[hint]


def _listed(value: object, hint: Any) -> str:
    """A list as it is written: of the value's own items, between commas, where they are allowed ones."""
    items = [item.strip() for item in str(value).split(",")]
    if not _converted(items, hint)[0]:
        items = [_example(get_args(hint)[0])]
    return f"[{', '.join(items)}]"


def _example(hint: Any) -> str:
    """Some value of a type."""
    return _scalar(get_args(hint)[0]) if get_origin(hint) is Literal else {bool: "true", int: "1", float: "0.5"}[hint]


def require_plain(text: str, source: str) -> None:
    """An error where a YAML text has what no settings need: aliases, deep nesting or great length.

    Reading such a text can take all memory, or all time: ten lines of aliases make a list of a billion items.

    Example:
        >>> require_plain("kge: {dim: 64}", "my.yaml")
    """
    if len(text) > LONGEST:
        raise InputError(f"{source}: {len(text):,} characters; settings have at most {LONGEST:,}")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        place = f"{source}, line {event.start_mark.line + 1}, column {event.start_mark.column + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{place}: an alias (*{event.anchor}); write the value itself")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise InputError(f"{place}: nested more than {DEEPEST} deep; settings are two or three deep")


def _yaml_leaves(text: str, source: str) -> Iterator[tuple[str, object, yaml.Mark]]:
    """Each setting in a YAML text as (dotted key, value, place)."""
    try:
        require_plain(text, source)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{source}{place}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:  # a character that YAML does not have
        raise InputError(f"{source}: not YAML: {str(error).splitlines()[0]}") from None
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{source}: expected settings as `key: value` lines")
    stack = [("", root)]
    while stack:
        prefix, node = stack.pop()
        for key_node, value_node in node.value:
            key = prefix + str(key_node.value)
            if isinstance(value_node, yaml.MappingNode):
                stack.append((key + ".", value_node))
            else:
                yield key, _value(value_node, f"{source}, line {key_node.start_mark.line + 1}"), key_node.start_mark


def _value(node: yaml.Node, place: str) -> object:
    try:
        return yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))
    except (yaml.YAMLError, ValueError) as error:  # PyYAML's dates and numbers raise the latter
        raise InputError(f"{place}: no value: {str(error).splitlines()[0]}") from None


def _yaml_lines(node: Any, depth: int, comments: bool) -> Iterator[str]:
    for f in fields(node):
        value = getattr(node, f.name)
        about = f.metadata
        note = about["meaning"] if comments else ""
        if is_dataclass(value):
            yield _line("  " * depth + f"{_key(f.name)}:", note)
            yield from _yaml_lines(value, depth + 1, comments)
            continue
        if comments:
            hint = get_type_hints(type(node))[f.name]
            choices = [
                _scalar(v) for part in (hint, *get_args(hint)) if get_origin(part) is Literal for v in get_args(part)
            ]
            note += f" ({' | '.join(choices)})" if choices else ""
        text = "[" + ", ".join(_scalar(v) for v in value) + "]" if isinstance(value, tuple) else _scalar(value)
        yield _line("  " * depth + f"{_key(f.name)}: {text}", note)


def _line(text: str, note: str) -> str:
    return f"{text:<44} # {note}" if note else text


def _scalar(value: object) -> str:
    if isinstance(value, float):
        # PyYAML reads a float with an exponent only if it has a point: 1.0e-04
        text = repr(int(value)) + ".0" if value == int(value) and abs(value) < 1e15 else repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return str(value).lower() if isinstance(value, bool) else str(value)
