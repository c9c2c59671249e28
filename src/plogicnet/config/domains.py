"""The domains of the settings that `plogicnet tune` searches over, and the option `--search`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from plogicnet.config.settings import Config
from plogicnet.config.text import require_simple_yaml
from plogicnet.config.tree import flat_settings
from plogicnet.support.errors import InputError

RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>[^:]+)(:(?P<scale>.*))?")
NEVER_SEARCHED = {"seed", "system", "device", "threads"}
EXAMPLES = "for example neural.learning_rate=0.001..0.1:log or neural.vectors.dim=50,100,200"


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, or all integers if both are integers.

    Attributes:
        low: the smallest value.
        high: the largest value.
        log: whether to search on a logarithmic scale.
        start: the value to try first; None: the value of the base settings.

    Example:
        >>> 64 in Range(50, 200), 64.5 in Range(50, 200), 64.5 in Range(50.0, 200.0)
        (True, False, True)
    """

    low: float
    high: float
    log: bool = False
    start: float | None = None

    def __contains__(self, value: object) -> bool:
        kinds = int if self.of_integers else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (":log" if self.log else "")

    @property
    def of_integers(self) -> bool:
        """Whether the range contains only integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def round(self, value: float) -> float:
        """Return the value with three significant digits, as an integer if the range is one of integers.

        If this changes the value by more than 1% of the width of the range, keep all digits.

        Example:
            >>> Range(0.001, 0.1).round(0.0123456), Range(1, 5_000).round(1234), Range(1_001, 1_004).round(1_002)
            (0.0123, 1230, 1002)
        """
        rounded = float(f"{value:.3g}")
        if abs(rounded - value) > (self.high - self.low) / 100:
            rounded = value
        rounded = min(max(rounded, self.low), self.high)
        return int(rounded) if self.of_integers else rounded


@dataclass(frozen=True)
class Choices:
    """Some values. `start` is the one to try first; None: the value of the base settings.

    Example:
        >>> 64 in Choices((50, 100)), str(Choices(("sampled", "one_vs_all")))
        (False, 'sampled,one_vs_all')
    """

    values: tuple[Any, ...]
    start: Any = None

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Domain = Range | Choices
SearchSpace = Mapping[str, Domain]
"""The domains of settings, by dotted key."""


def parse_search(texts: Sequence[str], base: Config) -> dict[str, Domain]:
    """Parse texts such as `key=low..high`, `key=low..high:log` and `key=a,b,c`. Later ones override earlier ones.

    Example:
        >>> parse_search(["neural.learning_rate=1e-3..0.1:log"], Config())
        {'neural.learning_rate': Range(low=0.001, high=0.1, log=True, start=None)}
    """
    domains: dict[str, Domain] = {}
    for text in texts:
        key, _, values = (part.strip() for part in text.partition("="))
        if not values:
            raise InputError(f"--search {text}: expected key=values, {EXAMPLES}")
        if key in NEVER_SEARCHED:
            raise InputError(f"--search {text}: {key} cannot be searched. Set it with --{key} or --set.")
        domains[key] = _parse_domain(key, values, f"--search {text}", base)
    return domains


def _parse_domain(key: str, text: str, source: str, base: Config) -> Domain:
    found = RANGE.fullmatch(text)
    try:
        items = f"[{found['low']}, {found['high']}]" if found else f"[{text}]"
        require_simple_yaml(items, source)
        values = tuple(_converted(key, item, base) for item in yaml.safe_load(items))
    except (yaml.YAMLError, ValueError) as error:  # InputError is a ValueError
        reason = error if isinstance(error, InputError) else f"{text!r} is not a range or a list, {EXAMPLES}"
        raise InputError(f"{source}: {reason}") from None
    if not found:
        if len({repr(v) for v in values}) < len(values):
            raise InputError(f"{source}: a value is listed twice. List it once.")
        return Choices(values)
    if len(values) != 2 or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise InputError(f"{source}: a range needs two numbers. List other values as {key}=a,b.")
    low, high = values
    if found["scale"] not in (None, "log"):
        raise InputError(f"{source}: unknown scale {found['scale']!r}. Write :log or nothing after the range.")
    if low >= high or (found["scale"] and low <= 0):
        positive = ", and greater than 0 on a log scale" if found["scale"] else ""
        raise InputError(f"{source}: the first number must be less than the second{positive}")
    return Range(low, high, bool(found["scale"]))


def _converted(key: str, value: object, base: Config) -> Any:
    """Return a value as the setting stores it, or raise InputError if the setting does not allow it."""
    return dict(flat_settings(base.with_values({key: value})))[key]
