"""Laws that are no polynomials are found, and curves that only follow the data are not called laws."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch

from mlayer import MLayer
from mlayer.symbolic import explain, from_polynomial
from mlayer.symbolic.read.extrapolation_test import MISSED, worst_ends
from mlayer.symbolic.read.fit_laws import fitted_law
from mlayer.symbolic.read.parameters import FormulaNumbers

t = sympy.Symbol("t")
ROWS = 300

# The law, the range of t, and the error of its numbers with 1 % of noise.
LAWS = {
    "decay": (sympy.exp(-t / 5), 0, 20),
    "decay to a level": (3 * sympy.exp(-t / 4) + 2, 0, 15),
    "growth": (sympy.exp(sympy.Rational(3, 10) * t), 0, 10),
    "logarithm": (2 * sympy.log(t) + 1, 0.5, 20),
    "root": (3 * sympy.sqrt(t) + 1, 0.1, 20),
    "saturation": (sympy.tanh(t), -3, 3),
    "Lorentz's bump": (1 / (t**2 + 1), -3, 3),
    "Michaelis and Menten": (5 * t / (t + 2), 0.1, 20),
    "Gauss's bump": (sympy.exp(-((t - 2) ** 2) / 2), -2, 6),
    "reciprocal": (4 / t + 1, 0.5, 10),
    "logistic": (5 * sympy.tanh(t / 2 - sympy.Rational(5, 2)) + 5, 0, 10),
}


def drawn(law: sympy.Expr, low: float, high: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Points (rows, 1) and targets (rows,), by sympy's own translation to NumPy."""
    draw = np.random.default_rng(1)
    points = np.sort(draw.uniform(low, high, ROWS))[:, None]
    values = sympy.lambdify(t, law, "numpy")(points[:, 0])
    return points, values + noise * values.std() * draw.standard_normal(ROWS)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_found_with_its_numbers(name: str) -> None:
    law, low, high = LAWS[name]
    points, values = drawn(law, low, high, 0.0)
    found = fitted_law(points, values[:, None], [t])
    assert found is not None
    left = sympy.simplify(sympy.nsimplify(found.expressions[0], rational=True) - law)
    places = np.linspace(low + 0.01, high, 7)
    assert max(abs(float(left.subs(t, place))) for place in places) < 1e-6
    # Beyond the data too: that is what makes it the law.
    assert abs(float(left.subs(t, high + (high - low)))) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_with_noise_the_law_reaches_the_ends(name: str) -> None:
    law, low, high = LAWS[name]
    points, values = drawn(law, low, high, 0.02)
    found = fitted_law(points, values[:, None], [t])
    assert found is not None
    assert found.residual < 1.05 * 0.02 * values.std()
    ends = worst_ends(found.expressions[0], [t], points, values)
    assert ends is not None
    assert ends.ratio < MISSED


def polynomial(points: np.ndarray, values: np.ndarray, degree: int) -> sympy.Expr:
    numbers = np.polynomial.polynomial.polyfit(points[:, 0], values, degree)
    return sum(sympy.Float(float(c)) * t**k for k, c in enumerate(numbers))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("degree", [3, 4, 6])
def test_a_polynomial_that_follows_another_curve_misses_the_ends(name: str, degree: int) -> None:
    law, low, high = LAWS[name]
    points, values = drawn(law, low, high, 0.0)
    ends = worst_ends(polynomial(points, values, degree), [t], points, values)
    assert ends is not None
    assert ends.ratio > MISSED


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_a_polynomial_that_is_the_law_reaches_the_ends(degree: int, noise: float) -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        law = sum(sympy.Float(float(c)) * t**k for k, c in enumerate(draw.normal(size=degree + 1)))
        points, values = drawn(law, -1, 2, noise)
        ends = worst_ends(polynomial(points, values, degree), [t], points, values)
        assert ends is not None
        assert ends.ratio < MISSED


def test_noise_that_grows_with_the_value_is_no_reason_to_doubt() -> None:
    draw = np.random.default_rng(0)
    points = draw.uniform(0.1, 10, (400, 1))
    values = points[:, 0] ** 2 * (1 + 0.1 * draw.standard_normal(400))
    ends = worst_ends(polynomial(points, values, 2), [t], points, values)
    assert ends is not None
    assert ends.ratio < MISSED


def test_ends_need_values_between_them() -> None:
    draw = np.random.default_rng(0)
    flags = draw.integers(0, 2, (100, 1)).astype(float)
    assert worst_ends(2 * t + 1, [t], flags, 2 * flags[:, 0] + 1) is None


def test_numbers_are_refitted_against_scipy() -> None:
    from scipy.optimize import curve_fit

    draw = np.random.default_rng(2)
    points = draw.uniform(0, 6, (200, 1))
    values = 2 + 3 * np.exp(-0.7 * points[:, 0]) + 0.05 * draw.standard_normal(200)
    form = FormulaNumbers(sympy.Float(1.5) + sympy.Float(2.0) * sympy.exp(sympy.Float(-0.5) * t), [t])
    found = form.solve(points, values)
    assert found is not None
    theirs, covariance = curve_fit(
        lambda x, c, a, k: c + a * np.exp(k * x), points[:, 0], values, p0=[1.5, 2.0, -0.5]
    )
    order = np.argsort(found.values)
    np.testing.assert_allclose(found.values[order], np.sort(theirs), rtol=1e-6)
    theirs_errors = np.sqrt(np.diag(covariance))[np.argsort(theirs)]
    np.testing.assert_allclose(found.errors[order], theirs_errors, rtol=1e-3)


def test_a_quartic_that_follows_a_decay_is_not_believed() -> None:
    """The layer is the quartic itself: its formula is as good as the model, which is not enough."""
    points, values = drawn(sympy.exp(-t / 5), 0, 20, 0.0)
    layer = from_polynomial(str(polynomial(points, values, 4)), "t").double()
    found = explain(layer, (points, values), "t")
    assert found.formula.exact
    assert "a fit within the range of the data, not the law" in found.verdict
    assert "believe" not in found.verdict
    cubic = explain(
        from_polynomial("t**3 - t", "t").double(), (points, points[:, 0] ** 3 - points[:, 0]), "t"
    )
    assert "it predicts the ends" in cubic.verdict


def test_the_formula_of_a_decay_is_the_decay() -> None:
    points, values = drawn(sympy.exp(-t / 5), 0, 20, 0.0)
    layer = MLayer(1, 1, matrix_size=4, init="balanced", generator=torch.Generator().manual_seed(0)).double()
    assert explain(layer, (points, values), "t").text == "p = exp(-t/5)"
