"""Where a training stands, in one safetensors file: parameters, the best of them, optimiser's state, numbers."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from plogicnet.files import replacing

log = logging.getLogger(__name__)
Tensors = dict[str, torch.Tensor]


@dataclass
class Place:
    """The numbers of a training's place.

    Attributes:
        fingerprint: of settings, seed and examples: only a training with the same goes on from here.
        step: steps done.
        judged: the last step that was validated.
        best: the best validation figure; None before the first.
        best_step: where it was reached.
        waited: validations since then.
    """

    fingerprint: str
    step: int = 0
    judged: int = 0
    best: float | None = None
    best_step: int = 0
    waited: int = 0


def write_checkpoint(path: Path, place: Place, tensors: Tensors) -> None:
    """Writes the file, whole or not at all.

    Example:
        >>> write_checkpoint(Path("c.safetensors"), Place("3a"), {"entity": torch.zeros(2)})  # doctest: +SKIP
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, beside, {"place": _json(place)})


def read_checkpoint(path: Path, fingerprint: str) -> tuple[Place, Tensors] | None:
    """What was written, or None where there is no such file, or one of another training.

    Example:
        >>> read_checkpoint(Path("nowhere.safetensors"), "3a") is None
        True
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            place = Place(**json.loads((file.metadata() or {})["place"]))
            if place.fingerprint == fingerprint:
                return place, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            log.warning("%s is of another training; this one begins anew", path)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        log.warning("%s cannot be read (%s); training begins anew", path, error)
    return None


def _json(place: Place) -> str:
    return json.dumps(asdict(place))
