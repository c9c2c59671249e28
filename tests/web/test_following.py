"""A server follows the snapshots of its run: each response is computed from the snapshot in its header."""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from calling import Call
from plogicnet import PLogicNet
from plogicnet.runs.directory import SNAPSHOTS_DIR
from plogicnet.runs.lifecycle import revert
from plogicnet.runs.snapshots import read_rules
from plogicnet.support.files import write_text
from plogicnet.web.server import SNAPSHOT_HEADER, WATCH_SECONDS
from stopping import overwrite
from web_servers import serving

RULES = "husband(X, Y) => wife(Y, X)\nwife(X, Y) => husband(Y, X)\n"
Responses = dict[str, list[httpx.Response]]
"""The responses by the name of their snapshot."""


@pytest.fixture
def run(served_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(served_run, tmp_path / "run"))


def request_until(client: httpx.Client, responses: Responses, done: Callable[[], bool]) -> None:
    """Send requests until `done` returns True."""
    while not done():
        for path in ("/api/rules?top=1000", "/api/info"):
            response = client.get(path)
            assert response.status_code == 200
            responses.setdefault(response.headers[SNAPSHOT_HEADER], []).append(response)


def wait_for(client: httpx.Client, responses: Responses, name: str) -> None:
    """Send requests until a response comes from this snapshot."""
    deadline = time.monotonic() + 60
    request_until(client, responses, lambda: name in responses or time.monotonic() > deadline)
    assert name in responses, list(responses)


def assert_consistent(responses: Responses, run: Path) -> None:
    """Assert that the content of each response is that of the snapshot in its header."""
    for name, answers in responses.items():
        rows = read_rules(run, name).rows()
        for content in (answer.json() for answer in answers):
            if "snapshot" in content:  # /api/info
                assert (content["snapshot"], content["rules"]) == (name, len(rows))
            else:
                assert [{k: v for k, v in row.items() if k != "number"} for row in content["rules"]] == rows


def stop(child: subprocess.Popen[str]) -> str:
    """Stop a server and return what it printed on stderr."""
    child.terminate()
    return child.communicate(timeout=60)[1]


def test_a_server_follows_a_refit_while_it_answers(run: Path) -> None:
    responses: Responses = {}
    with serving(run=run) as (child, url), httpx.Client(base_url=url, timeout=60) as client:
        published = threading.Event()
        thread = threading.Thread(target=request_until, args=(client, responses, published.is_set))
        thread.start()
        PLogicNet.load(run).refit(RULES, run)
        published.set()
        thread.join()
        wait_for(client, responses, "0002")
        revert(run, "0001")
        wait_for(client, responses, "0003")
        assert "not served" not in stop(child)
    assert list(responses) == ["0001", "0002", "0003"]
    assert_consistent(responses, run)
    trained, refitted, reverted = (read_rules(run, name).rows() for name in responses)
    assert trained == reverted != refitted


def test_a_damaged_snapshot_is_not_served(run: Path) -> None:
    PLogicNet.load(run).refit(RULES, run)
    write_text(run / "CURRENT", "0001\n")
    damaged = run / SNAPSHOTS_DIR / "0002" / "hidden.parquet"
    overwrite(damaged, damaged.read_bytes()[:-1])
    responses: Responses = {}
    with serving(run=run) as (child, url), httpx.Client(base_url=url, timeout=60) as client:
        write_text(run / "CURRENT", "0002\n")
        deadline = time.monotonic() + 3 * WATCH_SECONDS
        request_until(client, responses, lambda: time.monotonic() > deadline)
        assert list(responses) == ["0001"]
        revert(run, "0001")
        wait_for(client, responses, "0003")
        messages = [line for line in stop(child).splitlines() if "not served" in line]
    assert_consistent(responses, run)
    assert len(messages) == 1
    assert messages[0].startswith(f"plogicnet: the current snapshot is not served: {damaged} is damaged")


def test_a_server_of_a_given_snapshot_does_not_follow(run: Path, call: Call) -> None:
    responses: Responses = {}
    PLogicNet.load(run).refit(RULES, run)
    with serving("--snapshot", "0001", run=run) as (_, url), httpx.Client(base_url=url, timeout=60) as client:
        PLogicNet.load(run).refit(None, run)
        deadline = time.monotonic() + 3 * WATCH_SECONDS
        request_until(client, responses, lambda: time.monotonic() > deadline)
    assert list(responses) == ["0001"]
    assert_consistent(responses, run)
    code, _, stderr = call("serve", run, "--port", 0, "--snapshot", "0007")
    assert (code, stderr) == (2, f"plogicnet: {run} has no snapshot '0007'. It has: 0001, 0002, 0003.\n")
