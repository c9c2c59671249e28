"""Embedding models q_θ: geometries, negative sampling, losses, the trainer."""

from plogicnet.kge.protocol import Embedding, Examples
from plogicnet.kge.vector_model import VectorModel

__all__ = ["Embedding", "Examples", "VectorModel"]
