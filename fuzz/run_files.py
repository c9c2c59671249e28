"""Fuzz the small files of a run: with any content the run loads and predicts, or loading raises InputError."""

import json
import sys
import tempfile
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.support.errors import InputError
from stopping import update_checksums

NAMES = ("metrics.json", "history.jsonl", "run.json", "entities.tsv", "labels.tsv")
SETTINGS = {"neural": {"steps": 2, "vectors": {"dim": 4}}, "em": {"iterations": 1}, "device": "cpu", "threads": 1}


@cache
def _run() -> Path:
    kinds = (("man", "husband", "woman"), ("woman", "wife", "man"))
    rows = [(f"{head}{i}", relation, f"{tail}{i}") for i in range(12) for head, relation, tail in kinds]
    graph = KnowledgeGraph.from_names(rows[:18], rows[18:21], rows[21:])
    model = PLogicNet(Config().with_yaml(json.dumps(SETTINGS), "fuzz")).fit(graph)
    run = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-")) / "run"
    model.save(run)
    # only the changed settings: YAML is slow to parse, and settings_text covers it
    (run / "config.yaml").write_text(json.dumps(SETTINGS))
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
    contents = {existing: (run / existing).read_bytes() for existing in NAMES if (run / existing).is_file()}
    (run / name).write_bytes((contents.get(name, b"") if data[0] >= ord("a") else b"") + data[1:])
    try:
        model = PLogicNet.load(update_checksums(run))
        model.predict("man0", "husband")
        json.dumps([model.rules.rows(), model.metrics, [line.to_json() for line in model.history]])
    except InputError:
        pass
    finally:
        (run / name).unlink()
        for existing, content in contents.items():
            (run / existing).write_bytes(content)
