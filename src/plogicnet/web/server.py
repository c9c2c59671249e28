"""The server: routes over an Answerer, one thread for the model, a cache of answers, and how it is started."""

import asyncio
import json
import secrets
import signal
import socket
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
from plogicnet.support.errors import InputError
from plogicnet.support.records import json_of
from plogicnet.version import VERSION
from plogicnet.web import shapes
from plogicnet.web.answers import Answerer, UnknownName
from plogicnet.web.connections import Connections, Limits
from plogicnet.web.gate import FAILED, FAILED_WHY, Gate, failure, host_name, is_local

CACHE_BYTES = 32 << 20
BACKLOG = 128
EVERYWHERE = ("", "0.0.0.0", "::")  # nosec B104
"""Addresses to listen on that nobody can open."""
QUESTIONS = ("info", "metrics", "rules", "rule", "search", "entity", "known", "predicted", "predict", "explain")
"""What can be asked: methods of the answerer."""
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


class Busy(Exception):  # noqa: N818
    """Too many requests wait for the model already, or this one waited too long."""


@dataclass
class RequestQueue:
    """Asks the model one question at a time, in a thread of its own, and caches the last answers.

    One thread, since compiled kernels use all cores by themselves; the model never changes, so answers do not expire.
    """

    limits: Limits
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "model"))
    cached: OrderedDict[object, bytes] = field(default_factory=OrderedDict)
    size: int = 0
    waiting: int = 0

    async def ask(self, question: Callable[..., object], **values: object) -> bytes:
        """The JSON that a question gives for some values."""
        key = (question.__name__, *values.items())
        if key in self.cached:
            self.cached.move_to_end(key)
            return self.cached[key]
        if self.waiting >= self.limits.waiting:
            raise Busy("too many requests wait already; try again in a second")
        self.waiting += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(self.pool, _as_json, question, values)
            # a request that still waits then is dropped; one that is being worked on ends by itself, being bounded
            body = await asyncio.wait_for(work, self.limits.answer_seconds / 2)
        except TimeoutError:
            raise Busy("the server is too busy to answer in time; try again later") from None
        finally:
            self.waiting -= 1
        if key not in self.cached and len(body) <= CACHE_BYTES // 8:
            self.cached[key] = body
            self.size += _bytes_of(key, body)
        while self.size > CACHE_BYTES:
            self.size -= _bytes_of(*self.cached.popitem(last=False))
        return body


def _bytes_of(key: object, body: bytes) -> int:
    """What an answer takes, its question included: a long name that nobody has makes a short answer."""
    return len(body) + 4 * len(repr(key)) + 500


def _as_json(question: Callable[..., object], values: dict[str, object]) -> bytes:
    return json.dumps(json_of(question(**values)), ensure_ascii=False, allow_nan=False).encode()


def make_app(answerer: Answerer, limits: Limits) -> FastAPI:
    """The page and the REST interface over a model: each question of the answerer is a route with its parameters."""
    app = FastAPI(
        title="plogicnet",
        version=VERSION,
        summary="Which facts is a knowledge graph missing, how probable is each, and why.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # no answer is made of what a request says about its host
        responses={code: {"model": shapes.Failure} for code in (400, 401, 403, 404, 413, 421, 422, 503)},
    )
    _add_page(app)
    for kind in (RequestValidationError, InputError, Busy, HTTPException, Exception):
        app.add_exception_handler(kind, _failed)
    queue = RequestQueue(limits)
    for name in QUESTIONS:
        question = getattr(answerer, name)
        endpoint = _endpoint(queue, question)
        app.add_api_route(f"/api/{name}", endpoint, name=name, description=getdoc(getattr(Answerer, name)))
    return app


def _endpoint(queue: RequestQueue, question: Callable[..., object]) -> Callable[..., Awaitable[Response]]:
    """The function of a route, with the parameters and the result of a question."""

    async def answer(**values: object) -> Response:
        return Response(await queue.ask(question, **values), media_type="application/json")

    answer.__signature__ = signature(question)  # type: ignore[attr-defined]
    return answer


async def _failed(_: Request, error: Exception) -> Response:
    """Every mistake is answered as {"error": …}."""
    match error:
        case RequestValidationError():
            return failure(422, "; ".join(f"{e['loc'][-1]}: {e['msg']}" for e in error.errors()))
        case UnknownName():
            return failure(404, str(error))
        case InputError():
            return failure(422, str(error))
        case Busy():
            return failure(503, str(error), {"retry-after": "1"})
        case HTTPException():
            return failure(error.status_code, "nothing is here" if error.status_code == 404 else error.detail)
    return failure(FAILED, FAILED_WHY)  # the gate prints why


def _add_page(app: FastAPI) -> None:
    """The page and its files, read once: no path of a request ever reaches the disk."""
    for item in files("plogicnet.web").joinpath("static").iterdir():
        path = "/" if item.name == "page.html" else f"/static/{item.name}"
        kind = TYPES[item.name.rpartition(".")[2]]
        answer = Response(item.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})
        app.router.routes.append(Route(path, answer, methods=["GET"]))


def make_server(application: ASGIApp, limits: Limits) -> uvicorn.Server:
    """A server with these limits, not started yet."""
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


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Example:
        >>> with bound("127.0.0.1", 0) as listening:
        ...     listening.getsockname()[0]
        '127.0.0.1'
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host} --port {port}: cannot listen there: {error}") from None


def serve(
    load: Callable[[], PLogicNet],
    host: str,
    port: int,
    token: str | None,
    allowed: list[str],
    announce: Callable[[str], None],
) -> None:
    """Serves a model until Ctrl-C or SIGTERM; a token is made up where others can reach the server and none is given.

    Others can where it is bound to the outside, and where it has further names: something passes requests on to it.
    The port is taken before the model is loaded, so that one that is not free is reported at once.
    """
    limits = Limits()
    if token is None and (allowed or not is_local(host)):
        token = secrets.token_urlsafe(24)
    names = allowed if is_local(host) else [*allowed, socket.gethostname()]
    with bound(host, port) as listening:
        answerer = Answerer(load())
        answerer.warm()
        gate = Gate(make_app(answerer, limits), host, token, frozenset(map(host_name, names)))
        reached = socket.gethostname() if host in EVERYWHERE else host
        shown = f"[{reached}]" if ":" in reached else reached
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        announce(address if token is None else f"{address}?token={token}")
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with suppress(KeyboardInterrupt):  # the way in which a server is meant to end
                make_server(gate, limits).run([listening])
        finally:
            signal.signal(signal.SIGTERM, before)
