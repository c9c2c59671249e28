"""Run the kernels in Triton's interpreter if no GPU is available, and skip them if Triton is not installed."""

import os
from importlib.util import find_spec

import torch

collect_ignore_glob = [] if find_spec("triton") else ["src/plogicnet/neural/*/kernels/*"]
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before any module imports triton
