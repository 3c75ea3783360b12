"""Formulas in many variables or with many outputs: refused from counts, before the work, or compiled."""

from __future__ import annotations

import itertools
import random
from typing import Any

import mpmath
import pytest
import sympy
import torch

from mlayer.errors import ArgumentError
from mlayer.symbolic.compile import boolean, polynomial, search, to_layer
from mlayer.symbolic.compile.boolean import boolean_plan
from mlayer.symbolic.compile.polynomial import from_polynomial, plan
from mlayer.symbolic.compile.step_budget import Effort


def names(count: int) -> list[str]:
    return [f"x{k}" for k in range(count)]


@pytest.mark.parametrize("power", ["", "**2"])
def test_terms_times_variables_are_limited_before_the_search(
    power: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polynomial, "_plan", lambda *_: pytest.fail("the work began"))
    variables = names(1001)
    with pytest.raises(ArgumentError, match="1000000 terms times variables; got up to 1001 terms in 1001"):
        plan(" + ".join(v + power for v in variables), variables)


def test_the_weights_of_a_layer_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_layer, "MOST_WEIGHTS", 47)
    with pytest.raises(ArgumentError, match="a layer of 47 weights; got 2 variables and 1 outputs"):
        from_polynomial("x**2*y", "x y")


def test_many_variables_are_not_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense arithmetic of sympy takes seconds for 50 variables, and minutes for some more."""
    monkeypatch.setattr(sympy, "factor", lambda *_: pytest.fail("factored"))
    assert plan(" + ".join(f"{v}**2" for v in names(27)), names(27)).matrix_size == 29


def test_boards_of_some_outputs_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    build = search.smallest

    def counted(polynomials: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(len(polynomials))
        return build(polynomials, *arguments, **named)

    monkeypatch.setattr(search, "smallest", counted)
    variables = names(8)
    assert plan([f"x{k}*x{(k + 1) % 8}" for k in range(8)], variables).matrix_size <= 13
    assert len(calls) <= 3 * 8


def test_the_formula_of_a_truth_table_is_added_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parity of 8 variables has 255 terms; to add them one after the other takes the square of that."""
    calls: list[int] = []
    add = sympy.Expr.__add__

    def counting(self: sympy.Expr, other: object) -> object:
        calls.append(1)
        return add(self, other)

    monkeypatch.setattr(sympy.Expr, "__add__", counting)
    found = boolean_plan("^".join(names(8)), names(8))
    assert len(found.expressions[0].args) == 255
    assert len(calls) < 100


def test_the_reduction_of_truth_tables_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random function of 14 variables took 23 s; what is beyond the count stays unreduced, and right."""
    budgets: list[Effort] = []

    def small() -> Effort:
        budgets.append(Effort(400))
        return budgets[-1]

    monkeypatch.setattr(boolean, "Effort", small)
    monkeypatch.setattr(boolean, "smallest", lambda *_: pytest.fail("not needed for so many terms"))
    tables = ["".join(random.Random(k).choices("01", k=2**8)) for k in range(3)]
    unreduced = boolean_plan(tables, names(8))
    assert len(budgets) == 1
    assert 0 <= budgets[0].left <= 400
    rows = torch.tensor(list(itertools.product((0.0, 1.0), repeat=8)), dtype=torch.float64)
    found = unreduced.build(torch.float64)(rows).round()
    assert found.T.tolist() == [[float(bit) for bit in table] for table in tables]


@pytest.mark.parametrize("form", ["factor", "expand"])
def test_sums_of_many_roots_are_not_multiplied_out(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A formula of 80 characters, and three million products of roots."""
    monkeypatch.setattr(sympy, form, lambda *_: pytest.fail("multiplied out"))
    roots = "+".join(f"sqrt({k})" for k in (2, 3, 5, 7, 11, 13, 17, 19, 23))
    layer = from_polynomial(f"({roots})**20*x", "x", dtype=torch.float64)
    value = float(layer(torch.ones(1, 1, dtype=torch.float64)).detach())
    exact = sum(mpmath.sqrt(k) for k in (2, 3, 5, 7, 11, 13, 17, 19, 23)) ** 20
    assert abs(value / exact - 1) < 1e-14


def test_a_few_roots_are_still_factored() -> None:
    assert plan("(x + sqrt(2)*y)**3 + pi*(x + sqrt(2)*y)**2", "x y").matrix_size == 4
