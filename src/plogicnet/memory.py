"""How much memory a step may take: what the settings say, or a share of what is free."""

import os
from pathlib import Path

SHARE = 0.5
"""The share of the free memory that one step takes unless told otherwise."""
LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def allowed_bytes(setting_mb: int) -> int:
    """The bytes that a setting in megabytes allows; 0 stands for a share of what is free now.

    Example:
        >>> allowed_bytes(100)
        104857600
    """
    return setting_mb * 2**20 if setting_mb else int(SHARE * free_bytes())


def free_bytes() -> int:
    """The memory that this process can still have, as the system and its container tell.

    Example:
        >>> free_bytes() > 0
        True
    """
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
