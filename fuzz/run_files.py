"""Fuzz the small files of a run: with any content the run loads and predicts, or loading raises InputError."""

import hashlib
import json
import sys
import tempfile
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.runs.directory import CURRENT_FILE, snapshot_folder
from plogicnet.runs.integrity import CHECKSUMS_KEY, MANIFEST_FILE
from plogicnet.support.errors import InputError
from plogicnet.support.files import checksum
from stopping import update_checksums

NAMES = ("metrics.json", "history.jsonl", MANIFEST_FILE, "entities.tsv", "labels.tsv", CURRENT_FILE)
SETTINGS = {"neural": {"steps": 2, "vectors": {"dim": 4}}, "em": {"iterations": 1}, "device": "cpu", "threads": 1}


@cache
def _run() -> Path:
    kinds = (("man", "husband", "woman"), ("woman", "wife", "man"))
    rows = [(f"{head}{i}", relation, f"{tail}{i}") for i in range(12) for head, relation, tail in kinds]
    graph = KnowledgeGraph.from_names(rows[:18], rows[18:21], rows[21:])
    model = PLogicNet(Config().with_yaml(json.dumps(SETTINGS), "fuzz")).fit(graph)
    run = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-")) / "run"
    model.save(run)
    for file in snapshot_folder(run).iterdir():
        file.chmod(0o644)
    # only the changed settings: YAML is slow to parse, and settings_text covers it
    (snapshot_folder(run) / "config.yaml").write_text(json.dumps(SETTINGS))
    return update_checksums(run)


def one_input(data: bytes) -> None:
    """Replace one file with the bytes, or append them to it, and load the run. The first byte selects the file.

    The checksums are updated to match, as in a malicious run.

    Example:
        >>> one_input(b"0{}")
    """
    if not data:
        return
    run, name = _run(), NAMES[(data[0] - ord("0")) % len(NAMES)]
    snapshot = snapshot_folder(run)
    files = [snapshot / each for each in NAMES[:-1]] + [run / CURRENT_FILE]
    contents = {file: file.read_bytes() for file in files if file.is_file()}
    changed = files[NAMES.index(name)]
    changed.write_bytes((contents.get(changed, b"") if data[0] >= ord("a") else b"") + data[1:])
    try:
        if name == MANIFEST_FILE:
            changed.write_bytes(_signed(changed.read_bytes(), snapshot))
        elif name != CURRENT_FILE:
            update_checksums(run)
        model = PLogicNet.load(run)
        model.predict("man0", "husband")
        json.dumps([model.rules.rows(), model.metrics, [line.to_json() for line in model.history]])
    except InputError:
        pass
    finally:
        changed.unlink()
        for file, content in contents.items():
            file.write_bytes(content)


def _signed(manifest: bytes, folder: Path) -> bytes:
    """Add the checksums of the files and of the manifest itself, if the manifest is a JSON object without checksums."""
    try:
        content = json.loads(manifest)
        if not isinstance(content, dict) or CHECKSUMS_KEY in content:
            return manifest
        checksums = {file.name: checksum(file) for file in folder.iterdir() if file.name != MANIFEST_FILE}
        content[CHECKSUMS_KEY] = checksums
        checksums[MANIFEST_FILE] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return json.dumps(content).encode()
    except (ValueError, RecursionError):
        return manifest
