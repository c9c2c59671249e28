"""Fuzzing the small files of a run: whatever is in one of them, the run opens and answers, or an InputError."""

import json
import tempfile
from functools import cache
from pathlib import Path

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.support.errors import InputError

NAMES = ("metrics.json", "history.jsonl", "run.json", "entities.tsv", "labels.tsv")
SETTINGS = {"kge": {"dim": 4, "steps": 2}, "em": {"iterations": 1}, "device": "cpu", "threads": 1}


@cache
def _run() -> Path:
    kinds = (("man", "husband", "woman"), ("woman", "wife", "man"))
    rows = [(f"{head}{i}", relation, f"{tail}{i}") for i in range(12) for head, relation, tail in kinds]
    graph = KnowledgeGraph.from_names(rows[:18], rows[18:21], rows[21:])
    model = PLogicNet(Config().with_yaml(json.dumps(SETTINGS), "fuzz")).fit(graph)
    run = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-")) / "run"
    model.save(run)
    # only what is not usual: YAML is slow to read, and has a target of its own
    (run / "config.yaml").write_text(json.dumps(SETTINGS))
    return run


def one_input(data: bytes) -> None:
    """Puts the bytes in the place of one file, which the first of them chooses, or appends them to it; and opens it.

    Example:
        >>> one_input(b"0{}")
    """
    if not data:
        return
    run, file = _run(), _run() / NAMES[(data[0] - ord("0")) % len(NAMES)]
    whole = file.read_bytes() if file.is_file() else None
    file.write_bytes((whole or b"" if data[0] >= ord("a") else b"") + data[1:])
    try:
        model = PLogicNet.load(run)
        model.predict("man0", "husband")
        json.dumps([model.rules.rows(), model.metrics, model.history])
    except InputError:
        pass
    finally:
        file.unlink()
        if whole is not None:
            file.write_bytes(whole)
