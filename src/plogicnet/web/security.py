"""Middleware that checks every request (host, method, origin, token) and adds the security headers."""

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

HOST_PATTERN = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:@/\\?#\[\],]+))(?::[0-9]{0,5})?")
"""A host name or IP address with an optional port. Everything else is refused, since parsers can disagree about it."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
ERROR_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>plogicnet</title><h1>plogicnet</h1><p>{}.</p></html>'
)
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, BAD_METHOD, TOO_LARGE, MISDIRECTED, FAILED = 400, 401, 403, 405, 413, 421, 500
FAILED_MESSAGE = "the request failed. See the output of the server for the reason"


class RequestRefusedError(Exception):
    """Raised to refuse a request, with the status and the headers of the response."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


def host_name(header: str) -> str:
    """Return the host of a Host header without its port, or "" if the header is invalid.

    Example:
        >>> host_name("Localhost:8000"), host_name("[::1]:8000"), host_name("localhost:80@evil.example")
        ('localhost', '::1', '')
    """
    host = header.strip(" \t").lower()
    match = HOST_PATTERN.fullmatch(host)
    if match is not None and match[2]:
        return match[2]
    address = host if match is None else match[1]
    return address if ":" in address and is_ip_address(address) else ""


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address.

    Example:
        >>> is_ip_address("::1"), is_ip_address("localhost")
        (True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on a host.

    Example:
        >>> is_local("127.0.0.1"), is_local("0.0.0.0"), is_local("localhost")
        (True, False, True)
    """
    return ipaddress.ip_address(host).is_loopback if is_ip_address(host) else host.lower() == "localhost"


@dataclass(frozen=True)
class RequestGuard:
    """Middleware that refuses unsafe requests, adds the security headers and hides tracebacks.

    Attributes:
        host: the host on which the server listens.
        token: the token that requests must contain; None if no token is required.
        allowed_hosts: further host names that are allowed in the Host header.

    Example:
        >>> guard = RequestGuard(error_response(404, "not found"), "127.0.0.1")
        >>> guard.allows_host("localhost:8000"), guard.allows_host("evil.example")
        (True, False)
    """

    application: ASGIApp
    host: str
    token: str | None = None
    allowed_hosts: frozenset[str] = frozenset()

    def allows_host(self, header: str) -> bool:
        """Return whether a Host header names this server. This prevents DNS rebinding.

        A server that other machines can reach also accepts IP addresses, since these cannot be rebound.
        """
        name = host_name(header)
        is_known = name in LOCAL_NAMES or name == self.host.lower() or name in self.allowed_hosts
        return bool(name) and (is_known or (is_ip_address(name) and not is_local(self.host)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
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
            # uvicorn omits the body of the response to HEAD
            await self.application({**scope, "method": "GET"}, receive, send_guarded)
        except RequestRefusedError as refusal:
            as_html = any(k == b"accept" and b"text/html" in v for k, v in scope["headers"])
            response = error_response(refusal.status, str(refusal), {"connection": "close"} | refusal.headers, as_html)
            await response(scope, receive, send_guarded)
        except Exception as error:
            print(
                f"plogicnet: request {scope['path'][:200]!r} failed: {type(error).__name__}: {error}", file=sys.stderr
            )
            if os.environ.get("PLOGICNET_DEBUG"):
                traceback.print_exception(error)
            if not started:
                await error_response(FAILED, FAILED_MESSAGE)(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> dict[str, str]:
        """Raise RequestRefusedError for an unsafe request. Return the headers to add to the response."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if "host" not in headers:
            raise RequestRefusedError(BAD_REQUEST, "the request has no Host header")
        if not self.allows_host(headers["host"]):
            raise RequestRefusedError(
                MISDIRECTED,
                f"this server does not answer to the host name {headers['host'][:100]!r}."
                " Start it with --allow-host NAME to allow another name",
            )
        if scope["method"] not in ("GET", "HEAD"):
            raise RequestRefusedError(
                BAD_METHOD, "this server is read-only: only GET and HEAD are allowed", {"allow": "GET, HEAD"}
            )
        if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
            raise RequestRefusedError(TOO_LARGE, "requests with a body are not allowed. Send the parameters in the URL")
        sites = {value.strip().lower() for name, value in scope["headers"] if name == b"sec-fetch-site"}
        if scope["path"].startswith("/api/") and sites & {b"cross-site", b"same-site"}:
            raise RequestRefusedError(FORBIDDEN, "requests from other web sites are not allowed")
        return self._check_token(scope, headers)

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> dict[str, str]:
        """Raise RequestRefusedError if the token is missing or wrong. Return the headers to add to the response.

        If the token is in the URL, a header sets the token's cookie.
        """
        if self.token is None:
            return {}
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        name = cookie_name(scope["server"][1])
        tokens = [bearer.strip()] if scheme.lower() == "bearer" else []
        cookies = (part.partition("=") for part in headers.get("cookie", "").split(";"))
        tokens += [value.strip() for key, _, value in cookies if key.strip() == name]
        if any(self._is_token(token) for token in tokens):
            return {}
        if scope["path"] == "/" and self._is_token(_query_token(scope["query_string"].decode("latin-1"))):
            return {"set-cookie": f"{name}={self.token}; HttpOnly; SameSite=Strict; Path=/"}
        raise RequestRefusedError(
            UNAUTHORIZED,
            "a token is required. Open the address that the server printed, which ends in ?token=TOKEN."
            " Programs send the header Authorization: Bearer TOKEN",
            {"www-authenticate": "Bearer"},
        )

    def _is_token(self, text: str) -> bool:
        # in constant time, so that the duration reveals nothing about the token
        return bool(self.token) and hmac.compare_digest(text.encode(), (self.token or "").encode())


def cookie_name(port: int) -> str:
    """Return the name of the token's cookie. It contains the port, since browsers send cookies to all ports of a host.

    Example:
        >>> cookie_name(8000)
        'plogicnet_token_8000'
    """
    return f"plogicnet_token_{port}"


def _query_token(query: str) -> str:
    """Return the token in the query of a URL, or "".

    Example:
        >>> _query_token("token=abc"), _query_token("a&" * 1000)
        ('abc', '')
    """
    try:
        return parse_qs(query, max_num_fields=10).get("token", [""])[0]
    except ValueError:  # too many fields
        return ""


def error_response(status: int, message: str, headers: dict[str, str] | None = None, as_html: bool = False) -> Response:
    """Return an error response: JSON, or an HTML page for a browser."""
    media_type, body = "application/json", json.dumps({"error": message}, ensure_ascii=False)
    if as_html:
        media_type, body = "text/html", ERROR_PAGE.format(html.escape(message[:1].upper() + message[1:]))
    return Response(body.encode("utf-8", "replace"), status, headers, media_type)
