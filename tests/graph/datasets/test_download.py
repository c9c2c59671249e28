"""Downloads from a local server: stored files, rejected content and addresses, and error messages."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plogicnet.graph import SPLITS
from plogicnet.graph.datasets import download
from plogicnet.graph.datasets.download import fetch
from plogicnet.graph.datasets.registry import DataSet
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance

pytest.importorskip("pooch")
LINES = 20_000  # several chunks


def content(split: str) -> bytes:
    return "".join(f"{split}{i}\tr{i % 7}\te{i * 7919 % LINES}\n" for i in range(LINES)).encode()


PAGES = {f"/{split}.txt": content(split) for split in SPLITS}
TRAIN = PAGES["/train.txt"]
HALF = len(TRAIN) // 2


@dataclass
class Site:
    """The behaviour of the server, and the requested paths."""

    pages: dict[str, bytes] = field(default_factory=lambda: dict(PAGES))
    status: int | None = None
    redirect: str | None = None
    cut: int | None = None
    hang: bool = False
    root: str = ""
    requested: list[str] = field(default_factory=list)
    resume: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requested.append(request.path)
        if self.status is not None:
            request.send_error(self.status)
            return
        if self.redirect is not None and request.path in self.pages:
            request.send_response(302)
            request.send_header("Location", self.redirect + request.path)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        page = self.pages[request.path.removeprefix("/moved")]
        request.send_response(200)
        request.send_header("Content-Length", str(len(page)))
        request.end_headers()
        request.wfile.write(page[: self.cut])
        request.wfile.flush()
        if self.hang:
            self.resume.wait(10)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.root = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.resume.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tiny(site: Site) -> DataSet:
    sums = {split: hashlib.sha256(PAGES[f"/{split}.txt"]).hexdigest() for split in SPLITS}
    addresses = {split: f"{site.root}/{split}.txt" for split in SPLITS}
    counts = (LINES, 7, LINES, LINES, LINES)
    return DataSet("tiny", "Tiny", *counts, sums, "none", "nobody", "https://example.org/tiny", addresses)


def is_complete(folder: Path) -> bool:
    """Return whether all three files are complete; there must be no other file except the lock."""
    assert {file.name for file in folder.iterdir()} - {".lock"} == {"train.txt", "valid.txt", "test.txt"}
    return all((folder / path[1:]).read_bytes() == page for path, page in PAGES.items())


def download_error(tiny: DataSet, directory: Path, match: str) -> str:
    """Return the message of a download that must fail at train and leave no file."""
    with pytest.raises(InputError, match=match) as caught:
        fetch(tiny, directory)
    assert {file.name for file in (directory / "tiny").iterdir()} <= {".lock"}
    return str(caught.value)


def test_fetch_downloads_once_and_reports_progress(
    site: Site, tiny: DataSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    steps: dict[str, tuple[int, int]] = {}

    @contextmanager
    def counting(step: str, total: int) -> Iterator[Advance]:
        done = 0

        def advance(units: int = 1, note: str = "") -> None:  # noqa: ARG001
            nonlocal done
            done += units

        yield advance
        steps[step] = (done, total)

    cache = tmp_path / "new" / "cache"
    assert fetch(tiny, cache, counting) == cache / "tiny"
    assert is_complete(cache / "tiny")
    readable = 0o666 & ~os.umask(os.umask(0o022))
    assert (cache / "tiny" / "train.txt").stat().st_mode & 0o777 == readable
    assert steps == {f"tiny{path}, bytes": (len(page), len(page)) for path, page in PAGES.items()}
    fetch(tiny, cache)
    assert site.requested == list(PAGES)
    assert capfd.readouterr() == ("", "")  # only the progress is displayed


def test_only_incomplete_files_are_downloaded_again(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.cut = HALF
    message = download_error(tiny, tmp_path, rf"train\.txt: .*{HALF} bytes read")
    assert "Run the command again, or copy train.txt, valid.txt and test.txt into $PLOGICNET_DATA/tiny" in message
    site.cut, site.pages["/test.txt"] = None, b"wrong"
    with pytest.raises(InputError, match=r"test\.txt: unexpected content"):
        fetch(tiny, tmp_path)
    (tmp_path / "tiny" / ".test.txt.123.part").mkdir()  # left by a killed process
    site.pages, site.requested = dict(PAGES), []
    assert is_complete(fetch(tiny, tmp_path))
    assert site.requested == ["/test.txt"]


def test_an_interrupted_download_leaves_no_file(tiny: DataSet, tmp_path: Path) -> None:
    @contextmanager
    def interrupting(step: str, total: int) -> Iterator[Advance]:
        def advance(units: int = 1, note: str = "") -> None:  # noqa: ARG001
            raise KeyboardInterrupt(step, total)

        yield advance

    with pytest.raises(KeyboardInterrupt):
        fetch(tiny, tmp_path, interrupting)
    assert {file.name for file in (tmp_path / "tiny").iterdir()} <= {".lock"}
    assert is_complete(fetch(tiny, tmp_path))


def test_content_is_checked_by_sha256_or_by_the_number_of_lines(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    counted = replace(tiny, sha256={})
    assert is_complete(fetch(counted, tmp_path / "right"))
    other = TRAIN.replace(b"train", b"other")
    site.pages["/train.txt"] = other
    message = download_error(tiny, tmp_path, r"train\.txt: unexpected content")
    assert hashlib.sha256(other).hexdigest() in message
    assert tiny.sha256["train"] in message
    site.pages["/train.txt"] = TRAIN + b"a\tr\tb"
    download_error(counted, tmp_path, "expected 20,000 lines, found 20,001")


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_error_raises(site: Site, tiny: DataSet, tmp_path: Path, status: int) -> None:
    site.status = status
    message = download_error(tiny, tmp_path, rf"http://127.*/train\.txt: the server returned {status} ")
    assert "(see https://example.org/tiny)" in message


def test_a_server_that_does_not_respond_raises(
    site: Site, tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.3)
    site.hang = True
    for cut in (0, HALF):
        site.cut = cut
        download_error(tiny, tmp_path, r"train\.txt: no response within 0\.3 s")


def test_a_refused_connection_raises(tiny: DataSet, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    nowhere = replace(tiny, addresses=dict.fromkeys(SPLITS, f"http://127.0.0.1:{port}/train.txt"))
    download_error(nowhere, tmp_path, rf":{port}/train\.txt: Connection refused")


@pytest.mark.parametrize("address", ["http://example.org/a", "ftp://127.0.0.1/a", "file:///etc/hosts", "/etc/hosts"])
def test_only_https_addresses_are_allowed(tiny: DataSet, tmp_path: Path, address: str) -> None:
    download_error(replace(tiny, addresses=dict.fromkeys(SPLITS, address)), tmp_path, f"{address}: only https")


def test_redirects_are_followed_only_to_allowed_addresses(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.redirect = f"{site.root}/moved"
    assert is_complete(fetch(tiny, tmp_path / "moved"))
    site.redirect = "http://example.org"
    download_error(tiny, tmp_path, r"http://example\.org/train\.txt: only https")


def test_concurrent_downloads_fetch_each_file_once(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    threads = [threading.Thread(target=fetch, args=(tiny, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_complete(tmp_path / "tiny")
    assert site.requested == list(PAGES)


def test_an_unwritable_directory_raises(tiny: DataSet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write to .*PLOGICNET_CACHE"):
        fetch(tiny, tmp_path / "file")
