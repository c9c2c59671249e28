"""The file of a trained model's parameters: safetensors, with other tensors that belong to them."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from plogicnet.neural.checkpoint import Tensors
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write


def write_parameters(path: Path, parameters: Tensors, others: Tensors) -> None:
    """Write the parameters and other tensors, such as the scale of the scores."""
    with atomic_write(path) as temporary:
        save_file({name: tensor.cpu() for name, tensor in (parameters | others).items()}, temporary)


def read_parameters(path: Path, parameters: Tensors, others: Sequence[str]) -> Tensors:
    """Copy the values of a file to the parameters, and return the other tensors.

    Raise InputError if a tensor is missing or has another shape.
    """
    tensors = load_tensors(path)
    for name, parameter in parameters.items():
        found = tuple(tensors[name].shape) if name in tensors else "none"
        if found != tuple(parameter.shape):
            raise InputError(f"{path}: expected {name} of shape {tuple(parameter.shape)}, found {found}")
    if missing := [name for name in others if name not in tensors]:
        raise InputError(f"{path}: no tensor {', '.join(missing)}")
    for name, parameter in parameters.items():
        parameter.copy_(tensors[name])
    return {name: tensors[name] for name in others}


def count_rows(path: Path, name: str) -> int:
    """Return the number of rows of a tensor in a file, or 0 if the file does not contain it."""
    with _removal_as_file_not_found(path), safe_open(path, "pt") as file:
        return int(file.get_slice(name).get_shape()[0]) if name in file.keys() else 0  # noqa: SIM118


def load_tensors(path: Path) -> Tensors:
    """Return the tensors of a file."""
    with _removal_as_file_not_found(path):
        return load_file(path)


@contextmanager
def _removal_as_file_not_found(path: Path) -> Iterator[None]:
    """Raise FileNotFoundError if the file is removed between its two openings. PyTorch raises RuntimeError."""
    try:
        yield
    except RuntimeError:
        if path.exists():
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
