"""Norms, distances and other powers of quadratic forms are read as laws."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch

from mlayer import MLayer
from mlayer.symbolic import explain
from mlayer.symbolic.read.fit_laws import fitted_law
from mlayer.symbolic.read.parameters import FormulaNumbers

a, b, c, d = SYMBOLS = sympy.symbols("a b c d")
sqrt = sympy.sqrt

# The law, and the ranges of its inputs.
LAWS: dict[str, tuple[sympy.Expr, list[tuple[float, float]]]] = {
    "norm": (sqrt(a**2 + b**2), [(-3, 3), (-3, 3)]),
    "norm of three": (sympy.Rational(5, 2) * sqrt(a**2 + b**2 + c**2), [(-3, 3)] * 3),
    "distance from a point": (sqrt((a - 3) ** 2 + (b - 2) ** 2), [(0, 5), (0, 5)]),
    "distance of two points": (sqrt((a - c) ** 2 + (b - d) ** 2), [(0, 5)] * 4),
    "quadratic form": (sqrt(a**2 + a * b / 2 + 3 * b**2), [(-2, 2), (-2, 2)]),
    "inverse square": (1 / (a**2 + b**2), [(0.5, 3), (0.5, 3)]),
    "relativistic root": (sqrt(1 - a**2), [(0, 0.98)]),
    "relativistic mass": (a / sqrt(1 - b**2), [(1, 5), (0, 0.9)]),
    "with the speed of light": (sqrt(1 - (a / b) ** 2), [(0, 2), (2.5, 5)]),
    "field": (a / (a**2 + b**2) ** sympy.Rational(3, 2), [(0.5, 3), (0.5, 3)]),
}


def drawn(name: str, noise: float, rows: int = 200) -> tuple[np.ndarray, np.ndarray, list[sympy.Symbol]]:
    """Points, targets by sympy's own translation to NumPy, and the symbols."""
    law, ranges = LAWS[name]
    draw = np.random.default_rng(2)
    low, high = np.array(ranges).T
    points = draw.uniform(low, high, (rows, len(ranges)))
    symbols = list(SYMBOLS[: len(ranges)])
    values = sympy.lambdify(symbols, law, "numpy")(*points.T)
    return points, (values + noise * values.std() * draw.standard_normal(rows))[:, None], symbols


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_found(name: str) -> None:
    points, targets, symbols = drawn(name, 0.0)
    found = fitted_law(points, targets, symbols)
    assert found is not None
    law = LAWS[name][0]
    if name == "with the speed of light":  # a root of a quotient is a quotient of roots
        law = sqrt(b**2 - a**2) / b
    assert sympy.simplify(found.expressions[0] - law) == 0


@pytest.mark.parametrize("name", ["norm", "distance from a point", "relativistic mass"])
def test_with_noise(name: str) -> None:
    points, targets, symbols = drawn(name, 0.03, 400)
    found = fitted_law(points, targets, symbols)
    assert found is not None
    exact = drawn(name, 0.0, 400)[1]
    assert np.sqrt(np.square(found(points) - exact).mean()) < 0.01 * exact.std()


def test_explain_reads_a_norm_and_believes_it() -> None:
    points, targets, _ = drawn("norm", 0.01)
    layer = MLayer(2, 1, matrix_size=3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = explain(layer, (points, targets), "a b")
    assert sympy.simplify(found.formulas[0] - sqrt(a**2 + b**2)) == 0


def test_a_minus_inside_a_power_is_no_number() -> None:
    assert FormulaNumbers(3 * sqrt(2 - a**2), [a]).start.tolist() == [3.0, 2.0]
