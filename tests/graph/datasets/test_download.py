"""Downloads from a real server on this machine, and every way in which it can break off or answer wrongly."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plogicnet.graph import download
from plogicnet.graph.datasets.download import fetch
from plogicnet.graph.datasets.registry import DataSet
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance


def content(split: str, lines: int = 20_000) -> bytes:
    """Long enough for several reads."""
    return "".join(f"{split}{i}\tr{i % 7}\te{i * 7919 % lines}\n" for i in range(lines)).encode()


PAGES = {f"/{split}.txt": content(split) for split in SPLITS}
TRAIN, OTHER = PAGES["/train.txt"], content("other")
HALF = len(TRAIN) // 2


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Site:
    """What the server does, and what it was asked for: path, Range and If-Range of each request."""

    pages: dict[str, bytes] = field(default_factory=lambda: dict(PAGES))
    ranges: bool = True
    etag: Callable[[bytes], str] | None = lambda data: f'"{sha256(data)}"'
    if_range: bool = True
    length: bool = True
    shift: int = 0
    status: int | None = None
    redirect: str | None = None
    cut: int | None = None
    silent_after: int | None = None
    root: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    if_ranges: list[str | None] = field(default_factory=list)
    sent: int = 0
    go_on: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted, unless = request.headers["Range"], request.headers["If-Range"]
        self.asked.append((request.path, wanted))
        self.if_ranges.append(unless)
        if self.silent_after == -1:
            self.go_on.wait(10)
        if self.status is not None:
            request.send_error(self.status)
            return
        if self.redirect is not None and request.path in self.pages:
            request.send_response(302)
            request.send_header("Location", self.redirect + request.path)
            request.end_headers()
            return
        page = self.pages[request.path.removeprefix("/moved")]
        etag = self.etag(page) if self.etag else None
        start = 0
        if wanted and self.ranges and not (self.if_range and unless and unless != etag):
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) + self.shift
            if start >= len(page):
                request.send_error(416)
                return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(page) - 1}/{len(page)}")
        if etag:
            request.send_header("ETag", etag)
        if self.length:
            request.send_header("Content-Length", str(len(page) - start))
        request.end_headers()
        stop = self.cut if self.cut is not None else self.silent_after
        body = page[start : None if stop is None else start + stop]
        self.sent += len(body)  # before the client can see it
        request.wfile.write(body)
        request.wfile.flush()
        if self.silent_after is not None:
            self.go_on.wait(10)


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
    site.go_on.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tiny(site: Site) -> DataSet:
    sums = {split: sha256(PAGES[f"/{split}.txt"]) for split in SPLITS}
    addresses = {split: f"{site.root}/{split}.txt" for split in SPLITS}
    counts = (20_000, 7, 20_000, 20_000, 20_000)
    return DataSet("tiny", "Tiny", *counts, sums, "none", "nobody", "https://example.org/tiny", addresses)


def only_counted(tiny: DataSet) -> DataSet:
    return replace(tiny, sha256={})


def is_whole(folder: Path) -> bool:
    """All three files, and nothing left over but the lock."""
    assert {file.name for file in folder.iterdir()} == {".lock", "train.txt", "valid.txt", "test.txt"}
    return all((folder / path[1:]).read_bytes() == page for path, page in PAGES.items())


def breaks(tiny: DataSet, directory: Path, match: str) -> str:
    """Runs a download that must break in train; the message."""
    with pytest.raises(InputError, match=match) as caught:
        fetch(tiny, directory)
    assert not (directory / "tiny" / "train.txt").exists()
    return str(caught.value)


def test_a_data_set(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    steps: dict[str, tuple[int, int]] = {}

    @contextmanager
    def counting(step: str, total: int) -> Iterator[Advance]:
        done = 0

        def advance(units: int = 1, note: str = "") -> None:  # noqa: ARG001
            nonlocal done
            done += units

        yield advance
        steps[step] = (done, total)

    assert fetch(tiny, tmp_path / "new" / "cache", counting) == tmp_path / "new" / "cache" / "tiny"
    assert is_whole(tmp_path / "new" / "cache" / "tiny")
    assert steps == {f"tiny{path}, bytes": (len(page), len(page)) for path, page in PAGES.items()}
    fetch(tiny, tmp_path / "new" / "cache")
    assert site.asked == [(path, None) for path in PAGES]


@pytest.mark.parametrize("after", [1, HALF, len(TRAIN) - 1])
def test_a_cut_connection_is_resumed(site: Site, tiny: DataSet, tmp_path: Path, after: int) -> None:
    site.cut = after
    message = breaks(tiny, tmp_path, rf"train\.txt: the connection was cut after {after:,} of {len(TRAIN):,} bytes")
    assert "Run it again: it goes on where it stopped" in message
    assert "$PLOGICNET_DATA/tiny" in message
    assert (tmp_path / "tiny" / ".train.txt.part").read_bytes() == TRAIN[:after]
    site.cut = None
    assert is_whole(fetch(tiny, tmp_path))
    assert site.asked[:2] == [("/train.txt", None), ("/train.txt", f"bytes={after}-")]
    assert site.if_ranges[1] == f'"{sha256(TRAIN)}"'
    assert site.sent == sum(map(len, PAGES.values()))  # no byte twice


def test_it_may_break_many_times(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.cut = len(TRAIN) // 5
    for _ in range(4):
        breaks(tiny, tmp_path, "was cut")
    site.cut = None
    assert is_whole(fetch(tiny, tmp_path))
    assert site.sent == sum(map(len, PAGES.values()))


def test_finished_files_stay_when_a_later_one_breaks(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    test_page = site.pages.pop("/test.txt")
    site.pages["/test.txt"] = b"wrong"
    with pytest.raises(InputError, match=r"test\.txt"):
        fetch(tiny, tmp_path)
    site.pages["/test.txt"] = test_page
    site.asked.clear()
    assert is_whole(fetch(tiny, tmp_path))
    assert site.asked == [("/test.txt", None)]


def test_an_interrupted_program_goes_on(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    @contextmanager
    def impatient(step: str, total: int) -> Iterator[Advance]:  # noqa: ARG001
        done = 0

        def advance(units: int = 1, note: str = "") -> None:  # noqa: ARG001
            nonlocal done
            done += units
            if done > HALF:
                raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        fetch(tiny, tmp_path, impatient)
    there = (tmp_path / "tiny" / ".train.txt.part").stat().st_size
    assert HALF < there < len(TRAIN)
    assert is_whole(fetch(tiny, tmp_path))
    assert site.asked[1] == ("/train.txt", f"bytes={there}-")


def test_a_server_without_ranges_starts_anew(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.ranges, site.cut = False, HALF
    breaks(tiny, tmp_path, "was cut")
    site.cut = None
    assert is_whole(fetch(tiny, tmp_path))
    assert site.sent == HALF + sum(map(len, PAGES.values()))


@pytest.mark.parametrize("there", [TRAIN, TRAIN + b"more", b"\0" * 3 * len(TRAIN)], ids=["as long", "longer", "much"])
@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_part_as_long_as_the_content_or_longer(
    site: Site, tiny: DataSet, tmp_path: Path, there: bytes, ranges: bool
) -> None:
    site.ranges = ranges
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / ".train.txt.part").write_bytes(there)
    assert is_whole(fetch(tiny, tmp_path))


def test_a_range_that_was_not_asked_for(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.cut = HALF
    breaks(tiny, tmp_path, "was cut")
    site.cut, site.shift = None, 5
    assert is_whole(fetch(tiny, tmp_path))
    assert site.asked[1:3] == [("/train.txt", f"bytes={HALF}-"), ("/train.txt", None)]


@pytest.mark.parametrize("if_range", [True, False], ids=["If-Range is known", "If-Range is ignored"])
@pytest.mark.parametrize("counted", [False, True], ids=["SHA-256", "lines"])
def test_content_that_changed_between_two_attempts(
    site: Site, tiny: DataSet, tmp_path: Path, if_range: bool, counted: bool
) -> None:
    site.pages["/train.txt"], site.cut, site.if_range = OTHER, HALF, if_range
    tiny = only_counted(tiny) if counted else tiny
    breaks(tiny, tmp_path, "was cut")
    site.pages["/train.txt"], site.cut = TRAIN, None
    assert is_whole(fetch(tiny, tmp_path))


def test_a_mixture_of_two_versions_is_found_out(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.pages["/train.txt"], site.cut, site.etag = OTHER, HALF, None
    breaks(tiny, tmp_path, "was cut")
    site.pages["/train.txt"], site.cut = TRAIN, None
    breaks(tiny, tmp_path, "not the file expected")
    assert site.asked[1] == ("/train.txt", f"bytes={HALF}-")
    assert is_whole(fetch(tiny, tmp_path))


@pytest.mark.parametrize("etag", [None, lambda _: 'W/"weak"'], ids=["no ETag", "weak ETag"])
def test_without_any_means_to_tell_versions_apart_it_starts_anew(
    site: Site, tiny: DataSet, tmp_path: Path, etag: Callable[[bytes], str] | None
) -> None:
    site.cut, site.etag = HALF, etag
    breaks(only_counted(tiny), tmp_path, "was cut")
    site.cut = None
    assert is_whole(fetch(only_counted(tiny), tmp_path))
    assert {wanted for _, wanted in site.asked} == {None}


def test_wrong_content_is_removed_and_both_sums_are_told(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.pages["/train.txt"] = OTHER
    message = breaks(tiny, tmp_path, r"train\.txt: not the file expected")
    assert sha256(OTHER) in message
    assert sha256(TRAIN) in message
    assert [file.name for file in (tmp_path / "tiny").iterdir()] == [".lock"]


@pytest.mark.parametrize(("page", "lines"), [(TRAIN + b"a\tr\tb", "20,001"), (b"", "0")], ids=["one more", "none"])
def test_without_a_sum_the_lines_are_counted(
    site: Site, tiny: DataSet, tmp_path: Path, page: bytes, lines: str
) -> None:
    assert is_whole(fetch(only_counted(tiny), tmp_path / "right"))
    site.pages["/train.txt"] = page
    breaks(only_counted(tiny), tmp_path, f"it has {lines} lines, expected 20,000")


def test_a_server_that_does_not_say_how_long(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.length, site.cut = False, HALF
    breaks(tiny, tmp_path, "not the file expected")
    site.cut = None
    assert is_whole(fetch(tiny, tmp_path))


@pytest.mark.parametrize("status", [403, 404, 410, 429, 500, 503])
def test_errors_of_the_server(site: Site, tiny: DataSet, tmp_path: Path, status: int) -> None:
    site.cut = HALF
    breaks(tiny, tmp_path, "was cut")
    site.status, site.cut = status, None
    message = breaks(tiny, tmp_path, rf"http://127.*/train\.txt: the server answered {status} ")
    assert ("no longer there" in message) == (status in (404, 410))
    assert ("Run it again" in message) == (status not in (404, 410))
    assert "put train.txt, valid.txt, test.txt into $PLOGICNET_DATA/tiny by hand" in message
    site.status = None
    assert is_whole(fetch(tiny, tmp_path))
    assert site.sent == sum(map(len, PAGES.values()))  # the part outlived the error


@pytest.mark.parametrize("after", [-1, 0, HALF], ids=["no answer", "no content", "in the middle"])
def test_a_server_that_falls_silent(
    site: Site, tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.3)
    site.silent_after = after
    message = breaks(tiny, tmp_path, r"train\.txt: no answer within 0\.3 s")
    assert "Run it again" in message
    site.silent_after = None
    site.go_on.set()
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 30.0)
    assert is_whole(fetch(tiny, tmp_path))
    assert site.asked[1] == ("/train.txt", f"bytes={after}-" if after > 0 else None)


def test_nobody_there(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    nowhere = replace(tiny, addresses=dict.fromkeys(SPLITS, f"http://127.0.0.1:{port}/train.txt"))
    assert "Run it again" in breaks(nowhere, tmp_path, rf":{port}/train\.txt: .*refused")
    assert site.asked == []


@pytest.mark.parametrize("address", ["http://example.org/a", "ftp://127.0.0.1/a", "file:///etc/hosts", "/etc/hosts"])
def test_only_safe_addresses(tiny: DataSet, tmp_path: Path, address: str) -> None:
    breaks(replace(tiny, addresses=dict.fromkeys(SPLITS, address)), tmp_path, f"{address}: only https")


def test_redirections(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    site.redirect, site.cut = f"{site.root}/moved", HALF
    breaks(tiny, tmp_path, "was cut")
    site.cut = None
    assert is_whole(fetch(tiny, tmp_path))
    assert site.asked[3] == ("/moved/train.txt", f"bytes={HALF}-")
    site.redirect = "http://example.org"
    breaks(tiny, tmp_path / "new", r"http://example\.org/train\.txt: only https")


def test_two_at_once(site: Site, tiny: DataSet, tmp_path: Path) -> None:
    threads = [threading.Thread(target=fetch, args=(tiny, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_whole(tmp_path / "tiny")
    assert site.asked == [(path, None) for path in PAGES]


def test_a_directory_that_cannot_be_written(tiny: DataSet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written.*PLOGICNET_CACHE"):
        fetch(tiny, tmp_path / "file")
    (tmp_path / "tiny" / ".train.txt.part").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be written"):
        fetch(tiny, tmp_path)
