"""Trainings that begin alike share the vectors of their first E-step: a hook that fits once and loads afterwards."""

import hashlib
import logging
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import plogicnet.neural
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.device import pick_device
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.files import checksum, locked, write_text

log = logging.getLogger(__name__)


def shared_in(place: Path) -> Callable[[KnowledgeGraph, Config, NeuralModel, int, Callable[[], None]], None]:
    """A `Hooks.fit_first` that keeps what it fits in a directory; of two at once, the second waits for the first."""

    def fit_first(
        graph: KnowledgeGraph, config: Config, model: NeuralModel, seed: int, fit: Callable[[], None]
    ) -> None:
        _fit_once(model, fit, place / cache_key(graph, config, seed))

    return fit_first


def cache_key(graph: KnowledgeGraph, config: Config, seed: int) -> str:
    """The cache key of the first E-step: data, settings and source."""
    sizes = [len(x) for x in (graph.entities, graph.relations, graph.train, graph.valid)]
    about = (config.neural, seed, pick_device(config.device).type, bool(find_spec("triton")), sizes)
    digest = hashlib.sha256(repr(about).encode())
    for file in sorted(Path(plogicnet.neural.__path__[0]).rglob("*.py")):
        digest.update(file.read_bytes())
    for triples in (graph.train, graph.valid if config.neural.validate_every else graph.train[:0]):
        digest.update(np.ascontiguousarray(triples).tobytes())
    return digest.hexdigest()[:32]


def _fit_once(model: NeuralModel, fit: Callable[[], None], folder: Path) -> None:
    """Trains, or loads the parameters that another training saved."""
    folder.mkdir(parents=True, exist_ok=True)
    saved, kept = folder / "neural.safetensors", folder / "sha256"
    with locked(folder, wait=True):
        whole = not kept.is_file() or kept.read_text(encoding="utf-8").strip() == checksum(saved)
        if saved.is_file() and not whole:
            log.warning("%s is damaged: its checksum does not match; this E-step is trained again", saved)
            saved.unlink()  # without its checksum, should this be killed, it would pass for whole
        elif saved.is_file():
            model.load(saved)
            log.info("the first E-step is loaded from %s", saved)
            return
        fit()
        kept.unlink(missing_ok=True)
        model.save(saved)
        write_text(kept, checksum(saved) + "\n")
