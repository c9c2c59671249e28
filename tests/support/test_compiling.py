"""An interrupt while numba compiles a function is raised after the compilation."""

import importlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numba.core.registry import cpu_target

SOURCE = """
from plogicnet.support.compiling import compiled

@compiled()
def add_three(x):
    return x + 3
"""


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT, which background processes ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_a_callback_of_the_compiler_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "never_compiled.py").write_text(SOURCE)  # not in the cache on disk
    monkeypatch.syspath_prepend(tmp_path)
    add_three = importlib.import_module("never_compiled").add_three
    engine = cpu_target.target_context.codegen()._engine._ee
    notify = engine._object_cache_notify
    ignored: list[object] = []
    sent: list[int] = []

    def interrupt(*arguments: object) -> None:
        if not sent:  # a second signal interrupts at once
            sent.append(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        notify(*arguments)

    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    monkeypatch.setattr(engine, "_object_cache_notify", interrupt)
    with pytest.raises(KeyboardInterrupt):
        add_three(1)
    assert not ignored
    monkeypatch.setattr(engine, "_object_cache_notify", notify)
    assert add_three(1) == 4
