"""Fuzzing the small files of a run: whatever is in one of them, the run opens and answers, or an InputError."""

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
from stopping import resealed

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
    # only what is not the default: YAML is slow to read, and has a target of its own
    (run / "config.yaml").write_text(json.dumps(SETTINGS))
    return resealed(run)


def one_input(data: bytes) -> None:
    """Puts the bytes in the place of one file, which the first of them chooses, or appends them to it; and opens it.

    The checksums are made to match, as in a run that was made to do harm.

    Example:
        >>> one_input(b"0{}")
    """
    if not data:
        return
    run, name = _run(), NAMES[(data[0] - ord("0")) % len(NAMES)]
    before = {other: (run / other).read_bytes() for other in NAMES if (run / other).is_file()}
    (run / name).write_bytes((before.get(name, b"") if data[0] >= ord("a") else b"") + data[1:])
    try:
        model = PLogicNet.load(resealed(run))
        model.predict("man0", "husband")
        json.dumps([model.rules.rows(), model.metrics, [line.to_json() for line in model.history]])
    except InputError:
        pass
    finally:
        (run / name).unlink()
        for other, content in before.items():
            (run / other).write_bytes(content)
