"""The server: routes over an Answerer, one thread for the model, a small memory of answers, and how it is started."""

import asyncio
import json
import secrets
import signal
import socket
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from typing_extensions import TypedDict

from plogicnet.errors import InputError
from plogicnet.graph import Side
from plogicnet.model import PLogicNet
from plogicnet.version import VERSION
from plogicnet.web import shapes
from plogicnet.web.answers import Answerer, UnknownName
from plogicnet.web.connections import BoundedConnection, Limits
from plogicnet.web.gate import FAILED, Application, Gate, host_name, is_local

NAME_LENGTH = 8192
CACHE_BYTES = 32 << 20
BACKLOG = 128
EVERYWHERE = ("", "0.0.0.0", "::")  # nosec B104: they are told apart, not bound
"""Addresses to listen on that nobody can open."""
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

Name = Annotated[str, Query(max_length=NAME_LENGTH)]
MaybeName = Annotated[str | None, Query(max_length=NAME_LENGTH)]
Top = Annotated[int, Query(ge=1, le=1000)]
Few = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, le=10**9)]


class Failure(TypedDict):
    """What went wrong, in words."""

    error: str


class Busy(Exception):  # noqa: N818
    """Too many requests wait for the model already, or this one waited too long."""


@dataclass
class Desk:
    """Asks the model one question at a time, in a thread of its own, and remembers the last answers.

    One thread, since compiled kernels use all cores by themselves; the model never changes, so answers do not age.
    """

    limits: Limits
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "model"))
    remembered: OrderedDict[object, bytes] = field(default_factory=OrderedDict)
    size: int = 0
    waiting: int = 0

    async def ask(self, question: Callable[..., object], *values: object) -> bytes:
        """The JSON that a question gives for some values."""
        key = (question.__name__, values)
        if key in self.remembered:
            self.remembered.move_to_end(key)
            return self.remembered[key]
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
        self._remember(key, body)
        return body

    def _remember(self, key: object, body: bytes) -> None:
        if key not in self.remembered and len(body) <= CACHE_BYTES // 8:
            self.remembered[key] = body
            self.size += _bytes_of(key, body)
        while self.size > CACHE_BYTES:
            self.size -= _bytes_of(*self.remembered.popitem(last=False))


def _bytes_of(key: object, body: bytes) -> int:
    """What an answer takes, its question included: a long name that nobody has makes a short answer."""
    return len(body) + 4 * len(repr(key)) + 500


def _as_json(question: Callable[..., object], values: tuple[object, ...]) -> bytes:
    return json.dumps(question(*values), ensure_ascii=False, allow_nan=False).encode()


