"""Cache of the first E-step: trainings with the same data, neural settings and seed train it once."""

import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import plogicnet.neural
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.device import pick_device
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.files import checksum, lock_directory, write_text
from plogicnet.support.progress import Timer

MODEL_FILE = "neural.safetensors"


def fit_or_load(cache: Path, timer: Timer) -> Callable[..., None]:
    """Return a `Hooks.fit_first` that loads the first E-step's model from a cache directory, or fits and saves it.

    If two trainings need the same model at once, the second waits for the first. The time of loading is recorded as
    `e_step_shared`. A model with a wrong checksum is fitted again.
    """

    def fit_first(
        graph: KnowledgeGraph, config: Config, model: NeuralModel, seed: int, fit: Callable[[], None]
    ) -> None:
        folder = cache / cache_key(graph, config, seed)
        folder.mkdir(parents=True, exist_ok=True)
        saved, digest = folder / MODEL_FILE, folder / "sha256"
        with lock_directory(folder, wait=True):
            if digest.is_file() and saved.is_file() and digest.read_text(encoding="utf-8") == checksum(saved):
                with timer("e_step_shared"):
                    model.load(saved)
                return
            fit()
            model.save(saved)
            write_text(digest, checksum(saved))

    return fit_first


def cache_key(graph: KnowledgeGraph, config: Config, seed: int) -> str:
    """Return the cache key of the first E-step: a hash of data, settings and source code."""
    sizes = [len(x) for x in (graph.entities, graph.relations, graph.train, graph.valid)]
    about = (config.neural, seed, pick_device(config.device).type, bool(find_spec("triton")), sizes)
    digest = hashlib.sha256(repr(about).encode())
    for file in sorted(Path(plogicnet.neural.__path__[0]).rglob("*.py")):
        digest.update(file.read_bytes())
    for triples in (graph.train, graph.valid if config.neural.validate_every else graph.train[:0]):
        digest.update(np.ascontiguousarray(triples).tobytes())
    return digest.hexdigest()[:32]
