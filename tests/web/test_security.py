"""Access control and response headers of the real command: hosts, methods, tokens, headers, paths."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from plogicnet import cli
from plogicnet.web.security import RequestGuard, RequestRefusedError, cookie_name, error_response, host_name, is_local
from web_servers import serving

TOKEN = "a-token-of-my-own-choice"


@pytest.fixture(scope="module")
def protected(served_run: Path) -> Iterator[str]:
    """A server that other machines can reach, so that it requires a token."""
    with serving("--host", "0.0.0.0", "--token", TOKEN, "--allow-host", "graphs.example", run=served_run) as (_, url):
        yield f"http://127.0.0.1:{urlsplit(url).port}"


def raw(address: str, request: bytes) -> bytes:
    """Send bytes and return everything that the server sends until it closes the connection."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize(
    "path", ["/", "/static/page.js", "/api/info", "/api/entity?name=x", "/nothing", "/openapi.json"]
)
def test_every_response_has_the_security_headers(address: str, path: str) -> None:
    headers = httpx.get(address + path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_the_page_has_no_inline_script_or_style_and_no_external_url(address: str) -> None:
    page = httpx.get(address + "/").text
    assert "<style" not in page
    assert " style=" not in page
    assert page.count("<script") == page.count('<script src="/static/')
    static = Path(sys.modules["plogicnet.web"].__path__[0]) / "static"
    for file in static.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text
        assert "eval(" not in text
        if file.name != "page.html":
            assert httpx.get(f"{address}/static/{file.name}").text == file.read_text()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", ""])
def test_other_host_names_are_refused(address: str, host: str) -> None:
    answer = httpx.get(address + "/api/info", headers={"host": host})
    assert answer.status_code in (400, 421)
    assert "error" in answer.json()


def get(address: str, path: bytes = b"/api/info", host: bytes = b"localhost", more: bytes = b"") -> bytes:
    """Send a GET request that httpx would not send, and return the response."""
    parts = urlsplit(address)
    request = b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + more + b"Connection: close\r\n\r\n"
    answer = b""
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(request)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def header_names(answer: bytes) -> set[bytes]:
    lines = answer.split(b"\r\n\r\n", 1)[0].split(b"\r\n")[1:]
    return {line.partition(b":")[0].lower() for line in lines}


MALFORMED_HOSTS = [
    *(b"localhost.", b"localhost.:80", b"127.0.0.1.", b"evil.example:80", b"evil.example."),
    *(b"localhost@evil.example", b"localhost:80@evil.example", b"evil.example@localhost", b"a:b@localhost"),
    *(b"localhost:evil.example", b"localhost:80:evil", b"evil.example:localhost", b"localhost:123456"),
    *(
        b"[::1]evil.example",
        b"[::1].evil.example",
        b"[::1",
        b"[::1]:evil",
        b"[localhost]",
        b"::1:80",
        b"[::ffff:7f00:1]",
    ),
    *(b"127.1", b"0x7f000001", b"2130706433", b"0177.0.0.1", b"0.0.0.0", b"0"),
    *(b"localhost/evil.example", b"localhost evil.example", b"localhost,evil.example", b"localhost#evil.example"),
    *(
        b"localhost?evil",
        b"localhost\\evil.example",
        b"localhost%00",
        b"localhost%2eevil.example",
        b"\xe2\x93\x9docalhost",
    ),
]


@pytest.mark.parametrize("host", MALFORMED_HOSTS, ids=ascii)
def test_malformed_host_headers_are_refused(address: str, host: bytes) -> None:
    answer = get(address, host=host)
    assert status(answer) in (400, 421)
    assert b'"entities"' not in answer


def test_a_host_in_the_request_line_is_not_accepted(address: str) -> None:
    for target in (b"http://evil.example/api/info", b"http://localhost/api/info", b"localhost:80", b"*", b"//api/info"):
        assert status(get(address, target)) == 404
    assert status(get(address, b"http://localhost/api/info", host=b"evil.example")) == 421
    for two in (b"Host: localhost\r\n", b"Host: evil.example\r\n"):
        assert status(get(address, more=two)) == 400


def test_no_redirects_and_no_header_injection(address: str) -> None:
    for path in (b"/api/info/", b"/static/page.js/", b"//evil.example/..", b"/static//"):
        answer = get(address, path)
        assert status(answer) == 404
        assert b"location" not in header_names(answer)
    expected = header_names(get(address, b"/api/entity?name=nobody"))
    for name in (
        b"%0d%0aSet-Cookie:%20a=b",
        b"%0aSet-Cookie:a=b",
        b"%e5%98%8d%e5%98%8aSet-Cookie:a=b",
        b"%00",
        b"%ed%a0%80",
    ):
        for path in (b"/api/entity?name=" + name, b"/api/search?kind=" + name, b"/static/" + name):
            answer = get(address, path)
            assert status(answer) in (404, 422)
            assert header_names(answer) <= expected, path
    for broken in (b"/api/info\rX: y", b"/api/info\x00", b"/\xff", b"/api/info X: y"):
        assert status(get(address, broken)) == 400


@pytest.mark.parametrize(
    "more",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 0\r\nContent-Length: 44\r\n",
        b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"X: y\rTransfer-Encoding: chunked\r\n",
    ],
    ids=ascii,
)
def test_request_smuggling_is_refused(address: str, more: bytes) -> None:
    """A request with an ambiguous end gets one response, and the connection is closed."""
    parts = urlsplit(address)
    hidden = b"0\r\n\r\nGET /api/rules HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n" + hidden)
        answer = b""
        while piece := connection.recv(65536):  # until the server closes the connection
            answer += piece
    assert status(answer) in (400, 413)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_http_1_0_and_pipelined_requests(address: str) -> None:
    old = raw(address, b"GET /static/page.js HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert status(old) == 200
    assert b"content-security-policy" in header_names(old)
    assert status(raw(address, b"GET /api/info HTTP/1.0\r\nHost: evil.example\r\n\r\n")) == 421
    assert status(raw(address, b"GET /api/info\r\n\r\n")) == 400
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        request = b"GET /static/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(request * 3 + request.replace(b"localhost", b"evil.example"))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert [int(a.split(b" ", 1)[0]) for a in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200, 200, 421]  # each is checked


def test_upgrade_requests_are_refused(address: str) -> None:
    for more in (
        b"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n",
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nSec-Fetch-Site: cross-site\r\n",
    ):
        answer = get(address, more=more + b"Connection: Upgrade\r\n")
        assert status(answer) == 403
        assert b"upgrade" not in header_names(answer)


def test_many_headers_and_many_parameters(address: str) -> None:
    for count in (1_000, 10_000):
        assert status(get(address, more=b"".join(b"X-%d: y\r\n" % i for i in range(count)))) in (200, 400)
    assert status(get(address, b"/api/search?" + b"q&" * 90_000)) == 200
    assert status(get(address, b"/api/search?" + b"x=&" * 60_000)) == 200
    assert status(get(address, b"/api/search?top=1&" + b"top=x&" * 30_000)) == 422
    with suppress(ConnectionError):  # the server closes the connection early
        assert status(get(address, b"/api/search?" + b"q=a&" * 1_000_000)) == 400  # longer than the limit of a head
    assert httpx.get(address + "/api/info").status_code == 200


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://localhost.evil.example", "file://"])
def test_other_origins_get_no_cors_headers(address: str, origin: str) -> None:
    headers = {
        "origin": origin,
        "access-control-request-method": "GET",
        "access-control-request-private-network": "true",
    }
    for answer in (
        httpx.options(address + "/api/info", headers=headers),
        httpx.get(address + "/api/info", headers=headers),
        httpx.get(address + "/static/page.js", headers=headers),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
    assert httpx.options(address + "/api/info", headers=headers).status_code == 405


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:8000"])
def test_local_host_names_are_accepted(address: str, host: str) -> None:
    assert httpx.get(address + "/api/info", headers={"host": host}).status_code == 200


def test_forged_and_malformed_headers_are_refused(address: str) -> None:
    forwarded = {"host": "evil.example", "x-forwarded-host": "localhost", "x-forwarded-for": "127.0.0.1"}
    assert httpx.get(address + "/api/info", headers=forwarded).status_code == 421
    assert raw(address, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert b" 400 " in raw(address, b"GET / HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    two = raw(address, b"GET /api/info HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert two.startswith(b"HTTP/1.1 400")
    absolute = raw(
        address, b"GET http://evil.example/api/info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert absolute.startswith(b"HTTP/1.1 404")
    smuggled = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert raw(address, smuggled + b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n").count(b"HTTP/1.1 200") == 0
    assert raw(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").startswith(b"HTTP/1.1 400")
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert b"101 Switching" not in raw(address, upgrade)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_only_get_and_head_are_allowed(address: str, method: str) -> None:
    answer = httpx.request(method, address + "/api/info", headers={"origin": "http://evil.example"})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert "access-control-allow-origin" not in answer.headers
    assert "read-only" in answer.json()["error"]


def test_head_is_get_without_a_body(address: str) -> None:
    got, head = httpx.get(address + "/api/info"), httpx.head(address + "/api/info")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == str(len(got.content))


def test_cross_site_requests_are_refused(address: str) -> None:
    for site in ("cross-site", "same-site"):
        assert httpx.get(address + "/api/info", headers={"sec-fetch-site": site}).status_code == 403
        assert httpx.get(address + "/api/info", headers={"sec-fetch-site": site.title()}).status_code == 403
    for two in (
        b"Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n",
        b"sec-fetch-site: cross-site\r\nsec-fetch-site: none\r\n",
    ):
        assert status(get(address, more=two)) == 403
    assert httpx.get(address + "/api/info", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    answer = httpx.get(address + "/api/info", headers={"origin": "http://evil.example"})
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/....//server.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/page.html%00.js",
        "/static/..\\server.py",
        "/../../etc/passwd",
        "/static/%5c..%5cserver.py",
        "/static/%c0%ae%c0%ae%c0%afserver.py",
        "/static/%e0%80%af%e0%80%aeserver.py",
        "/static/%252e%252e%252fserver.py",
        "/static/..;/server.py",
        "/static/%ff",
        "/static/%00",
        "/static/%zz",
        "/static/page.js%20",
        "/static/page.js.",
        "/static/PAGE.JS",
        "/static/page.html",
        "/api/..%2fserver.py",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/",
        "/static",
    ],
)
def test_path_traversal_is_refused(address: str, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    answer = raw(address, request)
    assert answer.split(b"\r\n")[0].split()[1] in (b"404", b"400")
    assert b"root:" not in answer
    assert b"import" not in answer


def test_a_reachable_server_requires_a_token(protected: str) -> None:
    for path in ("/", "/api/info", "/openapi.json", "/static/page.js", "/nothing"):
        answer = httpx.get(protected + path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    cookie = cookie_name(urlsplit(protected).port or 0)
    for wrong in ("", "wrong", TOKEN[:-1], TOKEN + "x", "é" * 20, "Bearer " + TOKEN):
        header = {b"authorization": f"Bearer {wrong}".strip().encode()}
        assert httpx.get(protected + "/api/info", headers=header).status_code == 401
        assert httpx.get(protected + "/", params={"token": wrong}).status_code == 401
        assert httpx.get(protected + "/api/info", headers={b"cookie": f"{cookie}={wrong}".encode()}).status_code == 401
    assert httpx.get(protected + "/api/info", headers={"authorization": f"Basic {TOKEN}"}).status_code == 401
    # a token in a URL is accepted only for the page, so that it is not in URLs that people copy
    assert httpx.get(protected + "/api/info", params={"token": TOKEN}).status_code == 401


def test_tokens_are_compared_in_constant_time_and_empty_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[object, object]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr("plogicnet.web.security.hmac.compare_digest", compare)

    def accepted(token: str, **headers: bytes) -> bool:
        pairs = [(b"host", b"localhost"), *((k.encode(), v) for k, v in headers.items())]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"token=", "headers": pairs}
        try:
            RequestGuard(error_response(404, "not found"), "localhost", token)._check(
                scope | {"server": ("localhost", 80)}
            )
        except RequestRefusedError as refusal:
            return refusal.status != 401
        return True

    secret = "sécret-tökén-ünïcode"
    assert not accepted("", authorization=b"Bearer ")
    assert not accepted(secret, authorization=b"Bearer s")
    assert accepted("plain-token-of-mine", authorization=b"Bearer plain-token-of-mine")
    assert not accepted(secret, authorization=b"Bearer \xff\xfe", cookie=b"plogicnet_token_80=\xed\xa0\x80")
    assert (b"s", secret.encode()) in compared
    assert all(isinstance(part, bytes) for pair in compared for part in pair)


def test_a_token_is_accepted_in_a_header_a_url_or_a_cookie(protected: str) -> None:
    assert httpx.get(protected + "/api/info", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    with httpx.Client(base_url=protected) as browser:
        page = browser.get("/", params={"token": TOKEN})
        assert page.status_code == 200
        attributes = {part.strip() for part in page.headers["set-cookie"].split(";")}
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= attributes
        assert browser.get("/api/info").status_code == 200
        assert browser.get("/").headers.get("set-cookie") is None


def test_cookies_of_other_servers_are_ignored(protected: str) -> None:
    port = urlsplit(protected).port or 0
    cookie = f"{cookie_name(port)}={TOKEN}"
    for header, status in (
        (f"{{odd}}=[1]; @; a b=c; {cookie}; =", 200),
        (f'prefs="{{"x":1}}"; {cookie}', 200),
        (f"{cookie_name(port + 1)}=another-servers-token; {cookie}", 200),
        (f"{cookie_name(port + 1)}={TOKEN}", 401),
        (f"x{cookie}", 401),
    ):
        assert httpx.get(protected + "/api/info", headers={"cookie": header}).status_code == status, header
    assert httpx.get(protected + "/api/info", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200


def test_a_token_in_a_url_with_many_fields_is_refused(protected: str) -> None:
    assert httpx.get(protected + "/?" + "a=1&" * 50 + f"token={TOKEN}").status_code == 401


def test_a_browser_without_a_token_gets_instructions(protected: str) -> None:
    answer = httpx.get(protected + "/", headers={"accept": "text/html,application/xhtml+xml"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "Open the address that the server printed" in answer.text
    evil = httpx.get(protected + "/", headers={"accept": "text/html", "host": "<script>alert(1)</script>"})
    assert evil.status_code == 421
    assert "<script" not in evil.text


def test_a_reachable_server_accepts_ip_addresses_and_allowed_names(protected: str) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    for host, status in (("192.0.2.7:80", 200), ("graphs.example", 200), ("evil.example", 421), ("[2001:db8::1]", 200)):
        assert httpx.get(protected + "/api/info", headers=bearer | {"host": host}).status_code == status


def test_a_reachable_server_creates_a_token_and_sigterm_stops_it(served_run: Path) -> None:
    with serving("--host", "0.0.0.0", run=served_run) as (child, url):
        here = f"http://127.0.0.1:{urlsplit(url).port}/api/info"
        token = urlsplit(url).query.removeprefix("token=")
        assert urlsplit(url).hostname == socket.gethostname().lower()  # 0.0.0.0 is not valid in a URL
        assert len(token) >= 32
        assert httpx.get(here).status_code == 401
        assert httpx.get(here, headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert_stops(child, signal.SIGTERM)


def test_a_server_behind_a_proxy_creates_a_token(served_run: Path) -> None:
    with serving("--allow-host", "Graphs.example:8443", run=served_run) as (_, url):
        token = urlsplit(url).query.removeprefix("token=")
        assert len(token) >= 32
        here = f"http://127.0.0.1:{urlsplit(url).port}/api/info"
        for host in ("graphs.example", "graphs.example:8443", "localhost"):
            assert httpx.get(here, headers={"host": host}).status_code == 401
            bearer = {"authorization": f"Bearer {token}", "host": host}
            assert httpx.get(here, headers=bearer).status_code == 200


def test_ctrl_c_stops_the_server_cleanly(served_run: Path) -> None:
    with serving(run=served_run) as (child, url), httpx.Client() as client:
        assert client.get(url + "api/info").status_code == 200  # the connection stays open
        assert_stops(child, signal.SIGINT)


def assert_stops(child: subprocess.Popen[str], number: signal.Signals) -> None:
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0
    assert out == ""
    assert "Traceback" not in err
    assert err.strip().endswith("plogicnet: stopped")


def test_the_command_reports_invalid_options(
    served_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*options: object) -> str:
        monkeypatch.setattr(sys, "argv", ["plogicnet", "serve", *map(str, options)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        assert (exit_.value.code, out) == (2, "")
        return err

    assert "cannot listen on 192.0.2.1" in refused(served_run, "--host", "192.0.2.1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen on 127.0.0.1" in refused(served_run, "--port", taken.getsockname()[1])
    assert "--allow-host" in refused(served_run, "--allow-host", "http://graphs.example/")
    assert "--token" in refused(served_run, "--token", "short")
    assert str(tmp_path / "none") in refused(tmp_path / "none", "--port", 0)


def test_a_missing_extra_is_reported(served_run: Path, tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')\n")
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "plogicnet", "serve", str(served_run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert done.returncode == 2
    assert "pip install 'plogicnet[web]'" in done.stderr


def test_help_loads_neither_torch_nor_fastapi() -> None:
    code = (
        "import sys\nfrom plogicnet import cli\nsys.argv = ['plogicnet', 'serve', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "assert not {'torch', 'fastapi', 'uvicorn', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_host_headers_are_parsed_strictly() -> None:
    assert [host_name(h) for h in ("A:1", "[::1]", "::1", "[::1]:2", "a.b")] == ["a", "::1", "::1", "::1", "a.b"]
    assert {host_name(h) for h in ("", "a:b", "a:1@b", "[::1", "[::1]b", "a b", "a,b", "[a]")} == {""}
    assert [is_local(h) for h in ("127.0.0.2", "::1", "localhost", "0.0.0.0", "::", "example.org")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip

    guard = RequestGuard(error_response(404, "not found"), "graphs.local")
    assert guard.allows_host("graphs.local:80")
    assert not guard.allows_host("graphs.local.evil.example")
