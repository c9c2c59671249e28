"""Connections that are bounded in number and in time: slow and idle clients make room for others.

uvicorn itself bounds a request's head (`h11_max_incomplete_event_size`) and closes connections that stay idle after an
answer (`timeout_keep_alive`). Three things it cannot do are done here: it never closes a connection that sends its
head slowly or not at all, nor one that does not read its answer; and its `limit_concurrency` refuses new clients, so
that a few hundred idle connections would lock everyone out, where the one that has waited longest is closed instead.
Only the callbacks of `asyncio.Protocol` and the application's call are used for that.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class Limits:
    """The limits of one client, and of all together.

    Attributes:
        connections: how many may be open; when another comes, the one that has waited longest is closed.
        head_bytes: a request's address and headers; two names of 5,000 characters, escaped, fit in.
        head_seconds: how long a connection may take for a request's head, or be idle.
        answer_seconds: how long an answer may take until the client has all of it.
        waiting: how many requests may wait for the model; further ones are answered with 503.
    """

    connections: int = 256
    head_bytes: int = 192 * 1024
    head_seconds: float = 15.0
    answer_seconds: float = 60.0
    waiting: int = 64


@dataclass
class Connection:
    """An open connection: how many requests of it are being answered, since when, and its deadline."""

    transport: asyncio.Transport
    limits: Limits
    answering: int = 0
    since: float = 0.0
    deadline: asyncio.TimerHandle | None = None

    def expect(self, requests: int = 0) -> None:
        """Counts the requests that begin, or end, and sets the deadline of the next step."""
        self.cancel()
        loop = asyncio.get_running_loop()
        self.answering, self.since = self.answering + requests, loop.time()
        seconds = self.limits.answer_seconds if self.answering else self.limits.head_seconds
        if not self.transport.is_closing():
            self.deadline = loop.call_later(seconds, self.transport.abort)

    def cancel(self) -> None:
        """Ends the deadline."""
        if self.deadline is not None:
            self.deadline.cancel()


@dataclass(frozen=True)
class Connections:
    """The open connections of a server, by the addresses of their clients; an application around another one."""

    application: ASGIApp
    limits: Limits
    opened: dict[Any, Connection] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request within its time."""
        connection = self.opened.get(scope["client"])
        if connection is None:  # it was closed meanwhile
            return
        connection.expect(1)
        try:
            await self.application(scope, receive, send)
        finally:
            connection.expect(-1)

    def open(self, client: object, transport: asyncio.Transport) -> None:
        """Adds a connection; if there are too many, it closes the one that has been idle longest."""
        others = [c for c in self.opened.values() if not c.transport.is_closing()]
        if len(others) >= self.limits.connections:
            min(others, key=lambda c: (c.answering > 0, c.since)).transport.abort()
        self.opened[client] = Connection(transport, self.limits)
        self.opened[client].expect()

    def close(self, client: object, transport: asyncio.Transport) -> None:
        """Forgets a connection."""
        if client in self.opened and self.opened[client].transport is transport:
            self.opened.pop(client).cancel()

    def protocol(self) -> type[asyncio.Protocol]:
        """The HTTP protocol of uvicorn, which reports here when a connection opens and closes."""
        connections = self

        class Reporting(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self.opened = tuple(transport.get_extra_info("peername") or ())[:2], transport
                connections.open(*self.opened)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                connections.close(*self.opened)

            def data_received(self, data: bytes) -> None:
                try:
                    super().data_received(data)
                except h11.LocalProtocolError:  # the client broke the protocol in the middle of an answer
                    self.opened[1].abort()

            def send_400_response(self, msg: str) -> None:
                body = json.dumps({"error": msg}).encode()
                headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
                headers.append(("connection", "close"))
                for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
                self.transport.close()

        return Reporting
