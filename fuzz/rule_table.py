"""Fuzz the reader of rules.tsv: any bytes must give rules that survive writing and reading, or an InputError."""

import tempfile
from pathlib import Path

from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError

FOLDER = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-"))
HEADERS = (
    "pattern\trule\tsupport\thits\tprecision\tweight",
    "pattern\trule\tsupport\thits\tprecision\tweight\tgiven\tstandard_error\tgroundings",
)


def one_input(data: bytes) -> None:
    r"""Read the bytes as a table. The first byte selects a valid header, so that the fuzzer does not have to find one.

    Example:
        >>> one_input(b"0inverse\thusband(X, Y) => wife(Y, X)\t4\t3\t0.75\t1.5")
    """
    header = HEADERS[data[0] % len(HEADERS)] if data else ""
    file = FOLDER / "rules.tsv"
    file.write_bytes(header.encode() + b"\n" + data[1:])
    try:
        table = RuleTable.read(file)
    except InputError:
        return
    table.write(file)
    if RuleTable.read(file).rows() != table.rows():
        raise AssertionError("the table changes when it is written and read")
