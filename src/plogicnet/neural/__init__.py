"""Neural models q_θ: their protocol, the training loop and the built-in models."""

from plogicnet.config import MODELS
from plogicnet.neural.paths import PATHS
from plogicnet.neural.vectors import MODEL_NAMES, VECTORS

for name in MODEL_NAMES:
    MODELS.register(name, VECTORS)
MODELS.register("Paths", PATHS)
