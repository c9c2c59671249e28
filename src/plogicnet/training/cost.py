"""What a training will take, before it begins."""

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
"""What PyTorch loads when the first optimizer is made, its compiler among it."""
TRIAL = 5
TRIAL_SECONDS = 0.1


def require_memory(graph: KnowledgeGraph, config: Config) -> None:
    """Refuses an E-step that a memory limit has no room for."""
    if pick_device(config.device).type == "cpu":
        cost = model_kind(config).cost(graph, config)
        loaded = 0 if "torch._dynamo" in sys.modules else OPTIMIZER_BYTES
        require_bytes(cost.bytes + loaded, cost.what, cost.remedy)


def seconds_per_step(graph: KnowledgeGraph, config: Config) -> float:
    """What a training step takes here, by trial."""
    guided = system_of(config).guides  # its steps are not fused, and take a little longer than these
    kernels = "plain" if guided else config.neural.kernels

    def seconds(steps: int) -> float:
        neural = replace(config.neural, steps=steps, validate_every=0, kernels=kernels)
        model = make_model(graph, replace(config, neural=neural))
        started = time.perf_counter()
        model.fit(Examples.of(graph.train), seed=0)
        return time.perf_counter() - started

    seconds(2)  # warms up
    start = seconds(1)
    trial = TRIAL
    while (more := seconds(1 + trial) - start) < TRIAL_SECONDS and trial < TRIAL * 100:
        trial *= 4
    return max(0.0, more) / trial
