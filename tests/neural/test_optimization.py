"""The training loop: validation, early stopping, checkpoints, Ctrl-C and a killed process."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from interrupting import interrupted_at
from plogicnet.neural.checkpoint import previous_path
from plogicnet.neural.protocol import Checkpoint, Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.progress import Advance, no_progress

CHAIN = np.array([(i, 0, i + 1) for i in range(9)], dtype=np.int64)
EXAMPLES = Examples.of(CHAIN)


def model_of(**values: object) -> VectorModel:
    fast: dict[str, object] = {"dim": 4, "batch": 4, "negatives": 3, "share_negatives": 2, "learning_rate": 0.01}
    return VectorModel(10, 1, VectorSettings(**(fast | values)))  # type: ignore[arg-type]


def steps_done(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return int(json.loads(file.metadata()["place"])["step"])


def resumable_step(path: Path) -> int:
    """Return the step that a training can resume from; during a write only the previous checkpoint may exist."""
    for file in (path, previous_path(path)):
        with suppress(OSError, RuntimeError):  # safetensors raises RuntimeError if the file does not exist
            return steps_done(file)
    return 0


def test_the_best_parameters_are_kept() -> None:
    metrics = iter([0.1, 0.4, 0.2, 0.3])
    seen: list[torch.Tensor] = []
    model = model_of(steps=18, validate_every=5)

    def validate() -> float:
        seen.append(model.entity.detach().clone())
        return next(metrics)

    model.fit(EXAMPLES, 0, validate=validate)
    assert len(seen) == 4, "at steps 5, 10, 15, and after the last step"
    assert torch.equal(model.entity, seen[1])


@pytest.mark.parametrize(("patience", "validations"), [(1, 2), (2, 5), (3, 6), (10, 8)])
def test_training_stops_after_patience_validations_without_improvement(patience: int, validations: int) -> None:
    metrics = [0.5, 0.5, 0.6, 0.1, 0.4, 0.5, 0.0, 0.6]
    remaining = iter(metrics)
    model_of(steps=8, validate_every=1, patience=patience).fit(EXAMPLES, 0, validate=lambda: next(remaining))
    assert list(remaining) == metrics[validations:]


def test_validation_does_not_change_the_training() -> None:
    rising = iter(range(100))
    plain, validated = model_of(steps=20), model_of(steps=20, validate_every=3)
    plain.fit(EXAMPLES, 0)
    validated.fit(EXAMPLES, 0, validate=lambda: float(next(rising)))
    assert torch.equal(plain.entity, validated.entity)


def test_validate_every_zero_never_validates() -> None:
    def validate() -> float:
        raise AssertionError

    model_of(steps=5, validate_every=0).fit(EXAMPLES, 0, validate=validate)


@pytest.mark.parametrize("change", ["seed", "settings", "examples", "weights", "negatives"])
def test_a_checkpoint_of_another_training_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    checkpoint = Checkpoint(tmp_path / "c.safetensors")
    model_of(steps=6).fit(EXAMPLES, 0, checkpoint=checkpoint)
    settings = {"steps": 6, "learning_rate": 0.02} if change == "settings" else {"steps": 6}
    other = CHAIN[:-1] if change == "examples" else CHAIN
    weights = np.linspace(0.5, 1, len(other)) if change == "weights" else np.ones(len(other))
    negatives = CHAIN[:, [2, 1, 0]] if change == "negatives" else CHAIN[:0]
    examples = Examples(other, weights, negatives)
    seed = 1 if change == "seed" else 0
    expected, resumed = model_of(**settings), model_of(**settings)
    expected.fit(examples, seed)
    with caplog.at_level(logging.WARNING):
        resumed.fit(examples, seed, checkpoint=checkpoint)
    assert torch.equal(expected.entity, resumed.entity)
    assert "another training" in caplog.text


def test_a_warm_start_from_other_parameters_is_another_training(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "c.safetensors")
    first, second, expected = model_of(steps=6), model_of(steps=6), model_of(steps=6)
    first.fit(EXAMPLES, 0)
    first.fit(EXAMPLES, 5, warm=True, checkpoint=checkpoint)
    for model in (second, expected):
        model.fit(EXAMPLES, 1)
    second.fit(EXAMPLES, 5, warm=True, checkpoint=checkpoint)
    expected.fit(EXAMPLES, 5, warm=True)
    assert torch.equal(second.entity, expected.entity)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all"])
def test_a_damaged_checkpoint_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "c.safetensors"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        model_of(steps=3).fit(EXAMPLES, 0, checkpoint=Checkpoint(path))
    assert "cannot be read" in caplog.text
    assert steps_done(path) == 3


def test_a_second_fit_with_a_complete_checkpoint_performs_no_steps(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "new" / "c.safetensors")
    first, second = model_of(steps=200), model_of(steps=200)
    first.fit(EXAMPLES, 0, checkpoint=checkpoint)
    shown: list[int] = []

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        assert (step, total) == ("training TransE, steps after the first 200", 0)

        def advance(units: int = 1, note: str = "") -> None:
            assert not note
            shown.append(units)

        yield advance

    second.fit(EXAMPLES, 0, progress=progress, checkpoint=checkpoint)
    assert shown == []
    assert torch.equal(first.entity, second.entity)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_the_step_and_writes_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    """Also for SIGTERM, if its handler is the one of Ctrl-C."""
    before = signal.signal(number, signal.default_int_handler)
    path = tmp_path / "c.safetensors"
    model, whole = model_of(steps=300), model_of(steps=300)

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        done = 0

        def advance(units: int = 1, note: str = "") -> None:
            nonlocal done
            done += units
            if done == 150:
                os.kill(os.getpid(), number)
            assert note.startswith("loss"), "the interrupt is deferred"

        with no_progress(step, total):
            yield advance

    with pytest.raises(KeyboardInterrupt):
        model.fit(EXAMPLES, 0, progress=progress, checkpoint=Checkpoint(path))
    assert steps_done(path) == 150
    assert signal.signal(number, before) is signal.default_int_handler
    assert not model.entity.requires_grad
    model.fit(EXAMPLES, 0, checkpoint=Checkpoint(path))
    whole.fit(EXAMPLES, 0)
    assert torch.equal(model.entity, whole.entity)


def test_an_error_during_training_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with pytest.raises(RuntimeError):
        model_of(steps=300).fit(
            EXAMPLES, 0, progress=interrupted_at(200, RuntimeError), checkpoint=Checkpoint(path, every_steps=70)
        )
    assert steps_done(path) == 140
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.before.safetensors", "c.safetensors"]


CHILD = """
import sys
from pathlib import Path
import numpy as np
import torch
from plogicnet.neural.protocol import Checkpoint, Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings

