"""Boolean functions: every row of every truth table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.symbolic import boolean_plan, from_boolean


def rows(count: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=count)), dtype=torch.float64)


@settings(max_examples=40)
@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.integers(0, 1), min_size=2**k, max_size=2**k)))
def test_random_truth_tables(table: list[int]) -> None:
    count = len(table).bit_length() - 1
    layer = from_boolean(tuple(table), [f"v{k}" for k in range(count)], dtype=torch.float64)
    wanted = torch.tensor(table, dtype=torch.float64)
    assert torch.allclose(layer(rows(count))[:, 0], wanted, atol=1e-9)


A, B, C = sympy.symbols("a b c")


@pytest.mark.parametrize(
    ("function", "python", "size"),
    [
        ("a & b & c", lambda a, b, c: a and b and c, 4),
        ("a | b | c", lambda a, b, c: a or b or c, 4),
        ("a ^ b ^ c", lambda a, b, c: a ^ b ^ c, 4),
        ("a and not b or 0", lambda a, b, c: a and not b, 3),
        ("a >> b", lambda a, b, c: not a or b, 3),
        (A & ~B | C, lambda a, b, c: (a and not b) or c, 4),
        (sympy.Xor(A, B), lambda a, b, c: a ^ b, 3),
        (sympy.true, lambda a, b, c: True, 1),
        (lambda a, b, c: a + b + c >= 2, lambda a, b, c: a + b + c >= 2, 4),
        ({k: sum(k) == 1 for k in itertools.product((0, 1), repeat=3)}, lambda a, b, c: a + b + c == 1, 5),
        ("01101001", lambda a, b, c: a ^ b ^ c, 4),
    ],
)
def test_all_ways_to_write_one(function: Any, python: Callable[..., Any], size: int) -> None:
    layer = from_boolean(function, "a b c", dtype=torch.float64)
    wanted = [float(bool(python(*(bool(v) for v in row)))) for row in rows(3).tolist()]
    assert torch.allclose(layer(rows(3))[:, 0], torch.tensor(wanted, dtype=torch.float64), atol=1e-9)
    assert layer.matrix_size <= size


def test_several_outputs() -> None:
    adder = from_boolean(["a ^ b ^ c", "a & b | c & (a ^ b)"], "a b c", dtype=torch.float64)
    found = adder(rows(3)).round()
    assert torch.equal(found[:, 0] + 2 * found[:, 1], rows(3).sum(1))


def test_parity_is_a_single_product() -> None:
    # 63 monomials as a polynomial; one half less a product of six factors.
    plan = boolean_plan(lambda *bits: sum(bits) % 2, "a b c d e f")
    assert plan.monomials == 63
    assert plan.matrix_size == 7


@pytest.mark.parametrize(
    ("function", "variables", "words"),
    [
        ("a & q", "a b", "unknown symbol: q"),
        (sympy.Symbol("q"), "a b", "unknown symbol: q"),
        ("a + b", "a b", "made of names"),
        ("a &", "a b", "ends too early"),
        ((0, 1, 1), "a b", "4 values"),
        ({(0, 0): 1}, "a b", "all 4 rows"),
        ((0, 1, 2, 1), "a b", "values 0 and 1"),
        ([], "a", "one or more"),
        ("v0", [f"v{k}" for k in range(15)], "at most 14"),
    ],
)
def test_invalid_arguments(function: Any, variables: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        from_boolean(function, variables)


def test_invalid_arguments_about_type_and_size() -> None:
    with pytest.raises(ArgumentTypeError, match="truth tables"):
        from_boolean(3.5, "a")
    with pytest.raises(ArgumentError, match="needs size 4"):
        from_boolean("a & b & c", "a b c", largest=3)