def make_app(answerer: Answerer, limits: Limits | None = None) -> FastAPI:
    """The page and the REST interface over a model.

    Example:
        >>> make_app(Answerer(PLogicNet.load("runs/family")))  # doctest: +SKIP
    """
    app = FastAPI(
        title="plogicnet",
        version=VERSION,
        summary="Which facts is a knowledge graph missing, how probable is each, and why.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # no answer is made of what a request says about its host
        responses={code: {"model": Failure} for code in (400, 401, 403, 404, 413, 421, 422, 503)},
    )
    desk = Desk(limits or Limits())
    _add_page(app)
    _add_errors(app)

    def route(path: str, shape: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return app.get(path, response_class=JsonResponse, responses={200: {"model": shape}})

    async def answer(question: Callable[..., object], *values: object) -> Response:
        return JsonResponse(await desk.ask(question, *values))

    @route("/api/info", shapes.Info)
    async def info() -> Response:
        """What is served: counts of the graph and figures on held-out triples."""
        return await answer(answerer.info)

    @route("/api/metrics", dict[str, Any])
    async def metrics() -> Response:
        """All figures of the run, as `plogicnet evaluate --json` and the run's metrics.json hold them."""
        return await answer(answerer.metrics)

    @route("/api/search", shapes.Names)
    async def search(
        q: Name = "", kind: shapes.Kind = "entity", top: Annotated[int, Query(ge=1, le=20)] = 20
    ) -> Response:
        """Entities (or relations) whose name or label is, begins with or holds a text."""
        return await answer(answerer.search, q, kind, top)

    @route("/api/entity", shapes.Entity)
    async def entity(name: Name) -> Response:
        """An entity: its label, and the relations that suit it with the number of known facts."""
        return await answer(answerer.entity, name)

    @route("/api/known", shapes.Predictions)
    async def known(
        entity: Name, relation: MaybeName = None, side: Side | None = None, top: Few = 50, offset: Offset = 0
    ) -> Response:
        """Known facts of an entity with their probabilities; side "tail" are those (entity, relation, ?)."""
        return await answer(answerer.known, entity, relation, side, top, offset)

    @route("/api/predicted", shapes.Predictions)
    async def predicted(entity: Name, relation: MaybeName = None, side: Side | None = None, top: Few = 50) -> Response:
        """The most probable missing facts of an entity, in the relations that suit it or in the one that is named."""
        return await answer(answerer.predicted, entity, relation, side, top)

    @route("/api/predict", shapes.Predictions)
    async def predict(
        head: MaybeName = None,
        relation: MaybeName = None,
        tail: MaybeName = None,
        top: Top = 10,
        include_known: bool = False,
    ) -> Response:
        """The answers to a query with one part left open: `plogicnet predict --json`."""
        return await answer(answerer.predict, head, relation, tail, top, include_known)

    @route("/api/explain", shapes.Explanation)
    async def explain(
        head: Name, relation: Name, tail: Name, premises: Annotated[int, Query(ge=0, le=1000)] = 20
    ) -> Response:
        """Why a triple is held probable or not: `plogicnet explain --json`, with so many groundings of each rule."""
        return await answer(answerer.explain, head, relation, tail, premises)

    @route("/api/rules", shapes.Rules)
    async def rules(q: Name = "", top: Top = 100, offset: Offset = 0) -> Response:
        """The learned rules, strongest first: `plogicnet rules --json`; q: all these words are in the rule's text."""
        return await answer(answerer.rules, q, top, offset)

    @route("/api/rule", shapes.RuleExamples)
    async def rule(number: Offset) -> Response:
        """One rule, with some of its groundings."""
        return await answer(answerer.rule, number)

    return app


class JsonResponse(JSONResponse):
    """A body that is JSON already."""

    def render(self, content: Any) -> bytes:
        """As it is."""
        return bytes(content)


def _add_page(app: FastAPI) -> None:
    """The page and its files, read once: no path of a request ever reaches the disk."""
    static = {item.name: item.read_bytes() for item in files("plogicnet.web").joinpath("static").iterdir()}
    page = static.pop("page.html")

    def served(name: str, body: bytes) -> Response:
        kind = TYPES[name.rpartition(".")[2]]
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return served("page.html", page)

    @app.get("/static/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in static:
            raise HTTPException(404)
        return served(name, static[name])


def _add_errors(app: FastAPI) -> None:
    """Every mistake is answered as {"error": …}."""

    def failure(status: int, why: str, **headers: str) -> Response:
        body = json.dumps({"error": why}, ensure_ascii=False).encode("utf-8", "replace")
        return Response(body, status, headers, "application/json")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return failure(422, "; ".join(f"{e['loc'][-1]}: {e['msg']}" for e in error.errors()))

    @app.exception_handler(UnknownName)
    async def unknown(_: Request, error: UnknownName) -> Response:
        return failure(404, str(error))

    @app.exception_handler(InputError)
    async def mistaken(_: Request, error: InputError) -> Response:
        return failure(422, str(error))

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> Response:
        return failure(503, str(error), **{"retry-after": "1"})

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        return failure(error.status_code, "nothing is here" if error.status_code == 404 else str(error.detail))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:  # noqa: ARG001 - the gate tells of it
        return failure(FAILED, "this request failed; the server's own output says why")


def make_server(application: Application, limits: Limits) -> uvicorn.Server:
    """A server with these limits, not started yet.

    Example:
        >>> make_server(gate, Limits()).run([bound("127.0.0.1", 0)])  # doctest: +SKIP
    """
    connection = type("Connection", (BoundedConnection,), {"limits": limits})
    config = uvicorn.Config(
        application,
        http=connection,
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
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host} --port {port}: cannot listen there: {error}") from None
    return listening


def serve(
    load: Callable[[], PLogicNet],
    host: str,
    port: int,
    token: str | None,
    allowed: list[str],
    announce: Callable[[str], None],
    limits: Limits | None = None,
) -> None:
    """Serves a model until Ctrl-C or SIGTERM; a token is made up where others can reach the server and none is given.

    Others can where it is bound to the outside, and where it has further names: something passes requests on to it.
    The port is taken before the model is loaded, so that one that is not free is told at once.

    Example:
        >>> serve(lambda: PLogicNet.load("runs/family"), "127.0.0.1", 8000, None, [], print)  # doctest: +SKIP
    """
    limits = limits or Limits()
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
            make_server(gate, limits).run([listening])
        except KeyboardInterrupt:
            pass  # the way in which a server is meant to end
        finally:
            signal.signal(signal.SIGTERM, before)
