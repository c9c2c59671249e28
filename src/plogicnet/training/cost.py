"""Estimates of the memory and the time that training needs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from plogicnet.config import Config
from plogicnet.evaluation.batches import free_bytes, is_out_of_memory
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.device import pick_device
from plogicnet.neural.protocol import Cost, Examples
from plogicnet.neural.registry import make_model, model_kind
from plogicnet.support.errors import InputError
from plogicnet.support.memory import MB, require_bytes
from plogicnet.systems.system import system_of

OPTIMIZER_BYTES = 130 * 2**20
"""Memory that PyTorch and its compiler allocate when the first optimizer is created."""
SLOW_SECONDS = 10.0
"""If the first step takes longer, no more steps are measured."""
WARM_UP_STEPS = 4
"""Steps that are not measured. The first ones can take longer, for example to compile kernels."""
TRIAL_STEPS = 5
"""Number of steps of the first trial."""
TRIAL_SECONDS = 0.1
"""The number of steps is increased until a trial takes at least this long."""


def require_memory(graph: KnowledgeGraph, config: Config, remedy: str = "") -> None:
    """Raise InputError if an E-step does not fit within the memory limit, or in the free memory of the device.

    The error advises the remedy, by default that of the model.
    """
    cost, device = _cost(graph, config, remedy), pick_device(config.device)
    if device.type == "cpu":
        loaded = 0 if "torch._dynamo" in sys.modules else OPTIMIZER_BYTES
        require_bytes(cost.bytes + loaded, cost.purpose, cost.remedy)
    if cost.bytes > (free := free_bytes(device)):
        raise InputError(
            f"{cost.purpose}: about {cost.bytes / MB:,.0f} MB of memory are needed, and {free / MB:,.0f} MB are free."
            f" To need less, {cost.remedy}."
        )


@contextmanager
def memory_checked(graph: KnowledgeGraph, config: Config, remedy: str = "") -> Iterator[None]:
    """Raise InputError if an E-step does not fit in memory, before the block, or when memory runs out in it."""
    require_memory(graph, config, remedy)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        cost = _cost(graph, config, remedy)
        raise InputError(f"{cost.purpose}: memory ran out. To need less, {cost.remedy}.") from error


def _cost(graph: KnowledgeGraph, config: Config, remedy: str) -> Cost:
    cost = model_kind(config).cost(graph, config)
    return replace(cost, remedy=remedy or cost.remedy)


def seconds_per_step(graph: KnowledgeGraph, config: Config) -> float:
    """Measure how long a training step takes on this machine; for a mixture, the mean over the steps of all parts."""
    configs = config.model_configs
    steps = [max(1, model_kind(c).cost(graph, c).steps) for c in configs]
    return float(np.average([_seconds_per_step(graph, c) for c in configs], weights=steps))


def _seconds_per_step(graph: KnowledgeGraph, config: Config) -> float:
    """Measure how long a training step of one model takes. Of slow steps, only one is measured."""
    guided = system_of(config).guides  # guided steps are not fused, and take slightly longer than measured here
    kernels = "plain" if guided else config.neural.kernels

    def seconds(steps: int) -> float:
        neural = replace(config.neural, steps=steps, validate_every=0, kernels=kernels)
        model = make_model(graph, replace(config, neural=neural))
        started = time.perf_counter()
        model.fit(Examples.of(graph.train), seed=0)
        return time.perf_counter() - started

    if (first := seconds(1)) > SLOW_SECONDS:
        return first
    seconds(1 + WARM_UP_STEPS)
    overhead = seconds(WARM_UP_STEPS)
    steps = TRIAL_STEPS
    while (elapsed := seconds(WARM_UP_STEPS + steps) - overhead) < TRIAL_SECONDS and steps < TRIAL_STEPS * 100:
        steps *= 4
    return max(0.0, elapsed) / steps
