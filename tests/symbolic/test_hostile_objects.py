"""Objects of sympy and Python that are no formulas, or endless: an error of ours each, and none hangs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
import torch

import mlayer
from hostile import no_hang
from mlayer.errors import ArgumentError, ArgumentTypeError, MLayerError
from mlayer.symbolic import boolean_plan, draw_board, plan, read_formula, rotation, sum_of_cosines
from mlayer.symbolic.parse.expressions import MOST_EXPRESSIONS, MOST_VARIABLES, read_expressions

X, Y = sympy.symbols("x y")
A = sympy.MatrixSymbol("A", 2, 2)
LAYER = mlayer.from_polynomial("x*y + 1", "x y")


def tower(levels: int, base: int = 2) -> Any:
    power: Any = sympy.Integer(base)
    for _ in range(levels):
        power = sympy.Pow(base, power, evaluate=False)
    return power


def doubled(levels: int) -> Any:
    """A few nodes in memory, 2^levels when they are gone through."""
    shared: Any = X
    for _ in range(levels):
        shared = sympy.Add(shared, sympy.Mul(shared, shared, evaluate=False), evaluate=False)
    return shared


def doubled_logic(levels: int) -> Any:
    shared: Any = X
    for _ in range(levels):  # without sympy's own constructor, which counts the nodes
        shared = sympy.Basic.__new__(sympy.Implies, shared, shared)
    return shared


def nested(levels: int) -> Any:
    expression: Any = X
    for _ in range(levels):
        expression = sympy.Not(expression, evaluate=False)
    return expression


OBJECTS: dict[str, Callable[[], Any]] = {
    "cases": lambda: sympy.Piecewise((X, X > 0), (Y, True)),
    "entry of a matrix": lambda: A[0, 0] * X,
    "matrix symbol": lambda: A,
    "trace": lambda: sympy.Trace(A),
    "root": lambda: sympy.CRootOf(X**5 - X - 1, 0),
    "root times x": lambda: sympy.CRootOf(X**5 - X - 1, 0) * X,
    "lambda": lambda: sympy.Lambda(X, X),
    "lambda of two": lambda: sympy.Lambda((X, Y), X & Y),
    "indexed base": lambda: sympy.IndexedBase("B"),
    "indexed": lambda: sympy.IndexedBase("B")[sympy.Idx("i")],
    "tower": lambda: tower(6),
    "tower times x": lambda: sympy.Mul(tower(5, 3), X, evaluate=False),
    "x to a tower": lambda: sympy.Pow(X, tower(6), evaluate=False),
    "shared parts": lambda: doubled(60),
    "shared parts of logic": lambda: doubled_logic(40),
    "deep logic": lambda: nested(500),
    "sum": lambda: sympy.Sum(X**Y, (Y, 0, 10**9)),
    "integral": lambda: sympy.Integral(sympy.sin(X**2), X),
    "derivative": lambda: sympy.Derivative(sympy.Function("f")(X), X),
    "unknown function": lambda: sympy.Function("f")(1) * X,
    "factorial": lambda: sympy.factorial(10**6, evaluate=False) * X,
    "infinity": lambda: sympy.oo,
    "complex infinity": lambda: sympy.Mul(sympy.zoo, X, evaluate=False),
    "imaginary": lambda: sympy.I * X,
    "division by 0": lambda: sympy.Pow(0, -1, evaluate=False),
    "long number": lambda: sympy.Integer(2) ** 100_000,
    "long decimal": lambda: sympy.Float("0." + "1" * 3000, 3000) * X,
    "large decimal": lambda: sympy.Float("1e9999"),
    "relation": lambda: X < Y,
    "logic of relations": lambda: sympy.And(X < 1, Y),
    "set": lambda: sympy.S.Naturals,
    "endless range": lambda: sympy.Range(0, sympy.oo),
    "polynomial object": lambda: sympy.Poly(X**2, X),
    "large sparse matrix": lambda: sympy.SparseMatrix(10**5, 10**5, {(0, 0): X}),
    "identity": lambda: sympy.Identity(10**9),
    "range": lambda: range(10**9),
    "endless count": itertools.count,
    "generator": lambda: (name for name in "xy"),
    "keys": {"x": 1, "y": 2}.keys,
    "100,000 texts": lambda: ["x"] * 100_000,
    "100,000 names": lambda: [f"x{k}" for k in range(100_000)],
    "endless array": lambda: np.broadcast_to(np.float64(1), (10**9,)),
    "endless tensor": lambda: torch.ones(1).expand(10**12),
    "array of 0 dimensions": lambda: np.array("x"),
    "class": lambda: sympy.Symbol,
    "number of 5000 digits": lambda: 10**5000,
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plan": lambda given: plan(given, "x y"),
    "plan, in a list": lambda given: plan([given, "x"], "x y"),
    "from_boolean": lambda given: mlayer.from_boolean(given, "x y"),
    "boolean_plan, in a list": lambda given: boolean_plan([given, "x"], "x y"),
    "variables": lambda given: plan("1", given),
    "a variable": lambda given: plan("1", [given, "y"]),
    "variables of from_boolean": lambda given: mlayer.from_boolean("1", given),
    "variables of to_sympy": lambda given: mlayer.to_sympy(LAYER, given),
    "variables of read_formula": lambda given: read_formula(LAYER, given),
    "names of explain": lambda given: mlayer.explain(LAYER, None, None, given),
    "data of explain": lambda given: mlayer.explain(LAYER, given),
    "box": lambda given: mlayer.from_function(lambda x: x[:, 0], given, 1e-2),
    "tolerance": lambda given: mlayer.from_function(lambda x: x[:, 0], (-1, 1), given),
    "amplitudes": lambda given: sum_of_cosines(given, [1.0]),
    "omega": rotation,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_object_is_refused(function: str) -> None:
    for name, make in OBJECTS.items():
        given = make()
        with no_hang(), pytest.raises(MLayerError) as caught:
            FUNCTIONS[function](given)
        assert len(str(caught.value)) < 2000, name


def test_counts() -> None:
    with pytest.raises(ArgumentError, match=f"at most {MOST_EXPRESSIONS}"):
        plan(["x"] * (MOST_EXPRESSIONS + 1), "x")
    with pytest.raises(ArgumentError, match=f"at most {MOST_VARIABLES}"):
        plan("1", [f"x{k}" for k in range(MOST_VARIABLES + 1)])
    with pytest.raises(ArgumentError, match="rows of truth tables"):
        boolean_plan(["a"] * 20, [f"a{k}" for k in range(14)])
    with pytest.raises(ArgumentError, match="terms when multiplied out"):
        plan(["(x + y + z + 1)**30"] * 5, "x y z")
    with pytest.raises(ArgumentError, match="names must be 1 texts"):
        mlayer.explain(LAYER, None, "x y", [3])


@pytest.mark.parametrize("kind", [list, tuple, np.array, sympy.Matrix, sympy.ImmutableMatrix])
def test_lists_tuples_arrays_and_matrices(kind: Callable[[Any], Any]) -> None:
    assert plan(kind([X * Y, X + 1]), [X, Y]).expressions == (X * Y, X + 1)


@pytest.mark.parametrize(
    "expression",
    [
        (X + Y) ** 3 * (X - 1) / 3 + sympy.sqrt(2) * X,
        sympy.exp(2 * X + 1) * sympy.cos(Y) + sympy.pi**2,
        0.1 * X**2 - 0.3 * Y + sympy.Rational(1, 7),
        sympy.log(2) * X + sympy.tan(1) * Y - sympy.EulerGamma,
        (1 + sympy.GoldenRatio) ** 2 * X,
    ],
)
def test_what_sympy_has_worked_out_stays_as_it_is(expression: Any) -> None:
    assert read_expressions(expression, [X, Y]) == [expression]


def test_symbols_of_the_same_name_are_the_same() -> None:
    assert read_expressions(sympy.Symbol("x", positive=True) + sympy.Dummy("y"), [X, Y]) == [X + Y]


def test_functions_that_raise() -> None:
    with pytest.raises(ArgumentError, match="raises ZeroDivisionError: division by zero"):
        mlayer.from_boolean(lambda a, b: 1 / 0, "a b")


def test_sympy_numbers_of_builders() -> None:
    t = torch.tensor([0.5], dtype=torch.float64)
    assert torch.equal(
        rotation(sympy.pi / 2, dtype=torch.float64)(t), rotation(torch.pi / 2, dtype=torch.float64)(t)
    )
    with pytest.raises(ArgumentTypeError, match="omega"):
        rotation(10**5000)


def test_high_degrees_are_not_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factoring these takes time that is exponential in the degree."""
    degrees = []

    def factor(expression: Any) -> Any:
        degrees.append(sympy.degree(expression, X))
        return expression

    monkeypatch.setattr(sympy, "factor", factor)
    for k in (3, 6):
        assert plan(sympy.swinnerton_dyer_poly(k, X), "x").degree == 2**k
    assert degrees == [8]


def test_dense_high_powers_do_without_the_horner_form(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def horner(expression: Any) -> Any:
        seen.append(expression)
        return expression

    monkeypatch.setattr(sympy, "horner", horner)
    assert plan("(0.1*x + 0.3*y)**140", "x y").matrix_size == 141
    assert not seen
    assert plan("(0.1*x + 0.3*y)**4 + x", "x y").degree == 4
    assert seen


@pytest.mark.parametrize(
    "number", [np.complex128(1 + 2j), np.array(1j), np.complex64(1), torch.tensor(1j), 1j]
)
def test_complex_numbers_are_not_cut(number: Any) -> None:
    """numpy's own conversion drops the imaginary part, with a warning that nobody reads."""
    for build in (rotation, lambda given: sum_of_cosines([given], [1.0])):
        with pytest.raises(ArgumentTypeError, match="must be real numbers"):
            build(number)


def test_a_title_is_text() -> None:
    with pytest.raises(ArgumentTypeError, match="title must be text"):
        draw_board(LAYER, title=3)  # type: ignore[arg-type]
