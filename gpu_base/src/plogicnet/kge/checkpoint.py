"""Where a training stands, in one safetensors file: parameters, the best of them, optimiser's state, numbers."""

import hashlib
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
    """Writes the file, whole or not at all, with a checksum; what was there before stays, as the `earlier` one.

    Example:
        >>> write_checkpoint(Path("c.safetensors"), Place("3a"), {"entity": torch.zeros(2)})  # doctest: +SKIP
    """
    path.parent.mkdir(exist_ok=True)
    kept, about = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}, json.dumps(asdict(place))
    with replacing(path) as beside:
        save_file(kept, beside, {"place": about, "sha256": _digest(about, kept)})
        if path.exists():
            path.replace(earlier(path))


def earlier(path: Path) -> Path:
    """Where the checkpoint before the last is kept.

    Example:
        >>> earlier(Path("e_step.safetensors")).name
        'e_step.before.safetensors'
    """
    return path.with_suffix(f".before{path.suffix}")


def read_checkpoint(path: Path, fingerprint: str) -> tuple[Place, Tensors] | None:
    """What was written last, or before that where it is damaged; None where there is none of the same training.

    Example:
        >>> read_checkpoint(Path("nowhere.safetensors"), "3a") is None
        True
    """
    damaged = False
    for file in (path, earlier(path)):
        try:
            found = _read(file, fingerprint) if file.exists() else None
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s is damaged and cannot be read (%s)", file, error)
            damaged = True
            continue
        if found is not None:
            if damaged:
                log.warning("training goes on from %s, after step %d", file, found[0].step)
            return found
    if damaged:
        log.warning("no checkpoint of these steps is whole; they begin anew")
    return None


def _read(file: Path, fingerprint: str) -> tuple[Place, Tensors] | None:
    with safe_open(file, "pt") as opened:
        about = opened.metadata() or {}
        place = Place(**json.loads(about["place"]))
        if place.fingerprint != fingerprint:
            log.warning("%s is of another training; this one begins anew", file)
            return None
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    if about.get("sha256", "") not in ("", _digest(about["place"], tensors)):  # those of older versions have none
        raise ValueError("it does not fit its checksum")
    return place, tensors


def _digest(about: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
