"""Downloads of data sets by pooch: a file appears under its name only when it is complete and checked."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from plogicnet.graph.datasets.registry import DataSet, is_complete
from plogicnet.graph.knowledge_graph import SPLITS
from plogicnet.support.errors import InputError
from plogicnet.support.files import clear_parts, locked, replacing
from plogicnet.support.progress import Advance, Progress, silent

if TYPE_CHECKING:
    from requests import RequestException, Response

TIMEOUT_SECONDS = 30.0
"""For the connection and for each read."""
CHUNK = 1 << 16
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def fetch(data_set: DataSet, directory: Path, progress: Progress = silent) -> Path:
    """Downloads a data set into a folder of its name, as train.txt, valid.txt and test.txt.

    Files that are there already are not downloaded again. A second process waits for the first.

    Args:
        data_set: an entry of `DATA_SETS`.
        directory: where to create the folder.
        progress: counts bytes, file by file.

    Returns:
        The folder.

    Raises:
        InputError: the network or the server failed, the content is not the expected one, or the disk is full.
    """
    folder = directory / data_set.name
    if is_complete(folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=True):
            clear_parts(folder)
            for split in SPLITS:
                file = folder / f"{split}.txt"
                if not file.is_file():
                    with replacing(file) as beside, ExitStack() as shown:
                        _download(data_set, split, beside, _Bar(progress, f"{data_set.name}/{file.name}, bytes", shown))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error}; make room, or set PLOGICNET_CACHE elsewhere") from None
    return folder


def _download(data_set: DataSet, split: str, file: Path, bar: "_Bar") -> None:
    """Downloads and checks one file."""
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    address, sha256 = data_set.addresses[split], data_set.sha256.get(split)
    _check_address(address)
    place = f"$PLOGICNET_DATA/{data_set.name}"
    by_hand = f"put train.txt, valid.txt, test.txt into {place} by hand (see {data_set.source})"
    get = pooch.HTTPDownloader(
        progressbar=bar,
        chunk_size=CHUNK,
        timeout=TIMEOUT_SECONDS,
        headers={"Accept-Encoding": "identity"},  # so that bytes are counted as they are on disk
        hooks={"response": _check_redirect},
    )
    try:
        pooch.retrieve(address, sha256, file.name, file.parent, downloader=get)
        if sha256 is None:
            _check_lines(file, data_set.triples[split])
    except RequestException as error:
        raise InputError(f"{address}: {_reason(error)}. Run it again, or {by_hand}") from None
    except InputError:
        raise
    except ValueError as error:  # pooch's, for a wrong checksum; and for a wrong number of lines
        changed = f"Run it again; if this stays, the file has changed at its source: {by_hand}"
        raise InputError(f"{address}: not the expected file: {error} {changed}") from None


def _check_lines(file: Path, expected: int) -> None:
    with file.open("rb") as content:
        found = sum(1 for _ in content)
    if found != expected:
        raise ValueError(f"it has {found:,} lines, expected {expected:,}.")


def _reason(error: "RequestException") -> str:
    """Why a request failed."""
    from requests import Timeout

    if error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    first: BaseException = error
    while first.__cause__ or first.__context__:
        first = first.__cause__ or first.__context__ or first
    if isinstance(error, Timeout) or isinstance(first, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    return getattr(first, "strerror", None) or str(first) or type(first).__name__


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise InputError(f"{address}: only https addresses are downloaded from")


def _check_redirect(response: "Response", *_: object, **__: object) -> None:
    """Raises an InputError before a redirect from https is followed."""
    if response.is_redirect:
        _check_address(urljoin(response.url, response.headers["location"]))


class _Bar:
    """The progress bar that pooch expects, shown by a Progress. It is closed with the stack."""

    def __init__(self, progress: Progress, step: str, shown: ExitStack) -> None:
        self.progress, self.step, self.shown = progress, step, shown
        self.total = self.done = 0
        self.advance: Advance | None = None

    def update(self, units: int) -> None:
        if self.advance is None:  # pooch has set the total by now
            self.advance = self.shown.enter_context(self.progress(self.step, self.total))
        new = max(0, min(units, self.total - self.done))  # pooch counts whole chunks, and everything again at the end
        self.done += new
        self.advance(new)

    def reset(self) -> None:
        """Nothing: see `update`."""

    def close(self) -> None:
        """Nothing: the stack closes it."""
