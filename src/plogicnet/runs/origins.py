"""How each snapshot of a run was made, in work/timings.json. No result depends on this file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from plogicnet.runs.directory import SNAPSHOTS_DIR, TIMINGS_FILE
from plogicnet.runs.integrity import DAMAGE_EXCEPTIONS, DamageError, read_json
from plogicnet.support.files import write_text


@dataclass(frozen=True)
class Origin:
    """How a snapshot was made, as timings.json stores it.

    Attributes:
        command: the command that published it.
        seconds: the seconds that each part of the command took.
        published: the date and time, in UTC.
    """

    command: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    published: str | None = None


def write_origin(path: Path, name: str, origin: Origin) -> None:
    """Add the origin of a snapshot to timings.json, and remove those of snapshots that no longer exist."""
    published = datetime.now(UTC).isoformat(timespec="seconds")
    seconds = {part: round(value, 3) for part, value in origin.seconds.items()}
    kept = {n: asdict(o) for n, o in read_origins(path).items() if (path / SNAPSHOTS_DIR / n).is_dir()}
    kept[name] = asdict(Origin(origin.command, seconds, published))
    write_text(path / TIMINGS_FILE, json.dumps(kept, indent=1) + "\n")


def read_origins(path: Path) -> dict[str, Origin]:
    """Return the origin of each snapshot, by name. A damaged file counts as empty."""
    try:
        entries = read_json(path / TIMINGS_FILE)
        origins = {
            name: Origin(str(e["command"]), {k: float(s) for k, s in e["seconds"].items()}, str(e["published"]))
            for name, e in entries.items()
        }
        return {name: o for name, o in origins.items() if f"{o.command}{o.published}".isprintable()}
    except (DamageError, *DAMAGE_EXCEPTIONS):
        return {}
