"""Estimates of the memory and the time that training needs."""

import sys
import time
from dataclasses import replace

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.device import pick_device
from plogicnet.neural.protocol import Examples, make_model, model_kind
from plogicnet.support.memory import require_bytes
from plogicnet.systems.system import system_of

OPTIMIZER_BYTES = 130 * 2**20
"""Memory that PyTorch and its compiler allocate when the first optimizer is created."""
TRIAL_STEPS = 5
"""Number of steps of the first trial."""
TRIAL_SECONDS = 0.1
"""The number of steps is increased until a trial takes at least this long."""


def require_memory(graph: KnowledgeGraph, config: Config) -> None:
    """Raise InputError if an E-step does not fit within the memory limit."""
    if pick_device(config.device).type == "cpu":
        cost = model_kind(config).cost(graph, config)
        loaded = 0 if "torch._dynamo" in sys.modules else OPTIMIZER_BYTES
        require_bytes(cost.bytes + loaded, cost.purpose, cost.remedy)


def seconds_per_step(graph: KnowledgeGraph, config: Config) -> float:
    """Measure how long a training step takes on this machine."""
    guided = system_of(config).guides  # guided steps are not fused, and take slightly longer than measured here
    kernels = "plain" if guided else config.neural.kernels

    def seconds(steps: int) -> float:
        neural = replace(config.neural, steps=steps, validate_every=0, kernels=kernels)
        model = make_model(graph, replace(config, neural=neural))
        started = time.perf_counter()
        model.fit(Examples.of(graph.train), seed=0)
        return time.perf_counter() - started

    seconds(2)  # warm-up
    overhead = seconds(1)
    steps = TRIAL_STEPS
    while (elapsed := seconds(1 + steps) - overhead) < TRIAL_SECONDS and steps < TRIAL_STEPS * 100:
        steps *= 4
    return max(0.0, elapsed) / steps
