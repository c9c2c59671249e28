"""A server under clients that mean no good: slow, huge, many; it goes on answering others."""

import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote, urlsplit

import anyio
import httpx
import pytest

from plogicnet import PLogicNet
from plogicnet.web import server
from plogicnet.web.answers import Answerer
from plogicnet.web.connections import Limits
from plogicnet.web.server import make_app
from plogicnet.web.shapes import Info
from web_servers import LONG, in_process

CONNECTIONS = 1000


def opened(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def is_well(address: str) -> bool:
    return httpx.get(f"{address}/api/predict?head=man0&relation=wife", timeout=60).status_code == 200


@pytest.fixture
def quick(served_model: PLogicNet) -> Iterator[str]:
    """A server that waits for nobody longer than a moment."""
    with in_process(served_model, Limits(connections=8, head_seconds=0.3, answer_seconds=1.0, waiting=2)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets this process, not the server's, open more files than systems commonly allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_connections_make_room(address: str) -> None:
    with ExitStack() as stack:
        for at in range(CONNECTIONS):
            connection = stack.enter_context(opened(address))
            if at % 2:
                connection.sendall(b"GET /api/info HTTP/1.1\r\nHost: local")  # and never the rest
            if at % 250 == 0:
                assert is_well(address)
        assert is_well(address)
    assert is_well(address)


def test_a_thousand_requests_at_once_are_answered_or_sent_away(address: str) -> None:
    with ExitStack() as stack:
        connections = []
        for at in range(200):
            connection = stack.enter_context(opened(address))
            request = f"GET /api/predict?head=man{at % 6}&relation=parent&top={1 + at // 6} HTTP/1.1\r\n"
            connection.sendall((request + "Host: localhost\r\n\r\n").encode() * 5)
            connections.append(connection)
        statuses = {connection.recv(12).split()[1] for connection in connections}
    assert statuses <= {b"200", b"503"}
    assert b"200" in statuses
    assert is_well(address)


@pytest.mark.parametrize("length", ["Content-Length: 99999999999", "Transfer-Encoding: chunked"])
def test_a_huge_body_is_refused_unread(address: str, length: str) -> None:
    with opened(address) as connection:
        connection.sendall(f"GET /api/info HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode())
        sent = 0
        try:
            for _ in range(1000):
                sent += connection.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except (ConnectionError, TimeoutError):
            pass
        assert sent < 64 << 20  # what the system's buffers take, not all of it
    answer = httpx.request("GET", address + "/api/info", content=b"x" * 10)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert is_well(address)


def test_heads_are_bounded_but_long_names_fit(address: str) -> None:
    two = f"/api/explain?head={quote(LONG)}&relation=husband&tail={quote(LONG)}"
    assert len(two) > 30_000
    assert httpx.get(address + two).status_code == 200
    for request in (b"GET /" + b"a" * 300_000, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000):
        with opened(address) as connection:
            try:
                connection.sendall(request)
                assert connection.recv(12) in (b"HTTP/1.1 400", b"")
            except ConnectionError:
                pass
    many = b"".join(b"X-%d: y\r\n" % i for i in range(30_000))
    with opened(address) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + many)
            assert connection.recv(12) in (b"HTTP/1.1 400", b"")
        except ConnectionError:
            pass
    assert is_well(address)


def test_slow_heads_and_idle_connections_are_closed(quick: str) -> None:
    for begun in (b"", b"GET / HTTP/1.1\r\nHo"):
        with opened(quick) as connection:
            connection.sendall(begun)
            assert connection.recv(100) == b""
    with opened(quick) as connection:
        connection.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while piece := connection.recv(65536):  # until the server closes the idle connection
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200")
    with opened(quick) as connection:  # a letter now and then does not buy more time
        try:
            while connection.send(b"G"):
                threading.Event().wait(0.02)
        except ConnectionError:
            pass
    assert is_well(quick)


def test_a_client_that_does_not_read_is_let_go(quick: str) -> None:
    with opened(quick) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        try:
            for _ in range(2000):
                connection.sendall(request)
                threading.Event().wait(0.001)
        except (ConnectionError, TimeoutError):
            pass
        assert is_well(quick)


def test_more_questions_than_may_wait_are_sent_away(served_model: PLogicNet) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Answerer):
        def info(self) -> Info:
            entered.set()
            assert go_on.wait(60)
            return super().info()

    app = make_app(Slow(served_model), Limits(waiting=2))
    statuses: list[int] = []

    async def ask(client: httpx.AsyncClient, path: str) -> None:
        answer = await client.get(path)
        statuses.append(answer.status_code)
        if answer.status_code == 503:
            assert answer.headers["retry-after"] == "1"
            go_on.set()

    async def all_at_once() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            anyio.create_task_group() as group,
        ):
            for path in ("/api/info", "/api/rules", "/api/metrics"):
                group.start_soon(ask, client, path)

    anyio.run(all_at_once)
    assert entered.is_set()
    assert sorted(statuses) == [200, 200, 503]


def test_what_is_remembered_is_bounded_by_questions_too(
    served_model: PLogicNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CACHE_BYTES", 200_000)
    queue, answerer = server.RequestQueue(Limits()), Answerer(served_model)

    async def ask() -> None:
        for at in range(100):
            nobody = str(at) + "x" * 8000  # no name is like it, so that the answer is short
            assert json.loads(await queue.ask(answerer.search, q=nobody)) == {"names": []}
            info = await queue.ask(answerer.info)
            assert await queue.ask(answerer.info) is info  # remembered, since it was asked for lately
        kept = sum(len(str(key)) + len(body) for key, body in queue.cached.items())
        assert 0 < kept <= 200_000

    anyio.run(ask)


def test_a_failure_is_told_without_its_traceback(
    served_model: PLogicNet, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLOGICNET_DEBUG", raising=False)
    monkeypatch.setattr(served_model, "metrics", {"secret": object()})  # what JSON cannot say
    with in_process(served_model, Limits()) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/metrics")
        assert answer.status_code == 500
        assert list(answer.json()) == ["error"]
        assert "content-security-policy" in answer.headers
        assert is_well(f"http://127.0.0.1:{port}")
    said = capfd.readouterr().err
    assert "TypeError" in said
    assert "Traceback" not in said + answer.text
