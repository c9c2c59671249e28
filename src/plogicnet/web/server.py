"""The web server: the endpoints of `ModelService`, one thread for the model, and a cache of responses.

When another snapshot of the run is published, a second thread loads it, and then it replaces the model between two
requests. A response is computed from one snapshot, and its header `plogicnet-snapshot` has the name.
"""

import asyncio
import gc
import json
import secrets
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from inspect import getdoc, signature

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from plogicnet.model import PLogicNet
from plogicnet.neural.device import matmul_precision
from plogicnet.runs.snapshots import Snapshot
from plogicnet.support.errors import InputError
from plogicnet.support.records import to_jsonable
from plogicnet.version import VERSION
from plogicnet.web import schemas
from plogicnet.web.connections import Connections, Limits
from plogicnet.web.security import FAILED, FAILED_MESSAGE, RequestGuard, error_response, host_name, is_local
from plogicnet.web.service import ModelService, UnknownNameError

CACHE_BYTES = 32 << 20
"""Maximum size of the cache of responses."""
WATCH_SECONDS = 1.0
"""Seconds between two looks at the current snapshot."""
SNAPSHOT_HEADER = "plogicnet-snapshot"
"""Header of a response with the name of the snapshot from which it was computed."""
BACKLOG = 128
"""Maximum number of connections that wait to be accepted."""
WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # nosec B104
"""Hosts that mean all network interfaces. They are not valid in a URL."""
ENDPOINTS = ("info", "metrics", "rules", "rule", "search", "entity", "known", "predicted", "predict", "explain")
"""Methods of ModelService that are endpoints of the REST API."""
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


class ServerBusyError(Exception):
    """Raised if too many requests wait for the model, or if this one has waited too long."""


@dataclass
class CachedService:
    """The service of one snapshot, and its recent responses. The snapshot never changes, so they do not expire."""

    service: ModelService
    cached: OrderedDict[object, bytes] = field(default_factory=OrderedDict)
    size: int = 0

    def add(self, key: object, body: bytes) -> None:
        """Cache a response, and remove the least recently used ones if there are too many."""
        if key not in self.cached and len(body) <= CACHE_BYTES // 8:
            self.cached[key] = body
            self.size += _entry_bytes(key, body)
        while self.size > CACHE_BYTES:
            self.size -= _entry_bytes(*self.cached.popitem(last=False))


@dataclass
class RequestQueue:
    """A queue that runs one request at a time in one thread. One is enough, because numerical code uses all cores.

    `current` can be replaced at any time. A request uses the one that it finds first.
    """

    current: CachedService
    limits: Limits
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "model"))
    waiting: int = 0

    async def call(self, method: str, **values: object) -> tuple[bytes, str]:
        """Call a method of the service with keyword arguments. Return its result as JSON, and the snapshot's name."""
        current, key = self.current, (method, *values.items())
        name = current.service.snapshot
        if key in current.cached:
            current.cached.move_to_end(key)
            return current.cached[key], name
        if self.waiting >= self.limits.max_waiting:
            raise ServerBusyError("too many requests are waiting. Try again in a second")
        self.waiting += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(
                self.pool, _to_json, getattr(current.service, method), values
            )
            # a timeout drops a waiting request, but not a running one, which ends soon because requests are limited
            body = await asyncio.wait_for(work, self.limits.response_seconds / 2)
        except TimeoutError:
            raise ServerBusyError("the server is too busy. Try again later") from None
        finally:
            self.waiting -= 1
        current.add(key, body)
        return body, name


def _entry_bytes(key: object, body: bytes) -> int:
    """Return the memory of a cache entry. The key counts too: a request with a long name can have a short response."""
    return len(body) + 4 * len(repr(key)) + 500


def _to_json(method: Callable[..., object], values: dict[str, object]) -> bytes:
    return json.dumps(to_jsonable(method(**values)), ensure_ascii=False, allow_nan=False).encode()


@dataclass(frozen=True)
class ModelSource:
    """Where the server gets its model from.

    Attributes:
        load: a function that loads the model.
        current: a function that returns the current snapshot; None if the model never changes.
    """

    load: Callable[[], PLogicNet]
    current: Callable[[], Snapshot] | None = None

    def make_service(self) -> ModelService:
        """Return a service of the model that is ready for requests."""
        service = ModelService(self.load())
        service.warm()
        return service


def follow_snapshots(queue: RequestQueue, source: ModelSource, stopped: threading.Event) -> None:
    """Replace the service of the queue whenever another snapshot is published, until `stopped` is set."""
    current: Snapshot | None = None
    failed: Snapshot | None = None
    message = ""
    while source.current is not None and not stopped.wait(WATCH_SECONDS):
        try:
            current = source.current()
            if current in (failed, queue.current.service.model.snapshot):
                continue
            queue.current = CachedService(source.make_service())
            gc.collect()  # the previous model has reference cycles
            failed, message = None, ""
        except Exception as error:  # whatever the reason, the previous snapshot is still served
            failed, previous = current, message
            message = f"the current snapshot is not served: {error or type(error).__name__}"
            if message != previous:
                print(f"plogicnet: {message}", file=sys.stderr, flush=True)


