"""Files of parameters that are missing, removed while they are read, or of another model."""

from pathlib import Path

import pytest
import torch
from safetensors import torch as safetensors_torch

from plogicnet.neural import parameters
from plogicnet.neural.parameters import read_parameters, write_parameters
from plogicnet.support.errors import InputError


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_parameters(tmp_path / "file", {"a": torch.arange(3.0)}, {"scale": torch.ones(2)})
    a = torch.zeros(3)
    assert read_parameters(tmp_path / "file", {"a": a}, ["scale"])["scale"].tolist() == [1, 1]
    assert a.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"file: expected a of shape \(2,\), found \(3,\)"):
        read_parameters(tmp_path / "file", {"a": torch.zeros(2)}, [])
    with pytest.raises(InputError, match="file: no tensor offset"):
        read_parameters(tmp_path / "file", {"a": a}, ["scale", "offset"])


def test_a_file_that_is_removed_between_its_two_openings_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors opens the file to read the header. Then PyTorch opens it again and raises a RuntimeError."""
    file = tmp_path / "file"
    write_parameters(file, {"a": torch.zeros(3)}, {})

    def load_and_remove(path: Path) -> dict[str, torch.Tensor]:
        file.unlink()
        torch.UntypedStorage.from_file(str(path), False, 4)
        return safetensors_torch.load_file(path)

    with pytest.raises(RuntimeError, match="No such file"):
        load_and_remove(file)
    write_parameters(file, {"a": torch.zeros(3)}, {})
    monkeypatch.setattr(parameters, "load_file", load_and_remove)
    with pytest.raises(FileNotFoundError):
        read_parameters(file, {"a": torch.zeros(3)}, [])
