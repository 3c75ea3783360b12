"""The spectral view on models whose frequencies are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mlayer import MLayer
from mlayer.errors import ArgumentError
from mlayer.nn import spectrum


def damped(frequency: float, growth: float) -> Tensor:
    return torch.tensor([[growth, -frequency], [frequency, growth]], dtype=torch.float64)


def blocks(*matrices: Tensor) -> Tensor:
    return torch.block_diag(*matrices)


def two_waves() -> MLayer:
    """3 exp(-0.2 x) cos(5 x + 0.4) + cos(11 x): the matrix bias holds the phase."""
    T = blocks(damped(5.0, -0.2), damped(11.0, 0.0))[None]
    B = blocks(damped(0.4, 0.0), damped(0.0, 0.0))
    S = torch.zeros(1, 4, 4, dtype=torch.float64)
    S[0, 0, 0], S[0, 2, 2] = 3, 1
    P = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inverse = torch.linalg.inv(P)
    return MLayer.from_weights(P @ T @ inverse, inverse.mT @ S @ P.mT, matrix_bias=P @ B @ inverse)


def test_the_model_is_the_function() -> None:
    x = torch.linspace(-1, 5, 50, dtype=torch.float64)[:, None]
    expected = 3 * torch.exp(-0.2 * x) * torch.cos(5 * x + 0.4) + torch.cos(11 * x)
    torch.testing.assert_close(two_waves()(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("x", [-1.0, 0.3, 4.0])
def test_frequencies_and_growth_rates(x: float) -> None:
    found = spectrum.modes(two_waves(), torch.tensor([x]).double(), torch.tensor([1.0]).double())
    # Strongest first: the two modes of the wave of amplitude 3.
    torch.testing.assert_close(found.frequencies.abs(), torch.tensor([5.0, 5.0, 11.0, 11.0]).double())
    torch.testing.assert_close(
        found.growth_rates, torch.tensor([-0.2, -0.2, 0.0, 0.0], dtype=torch.float64), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(found.weights.abs(), torch.tensor([[1.5, 1.5, 0.5, 0.5]]).double())


def test_modes_make_the_output() -> None:
    layer = MLayer(3, 2, matrix_size=5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = spectrum.modes(layer, x)
    assert layer.output_bias is not None
    output = layer.output_bias + (found.weights @ found.eigenvalues.exp()).real
    torch.testing.assert_close(output, layer(x))
    assert torch.equal(found.rates, found.eigenvalues)


def test_rates_are_the_derivatives_of_the_eigenvalues() -> None:
    layer = MLayer(3, 2, matrix_size=5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, direction = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rates = spectrum.modes(layer, x, direction).rates
    h = 1e-5
    along = spectrum.eigenvalues_along(layer, x, direction, torch.tensor([-h, h]).double())
    expected = (along[1] - along[0]) / (2 * h)
    assert (rates[:, None] - expected[None, :]).abs().amin(1).max() < 1e-6
    assert (rates[:, None] - expected[None, :]).abs().amin(0).max() < 1e-6


def test_eigenvalues() -> None:
    layer = MLayer(3, 2, matrix_size=5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = spectrum.eigenvalues(layer, x)
    assert found.shape == (4, 5)
    for values, matrix in zip(found.numpy(), layer.matrix(x).detach().numpy(), strict=True):
        np.testing.assert_allclose(
            np.sort_complex(values), np.sort_complex(np.linalg.eigvals(matrix)), rtol=1e-10, atol=1e-12
        )


def test_columns_follow_one_eigenvalue() -> None:
    """Two that cross on the real line: x and 1 - x, steadily."""
    T = torch.diag(torch.tensor([1.0, -1.0])).double()[None]
    B = torch.diag(torch.tensor([0.0, 1.0])).double()
    layer = MLayer.from_weights(T, torch.zeros(1, 2, 2).double(), matrix_bias=B)
    t = torch.linspace(0, 1, 16).double()
    found = spectrum.eigenvalues_along(layer, torch.zeros(1).double(), torch.ones(1).double(), t)
    assert found.shape == (16, 2)
    steps = found.diff(dim=0).abs()
    torch.testing.assert_close(steps.mean(), torch.tensor(1 / 15).double(), rtol=1e-6, atol=1e-6)
    assert spectrum.eigenvalues_along(layer, torch.zeros(1), torch.ones(1), t[:0]).shape == (0, 2)


def test_single_precision_layers() -> None:
    layer = two_waves().float()
    assert spectrum.eigenvalues(layer, torch.ones(1)).dtype == torch.complex128
    found = spectrum.modes(layer, torch.ones(1), torch.ones(1))
    torch.testing.assert_close(
        found.frequencies.abs(), torch.tensor([5.0, 5.0, 11.0, 11.0]).double(), rtol=1e-3, atol=0.0
    )


def test_invalid_arguments() -> None:
    layer = two_waves()
    with pytest.raises(ArgumentError, match=r"x must be of shape \(1,\); got shape \(2, 1\)"):
        spectrum.modes(layer, torch.ones(2, 1))
    with pytest.raises(ArgumentError, match=r"direction must be of shape \(1,\); got shape \(2,\)"):
        spectrum.modes(layer, torch.ones(1), torch.ones(2))
    with pytest.raises(ArgumentError, match=r"start must be of shape \(1,\)"):
        spectrum.eigenvalues_along(layer, torch.ones(2), torch.ones(1), torch.ones(3))
    with pytest.raises(ArgumentError, match=r"t must be of shape \(k,\); got shape \(\)"):
        spectrum.eigenvalues_along(layer, torch.ones(1), torch.ones(1), torch.tensor(1.0))


def test_modes_of_a_defective_matrix_are_refused() -> None:
    jordan = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])
    layer = MLayer.from_weights(jordan, torch.ones(1, 2, 2))
    with pytest.raises(
        ArgumentError, match="x must be an input at which M\\(x\\) has a basis of eigenvectors"
    ):
        spectrum.modes(layer, torch.ones(1))
