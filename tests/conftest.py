"""Fixtures for all tests."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from calling import Call

if TYPE_CHECKING:
    from plogicnet import PLogicNet

collect_ignore = ["toys"]  # on sys.path, their entry points would be active in every test

if os.environ.get("PLOGICNET_DATA"):  # tests change the working directory
    os.environ["PLOGICNET_DATA"] = str(Path(os.environ["PLOGICNET_DATA"]).resolve())


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread: with small tensors, several threads are slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `plogicnet` in this process and return exit code, stdout and stderr."""
    return _caller("plogicnet.cli.app:app", monkeypatch, capsys)


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `python -m reproduction` in this process and return exit code, stdout and stderr."""
    return _caller("reproduction.command:app", monkeypatch, capsys)


def _caller(app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    from plogicnet import cli

    loggers = [logging.getLogger(name) for name in ("plogicnet", "reproduction")]
    handlers = [list(logger.handlers) for logger in loggers]

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["plogicnet", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.run_program(app, "plogicnet")
        for logger, initial in zip(loggers, handlers, strict=True):
            logger.handlers[:] = initial
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert isinstance(end.value.code, int)
        return end.value.code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def served_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with ordinary and hostile names."""
    from web_servers import make_run

    return make_run(tmp_path_factory.mktemp("web") / "run")


@pytest.fixture(scope="session")
def served_model(served_run: Path) -> "PLogicNet":
    from plogicnet import PLogicNet

    return PLogicNet.load(served_run)


@pytest.fixture(scope="session")
def address(served_run: Path) -> Iterator[str]:
    """Serve that run with the real command and return its URL, without a trailing slash."""
    from web_servers import serving

    with serving(run=served_run) as (_, url):
        yield url.rstrip("/")
