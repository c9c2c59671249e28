"""Connections that take no longer and are no more than they may: slow and idle clients make room for others."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class Limits:
    """What one client, and all together, may take.

    Attributes:
        connections: so many are open at most; when another comes, the one that has waited longest is closed.
        head_bytes: a request's address and headers; two names of 5,000 characters, escaped, fit in.
        head_seconds: how long a connection may take for a request's head, or be idle.
        answer_seconds: how long an answer may take until the client has all of it.
        waiting: so many requests wait for the model at most; further ones are answered with 503.
    """

    connections: int = 256
    head_bytes: int = 192 * 1024
    head_seconds: float = 15.0
    answer_seconds: float = 60.0
    waiting: int = 64


class BoundedConnection(H11Protocol):
    """One HTTP connection with a deadline for each of its two states: waiting for a request, and answering one."""

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deadline: asyncio.TimerHandle | None = None
        self.since = 0.0

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Makes room, if there is none, by closing the connection that has been idle longest."""
        connections = cast("set[BoundedConnection]", self.connections)
        others = [c for c in connections if not c.transport.is_closing()]
        if len(others) >= self.limits.connections:
            min(others, key=lambda c: (c.is_answering, c.since)).transport.abort()
        super().connection_made(transport)
        self._expect(self.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self.deadline is not None:
            self.deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """Takes what came; a connection that breaks the protocol in the middle of an answer is closed."""
        was_answering = self.is_answering
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            self.transport.abort()
        if self.is_answering and not was_answering:
            self._expect(self.limits.answer_seconds)

    def on_response_complete(self) -> None:
        """The next request is waited for, unless it is there already."""
        super().on_response_complete()
        self._expect(self.limits.answer_seconds if self.is_answering else self.limits.head_seconds)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or too long, is answered as every mistake is."""
        body = json.dumps({"error": msg}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect(self, seconds: float) -> None:
        """Gives the connection so long for its next step."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.since = self.loop.time()
        self.deadline = self.loop.call_later(seconds, self.transport.abort)
