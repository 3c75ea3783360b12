"""logm and sqrtm where rounding alone decides: well-conditioned matrices, and numbers near the smallest."""

from __future__ import annotations

import math

import pytest
import torch

import mlayer

UNIT_ROUNDOFF = 2.0**-53


def test_logarithms_of_well_conditioned_matrices() -> None:
    """log [[a, b], [-b, a]] is log |z| I + arg z J, z = a + ib; 24 units were lost to A^(1/2^s) - I."""
    for a in range(-3, 9):
        for b in (1, 2, 3, 5, 8):
            size, turn = math.log(a * a + b * b) / 2, math.atan2(b, a)
            exact = torch.tensor([[size, turn], [-turn, size]], dtype=torch.float64)
            found = mlayer.logm(torch.tensor([[a, b], [-b, a]], dtype=torch.float64))
            assert torch.linalg.norm(found - exact) <= 14 * UNIT_ROUNDOFF * torch.linalg.norm(exact), (a, b)


@pytest.mark.parametrize("tiny", [1e-10, 1e-5, 0.25])
def test_small_eigenvalues_beside_one_of_1(tiny: float) -> None:
    """A - I has lost them, A^(1/2^s) - I has not."""
    a = torch.tensor([[tiny, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, -0.5, 1.0]], dtype=torch.float64)
    assert mlayer.logm(a)[0, 0].item() == pytest.approx(math.log(tiny), rel=1e-12)


@pytest.mark.parametrize("power", [-1066, -1000, 900])
def test_the_derivative_of_the_root_at_every_scale(power: int) -> None:
    """L(c A, E) = L(A, E) / sqrt(c), exactly for powers of four."""
    a = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [2.0, 0.0, 5.0]], dtype=torch.float64)
    gradients = []
    for scale in (1.0, math.ldexp(1.0, power)):
        leaf = (a * scale).requires_grad_()
        (gradient,) = torch.autograd.grad(mlayer.sqrtm(leaf), leaf, a.mT / 7)
        gradients.append(gradient)
    expected = gradients[0] * math.ldexp(1.0, -power // 2)
    assert torch.linalg.norm(gradients[1] / expected.abs().max() - expected / expected.abs().max()) <= 1e-14
