"""What every test shares."""

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

collect_ignore = ["toys"]  # imported they would be found by their entry points, in every test

if os.environ.get("PLOGICNET_DATA"):  # tests change their directory
    os.environ["PLOGICNET_DATA"] = str(Path(os.environ["PLOGICNET_DATA"]).resolve())


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors on many threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`plogicnet` in this process: exit code, stdout, stderr."""
    return program("plogicnet.cli.app:app", monkeypatch, capsys)


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`python -m reproduction` in this process: exit code, stdout, stderr."""
    return program("reproduction.command:app", monkeypatch, capsys)


def program(app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    from plogicnet import cli

    loggers = [logging.getLogger(name) for name in ("plogicnet", "reproduction")]
    handlers = [list(logger.handlers) for logger in loggers]

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["plogicnet", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.run_program(app, "plogicnet")
        for logger, own in zip(loggers, handlers, strict=True):
            logger.handlers[:] = own
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

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
    """Where the real command serves that run, without the slash at its end."""
    from web_servers import serving

    with serving(run=served_run) as (_, url):
        yield url.rstrip("/")
