"""Very small and very large weights: nothing that vanishes or overflows on the way may certify."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from certificate_layers import random_layer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds import methods
from mlayer.certificates.bounds.cubic_norm import flat_norm, symmetric_norm
from mlayer.certificates.bounds.quartic_tensor import Quartic, _Total, quartic_form
from mlayer.certificates.derivatives.spectral import SpectralPath, symmetrized
from mlayer.certificates.linalg import gram_norm, proves_positive
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.problem.region import Norm
from mlayer.errors import ArgumentError
from mlayer.nn import MLayer

METHODS = methods.names()


def layer_of(n: int = 1, embedding_size: int | None = None, **entries: Any) -> MLayer:
    """A layer of one input and two classes, all zeros but for these parameters."""
    layer = MLayer(1, 2, matrix_size=n, embedding_size=embedding_size, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            value = torch.tensor(entries.pop(name, 0.0), dtype=torch.float64)
            parameter.copy_(value.expand_as(parameter))
    assert not entries
    return layer


def one_exponential(slope: float, weight: float, at: float = 0.0) -> MLayer:
    """Margin weight e^at (2 - e^(slope x)) of class 0 over class 1: broken at slope x = log 2."""
    return layer_of(
        free_generators=slope,
        free_matrix_bias=at,
        readout=[[[-weight]], [[0.0]]],
        output_bias=[2 * weight * math.exp(at), 0.0],
    )


def radius(layer: MLayer, method: str, norm: Norm = "linf", x: float = 0.0) -> float:
    inputs, labels = torch.full((1, 1), x, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    return float(Certifier(layer, fit_steps=0, norm=norm)(inputs, labels, method=method).radius[0])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("at", [0.0, 1.0])
@pytest.mark.parametrize(
    ("slope", "weight"),
    [
        (2.0**-18, 1.0),
        (1.0, 2.0**-72),
        (2.0**-6, 2.0**-50),
        (1.0, 2.0**-330),
        (2.0**-90, 2.0**-300),
        (2.0**18, 1.0),
        (1.0, 2.0**90),
        (2.0**90, 2.0**200),
    ],
)
def test_weights_of_every_size(method: str, slope: float, weight: float, at: float, norm: Norm) -> None:
    """The radius is that of size 1, in other units."""
    expected = radius(one_exponential(1.0, 1.0, at), method, norm)
    assert 0 < expected <= math.log(2)
    found = slope * radius(one_exponential(slope, weight, at), method, norm)
    assert found == pytest.approx(expected, rel=1e-3)


def test_too_small_or_too_large_to_be_bounded() -> None:
    for slope in (2.0**-545, 2.0**-200, 2.0**200):
        with pytest.raises(ArgumentError, match="layer must be one with generators"):
            Certifier(one_exponential(slope, 1.0), fit_steps=0)
    x, labels = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    for layer in (one_exponential(1.0, 0.01, at=705.0), one_exponential(1.0, 2.0**-545, at=1.0)):
        found = Certifier(layer, fit_steps=0)(x, labels)
        assert found.radius.item() == 0
        assert found.method == ("out of range",)


@pytest.mark.parametrize("seed", [1, 3])
def test_the_quartic_term_in_other_units(seed: int) -> None:
    layer, x, labels = random_layer("full", seed)
    model = Certifier(layer, fit_steps=0)._model
    row = Row(model, x[0].numpy(), int(labels[0]))
    pair, path = row.pair((row.label + 1) % len(row.outputs)), row.derivatives
    assert isinstance(path, SpectralPath)
    form, off = quartic_form(path, pair.W, 4)
    assert form.dtype == np.float64
    fall = Quartic(pair, math.inf).fall
    assert fall > 0
    for power in (-400, -149, -60, 60, 130, 400):
        same, same_off = quartic_form(path, pair.W * 2.0**power, 4)
        np.testing.assert_allclose(same * 2.0**-power, form, rtol=0, atol=1e-6 * np.abs(form).max())
        assert same_off * 2.0**-power == pytest.approx(off)
    generators = path.generators
    for power in (-70, -40, 40, 70):
        path.generators = generators * 2.0**power
        same, _ = quartic_form(path, pair.W, 4)
        np.testing.assert_allclose(same * 2.0 ** (-4 * power), form, rtol=0, atol=1e-6 * np.abs(form).max())


@pytest.mark.parametrize("n", [1, 2, 40, 300])
def test_nothing_is_proved_of_what_is_no_number(n: int) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        for place in ((0, 0), (n - 1, n - 1), (n - 1, 0)):
            A = np.eye(n)
            A[place] = A[place[::-1]] = bad
            assert not proves_positive(A)
            assert not proves_positive(np.stack([np.eye(n), A]))
    assert not proves_positive(np.eye(n), math.nan)


def test_single_precision_is_not_proved_by_the_shift_of_double() -> None:
    """A matrix that is indefinite by less than single precision tells."""
    for n in (3, 21, 300):
        v = np.ones(n) / math.sqrt(n)
        A = (np.eye(n) - (1 + 1e-8) * np.outer(v, v)).astype(np.float32)
        least = float(np.linalg.eigvalsh(A.astype(np.float64))[0])
        assert proves_positive(A) <= (least >= 0)  # type: ignore[arg-type]


def test_norms_of_every_size() -> None:
    random = np.random.default_rng(0)
    A = random.standard_normal((4, 9))
    norm = float(np.linalg.norm(A, 2))
    for power in (-1000, -500, 0, 500, 1000):
        assert 1 <= gram_norm(A * 2.0**power) / (norm * 2.0**power) <= 1 + 1e-6
    assert gram_norm(np.zeros((2, 3))) == 0
    assert gram_norm(np.full((2, 3), math.inf)) == gram_norm(np.full((2, 3), math.nan)) == math.inf


@pytest.mark.parametrize("at", [100.0, 299.0])
@pytest.mark.parametrize("method", ["third_order", "fourth_order", "best"])
def test_exponentials_near_the_end_of_the_range(method: str, at: float) -> None:
    """Margins of e^at: certified or not, but never beyond the break, and without a warning."""
    assert 0 <= radius(one_exponential(1.0, 0.01, at=at), method) <= math.log(2)


def test_the_error_of_the_product_in_single_precision() -> None:
    """It is what the theory says, 5 % less would not agree; and the true error is below it."""
    random = np.random.default_rng(0)
    d, k = 5, 12
    i, j = np.array([(a, b) for a in range(d) for b in range(a, d)]).T
    total, exact, expected = _Total(i == j), np.zeros((len(i), len(i))), 0.0
    twice = np.where(i == j, 1.0, math.sqrt(2))[:, None]
    for size in (1.0, 1e-3):
        left, right = random.standard_normal((2, len(i), k)) + 1j * random.standard_normal((2, len(i), k))
        total.add(size * left, right)
        exact += size * (left @ right.conj().T).real
        roundings = (2 * k + 32) * 2.0**-24
        norms = np.linalg.norm(twice * left), np.linalg.norm(twice * right)
        expected += size * float(norms[0] * norms[1]) * roundings
    assert total.error == pytest.approx(expected, rel=1e-3)
    off = twice * (total.sum.astype(np.float64) * total.unit - exact) * twice.T
    assert 0 < np.linalg.norm(off) <= total.error


def test_cubic_norms_of_every_size() -> None:
    random = np.random.default_rng(0)
    C = symmetrized(random.standard_normal((4, 4, 4)))
    norm = symmetric_norm(C)
    assert norm < flat_norm(C)
    for power in (-1000, -520, 500):
        assert symmetric_norm(C * 2.0**power) == pytest.approx(norm * 2.0**power, rel=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("method", METHODS)
def test_readouts_that_nearly_agree(method: str, norm: Norm) -> None:
    """Outputs of size 1 whose difference is 2^-53 e^b (2 - e^x): noise, if they were subtracted."""
    b = 0.4095227709334103
    layer = layer_of(
        2,
        free_generators=[[1.0, 0.0], [0.0, 0.0]],
        free_matrix_bias=[[b, 0.0], [0.0, b]],
        readout=[[[1 - 2.0**-53, 0.0], [0.0, 2.0**-52]], [[1.0, 0.0], [0.0, 0.0]]],
    )
    assert radius(layer, method, norm) <= math.log(2)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [2.0**20, 2.0**40, 1e17])
def test_matrices_that_cancel(method: str, norm: Norm, size: float) -> None:
    """M(x) = (size + x) - size = x, but computed with the rounding of size: margin 2 - e^x."""
    layer = layer_of(
        1,
        1,
        free_generators=1.0,
        embedding=1.0,
        embedding_bias=size,
        free_matrix_bias=-size,
        readout=[[[-1.0]], [[0.0]]],
        output_bias=[2.0, 0.0],
    )
    for x in (0.0, 0.25 * size * 2.0**-53, 0.49 * size * 2.0**-52, 0.5):
        true = math.log(2) - x
        assert radius(layer, method, norm, x) <= max(true, 0.0)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("method", METHODS)
def test_biases_that_cancel(method: str, norm: Norm) -> None:
    """Margin 16 - 15.8 e^x between outputs of size 1e17."""
    layer = layer_of(free_generators=1.0, readout=[[[-7.9]], [[7.9]]], output_bias=[1e17, 1e17 - 16])
    assert radius(layer, method, norm) <= math.log(16 / 15.8)
