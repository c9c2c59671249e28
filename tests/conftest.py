"""What every test shares."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from plogicnet import PLogicNet


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors on many threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
