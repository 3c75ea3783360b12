"""Formulas out: exact ones, nearly equal eigenvalues, fitted ones; pictures; complaints."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import sympy
import torch
from torch import Tensor

import mlayer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn import gauge
from mlayer.symbolic import (
    determinant,
    draw_board,
    explain,
    from_polynomial,
    plan,
    read_formula,
    rotation,
    sum_of_cosines,
    to_sympy,
)
from mlayer.symbolic.read.formula import simplest, weights_of
from mlayer.symbolic.read.taylor import shifted, taylor
from mlayer.symbolic.read.term_selection import Selection, select, snapped
from mlayer.symbolic.read.to_sympy import split_data

X, Y, Z = sympy.symbols("x y z")


def full(seed: int, inputs: int, n: int, **arguments: object) -> mlayer.MLayer:
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, object] = {"init": "balanced", "dtype": torch.float64, "generator": generator}
    return mlayer.MLayer(inputs, 1, n, **(options | arguments))  # type: ignore[arg-type]


def test_polynomials_in_any_basis() -> None:
    layer = from_polynomial("x*y*z - 2*x**2 + 3", "x y z", dtype=torch.float64).with_structure("full")
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(layer.matrix_size, layer.matrix_size, generator=generator, dtype=torch.float64)
    found = read_formula(gauge.transform(layer, matrix=basis), "x y z")
    assert found.expressions == (X * Y * Z - 2 * X**2 + 3,)
    assert found.exact


def test_embeddings_are_multiplied_in() -> None:
    layer = from_polynomial("x*y", "x y", dtype=torch.float64)
    U, u = torch.tensor([[1.0, 2.0], [0.0, 1.0]]).double(), torch.tensor([0.0, 3.0]).double()
    other = mlayer.MLayer.from_weights(
        layer.generators, layer.readout, embedding=U, embedding_bias=u, structure="nilpotent"
    )
    assert sympy.expand(to_sympy(other, "x y") - (X + 2 * Y) * (Y + 3)) == 0
    assert to_sympy(other, "x y", factor=True) == (X + 2 * Y) * (Y + 3)


@pytest.mark.parametrize(
    "text",
    [
        "sin(2*x)",
        "exp(-x/2)*(x**2 + 1)*cos(3*x) + x",
        "x*exp(x)",
        "cos(3*x) - 2*sin(3*x) + 1",
        "exp(x) + exp(2*x)",
    ],
)
def test_one_input_without_bias_is_exact(text: str) -> None:
    layer = from_polynomial(text, "x", dtype=torch.float64)
    found = read_formula(layer)
    assert found.method == "waves"
    points = np.linspace(-3, 3, 31)[:, None]
    call = sympy.lambdify([X], sympy.sympify(text), "mpmath")
    wanted = np.array([[float(call(value))] for value in points[:, 0]])
    assert np.abs(found(points) - wanted).max() < 1e-6 * np.abs(wanted).max()


def test_frequencies_amplitudes_and_phases() -> None:
    found = to_sympy(sum_of_cosines([2, 1], [3, 5.5], [0, 0.5], dtype=torch.float64))
    assert found == 2 * sympy.cos(3 * X) + sympy.cos(sympy.Rational(11, 2) * X + sympy.Rational(1, 2))
    assert to_sympy(rotation(2.5)) == [sympy.cos(5 * X / 2), sympy.sin(5 * X / 2)]


@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-10, 1e-7])
def test_nearly_equal_eigenvalues(gap: float) -> None:
    """[[1, 1], [gap, 1]] has the eigenvalues 1 +- sqrt(gap); the formula is x e^x."""
    T = torch.tensor([[[1.0, 1.0], [gap, 1.0]]], dtype=torch.float64)
    S = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64)
    found = read_formula(mlayer.MLayer.from_weights(T, S))
    coefficients = [abs(float(c)) for c in found.expressions[0].atoms(sympy.Number)]
    assert max(coefficients, default=1) < 10
    points = np.linspace(-1, 1, 11)[:, None]
    assert np.abs(found(points)[:, 0] - points[:, 0] * np.exp(points[:, 0])).max() < 1e-6


def test_a_list_of_two_rows_is_two_points() -> None:
    one, two = mlayer.MLayer(1, 1, matrix_size=2), mlayer.MLayer(2, 1, matrix_size=2)
    for layer, rows in ((one, [[0.1], [0.2]]), (two, [[0.1, 0.2], [0.3, 0.4]])):
        points, targets = split_data(layer, rows)
        assert points is not None
        assert points.tolist() == rows
        assert targets is None
    points, targets = split_data(two, [[[0.1, 0.2], [0.3, 0.4]], [5.0, 6.0]])
    assert points is not None
    assert targets is not None
    assert (points.tolist(), targets.tolist()) == ([[0.1, 0.2], [0.3, 0.4]], [[5.0], [6.0]])


def test_a_bias_that_does_not_commute_is_not_called_exact() -> None:
    # exp([[0, 1], [x, 0]]) holds cosh(sqrt(x)): no sum of waves.
    T = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)
    B, S = torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double(), torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]).double()
    layer = mlayer.MLayer.from_weights(T, S, matrix_bias=B)
    with pytest.raises(ArgumentError, match="without an exact formula"):
        to_sympy(layer, method="exact")
    found = read_formula(layer, data=np.linspace(-1, 1, 200))
    assert not found.exact
    # The series of cosh(sqrt(x)) begins 1 + x/2 + x^2/24.
    polynomial = sympy.Poly(found.expressions[0], X)
    assert abs(float(polynomial.coeff_monomial(X)) - 0.5) < 1e-3
    assert abs(float(polynomial.coeff_monomial(X**2)) - 1 / 24) < 1e-3


def test_taylor_against_automatic_differentiation() -> None:
    layer = full(0, 2, 4, embedding_size=3)
    point = torch.tensor([0.2, -0.1], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return layer(x)[0]

    found = taylor(weights_of(layer), point.numpy(), 3)[0]
    gradient = torch.autograd.functional.jacobian(f, point)
    hessian = torch.autograd.functional.hessian(f, point)
    assert found[0, 0] == pytest.approx(f(point).item(), rel=1e-12)
    assert [found[1, 0], found[0, 1]] == pytest.approx(gradient.tolist(), rel=1e-10)
    assert [2 * found[2, 0], found[1, 1], 2 * found[0, 2]] == pytest.approx(
        [hessian[0, 0].item(), hessian[0, 1].item(), hessian[1, 1].item()], rel=1e-10
    )
    moved = shifted({(2, 1): 1.0}, np.array([1.0, 2.0]))  # (x - 1)^2 (y - 2)
    wanted = sympy.Poly((X - 1) ** 2 * (Y - 2), X, Y)
    assert {k: v for k, v in moved.items() if v} == {k: float(v) for k, v in wanted.terms()}


def test_a_fitted_layer_is_read_back() -> None:
    """A few hundred steps on x*y - y^2/2 + 1; terms, numbers and all come back."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(400, 2, dtype=torch.float64, generator=generator) - 1
    y = x[:, :1] * x[:, 1:] - x[:, 1:] ** 2 / 2 + 1
    layer = full(1, 2, 5, embedding_size=None)
    optimizer = torch.optim.Adam(layer.parameters(), 0.02)
    for _ in range(300):
        optimizer.zero_grad()
        (layer(x) - y).square().mean().backward()
        optimizer.step()
    wanted = X * Y - Y**2 / 2 + 1
    assert to_sympy(layer, "x y", data=(x, y)) == wanted
    noisy = y + 0.02 * torch.randn(y.shape, dtype=torch.float64, generator=generator)
    explanation = explain(layer, (x, noisy), "x y")
    assert explanation.formulas == (wanted,)
    assert explanation.data_error == pytest.approx(0.02, rel=0.1)
    assert explanation.error < 0.05
    assert "error against the data" in str(explanation)


