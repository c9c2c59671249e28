"""Limits on the number and the duration of connections, so that slow or idle clients cannot block others.

uvicorn limits the size of a request's head, which is its URL and headers (`h11_max_incomplete_event_size`). It closes
connections that stay idle after a response (`timeout_keep_alive`). But it never closes a connection whose client sends
the head slowly or not at all, or does not read the response. With uvicorn's `limit_concurrency`, a few hundred idle
connections would block all new clients. So this module adds deadlines. If there are
too many connections, it closes the longest idle one, or the least recently active one if none is idle.
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
    """The limits per client and for all clients.

    Attributes:
        max_connections: maximum number of open connections; a further one closes another connection.
        head_bytes: maximum size of a request's URL and headers; two escaped names of 5,000 characters fit.
        head_seconds: maximum time to send a request's head, and maximum time that a connection can be idle.
        response_seconds: maximum time until the client has received the whole response.
        max_waiting: maximum number of requests that wait for the model; further ones get status 503.
    """

    max_connections: int = 256
    head_bytes: int = 192 * 1024
    head_seconds: float = 15.0
    response_seconds: float = 60.0
    max_waiting: int = 64


@dataclass
class Connection:
    """An open connection: its number of active requests, the time when that number changed, and its deadline."""

    transport: asyncio.Transport
    limits: Limits
    n_active: int = 0
    changed_at: float = 0.0
    deadline: asyncio.TimerHandle | None = None

    def update_active(self, change: int = 0) -> None:
        """Add `change` to the number of active requests, and set a new deadline."""
        self.cancel_deadline()
        loop = asyncio.get_running_loop()
        self.n_active, self.changed_at = self.n_active + change, loop.time()
        seconds = self.limits.response_seconds if self.n_active else self.limits.head_seconds
        if not self.transport.is_closing():
            self.deadline = loop.call_later(seconds, self.transport.abort)

    def cancel_deadline(self) -> None:
        """Cancel the deadline."""
        if self.deadline is not None:
            self.deadline.cancel()


@dataclass(frozen=True)
class Connections:
    """The open connections of a server by client address, and the middleware that limits them."""

    application: ASGIApp
    limits: Limits
    by_client: dict[Any, Connection] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request within its deadline."""
        connection = self.by_client.get(scope["client"])
        if connection is None:  # the connection was closed
            return
        connection.update_active(1)
        try:
            await self.application(scope, receive, send)
        finally:
            connection.update_active(-1)

    def open(self, client: object, transport: asyncio.Transport) -> None:
        """Add a connection. If there are too many, close the longest idle or the least recently active one."""
        others = [c for c in self.by_client.values() if not c.transport.is_closing()]
        if len(others) >= self.limits.max_connections:
            min(others, key=lambda c: (c.n_active > 0, c.changed_at)).transport.abort()
        self.by_client[client] = Connection(transport, self.limits)
        self.by_client[client].update_active()

    def close(self, client: object, transport: asyncio.Transport) -> None:
        """Remove a connection."""
        if client in self.by_client and self.by_client[client].transport is transport:
            self.by_client.pop(client).cancel_deadline()

    def protocol(self) -> type[asyncio.Protocol]:
        """Return a subclass of uvicorn's HTTP protocol that tracks opened and closed connections."""
        connections = self

        class TrackedProtocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self.tracked = tuple(transport.get_extra_info("peername") or ())[:2], transport
                connections.open(*self.tracked)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                connections.close(*self.tracked)

            def data_received(self, data: bytes) -> None:
                try:
                    super().data_received(data)
                except h11.LocalProtocolError:  # the client violated the protocol during a response
                    self.tracked[1].abort()

            def send_400_response(self, msg: str) -> None:
                body = json.dumps({"error": msg}).encode()
                headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
                headers.append(("connection", "close"))
                for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
                self.transport.close()

        return TrackedProtocol
