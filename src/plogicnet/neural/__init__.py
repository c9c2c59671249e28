"""Neural models q_θ: their protocol, the training loop and the built-in vector models."""

from plogicnet.config import MODELS
from plogicnet.neural.vectors import MODEL_NAMES, VECTORS

for name in MODEL_NAMES:
    MODELS.register(name, VECTORS)
