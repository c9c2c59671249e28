"""Triton distances and gradients against the plain formula in float64, for sizes that do not fill tiles."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need triton (extra: kernels)")
from plogicnet.neural.vectors.kernels.cross import Backward, Forward, l1_cross, modulus_cross

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CROSS = {False: l1_cross, True: modulus_cross}


def plain(queries: torch.Tensor, candidates: torch.Tensor, modulus: bool) -> torch.Tensor:
    difference = queries[..., :, None, :] - candidates[..., None, :, :]
    if modulus:
        re, im = difference.chunk(2, dim=-1)
        return torch.hypot(re, im).sum(-1)
    return difference.abs().sum(-1)


def compare(queries: torch.Tensor, candidates: torch.Tensor, modulus: bool) -> None:
    """Assert that values agree within 1e-5 and gradients within 1e-4."""
    slope = torch.randn(plain(queries, candidates, modulus).shape, dtype=torch.float64)
    wide = (queries.double().requires_grad_(), candidates.double().requires_grad_())
    expected = plain(wide[0], wide[1], modulus)
    expected.backward(slope)  # type: ignore[no-untyped-call]
    tensors = [x.to(DEVICE).requires_grad_() for x in (queries, candidates)]
    distances = CROSS[modulus](*tensors)
    distances.backward(slope.float().to(DEVICE))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(distances.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    for tensor, reference in zip(tensors, wide, strict=True):
        assert tensor.grad is not None
        assert reference.grad is not None
        scale = reference.grad.abs().max().item()
        torch.testing.assert_close(tensor.grad.cpu().double(), reference.grad, rtol=1e-4, atol=1e-5 * max(scale, 1.0))


@settings(max_examples=8, deadline=None)
@given(
    modulus=st.booleans(),
    lead=st.sampled_from([(), (2,), (2, 1)]),
    n=st.integers(1, 70),
    m=st.integers(1, 70),
    dim=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_distances_equal_the_plain_formula(
    modulus: bool, lead: tuple[int, ...], n: int, m: int, dim: int, seed: int
) -> None:
    torch.manual_seed(seed)
    width = dim * (2 if modulus else 1)
    compare(torch.randn(*lead, n, width), torch.randn(*lead, m, width), modulus)


@pytest.mark.parametrize("modulus", [False, True])
def test_sizes_larger_than_one_tile(modulus: bool) -> None:
    torch.manual_seed(0)
    width = 70 * (2 if modulus else 1)
    compare(torch.randn(65, width), torch.randn(261, width), modulus)


@pytest.mark.parametrize("modulus", [False, True])
def test_loops_are_split_if_tiles_are_few(modulus: bool) -> None:
    assert Forward(1, 65, 261, 70, modulus, torch.device("cpu")).splits > 1
    assert Backward(1, 65, 261, 70, modulus).splits > 1


@pytest.mark.parametrize("modulus", [False, True])
def test_one_set_of_candidates_is_broadcast(modulus: bool) -> None:
    torch.manual_seed(1)
    compare(torch.randn(3, 5, 6), torch.randn(4, 6), modulus)


@pytest.mark.parametrize("modulus", [False, True])
def test_equal_vectors_have_distance_zero_and_a_finite_gradient(modulus: bool) -> None:
    same = torch.ones(2, 4, device=DEVICE, requires_grad=True)
    distance = CROSS[modulus](same, same.detach())
    distance.sum().backward()  # type: ignore[no-untyped-call]
    assert distance.abs().max().item() == 0
    assert same.grad is not None
    assert bool(torch.isfinite(same.grad).all())


@pytest.mark.parametrize("modulus", [False, True])
@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0)])
def test_empty_operands(modulus: bool, n: int, m: int) -> None:
    queries = torch.ones(n, 4, device=DEVICE, requires_grad=True)
    distance = CROSS[modulus](queries, torch.ones(m, 4, device=DEVICE))
    distance.sum().backward()  # type: ignore[no-untyped-call]
    assert distance.shape == (n, m)
