"""The memory limit of the process, the memory of single steps, and the free memory."""

import ctypes
import math
import os
import re
import sys
from pathlib import Path

from plogicnet.support.errors import InputError

STEP_SHARE = 0.5
"""The default share of the free memory for one step."""
CGROUP_FILES = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
MB = 2**20
UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
RESERVED = 24 * MB
"""Bytes kept free for small allocations that no estimate includes."""
MMAP_BYTES = 2 * MB
"""With a memory limit, freed arrays of at least this size are returned to the system at once."""
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # glibc's malloc.h
NO_LIMIT = 2**62
_limit = NO_LIMIT


def limit_memory(limit: str | int | None) -> None:
    """Limit the memory of this process, including libraries. The limit is in bytes, a text such as "2GB", or None.

    The limit is not a setting and is not stored in runs. It does not change results, except for rounding in the last
    bit. If memory is short, steps that can be divided use smaller chunks. Other steps raise InputError before they
    start.

    Example:
        >>> limit_memory("1.5GB")
        >>> limit_memory(None)
    """
    global _limit
    size = parse_size(limit) if isinstance(limit, str) else limit or NO_LIMIT
    if limit is not None:
        _resident_bytes()  # raises InputError if the system does not report the memory in use
        # before Arrow is loaded, because its own allocator keeps freed memory
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        _call_malloc("mallopt", M_MMAP_THRESHOLD, MMAP_BYTES)
        _call_malloc("mallopt", M_ARENA_MAX, 2)
    _limit = size


def parse_size(text: str) -> int:
    """Parse a size and return it in bytes. GB and GiB both mean 1024 MB.

    Example:
        >>> parse_size("1.5GB"), parse_size("500 MiB")
        (1610612736, 524288000)
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)\s*([kmgt])(?:i?b)?", text.strip(), re.IGNORECASE | re.ASCII)
    size = int(float(match[1]) * UNITS[match[2].lower()]) if match else 0
    if size <= 0:
        raise InputError(f"memory limit {text!r}: expected a number with a unit, such as 2GB, 1.5GB or 500MB")
    return size


def require_bytes(needed: float, purpose: str, remedy: str = "") -> None:
    """Raise InputError if a step needs more memory than the limit leaves.

    Example:
        >>> require_bytes(10**15, "the vectors", "use a smaller neural.vectors.dim")  # without a limit
    """
    remaining = remaining_bytes()
    if needed <= remaining:
        return
    used = _limit - remaining
    # ten percent more, because `needed` is an estimate
    sufficient = math.ceil((used + 1.1 * needed) / (10 * MB)) * 10
    raise InputError(
        f"{purpose}: the memory limit is {_limit / MB:,.0f} MB, {(used - RESERVED) / MB:,.0f} MB are in use, and about"
        f" {(needed + RESERVED) / MB:,.0f} MB more are needed. Raise --memory-limit to at least {sufficient}MB"
        + (f", or {remedy}" if remedy else "")
    )


def remaining_bytes() -> int:
    """Return the bytes that the memory limit leaves; negative if the process already exceeds it.

    Example:
        >>> remaining_bytes() > 10**15  # without a limit
        True
    """
    if _limit == NO_LIMIT:
        return NO_LIMIT
    _call_malloc("malloc_trim", 0)
    return _limit - _resident_bytes() - RESERVED


def allowed_bytes(setting_mb: int) -> int:
    """Convert a setting in megabytes to bytes; 0 means half of the free memory of the system.

    Example:
        >>> allowed_bytes(100)
        104857600
    """
    return setting_mb * MB if setting_mb else int(STEP_SHARE * _unused_bytes())


def engine_mb(setting_mb: int) -> int:
    """Return the megabytes for an engine that limits its own memory: at most half of what the memory limit leaves.

    Example:
        >>> engine_mb(100)
        100
    """
    return max(1, min(allowed_bytes(setting_mb), int(STEP_SHARE * remaining_bytes())) // MB)


def free_bytes() -> int:
    """Return the bytes that this process can still allocate within its limit, its container and the system.

    Example:
        >>> free_bytes() > 0
        True
    """
    return min(_unused_bytes(), max(remaining_bytes(), 0))


def _unused_bytes() -> int:
    """Return the free memory of the system and of the container."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: half of the physical memory
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 2**31
    for limit, used in CGROUP_FILES:
        try:
            free = min(free, int(limit.read_text()) - int(used.read_text()))
        except (OSError, ValueError):  # no container, or one without a limit
            continue
    return max(free, 2**26)


def _resident_bytes() -> int:
    """Return the memory in use by this process, or its peak if the system reports only the peak."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            raise InputError("--memory-limit is not supported on this system: the memory in use is unknown") from None
        import resource

        unit = 1 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _call_malloc(name: str, *arguments: int) -> None:
    """Call a function of glibc's malloc that returns freed memory to the system. Do nothing if it does not exist."""
    call = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if call is not None:
        call(*arguments)
