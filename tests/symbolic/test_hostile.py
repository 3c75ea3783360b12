"""Formulas from strangers: nothing of them is run, none hangs, and each is refused by an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
import torch

import mlayer
from hostile import BOMBS, CANARY, ODDITIES, no_hang, programs
from mlayer.errors import ArgumentError, ArgumentTypeError, MLayerError
from mlayer.symbolic import boolean_plan, draw_board, plan, read_formula
from mlayer.symbolic.parse.grammar import MOST_CHARACTERS

LAYER = mlayer.from_polynomial("x*y + 1", "x y")
HOSTILE = [*programs(CANARY), *BOMBS, *ODDITIES]

# Every function that takes a formula, and every way to hand one over.
WRAPPED: dict[str, Callable[[str], Any]] = {
    "alone": lambda text: text,
    "in a list": lambda text: [text],
    "in a tuple": lambda text: (text,),
    "in a list in a list": lambda text: [[text]],
    "in a tuple in a list": lambda text: [(text,)],
    "in a set in a list": lambda text: [{text}],
    "in a dict in a list": lambda text: [{text: text}],
    "in a dict": lambda text: {text: text},
    "in a set": lambda text: {text},
    "in an array": lambda text: np.array([text], dtype=object),
    "in a square array": lambda text: np.array([[text]], dtype=object),
    "in an array in a list": lambda text: [np.array([text], dtype=object)],
    "as bytes": lambda text: text.encode("utf-8", "replace"),
    "as bytes in a list": lambda text: [text.encode("utf-8", "replace")],
}
COMPILERS: dict[str, Callable[[Any], Any]] = {
    "plan": lambda given: plan(given, "x y"),
    "from_polynomial": lambda given: mlayer.from_polynomial(given, "x y"),
    "boolean_plan": lambda given: boolean_plan(given, "x y"),
    "from_boolean": lambda given: mlayer.from_boolean(given, "x y"),
}
# Where only the names of variables come from outside.
NAMES: dict[str, Callable[[Any], Any]] = {
    "plan": lambda names: plan("1", names),
    "from_boolean": lambda names: mlayer.from_boolean("1", names),
    "to_sympy": lambda names: mlayer.to_sympy(LAYER, names),
    "read_formula": lambda names: read_formula(LAYER, names)(np.ones((2, 2))),
    "explain": lambda names: mlayer.explain(LAYER, None, names).text,
    "draw_board": lambda names: draw_board(LAYER, names),
    "from_function": lambda text: mlayer.from_function(text, (-1, 1), 1e-3),
}


@pytest.fixture(autouse=True)
def nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir()), "a formula was run"


def test_there_are_enough() -> None:
    assert len(set(HOSTILE)) >= 80


@pytest.mark.parametrize("way", WRAPPED)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_formula_is_run_or_hangs(compiler: str, way: str) -> None:
    for text in HOSTILE if way == "alone" else [*programs(CANARY), *ODDITIES]:
        try:
            with no_hang():
                COMPILERS[compiler](WRAPPED[way](text))
        except MLayerError as error:
            assert len(str(error)) < 2000, "an error that nobody can read"  # noqa: PT017
            continue
        # What goes through is a formula that is only odd: it has numbers in it and is not a program.
        assert text not in programs(CANARY)


@pytest.mark.parametrize("function", NAMES)
def test_no_name_is_run_or_hangs(function: str) -> None:
    for text in HOSTILE[:: 12 if function == "draw_board" else 1]:  # drawing takes its time
        for names in (text, [text], [text, "y"], [sympy.Symbol(text), sympy.Symbol("y")]):
            if function == "from_function" and names is not text:
                continue
            try:
                with no_hang():
                    NAMES[function](names)
            except MLayerError:
                continue


@pytest.mark.parametrize("text", programs(CANARY))
def test_programs_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        plan(text, "x y")
    with pytest.raises(ArgumentError):
        boolean_plan(text, "x y")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1e999999999*x", "below 10^600"),
        ("sinh(1e9)*x", "below 10^600"),
        ("10**1000*x", "below 10^600"),
        ("1e39*x", "too large for float32"),
        ("1e400*x", "too large"),
        ("1e-400*x", "too small"),
        ("x*1e300*1e300*1e300", "below 10^600"),
        ("(" * 300 + "x" + ")" * 300, "nested at most"),
        ("x+" * MOST_CHARACTERS + "x", "characters long"),
        ("x**(10**9)", "powers below a million"),
        ("(-2)**0.5", "real, finite"),
        ("x/(sin(1)**2 + cos(1)**2 - 1)", "division by 0"),
        ("cos(x)**100000", "terms"),
        ("exp(-" * 60 + "1" + ")" * 60 + "*x", "operations inside each other"),
        ("1/(sqrt(2)+" * 40 + "1" + ")" * 40 + "*x", "operations inside each other"),
        ("(1+" * 40 + "2" + ")**(1/3)" * 40 + "*x", "operations inside each other"),
    ],
)
def test_bombs_are_refused(text: str, words: str) -> None:
    with no_hang(), pytest.raises(ArgumentError) as caught:
        mlayer.from_polynomial(text, "x", dtype=torch.float32)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "given", [["x"], {"x"}, {"x": 1}, ("x",), np.array(["x"], dtype=object), b"x", True, None, object()]
)
def test_only_strings_expressions_and_numbers(given: object) -> None:
    with pytest.raises(ArgumentTypeError, match="sympy expressions, strings or numbers"):
        plan([given], "x")


@pytest.mark.parametrize(
    "number",
    [3, 0.5, Fraction(1, 3), Decimal("0.1"), np.float32(2), np.int64(7), sympy.Rational(1, 3), sympy.pi],
)
def test_numbers_of_every_kind(number: Any) -> None:
    layer = mlayer.from_polynomial([number], "x", dtype=torch.float64)
    assert layer(torch.zeros(1, 1, dtype=torch.float64)).item() == pytest.approx(float(number), rel=1e-15)


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), Decimal("inf"), Decimal("1e999999999"), 10**700]
)
def test_numbers_that_no_layer_holds(number: Any) -> None:
    with no_hang(), pytest.raises(ArgumentError):
        plan([number], "x")


def test_long_sums_and_high_powers_are_read() -> None:
    assert plan("+".join(["x"] * 20_000), "x").matrix_size == 2
    assert plan("-" * 9_999 + "x", "x").matrix_size == 2
    # 200! does not fit into a double; spread over the path it does.
    layer = mlayer.from_polynomial("x**200", "x", dtype=torch.float64)
    x = torch.tensor([[0.99], [1.01], [-1.0]], dtype=torch.float64)
    assert torch.allclose(layer(x), x**200, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-x**2", -9),
        ("2**-1*x", 1.5),
        ("x-1-1", 1),
        ("x/3/2", 0.5),
        ("2**3**2 + 0*x", 512),
        ("-2^2 + x", -1),
        ("--x", 3),
        ("+x*-x", -9),
        ("1_000*x + .5 + 5. + 1.5e1 + 1e-1", 3020.6),
        ("((x))", 3),
        ("exp(0)*x + sqrt(4)", 5),
        ("2*pi*x", 18.84955592153876),
    ],
)
def test_as_python_reads_it(text: str, value: float) -> None:
    layer = mlayer.from_polynomial(text, "x", dtype=torch.float64)
    assert layer(torch.tensor([[3.0]], dtype=torch.float64)).item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["a | b & c", "a ^ b | c", "~a & b", "not a or b", "not a | b", "a and b or c", "a >> b & c", "~~a ^ ~b"],
)
def test_logic_as_python_reads_it(text: str) -> None:
    """Against Python's own operators, on every row."""
    layer = mlayer.from_boolean(text, "a b c", dtype=torch.float64)
    for row in range(8):
        a, b, c = ((row >> k) & 1 for k in (2, 1, 0))
        wanted = {
            "a | b & c": a | b & c,
            "a ^ b | c": a ^ b | c,
            "~a & b": (1 - a) & b,
            "not a or b": int(not a or b),
            "not a | b": int(not a | b),
            "a and b or c": int((a and b) or c),
            "a >> b & c": ((1 - a) | b) & c,
            "~~a ^ ~b": a ^ (1 - b),
        }[text]
        found = layer(torch.tensor([[a, b, c]], dtype=torch.float64)).item()
        assert round(found) == wanted, (text, a, b, c)


def test_sympy_logic_is_not_compiled_to_code() -> None:
    a, b, c = sympy.symbols("a b c")
    for function in (
        sympy.ITE(a, b, c),
        sympy.Equivalent(a, b, c),
        sympy.Implies(a, b),
        sympy.Nand(a, b),
    ):
        layer = mlayer.from_boolean(function, [a, b, c], dtype=torch.float64)
        for row in range(8):
            values = [bool((row >> k) & 1) for k in (2, 1, 0)]
            wanted = bool(function.subs(dict(zip((a, b, c), values, strict=True))))
            found = layer(torch.tensor([[float(v) for v in values]], dtype=torch.float64)).item()
            assert round(found) == wanted, (function, values)
    with pytest.raises(ArgumentTypeError, match="from_polynomial for numbers"):
        mlayer.from_boolean(a < 1, [a])
