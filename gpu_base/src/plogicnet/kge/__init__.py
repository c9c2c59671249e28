"""Embedding models q_θ: geometries, negative sampling, losses, the trainer."""

from plogicnet.kge.protocol import Checkpoint, Embedding, Examples, Validate
from plogicnet.kge.scaling import platt
from plogicnet.kge.vector_model import Guide, VectorModel
from plogicnet.kge.widened import Widened

__all__ = ["Checkpoint", "Embedding", "Examples", "Guide", "Validate", "VectorModel", "Widened", "platt"]
