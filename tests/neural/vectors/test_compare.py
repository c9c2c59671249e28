"""Compiled comparisons against PyTorch's, on random shapes and different numbers of threads."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.neural.vectors.compare import COMPILED, PLAIN, Kernel, choose_cross
from plogicnet.neural.vectors.compiled import MIN_PARALLEL_WORK

SIZE = st.integers(0, 6)


def numbers(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return numbers, half of them on a coarse grid, so that coordinates are often equal."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(shape) < 0.5, rng.integers(-1, 2, shape), rng.normal(size=shape))
    return torch.from_numpy(values)


@pytest.mark.parametrize("kernel", COMPILED)
@given(st.lists(st.integers(1, 3), max_size=2), SIZE, SIZE, st.integers(1, 9), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_distances_and_gradients_equal_the_plain_ones(
    kernel: Kernel, before: list[int], n: int, m: int, d: int, seed: int
) -> None:
    queries, candidates = numbers((*before, n, 2 * d), seed), numbers((*before, m, 2 * d), seed + 1)
    weight = numbers((*before, n, m), seed + 2)
    results = []
    for cross in (COMPILED[kernel], PLAIN[kernel]):
        q, c = queries.clone().requires_grad_(), candidates.clone().requires_grad_()
        scores = cross(q, c)
        results.append((scores.detach(), *torch.autograd.grad((weight * scores).sum(), [q, c])))
    for compiled, plain in zip(*results, strict=True):
        assert compiled.shape == plain.shape
        np.testing.assert_allclose(compiled.numpy(), plain.numpy(), atol=1e-10)


@pytest.mark.parametrize("kernel", COMPILED)
@pytest.mark.parametrize("shape", [(3, 64, 128, 100), (1, 300, 100, 64)])
def test_results_do_not_depend_on_the_number_of_threads(kernel: Kernel, shape: tuple[int, int, int, int]) -> None:
    b, n, m, w = shape
    assert b * n * m * w >= MIN_PARALLEL_WORK, "large enough for threads"
    queries, candidates = numbers((b, n, w), 1).float(), numbers((b, m, w), 2).float()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        q, c = queries.clone().requires_grad_(), candidates.clone().requires_grad_()
        scores = COMPILED[kernel](q, c)
        results.append((scores.detach(), *torch.autograd.grad(scores.square().sum(), [q, c])))
    for one, two, three in zip(*results, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


@pytest.mark.parametrize("kernel", COMPILED)
def test_nan_and_infinity_are_propagated(kernel: Kernel) -> None:
    queries, candidates = torch.tensor([[float("nan"), 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert bool(COMPILED[kernel](queries, candidates).isnan().all())
    assert bool(COMPILED[kernel](candidates[:1], torch.full((1, 2), torch.inf)).isinf().all())


def test_a_plain_comparison_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, candidates = numbers((2, 5, 6), 1), numbers((2, 4, 6), 2)
    whole = PLAIN["modulus"](queries, candidates)
    monkeypatch.setattr("plogicnet.neural.vectors.compare.CHUNK_DIFFERENCES", 50)
    assert torch.equal(PLAIN["modulus"](queries, candidates), whole)


def test_the_comparison_depends_on_kernels_and_device() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for kernel in PLAIN:
        assert choose_cross(kernel, "plain", cpu) is PLAIN[kernel]
        assert choose_cross(kernel, "plain", cuda) is PLAIN[kernel]
        fused = find_spec("triton") is not None and kernel != "dot"
        assert (choose_cross(kernel, "auto", cuda) is PLAIN[kernel]) != fused
        assert choose_cross(kernel, "auto", cpu) is COMPILED.get(kernel, PLAIN[kernel])
