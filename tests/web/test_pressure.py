"""Slow clients, huge requests and many connections: the server still answers other clients."""

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
from plogicnet.web.connections import Limits
from plogicnet.web.schemas import Info
from plogicnet.web.server import CachedService, RequestQueue, make_app
from plogicnet.web.service import ModelService
from web_servers import LONG, in_process

CONNECTIONS = 1000


def connect(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def responds(address: str) -> bool:
    return httpx.get(f"{address}/api/predict?head=man0&relation=wife", timeout=60).status_code == 200


@pytest.fixture
def quick(served_model: PLogicNet) -> Iterator[str]:
    """A server with short timeouts."""
    with in_process(
        served_model, Limits(max_connections=8, head_seconds=0.3, response_seconds=1.0, max_waiting=2)
    ) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files for this process, not for the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_connections_do_not_block_others(address: str) -> None:
    with ExitStack() as stack:
        for i in range(CONNECTIONS):
            connection = stack.enter_context(connect(address))
            if i % 2:
                connection.sendall(b"GET /api/info HTTP/1.1\r\nHost: local")  # the rest is never sent
            if i % 250 == 0:
                assert responds(address)
        assert responds(address)
    assert responds(address)


def test_a_thousand_simultaneous_requests_get_status_200_or_503(address: str) -> None:
    with ExitStack() as stack:
        connections = []
        for i in range(200):
            connection = stack.enter_context(connect(address))
            request = f"GET /api/predict?head=man{i % 6}&relation=parent&top={1 + i // 6} HTTP/1.1\r\n"
            connection.sendall((request + "Host: localhost\r\n\r\n").encode() * 5)
            connections.append(connection)
        statuses = {connection.recv(12).split()[1] for connection in connections}
    assert statuses <= {b"200", b"503"}
    assert b"200" in statuses
    assert responds(address)


@pytest.mark.parametrize("length", ["Content-Length: 99999999999", "Transfer-Encoding: chunked"])
def test_a_huge_body_is_refused_without_reading_it(address: str, length: str) -> None:
    with connect(address) as connection:
        connection.sendall(f"GET /api/info HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode())
        sent = 0
        try:
            for _ in range(1000):
                sent += connection.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except (ConnectionError, TimeoutError):
            pass
        assert sent < 64 << 20  # at most the buffers of the operating system
    answer = httpx.request("GET", address + "/api/info", content=b"x" * 10)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert responds(address)


def test_request_heads_are_limited_but_long_names_fit(address: str) -> None:
    long_path = f"/api/explain?head={quote(LONG)}&relation=husband&tail={quote(LONG)}"
    assert len(long_path) > 30_000
    assert httpx.get(address + long_path).status_code == 200
    for request in (b"GET /" + b"a" * 300_000, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000):
        with connect(address) as connection:
            try:
                connection.sendall(request)
                assert connection.recv(12) in (b"HTTP/1.1 400", b"")
            except ConnectionError:
                pass
    headers = b"".join(b"X-%d: y\r\n" % i for i in range(30_000))
    with connect(address) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + headers)
            assert connection.recv(12) in (b"HTTP/1.1 400", b"")
        except ConnectionError:
            pass
    assert responds(address)


def test_slow_heads_and_idle_connections_are_closed(quick: str) -> None:
    for start in (b"", b"GET / HTTP/1.1\r\nHo"):
        with connect(quick) as connection:
            connection.sendall(start)
            assert connection.recv(100) == b""
    with connect(quick) as connection:
        connection.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while piece := connection.recv(65536):  # until the server closes the idle connection
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200")
    with connect(quick) as connection:  # single characters do not extend the deadline
        try:
            while connection.send(b"G"):
                threading.Event().wait(0.02)
        except ConnectionError:
            pass
    assert responds(quick)


def test_a_client_that_does_not_read_is_disconnected(quick: str) -> None:
    with connect(quick) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        try:
            for _ in range(2000):
                connection.sendall(request)
                threading.Event().wait(0.001)
        except (ConnectionError, TimeoutError):
            pass
        assert responds(quick)


def test_too_many_waiting_requests_get_status_503(served_model: PLogicNet) -> None:
    entered, proceed = threading.Event(), threading.Event()

    class Slow(ModelService):
        def info(self) -> Info:
            entered.set()
            assert proceed.wait(60)
            return super().info()

    app = make_app(RequestQueue(CachedService(Slow(served_model)), Limits(max_waiting=2)))
    statuses: list[int] = []

    async def send(client: httpx.AsyncClient, path: str) -> None:
        answer = await client.get(path)
        statuses.append(answer.status_code)
        if answer.status_code == 503:
            assert answer.headers["retry-after"] == "1"
            proceed.set()

    async def send_all() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            anyio.create_task_group() as group,
        ):
            for path in ("/api/info", "/api/rules", "/api/metrics"):
                group.start_soon(send, client, path)

    anyio.run(send_all)
    assert entered.is_set()
    assert sorted(statuses) == [200, 200, 503]


def test_the_cache_limit_includes_the_size_of_the_keys(
    served_model: PLogicNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CACHE_BYTES", 200_000)
    queue = RequestQueue(CachedService(ModelService(served_model)), Limits())

    async def send() -> None:
        for i in range(100):
            unknown = str(i) + "x" * 8000  # a long key with a short response
            assert json.loads((await queue.call("search", q=unknown))[0]) == {"names": []}
            info, _ = await queue.call("info")
            assert (await queue.call("info"))[0] is info  # still cached, because it was used recently
        size = sum(len(str(key)) + len(body) for key, body in queue.current.cached.items())
        assert 0 < size <= 200_000

    anyio.run(send)


def test_an_internal_error_is_reported_without_a_traceback(
    served_model: PLogicNet, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLOGICNET_DEBUG", raising=False)
    monkeypatch.setattr(served_model, "metrics", {"secret": object()})  # not serializable as JSON
    with in_process(served_model, Limits()) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/metrics")
        assert answer.status_code == 500
        assert list(answer.json()) == ["error"]
        assert "content-security-policy" in answer.headers
        assert responds(f"http://127.0.0.1:{port}")
    stderr = capfd.readouterr().err
    assert "TypeError" in stderr
    assert "Traceback" not in stderr + answer.text
