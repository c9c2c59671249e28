"""How much memory the program may hold, and a step may take: a limit that is given, the settings, what is free."""

import ctypes
import math
import os
import re
import sys
from pathlib import Path

from plogicnet.errors import InputError

SHARE = 0.5
"""The share of the free memory that one step takes unless told otherwise."""
LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
MB = 2**20
UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
SPARE = 24 * MB
"""What is never given away: small things that no step counts."""
LARGE = 2 * MB
"""Under a limit, arrays from this size on are handed back to the system as soon as they are freed."""
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # glibc's malloc.h
NO_LIMIT = 2**62
_limit = NO_LIMIT


def limit_memory(limit: str | int | None) -> None:
    """The most that this process may hold from now on, its libraries included: bytes, or a text as 2GB; None: no limit.

    It is a fact of the process, as the system's own limits are, and no setting: no run keeps it, and results do not
    hang on it but for a last bit of rounding. Steps that can work in pieces make them small enough; a step that cannot
    says what it would need before it begins, in an InputError.

    Example:
        >>> limit_memory("1.5GB")
        >>> limit_memory(None)
    """
    global _limit
    size = parse_size(limit) if isinstance(limit, str) else limit or NO_LIMIT
    if limit is not None:
        _resident_bytes()  # an error where the system does not tell
        # before Arrow is loaded: its own allocator keeps what was freed
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        _call_malloc("mallopt", M_MMAP_THRESHOLD, LARGE)
        _call_malloc("mallopt", M_ARENA_MAX, 2)
    _limit = size


def parse_size(text: str) -> int:
    """A size in bytes; a GB is 1024 MB, as a GiB is.

    Example:
        >>> parse_size("1.5GB"), parse_size("500 MiB")
        (1610612736, 524288000)
    """
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)\s*([kmgt])(?:i?b)?", text.strip(), re.IGNORECASE | re.ASCII)
    size = int(float(found[1]) * UNITS[found[2].lower()]) if found else 0
    if size <= 0:
        raise InputError(f"memory limit {text!r}: expected a number with its unit, as 2GB, 1.5GB or 500MB")
    return size


def require_bytes(needed: float, what: str, instead: str = "") -> None:
    """Refuses what the memory limit has no room for, before it is made.

    Example:
        >>> require_bytes(10**15, "the vectors", "a smaller kge.dim")  # there is no limit
    """
    left = left_bytes()
    if needed <= left:
        return
    held = _limit - left
    # a tenth more: what is needed is an estimate
    enough = math.ceil((held + 1.1 * needed) / (10 * MB)) * 10
    raise InputError(
        f"{what}: the memory limit is {_limit / MB:,.0f} MB, {(held - SPARE) / MB:,.0f} MB are held already, and about"
        f" {(needed + SPARE) / MB:,.0f} MB more are needed. Raise --memory-limit to at least {enough}MB"
        + (f"; or {instead}" if instead else "")
    )


def left_bytes() -> int:
    """What the memory limit leaves for more than the process already holds; negative where it is passed.

    Example:
        >>> left_bytes() > 10**15  # there is no limit
        True
    """
    if _limit == NO_LIMIT:
        return NO_LIMIT
    _call_malloc("malloc_trim", 0)
    return _limit - _resident_bytes() - SPARE


def allowed_bytes(setting_mb: int) -> int:
    """The bytes that a setting in megabytes allows; 0 stands for a share of what the system has left.

    Example:
        >>> allowed_bytes(100)
        104857600
    """
    return setting_mb * MB if setting_mb else int(SHARE * _unused_bytes())


def engine_mb(setting_mb: int) -> int:
    """The megabytes for an engine that keeps to them by itself; of a memory limit, half is for what it gives back.

    Example:
        >>> engine_mb(100)
        100
    """
    return max(1, min(allowed_bytes(setting_mb), int(SHARE * left_bytes())) // MB)


def free_bytes() -> int:
    """The memory that this process can still have, as its limit, the system and its container tell.

    Example:
        >>> free_bytes() > 0
        True
    """
    return min(_unused_bytes(), max(left_bytes(), 0))


def _unused_bytes() -> int:
    """What the system and the container have left."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: half of all there is
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 2**31
    for limit, used in LIMITS:
        try:
            free = min(free, int(limit.read_text()) - int(used.read_text()))
        except (OSError, ValueError):  # no container, or one without a limit
            continue
    return max(free, 2**26)


def _resident_bytes() -> int:
    """What this process holds now; its peak where the system tells no more."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            raise InputError("a memory limit: this system does not tell what a process holds") from None
        import resource

        unit = 1 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _call_malloc(name: str, *arguments: int) -> None:
    """Has the C library hand freed memory back to the system, where it can be told so; else it counts as held."""
    call = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if call is not None:
        call(*arguments)