def make_app(queue: RequestQueue) -> FastAPI:
    """Return the application with the web page and the REST API of a model."""
    app = FastAPI(
        title="plogicnet",
        version=VERSION,
        summary="Find the facts that a knowledge graph is missing, with a probability and an explanation for each.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would contain the Host header of the request
        responses={code: {"model": schemas.Failure} for code in (400, 401, 403, 404, 413, 421, 422, 503)},
    )
    _add_page(app)
    for error_type in (RequestValidationError, InputError, ServerBusyError, HTTPException, Exception):
        app.add_exception_handler(error_type, _handle_error)
    for name in ENDPOINTS:
        endpoint = _endpoint(queue, name)
        app.add_api_route(f"/api/{name}", endpoint, name=name, description=getdoc(getattr(ModelService, name)))
    return app


def _endpoint(queue: RequestQueue, method: str) -> Callable[..., Awaitable[Response]]:
    """Return an endpoint with the parameters and the result type of a method of the service."""

    async def endpoint(**values: object) -> Response:
        body, snapshot = await queue.call(method, **values)
        return Response(body, media_type="application/json", headers={SNAPSHOT_HEADER: snapshot})

    endpoint.__signature__ = signature(getattr(queue.current.service, method))  # type: ignore[attr-defined]
    return endpoint


async def _handle_error(_: Request, error: Exception) -> Response:
    """Return the response {"error": …} for an exception."""
    match error:
        case RequestValidationError():
            return error_response(422, "; ".join(f"{e['loc'][-1]}: {e['msg']}" for e in error.errors()))
        case UnknownNameError():
            return error_response(404, str(error))
        case InputError():
            return error_response(422, str(error))
        case ServerBusyError():
            return error_response(503, str(error), {"retry-after": "1"})
        case HTTPException():
            return error_response(error.status_code, "not found" if error.status_code == 404 else error.detail)
    return error_response(FAILED, FAILED_MESSAGE)  # RequestGuard prints the reason


def _add_page(app: FastAPI) -> None:
    """Add the web page and its files. They are read at the start, so that no request can read files from disk."""
    for item in files("plogicnet.web").joinpath("static").iterdir():
        path = "/" if item.name == "page.html" else f"/static/{item.name}"
        media_type = MEDIA_TYPES[item.name.rpartition(".")[2]]
        response = Response(item.read_bytes(), media_type=media_type, headers={"cache-control": "no-cache"})
        app.router.routes.append(Route(path, response, methods=["GET"]))


def make_server(application: ASGIApp, limits: Limits) -> uvicorn.Server:
    """Return a server with these limits. It is not started."""
    connections = Connections(application, limits)
    config = uvicorn.Config(
        connections,
        http=connections.protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=max(1, int(limits.head_seconds)),
        timeout_graceful_shutdown=3,
        backlog=BACKLOG,
    )
    return uvicorn.Server(config)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host and port.

    Example:
        >>> with listening_socket("127.0.0.1", 0) as listening:
        ...     listening.getsockname()[0]
        '127.0.0.1'
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = addresses[0]
        dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dual_stack)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error}. Use another --port (0: any free port) or --host"
        ) from None


def serve(
    source: ModelSource,
    host: str,
    port: int,
    token: str | None,
    allowed_hosts: list[str],
    announce: Callable[[str], None],
) -> None:
    """Serve a model until Ctrl-C or SIGTERM.

    If other machines can reach the server and `token` is None, a random token is required. Other machines can reach
    the server if its host is not local, or through a proxy with one of `allowed_hosts`. The port is opened before the
    model is loaded, so that a port that is in use is reported at once.

    Args:
        source: where the model comes from.
        host: the host to listen on.
        port: the port to listen on; 0: any free port.
        token: the token that requests must contain, or None.
        allowed_hosts: further host names that are allowed in the Host header.
        announce: called with the address of the server when it is ready.
    """
    limits = Limits()
    if token is None and (allowed_hosts or not is_local(host)):
        token = secrets.token_urlsafe(24)
    names = allowed_hosts if is_local(host) else [*allowed_hosts, socket.gethostname()]
    with listening_socket(host, port) as listening:
        queue, stopped = RequestQueue(CachedService(source.make_service()), limits), threading.Event()
        guard = RequestGuard(make_app(queue), host, token, frozenset(map(host_name, names)))
        name = socket.gethostname() if host in WILDCARD_HOSTS else host
        url_host = f"[{name}]" if ":" in name else name
        address = f"http://{url_host}:{listening.getsockname()[1]}/"
        announce(address if token is None else f"{address}?token={token}")
        threading.Thread(target=follow_snapshots, args=(queue, source, stopped), daemon=True).start()
        previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            # the precision is set here, because it belongs to the process and two threads use models
            with matmul_precision("float32"), suppress(KeyboardInterrupt):  # the normal end of a server
                make_server(guard, limits).run([listening])
        finally:
            stopped.set()
            signal.signal(signal.SIGTERM, previous_handler)