def test_a_law_is_read_from_a_trained_layer_alone() -> None:
    """Terms of high degree follow the departures of a layer, also at unseen points."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(400, 3, dtype=torch.float64, generator=generator) - 1
    y = x[:, :1] * x[:, 1:2] + x[:, 2:]
    layer = full(1, 3, 8, embedding_size=None)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=80, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (layer(x) - y).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert 1e-4 < ((layer(x) - y).std() / y.std()).item() < 0.01
    assert to_sympy(layer, "x y z", data=x) == X * Y + sympy.Symbol("z")


def test_waves_are_fitted_where_they_are_not_exact() -> None:
    """A bias that nearly commutes: the wave is found on the data."""
    layer = sum_of_cosines([1.5], [4], [0.3], dtype=torch.float64).with_structure("full")
    noise = 1e-3 * torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = mlayer.MLayer.from_weights(layer.generators, layer.readout, matrix_bias=noise)
    x = np.linspace(0, 3, 300)[:, None]
    y = 1.5 * np.cos(4 * x + 0.3)
    found = read_formula(layer, data=(x, y), method="fit")
    assert found.residual < 1e-6
    assert np.abs(found(x + 3) - 1.5 * np.cos(4 * (x + 3) + 0.3)).max() < 1e-4  # goes on beyond the data


def test_traces_of_training_are_dropped_when_targets_are_given() -> None:
    text = "2*cos(3*x) + exp(-x)*cos(11*x)/10000000"
    layer = from_polynomial(text, "x", dtype=torch.float64)
    x = np.linspace(0, 4, 300)
    assert to_sympy(layer, data=(x, 2 * np.cos(3 * x))) == 2 * sympy.cos(3 * X)


def test_selection_drops_what_is_noise() -> None:
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((500, 60))
    target = 2 * columns[:, 3] - columns[:, 10] / 3 + 0.01 * rng.standard_normal(500)
    chosen = select(columns, target, 1e-7)
    assert chosen.terms == [3, 10]
    assert snapped(columns, target, chosen, 1e-7)[0] == 2.0
    assert snapped(columns, target, chosen, 1e-7)[1] == 1 / -3
    off = 0.7123456 * columns[:, 3] + 1e-4 * rng.standard_normal(500)  # no simple fraction
    chosen = select(columns, off, 1e-7)
    assert abs(snapped(columns, off, chosen, 1e-7)[0] - 0.7123456) < 1e-4


def test_no_fraction_that_worsens_the_fit() -> None:
    column = np.random.default_rng(0).standard_normal((100, 1))
    target = 0.8 * column[:, 0]
    loose = Selection([0], np.array([0.8]), np.array([0.1]), 0.0)  # errors that would allow 1
    assert snapped(column, target, loose, 1e-7) == [0.8]


def test_simplest_fraction() -> None:
    assert simplest(math.pi, 0.01) * 7 == 22
    assert simplest(-0.5, 0.0) == simplest(-0.5, 0.1)
    assert simplest(1e-9, 1e-6) == 0


def test_explanations_and_pictures() -> None:
    explanation = explain(from_polynomial(["x*y/2", "x"], "x y", dtype=torch.float64), variables="x y")
    assert explanation.text == "p0 = x*y/2\np1 = x"
    assert explanation.latex == "p_{0} = \\frac{x y}{2}\np_{1} = x"
    assert explanation.error < 1e-12
    assert explanation.data_error is None
    assert isinstance(explanation.plot(), matplotlib.figure.Figure)
    x = np.linspace(0, 1, 20)
    curve = explain(from_polynomial("x**2", "x"), (x, x**2)).plot()
    assert [text.get_text() for text in curve.axes[0].get_legend().get_texts()] == [
        "data",
        "layer",
        "formula",
    ]
    with pytest.raises(ArgumentError, match="1 or 2 inputs"):
        explain(from_polynomial("x*y*z", "x y z")).plot()
    with pytest.raises(ArgumentError, match="output must be from 0 to 1"):
        explanation.plot(2)
    with pytest.raises(ArgumentError, match="output must be from 0 to 1; got 'p0'"):
        explanation.plot("p0")  # type: ignore[arg-type]


@pytest.mark.parametrize("points", [[0.1, 0.2], np.zeros((3, 1)), np.zeros((3, 3))])
def test_a_formula_is_evaluated_at_rows_of_its_variables(points: Any) -> None:
    formula = read_formula(from_polynomial("x*y", "x y"), "x y")
    with pytest.raises(ArgumentError, match=r"x must be of shape \(count, 2\); got shape"):
        formula(points)


def test_boards_are_drawn_with_their_forms() -> None:
    drawing = draw_board(plan("a*b*c", "a b c"))
    labels = {text.get_text() for text in drawing.axes[0].texts}
    assert {label.strip("0123456789./") for label in labels} == {"a", "b", "c", "read"}
    assert draw_board(determinant(3)).axes[0].get_title().startswith("M, 8 x 8")
    with pytest.raises(ArgumentError, match="at most 40 rows"):
        draw_board(determinant(6))


def test_invalid_arguments() -> None:
    layer = full(0, 2, 4, embedding_size=None)
    with pytest.raises(ArgumentError, match="data must be given"):
        to_sympy(layer)
    with pytest.raises(ArgumentError, match="2 names"):
        to_sympy(layer, "x")
    with pytest.raises(ArgumentError, match="method must be one of"):
        to_sympy(layer, method="guess")
    with pytest.raises(ArgumentError, match="tolerance must be between"):
        to_sympy(layer, tolerance=2.0)
    with pytest.raises(ArgumentError, match="degree must be an integer"):
        to_sympy(layer, degree=-1)
    with pytest.raises(ArgumentError, match=r"shape \(count, 2\)"):
        to_sympy(layer, data=np.zeros((4, 3)))
    with pytest.raises(ArgumentError, match=r"targets of shape \(4, 1\)"):
        to_sympy(layer, data=(np.zeros((4, 2)), np.zeros(3)))
    with pytest.raises(ArgumentError, match="data must be finite"):
        to_sympy(layer, data=np.full((4, 2), np.nan))
    with pytest.raises(ArgumentTypeError, match="layer must be an MLayer"):
        to_sympy(torch.nn.Linear(2, 1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="monomials"):
        to_sympy(full(0, 60, 4, embedding_size=None), degree=6, data=np.eye(4, 60))
    deep = mlayer.MLayer(30, 1, 20, embedding_size=None, structure="nilpotent")
    with pytest.raises(ArgumentError, match="can be written down"):
        to_sympy(deep)
    with torch.no_grad():
        layer.readout.fill_(math.nan)
    with pytest.raises(ArgumentError, match="finite weights"):
        to_sympy(layer)