torch.set_num_threads(1)
chain = np.array([(i, 0, i + 1) for i in range(9)], dtype=np.int64)
settings = VectorSettings(model="ComplEx", recipe="one_vs_all", dim=4, batch=4, learning_rate=0.1, steps=100_000)
VectorModel(10, 1, settings).fit(Examples.of(chain), 0, checkpoint=Checkpoint(Path(sys.argv[1]), every_steps=17))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_process_resumes_to_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)])
    try:
        for _ in range(600):
            if resumable_step(path) >= 30:
                break
            assert child.poll() is None
            time.sleep(0.1)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    reached = resumable_step(path)
    assert 30 <= reached < 100_000, "it was killed during training"
    # compare both a few steps after the kill
    model, whole = (
        VectorModel(
            10,
            1,
            VectorSettings(model="ComplEx", recipe="one_vs_all", dim=4, batch=4, learning_rate=0.1, steps=100_000),
        )
        for _ in range(2)
    )
    stop = -(-(reached + 60) // 50) * 50
    for trained, file, before in ((model, path, reached), (whole, tmp_path / "whole.safetensors", 0)):
        with pytest.raises(KeyboardInterrupt):
            trained.fit(
                EXAMPLES, 0, progress=interrupted_at(stop - before, KeyboardInterrupt), checkpoint=Checkpoint(file)
            )
        assert steps_done(file) == stop
    assert all(torch.equal(p, whole.parameters[name]) for name, p in model.parameters.items())
