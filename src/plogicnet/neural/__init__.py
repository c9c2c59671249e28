"""Neural models q_θ: the protocol that all of them follow, their registry, and the kinds that come with the program."""

from plogicnet.config import MODELS
from plogicnet.neural.vectors import MODEL_NAMES, VECTORS

for name in MODEL_NAMES:
    MODELS.register(name, VECTORS)
