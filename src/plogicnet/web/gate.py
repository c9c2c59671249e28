"""The gate before every answer: who may ask, from which page, by which method; and the headers of every answer."""

import hmac
import html
import ipaddress
import json
import os
import re
import sys
import traceback
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:@/\\?#\[\],]+))(?::[0-9]{0,5})?")
"""A name or an address, and perhaps a port: nothing else, or what we read and what others read might differ."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>plogicnet</title><h1>plogicnet</h1><p>{}.</p></html>'
)
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NO_SUCH_METHOD, TOO_LARGE, MISDIRECTED, FAILED = 400, 401, 403, 405, 413, 421, 500
FAILED_WHY = "this request failed; the server's own output says why"


class Refused(Exception):  # noqa: N818
    """A request that is not passed on, with its status and why."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.headers = status, headers or {}


def host_name(header: str) -> str:
    """The host of a Host header, without its port; nothing where the header is none.

    Example:
        >>> host_name("Localhost:8000"), host_name("[::1]:8000"), host_name("localhost:80@evil.example")
        ('localhost', '::1', '')
    """
    host = header.strip(" \t").lower()
    found = HOST.fullmatch(host)
    if found is not None and found[2]:
        return found[2]
    address = host if found is None else found[1]
    return address if ":" in address and is_address(address) else ""


def is_address(host: str) -> bool:
    """Whether a host is an address, not a name.

    Example:
        >>> is_address("::1"), is_address("localhost")
        (True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to a host.

    Example:
        >>> is_local("127.0.0.1"), is_local("0.0.0.0"), is_local("localhost")
        (True, False, True)
    """
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host.lower() == "localhost"


@dataclass(frozen=True)
class Gate:
    """Lets read-only requests for this server through, adds the security headers, and never shows a traceback.

    Attributes:
        host: what the server is bound to.
        token: what a request must show, where one is asked for.
        allowed: further names under which the server may be reached.

    Example:
        >>> gate = Gate(failure(404, "nothing is here"), "127.0.0.1")
        >>> gate.admits("localhost:8000"), gate.admits("evil.example")
        (True, False)
    """

    application: ASGIApp
    host: str
    token: str | None = None
    allowed: frozenset[str] = frozenset()

    def admits(self, host: str) -> bool:
        """Whether a Host header names this server, so that no other site's name can be pointed at it (rebinding).

        A server that is bound to the outside is reached by its addresses too; no name can be rebound to those.
        """
        name = host_name(host)
        known = name in LOCAL or name == self.host.lower() or name in self.allowed
        return bool(name) and (known or (is_address(name) and not is_local(self.host)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in (HEADERS | cookie).items():
                    headers.setdefault(name, value)
            await send(message)

        cookie: dict[str, str] = {}
        try:
            cookie = self._check(scope)
            # HEAD is GET whose body the server leaves out
            await self.application({**scope, "method": "GET"}, receive, send_guarded)
        except Refused as why:
            shown = any(k == b"accept" and b"text/html" in v for k, v in scope["headers"])
            answer = failure(why.status, str(why), {"connection": "close"} | why.headers, shown)
            await answer(scope, receive, send_guarded)
        except Exception as error:
            print(f"plogicnet: {scope['path'][:200]!r} failed: {type(error).__name__}: {error}", file=sys.stderr)
            if os.environ.get("PLOGICNET_DEBUG"):
                traceback.print_exception(error)
            if not started:
                await failure(FAILED, FAILED_WHY)(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> dict[str, str]:
        """Refuses what may not pass; gives back the cookie to be set, where a token came with the page's address."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if "host" not in headers:
            raise Refused(BAD_REQUEST, "the request names no host")
        if not self.admits(headers["host"]):
            raise Refused(
                MISDIRECTED, f"this server is not {headers['host'][:100]!r}; --allow-host NAME gives it further names"
            )
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(NO_SUCH_METHOD, "this server is read-only: GET and HEAD alone", {"allow": "GET, HEAD"})
        if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
            raise Refused(TOO_LARGE, "a request has no body here")
        sites = {value.strip().lower() for name, value in scope["headers"] if name == b"sec-fetch-site"}
        if scope["path"].startswith("/api/") and sites & {b"cross-site", b"same-site"}:
            raise Refused(FORBIDDEN, "another site's page may not ask here")
        return self._admitted(scope, headers)

    def _admitted(self, scope: Scope, headers: dict[str, str]) -> dict[str, str]:
        if self.token is None:
            return {}
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        name = cookie_name(scope["server"][1])
        shown = [bearer.strip()] if scheme.lower() == "bearer" else []
        cookies = (part.partition("=") for part in headers.get("cookie", "").split(";"))
        shown += [value.strip() for key, _, value in cookies if key.strip() == name]
        if any(self._is_token(given) for given in shown):
            return {}
        if scope["path"] == "/" and self._is_token(_asked_token(scope["query_string"].decode("latin-1"))):
            return {"set-cookie": f"{name}={self.token}; HttpOnly; SameSite=Strict; Path=/"}
        raise Refused(
            UNAUTHORIZED,
            "a token is needed: open the address that the server printed at its start, which ends in ?token=TOKEN;"
            " programs send the header Authorization: Bearer TOKEN",
            {"www-authenticate": "Bearer"},
        )

    def _is_token(self, given: str) -> bool:
        # in a time that does not tell how much of it is right
        return bool(self.token) and hmac.compare_digest(given.encode(), (self.token or "").encode())


def cookie_name(port: int) -> str:
    """The name of the cookie that holds the token: browsers give a machine's cookies to the servers of all its ports.

    Example:
        >>> cookie_name(8000)
        'plogicnet_token_8000'
    """
    return f"plogicnet_token_{port}"


def _asked_token(query: str) -> str:
    """The token in an address, if there is one.

    Example:
        >>> _asked_token("token=abc"), _asked_token("a&" * 1000)
        ('abc', '')
    """
    try:
        return parse_qs(query, max_num_fields=10).get("token", [""])[0]
    except ValueError:  # too many fields
        return ""


def failure(status: int, why: str, headers: dict[str, str] | None = None, shown: bool = False) -> Response:
    """An error in words: as JSON, or where a browser shows it, as a page."""
    kind, body = "application/json", json.dumps({"error": why}, ensure_ascii=False)
    if shown:
        kind, body = "text/html", PAGE.format(html.escape(why[:1].upper() + why[1:]))
    return Response(body.encode("utf-8", "replace"), status, headers, kind)
