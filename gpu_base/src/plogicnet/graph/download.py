"""Downloads of data sets: resumed after a break, checked before they appear, never half there."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from plogicnet.errors import InputError
from plogicnet.files import locked
from plogicnet.graph.datasets import DataSet, is_complete
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.progress import Progress, silent

TIMEOUT_SECONDS = 30.0
"""How long to wait for a connection and for each read."""
CHUNK = 1 << 16
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def fetch(data_set: DataSet, directory: Path, progress: Progress = silent) -> Path:
    """Downloads a data set into a folder of its name, as train.txt, valid.txt and test.txt.

    What is there already is not fetched again. A download that broke off goes on where it stopped.

    Args:
        data_set: an entry of `DATA_SETS`.
        directory: the folder is made in it.
        progress: counts bytes, file by file.

    Returns:
        The folder.

    Raises:
        InputError: a server or the way to it failed, or the content is not the one expected.

    Example:
        >>> fetch(DATA_SETS["umls"], cache_directory())  # doctest: +SKIP
    """
    folder = directory / data_set.name
    if is_complete(folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=True):
            for split in SPLITS:
                if not (folder / f"{split}.txt").is_file():
                    _fetch_split(data_set, split, folder, progress)
    except OSError as error:  # of the disk: those of the network are InputErrors by now
        raise InputError(f"{folder} cannot be written: {error}; make room, or set PLOGICNET_CACHE elsewhere") from None
    return folder


def _fetch_split(data_set: DataSet, split: str, folder: Path, progress: Progress) -> None:
    address, sha256 = data_set.addresses[split], data_set.sha256.get(split)
    _check_address(address)
    part, tag = folder / f".{split}.txt.part", folder / f".{split}.txt.etag"
    etag = tag.read_text(encoding="utf-8") if tag.is_file() else ""
    # Without an ETag only the SHA-256 can tell a mixture of two versions, so without both the download starts anew.
    there = part.stat().st_size if part.is_file() and (etag or sha256) else 0
    with _told(address, data_set):
        response, start = _open(address, there, etag)
    with response, part.open("ab" if start else "wb") as file:
        if not start:
            new = response.headers.get("ETag", "")
            tag.write_text("" if new.startswith("W/") else new, encoding="utf-8")  # a weak one is no good for If-Range
        _receive(response, file, start, address, data_set, progress, f"{data_set.name}/{split}.txt, bytes")
    fault = _fault(part, sha256, data_set.triples[split])
    tag.unlink(missing_ok=True)
    if fault:
        part.unlink()
        raise InputError(
            f"{address}: not the file expected: {fault}. It was removed. Run it again; if this stays, the file has"
            f" changed at its source: {_by_hand(data_set)}"
        )
    part.replace(folder / f"{split}.txt")


def _open(address: str, start: int, etag: str) -> tuple[HTTPResponse, int]:
    """Asks for what is missing after `start` bytes; gives the answer and the byte at which it really starts."""
    headers = {"User-Agent": "plogicnet", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": etag} if etag else {})
    try:
        opener = build_opener(_CheckedRedirects)
        response: HTTPResponse = opener.open(Request(address, headers=headers), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        if start and error.code == 416:  # what we have is as long as the content, or longer
            error.close()
            return _open(address, 0, "")
        raise
    if response.status != 206:  # no ranges here, or If-Range found another version: all of it comes
        return response, 0
    same = not etag or response.headers.get("ETag", etag) == etag
    if start and not (same and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")):
        response.close()
        return _open(address, 0, "")
    return response, start


def _receive(
    response: HTTPResponse, file: IO[bytes], start: int, address: str, data_set: DataSet, progress: Progress, step: str
) -> None:
    length = response.length  # of what is still to come; None where the server does not say
    with progress(step, start + (length or 0)) as advance:
        advance(start)
        done = 0
        while True:
            with _told(address, data_set):
                # read1 gives what has come so far: at a break no received byte is lost.
                chunk = response.read1(CHUNK)
            if not chunk:
                break
            file.write(chunk)
            advance(len(chunk))
            done += len(chunk)
    file.flush()
    os.fsync(file.fileno())
    if length is not None and done < length:
        raise InputError(
            f"{address}: the connection was cut after {start + done:,} of {start + length:,} bytes. {_again(data_set)}"
        )


def _fault(file: Path, sha256: str | None, lines: int) -> str:
    """What is wrong with a whole download; empty if nothing."""
    with file.open("rb") as content:
        if sha256:
            found = hashlib.file_digest(content, "sha256").hexdigest()
            return "" if found == sha256 else f"its SHA-256 is {found}, expected {sha256}"
        count = sum(1 for _ in content)
        return "" if count == lines else f"it has {count:,} lines, expected {lines:,}"


def _again(data_set: DataSet) -> str:
    return f"Run it again: it goes on where it stopped. Or {_by_hand(data_set)}"


def _by_hand(data_set: DataSet) -> str:
    places = ", ".join(f"{split}.txt" for split in SPLITS)
    return f"put {places} into $PLOGICNET_DATA/{data_set.name} by hand (see {data_set.source})"


@contextmanager
def _told(address: str, data_set: DataSet) -> Iterator[None]:
    """Errors of the network as an InputError that says what happened and what to do."""
    try:
        yield
    except HTTPError as error:
        error.close()
        gone = error.code in (404, 410)
        todo = f"The file is no longer there: {_by_hand(data_set)}" if gone else _again(data_set)
        raise InputError(f"{address}: the server answered {error.code} {error.reason}. {todo}") from None
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        what = f"no answer within {TIMEOUT_SECONDS:g} s" if isinstance(reason, TimeoutError) else f"{reason}"
        raise InputError(f"{address}: {what or type(reason).__name__}. {_again(data_set)}") from None


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise InputError(f"{address}: only https addresses are downloaded from")


class _CheckedRedirects(HTTPRedirectHandler):
    """A redirection must not lead away from https either."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        _check_address(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
