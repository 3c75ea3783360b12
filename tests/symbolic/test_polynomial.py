"""Polynomials in: against rational arithmetic, against the text's sizes, and back out again."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mlayer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.symbolic import from_polynomial, plan, to_sympy
from mlayer.symbolic.compile.board import ONE, Board, Readout
from mlayer.symbolic.compile.free_entries import combination
from mlayer.symbolic.compile.lifts import in_order, wired
from mlayer.symbolic.compile.minimal import minimal
from mlayer.symbolic.compile.step_budget import Effort

X, Y, Z = sympy.symbols("x y z")
fractions = st.fractions(min_value=-5, max_value=5, max_denominator=6).filter(bool)
polynomials = st.dictionaries(st.tuples(*[st.integers(0, 3)] * 3), fractions, min_size=1, max_size=6)


def expression(terms: dict[tuple[int, ...], Fraction]) -> sympy.Expr:
    return sympy.Add(
        *[sympy.Rational(c.numerator, c.denominator) * X**a * Y**b * Z**d for (a, b, d), c in terms.items()]
    )


def rational_value(one: sympy.Expr, symbols: list[sympy.Symbol], point: list[float]) -> tuple[float, float]:
    """The value in exact arithmetic, and the sum of the sizes of its terms there: what rounding acts on."""
    exact = [sympy.Rational(value) for value in point]
    value = one.subs(dict(zip(symbols, exact, strict=True)))
    terms = sympy.Poly(one, *symbols).terms()
    size = sum(
        abs(c) * sympy.Mul(*[abs(v) ** p for v, p in zip(exact, powers, strict=True)]) for powers, c in terms
    )
    return float(value), float(size)


@settings(max_examples=40)
@given(st.lists(polynomials, min_size=1, max_size=2))
def test_random_polynomials_come_back(terms: list[dict[tuple[int, ...], Fraction]]) -> None:
    wanted = [expression(one) for one in terms]
    layer = from_polynomial(wanted, [X, Y, Z], dtype=torch.float64)
    found = to_sympy(layer, [X, Y, Z])
    found = found if isinstance(found, list) else [found]
    assert [sympy.expand(a - b) for a, b in zip(found, wanted, strict=True)] == [0] * len(wanted)


@settings(max_examples=25)
@given(polynomials, st.lists(st.floats(-2, 2, width=16), min_size=3, max_size=3))
def test_error_is_rounding_only(terms: dict[tuple[int, ...], Fraction], point: list[float]) -> None:
    one = expression(terms)
    value, size = rational_value(one, [X, Y, Z], point)
    for dtype in (torch.float32, torch.float64):
        layer = from_polynomial(one, [X, Y, Z], dtype=dtype)
        found = layer(torch.tensor(point, dtype=dtype)).item()
        # The boards are not term by term: shared states may be larger than any term.
        assert abs(found - value) <= 3000 * torch.finfo(dtype).eps * (size + 1)


@pytest.mark.parametrize("degree", [5, 10, 16, 20, 30])
def test_large_degrees_keep_their_digits(degree: int) -> None:
    # 30! is 2.7e32: a weight of that size at one place would leave nothing of float32.
    for dtype in (torch.float32, torch.float64):
        layer = from_polynomial(f"x**{degree}", "x", dtype=dtype)
        assert layer.matrix_size == degree + 1
        x = torch.linspace(-1.2, 1.2, 7, dtype=dtype)[:, None]
        wanted = [float(Fraction(v.item()) ** degree) for v in x]
        found = layer(x).detach().flatten().tolist()
        bound = 100 * degree * torch.finfo(dtype).eps * max(1, 1.2**degree)
        assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= bound
        largest = max(layer.generators.abs().max().item(), layer.readout.abs().max().item())
        assert largest < 2 * degree


DETERMINANT = sympy.Matrix(3, 3, sympy.symbols("a:9"))


@pytest.mark.parametrize(
    ("expressions", "variables", "size"),
    [
        (["a", "b", "c", "a*b", "b*c**2"], "a b c", 7),  # section 3.3
        ("a*b*c*d", "a b c d", 5),  # the appendix
        (DETERMINANT.det(), list(DETERMINANT), 8),
        (DETERMINANT.per(), list(DETERMINANT), 8),
    ],
)
def test_no_larger_than_the_text(expressions: object, variables: object, size: int) -> None:
    found = plan(expressions, variables)
    assert found.matrix_size <= size
    assert found.matrix_size <= found.products_bound
    assert found.matrix_size <= found.monomial_bound
    assert found.build().matrix_size == found.matrix_size


@settings(max_examples=30)
@given(polynomials)
def test_never_larger_than_the_breadboard(terms: dict[tuple[int, ...], Fraction]) -> None:
    found = plan(expression(terms), [X, Y, Z])
    assert found.matrix_size <= max(1, found.products_bound)


def test_products_of_sums_are_not_multiplied_out() -> None:
    assert plan("(a + b + 1)*(c + d + 2)*(e + f + 3)", "a b c d e f").matrix_size == 4
    assert plan("(x + y + 1)**8", "x y").matrix_size == 9


def test_spare_entries_are_read() -> None:
    assert plan(["a*b*c", "b*c", "a*b", "b"], "a b c").matrix_size == 4


def test_an_entry_that_cancels_is_no_spare_entry() -> None:
    """Two paths from a to c: x, and 1 times -2 x over 2!; their sum is 0, with which nothing is divided."""
    board = Board()
    a, b, c = (board.state() for _ in range(3))
    board.connect(a, c, {0: Fraction(1)})
    board.connect(a, b, {ONE: Fraction(1)})
    board.connect(b, c, {0: Fraction(-2)})
    assert combination(board, {(1,): Fraction(3)}, Effort()) == {(b, c): Fraction(-3, 2)}


def test_reduction_finds_the_hankel_rank() -> None:
    """The rank of the Hankel matrix, by sympy, is the number of states left."""
    poly: dict[tuple[int, ...], Fraction] = {
        (2, 1): Fraction(3),
        (1, 2): Fraction(-2),
        (1, 1): Fraction(5),
        (0, 3): Fraction(1),
    }
    words = in_order(poly, [0, 1])
    weighted = {word: c * math.factorial(len(word)) for word, c in words.items()}
    prefixes = sorted({w[:k] for w in weighted for k in range(len(w) + 1)})
    suffixes = sorted({w[k:] for w in weighted for k in range(len(w) + 1)})
    hankel = sympy.Matrix(
        len(prefixes), len(suffixes), lambda i, j: weighted.get(prefixes[i] + suffixes[j], 0)
    )
    assert minimal(wired([words], len, 1000)).size == hankel.rank()


def test_reduction_removes_dead_and_doubled_states() -> None:
    board = Board(size=5, constants=[Fraction(0)])
    one = Fraction(1)
    for middle in (1, 2):
        board.connect(0, middle, {0: one})
        board.connect(middle, 3, {1: one})
    board.connect(0, 4, {0: one})  # leads nowhere
    board.readouts = [Readout(0, {0: one}, {3: one})]
    assert minimal(board).size == 3


@pytest.mark.parametrize(
    "text",
    [
        "exp(-x)*cos(2*y + 0.3)*(x*y + 1) + x**2",
        "sin(x)*sin(y) + 2",
        "sin(pi*x)**2",
        "x*sinh(x + y) - cosh(y)/3",
        "exp(x)",
        "3",
    ],
)
def test_waves_are_exact(text: str) -> None:
    layer = from_polynomial(text, "x y", dtype=torch.float64)
    points = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4 - 2
    call = sympy.lambdify([X, Y], sympy.sympify(text), "mpmath")
    wanted = torch.tensor([[float(call(*row))] for row in points.tolist()], dtype=torch.float64)
    assert torch.allclose(layer(points), wanted, rtol=1e-12, atol=1e-12)


def test_constants_and_decimals_as_written() -> None:
    assert to_sympy(from_polynomial("0.1*x^2 - pi*0", "x", dtype=torch.float64)) == X**2 / 10
    assert from_polynomial(["2", "x"], "x")(torch.tensor([3.0])).tolist() == [2.0, 3.0]


def test_symbols_with_assumptions_are_the_same() -> None:
    real = sympy.Symbol("x", real=True)
    assert from_polynomial(real**2, "x")(torch.tensor([3.0])).round().item() == 9


def test_saved_layers_give_the_same_formula(tmp_path: object) -> None:
    layer = from_polynomial("x*y/7 - 3*y**3", "x y", dtype=torch.float64)
    mlayer.save(layer, f"{tmp_path}/m.safetensors")
    again = mlayer.load(f"{tmp_path}/m.safetensors")
    assert to_sympy(again, "x y") == to_sympy(layer, "x y") == X * Y / 7 - 3 * Y**3


def test_plan_prints() -> None:
    text = str(plan("x*y", "x y"))
    assert "n = 3" in text
    assert "depth 2" in text


@pytest.mark.parametrize(
    ("expressions", "variables", "words"),
    [
        ("x*q", "x", "unknown symbol: q"),
        (sympy.Symbol("q"), "x", "unknown symbol: q"),
        ("1/x", "x", "polynomials times"),
        ("exp(x**2)", "x", "of linear forms"),
        ("sqrt(x)", "x", "polynomials"),
        ("x**5000", "x", "its degree is 5000"),
        ("(a+b+c+d+e+f+g+h)**40", "a b c d e f g h", "terms when multiplied out"),
        ("9**9**9**9", "x", "powers below a million"),
        ("__import__('os')", "x", "made of numbers"),
        ("x +", "x", "ends too early"),
        ("x", "x x", "different names"),
        ("x", [], "different names"),
        ([], "x", "one or more"),
        ("x*1/0", "x", "division by 0"),
        (sympy.I * X, "x", "real, finite"),
    ],
)
def test_invalid_arguments(expressions: object, variables: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        from_polynomial(expressions, variables)


def test_invalid_arguments_about_size() -> None:
    with pytest.raises(ArgumentError, match="size 4"):
        from_polynomial("x*y + y*z**2", "x y z", largest=3)
    with pytest.raises(ArgumentError, match="largest must be a positive integer"):
        plan("x", "x", largest=0)


@pytest.mark.parametrize(
    ("expressions", "variables", "words"),
    [
        ("x", 3, "list of symbols"),
        ("x", [3], "symbols or names"),
        ([object()], "x", "sympy expressions, strings or numbers"),
        (sympy.true, "x", "algebraic"),
    ],
)
def test_invalid_arguments_about_types(expressions: object, variables: object, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        from_polynomial(expressions, variables)
    with pytest.raises(ArgumentTypeError, match="dtype"):
        from_polynomial("x", "x", dtype=torch.int32)
