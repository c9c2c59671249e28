"""Checkpoints of a training: one safetensors file with parameters, best parameters, optimizer state and counters."""

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from plogicnet.support.files import atomic_write

log = logging.getLogger(__name__)
Tensors = dict[str, torch.Tensor]


@dataclass
class TrainingState:
    """The counters of a training. Checkpoints contain the fields by name.

    Attributes:
        fingerprint: digest of settings, seed and examples. Only a training with the same digest can resume.
        step: the number of completed steps.
        judged: the number of completed steps at the last validation.
        best: the best validation metric; None before the first validation.
        best_step: the number of completed steps at the best validation.
        waited: the number of validations without improvement since `best_step`.
    """

    fingerprint: str
    step: int = 0
    judged: int = 0
    best: float | None = None
    best_step: int = 0
    waited: int = 0


def write_checkpoint(path: Path, state: TrainingState, tensors: Tensors) -> None:
    """Write a checkpoint atomically, with a checksum, and keep the previous one at `previous_path`."""
    path.parent.mkdir(exist_ok=True)
    on_cpu, state_json = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}, json.dumps(asdict(state))
    with atomic_write(path) as temporary:
        save_file(on_cpu, temporary, {"place": state_json, "sha256": _digest(state_json, on_cpu)})
        if path.exists():
            path.replace(previous_path(path))


def previous_path(path: Path) -> Path:
    """Return the path of the previous checkpoint.

    Example:
        >>> previous_path(Path("e_step.safetensors")).name
        'e_step.before.safetensors'
    """
    return path.with_suffix(f".before{path.suffix}")


def read_checkpoint(path: Path, fingerprint: str) -> tuple[TrainingState, Tensors] | None:
    """Return the last intact checkpoint of the training with this fingerprint, or None.

    Example:
        >>> read_checkpoint(Path("nowhere.safetensors"), "3a") is None
        True
    """
    damaged = False
    for file in (path, previous_path(path)):
        try:
            checkpoint = _read(file, fingerprint) if file.exists() else None
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s is damaged and cannot be read: %s", file, error)
            damaged = True
            continue
        if checkpoint is not None:
            if damaged:
                log.warning("resuming the training from %s, after step %d", file, checkpoint[0].step)
            return checkpoint
    if damaged:
        log.warning("no intact checkpoint was found; this training starts from its first step")
    return None


def _read(file: Path, fingerprint: str) -> tuple[TrainingState, Tensors] | None:
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata() or {}
        state = TrainingState(**json.loads(metadata["place"]))
        if state.fingerprint != fingerprint:
            log.warning("%s belongs to another training; this one starts from its first step", file)
            return None
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    if metadata["sha256"] != _digest(metadata["place"], tensors):
        raise ValueError("its checksum does not match")
    return state, tensors


def _digest(state_json: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(state_json.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
