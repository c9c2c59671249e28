"""Downloads of data sets with pooch. Files get their names only after they are complete and checked."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from plogicnet.graph.datasets.registry import DataSet, is_complete
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write, lock_directory, remove_partial_files
from plogicnet.support.progress import Advance, Progress, no_progress

if TYPE_CHECKING:
    from requests import RequestException, Response

TIMEOUT_SECONDS = 30.0
"""For the connection and for each read."""
CHUNK_BYTES = 1 << 16
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def fetch(data_set: DataSet, directory: Path, progress: Progress = no_progress) -> Path:
    """Download train.txt, valid.txt and test.txt of a data set into a directory with the name of the data set.

    Existing files are not downloaded again. If another process downloads the same data set, wait for it.

    Args:
        data_set: an entry of `DATA_SETS`.
        directory: the parent of the directory to create.
        progress: displays the bytes of each file.

    Returns:
        The directory of the data set.

    Raises:
        InputError: The network or the server failed, the content is unexpected, or the disk is full.
    """
    folder = directory / data_set.name
    if is_complete(folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock_directory(folder, wait=True):
            remove_partial_files(folder)
            for split in SPLITS:
                file = folder / f"{split}.txt"
                if not file.is_file():
                    with atomic_write(file) as temporary, ExitStack() as stack:
                        _download(
                            data_set, split, temporary, _Bar(progress, f"{data_set.name}/{file.name}, bytes", stack)
                        )
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error}. Free disk space, or set PLOGICNET_CACHE to another directory."
        ) from None
    return folder


def _download(data_set: DataSet, split: str, file: Path, bar: "_Bar") -> None:
    """Download and check one file."""
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    address, sha256 = data_set.addresses[split], data_set.sha256.get(split)
    _check_address(address)
    target = f"$PLOGICNET_DATA/{data_set.name}"
    manually = f"copy train.txt, valid.txt and test.txt into {target} (see {data_set.source})"
    downloader = pooch.HTTPDownloader(
        progressbar=bar,
        chunk_size=CHUNK_BYTES,
        timeout=TIMEOUT_SECONDS,
        headers={"Accept-Encoding": "identity"},  # no compression, so that the progress counts the bytes on disk
        hooks={"response": _check_redirect},
    )
    try:
        pooch.retrieve(address, sha256, file.name, file.parent, downloader=downloader)
        if sha256 is None:
            _check_lines(file, data_set.triples[split])
    except RequestException as error:
        raise InputError(f"{address}: {_reason(error)}. Run the command again, or {manually}") from None
    except InputError:
        raise
    except ValueError as error:  # wrong checksum (by pooch) or wrong number of lines
        remedy = f"Run the command again. If the error persists, the file has changed at its source: {manually}"
        raise InputError(f"{address}: unexpected content: {error} {remedy}") from None


def _check_lines(file: Path, expected: int) -> None:
    with file.open("rb") as content:
        n_lines = sum(1 for _ in content)
    if n_lines != expected:
        raise ValueError(f"expected {expected:,} lines, found {n_lines:,}.")


def _reason(error: "RequestException") -> str:
    """Describe why a request failed."""
    from requests import Timeout

    if error.response is not None:
        return f"the server returned {error.response.status_code} {error.response.reason}"
    cause: BaseException = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
    if isinstance(error, Timeout) or isinstance(cause, TimeoutError):
        return f"no response within {TIMEOUT_SECONDS:g} s"
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise InputError(f"{address}: only https addresses are allowed")


def _check_redirect(response: "Response", *_: object, **__: object) -> None:
    """Raise InputError before a redirect to an address that is not allowed is followed."""
    if response.is_redirect:
        _check_address(urljoin(response.url, response.headers["location"]))


class _Bar:
    """The progress bar that pooch expects, displayed by a Progress. The stack closes the display."""

    def __init__(self, progress: Progress, step: str, stack: ExitStack) -> None:
        self.progress, self.step, self.stack = progress, step, stack
        self.total = self.done = 0
        self.advance: Advance | None = None

    def update(self, units: int) -> None:
        if self.advance is None:  # pooch has already set the total
            self.advance = self.stack.enter_context(self.progress(self.step, self.total))
        new = max(0, min(units, self.total - self.done))  # pooch counts whole chunks, and all bytes again at the end
        self.done += new
        self.advance(new)

    def reset(self) -> None:
        """Do nothing; see `update`."""

    def close(self) -> None:
        """Do nothing; the stack closes the display."""
