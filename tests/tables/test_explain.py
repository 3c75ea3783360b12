"""The formula of a table's model: laws with quotients, the target's name, no squares of flags, a verdict."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sympy
import torch

from mlayer import MLayer
from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, solved, wave_layer
from mlayer.symbolic import explain, from_polynomial
from mlayer.symbolic.read.fit_laws import fitted_power_law
from mlayer.symbolic.read.fit_waves import fitted_waves
from mlayer.tables import Plan, Schema, TableModel, Target, fit_table, learn_schema
from mlayer.tables.explain import explain_table, symbols_of

SYMBOLS = list(sympy.symbols("m v r"))


def orbit(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    m, v, r = draw.uniform(0.5, 5, rows), draw.uniform(1, 10, rows), draw.uniform(1, 6, rows)
    return np.column_stack([m, v, r]), (m * v**2 / r * (1 + 0.02 * draw.standard_normal(rows)))[:, None]


def test_a_law_with_a_quotient_is_found() -> None:
    points, force = orbit()
    law = fitted_power_law(points, force, SYMBOLS)
    assert law is not None
    m, v, r = SYMBOLS
    assert float((law.expressions[0] / (m * v**2 / r)).simplify()) - 1 < 0.01


def test_what_is_no_law_is_not_called_one() -> None:
    points, force = orbit()
    assert fitted_power_law(points, -force, SYMBOLS) is None
    assert fitted_power_law(points, force + 100 * points[:, :1], SYMBOLS) is None
    assert fitted_power_law(points - 3, force, SYMBOLS) is None


def model_of(expression: str, frame: pd.DataFrame, target: str) -> TableModel:
    schema, _ = learn_schema(frame.drop(columns=target))
    return _model(expression, schema, target)


def _model(expression: str, schema: Schema, target: str) -> TableModel:
    layer: MLayer = from_polynomial(expression, " ".join(schema.features)).double()
    return TableModel(layer, schema, Target(target, "regression"))


def test_the_target_has_its_name_and_there_is_a_verdict() -> None:
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"a": draw.normal(size=200), "b": draw.normal(size=200)})
    frame["price"] = 3 * frame["a"] * frame["b"] + draw.normal(0, 0.01, 200)
    found = explain_table(model_of("3*a*b", frame, "price"), frame)
    assert found.text == "price = 3*a*b"
    assert found.latex.startswith("price = 3")
    assert "believe it within the range of the data" in found.verdict
    wrong = explain_table(model_of("3*a*b", frame, "price"), frame.assign(price=draw.normal(size=200)))
    assert "there is little to believe" in wrong.verdict


def test_a_poor_formula_is_called_a_sketch() -> None:
    points, force = orbit()
    layer = from_polynomial("m*v**2 - r", "m v r").double()
    found = explain(layer, (points, force), "m v r", degree=1)
    assert "a sketch, not to be relied on" in found.verdict


def test_no_squares_of_flags() -> None:
    draw = np.random.default_rng(2)
    points = np.column_stack([draw.integers(0, 2, 200).astype(float), draw.normal(size=200)])
    target = 2 * points[:, :1] + points[:, :1] * points[:, 1:] ** 2
    layer = from_polynomial("2*g**2 + g**2*x**2", "g x").double()
    found = explain(layer, (points, target), "g x", degree=4, method="taylor")
    assert not found.formulas[0].has(sympy.Symbol("g") ** 2)
    assert found.data_error is not None
    assert found.data_error < 1e-6


def test_the_degree_is_chosen_by_rows_that_were_held_out() -> None:
    draw = np.random.default_rng(3)
    points = draw.uniform(-1, 1, (400, 2))
    target = (points[:, 0] * points[:, 1] ** 3)[:, None] + 0.01 * draw.standard_normal((400, 1))
    layer = from_polynomial("x*y**3", "x y").double()
    found = explain(layer, (points, target), "x y", method="taylor")
    assert found.formulas[0].as_poly().total_degree() == 4
    assert found.data_error is not None
    assert found.data_error < 0.012


def test_long_formulas_are_cut_with_what_is_left_said() -> None:
    names = [f"x{k}" for k in range(15)]
    layer = from_polynomial(" + ".join(f"{k + 1}*{name}" for k, name in enumerate(names)), " ".join(names))
    found = explain(layer.double(), variables=" ".join(names))
    assert "3 smaller terms (deviation" in str(found)
    assert "15*x14" in str(found)
    assert "smaller terms" not in found.text


def test_a_power_of_one_input_is_not_called_waves() -> None:
    """A model of slow waves fits it within the range of the data; the law is the simpler claim."""
    draw = np.random.default_rng(0)
    axis = draw.uniform(0.4, 30, 300)
    period = 365.25 * axis**1.5 * (1 + 0.005 * draw.standard_normal(300))
    rows = Rows(axis[:, None], period[:, None], np.ones(300))
    layer = wave_layer(solved(WaveFit(np.array([0.05, 0.1]), np.array([0, 0])), rows), 1)
    found = explain(layer, (axis[:, None], period[:, None]), ["axis"])
    assert found.formula.method == "power law"
    assert str(found.formula.expressions[0]).endswith("axis**(3/2)")


def test_the_seasons_and_levels_of_many_groups_are_read_exactly() -> None:
    """Fifteen products of two inputs made one null space of the power 31, and no formula was found."""
    draw = np.random.default_rng(0)
    store = draw.integers(0, 6, 900)
    x = np.column_stack([np.sort(draw.uniform(-1, 1, 900)), store[:, None] == np.arange(6)])
    y = store * (1 + x[:, 0]) + np.cos(20 * x[:, 0] + store)
    pairs = tuple((j, g) for g in range(1, 7) for j in range(g))
    waves = WaveFit(np.array([20.0]), np.array([0]), tuple(range(1, 7)), pairs)
    layer = wave_layer(solved(waves, Rows(x, y[:, None], np.ones(900))), 7)
    found = explain(layer, x)
    assert found.formula.method == "waves"
    assert found.largest_error < 1e-5
    np.testing.assert_allclose(found.formula(x)[:, 0], y, atol=1e-4)


def test_a_constant_model_is_explained() -> None:
    """Its variation was rounding, of which the formula explained 0 %."""
    layer = wave_layer(WaveFit.linear(np.array([[123.4], [1e-14]])), 1)
    found = explain(layer, np.arange(50.0)[:, None])
    assert (
        found.verdict == "the formula explains 100% of the model's variation: it can stand for the model here"
    )


def test_every_name_of_a_column_becomes_a_symbol() -> None:
    """The square of m\xb2 is a digit to Python, and still no part of a name."""
    odd = ["area m\xb2", "x\xbd", "\u2167", "\uff11", "\xaa", "", "!", "!!", "\xb2", "a-b", "a b", "\u0301x"]
    names = symbols_of(tuple(odd))
    assert len(set(names)) == len(odd)
    assert all(name.isidentifier() for name in names), names
    frame = pd.DataFrame({"m\xb2": np.arange(8.0), "y": 3 * np.arange(8.0)})
    schema, _ = learn_schema(frame[["m\xb2"]])
    model = TableModel(
        from_polynomial("3*x", "x").double(), schema, Target("price \u20ac/m\xb2", "regression")
    )
    assert explain_table(model, frame).text == "price_m2 = 3*m2"
    many = symbols_of(tuple("!" * k for k in range(3000)))
    assert many[:3] == ["x", "x_2", "x_3"]
    assert len(set(many)) == 3000


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_a_sum_of_waves_is_as_near_as_it_says(seed: int) -> None:
    """Digits were cut one by one: waves that cancel each other were off by a factor of 1e4 and more."""
    layer = MLayer(2, 1, matrix_size=6, embedding_size=None).double()
    draw = np.random.default_rng(seed)
    with torch.no_grad():
        for weights in layer.parameters():
            weights.copy_(torch.from_numpy(draw.normal(size=weights.shape)))
    points = draw.uniform(-1, 1, (120, 2))
    values = layer(torch.from_numpy(points)).detach().numpy()
    found = fitted_waves(layer, points, values, list(sympy.symbols("x y")), None)
    assert found is not None
    expression = sympy.lambdify(sympy.symbols("x y"), found.expressions[0])
    error = np.sqrt(np.mean(np.square(expression(*points.T) - values[:, 0])))
    assert error == pytest.approx(found.residual, rel=1e-6)
    assert error < values.std()


def test_no_waves_are_looked_for_along_many_columns() -> None:
    """One wave along 62 columns, most of them categories, has 124 rates, and took 15 s to find."""
    layer = MLayer(40, 1, matrix_size=6, embedding_size=None).double()
    points = np.random.default_rng(0).normal(size=(90, 40))
    assert fitted_waves(layer, points, points[:, :1], list(sympy.symbols("x0:40")), None) is None


def test_the_formula_of_a_series_whose_level_has_shifted_is_that_of_its_forecast() -> None:
    """Its waves were fitted again to rows of three levels: the constant was a mean of them."""
    days = np.arange(700)
    level = 100 - 40 * (days > 250) + 15 * (days > 500)
    noise = np.random.default_rng(3).normal(0, 2, 700)
    table = pd.DataFrame({"date": pd.date_range("2022-01-01", periods=700), "y": level + noise})
    table["y"] += 10 * np.sin(2 * np.pi * days / 7)
    model = fit_table(table, Plan("y")).model
    assert [round(day) for day, _ in model.facts["shifts"]] == [250, 500]
    found = explain_table(model, table)
    assert found.largest_error < 1
    assert found.data_error is not None
    assert found.data_error == pytest.approx(2, rel=0.15)
    last = model.predict(table.tail(1)).outputs
    np.testing.assert_allclose(found.formula(found.points[-1:])[:, 0], last, atol=1.0)
