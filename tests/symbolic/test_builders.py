"""Builders: against torch and exhaustive sums; sizes as claimed."""

from __future__ import annotations

import itertools
import math

import pytest
import sympy
import torch

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.symbolic import (
    determinant,
    determinant_plan,
    elementary_symmetric,
    permanent,
    rigid_body_rotation,
    rotation,
    sum_of_cosines,
    to_sympy,
)
from mlayer.symbolic.compile.builders import _by_anticommuting_matrices, _by_closed_walks, _by_subsets
from mlayer.symbolic.compile.minimal import minimal

SIZES = {1: 2, 2: 4, 3: 8, 4: 16, 5: 24, 6: 48, 7: 64, 8: 128}


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("k", SIZES)
def test_determinant(k: int) -> None:
    layer = determinant(k, dtype=torch.float64)
    A = random(10, k, k)
    wanted = torch.linalg.det(A)
    assert layer.matrix_size == SIZES[k]
    assert torch.allclose(layer(A.flatten(1))[:, 0], wanted, rtol=1e-11, atol=1e-11 * wanted.abs().max())


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_every_board_of_the_determinant_is_one(k: int) -> None:
    from mlayer.symbolic.compile.builders import _planned

    A = random(10, k, k)
    for board in (_by_anticommuting_matrices(k), _by_closed_walks(k), _by_subsets(k, signed=True)):
        layer = _planned(k, minimal(board), "det").build(torch.float64)
        assert torch.allclose(layer(A.flatten(1))[:, 0], torch.linalg.det(A), rtol=1e-10, atol=1e-10)


def test_determinant_as_a_formula() -> None:
    symbols = sympy.symbols("a:9")
    found = to_sympy(determinant(3, dtype=torch.float64), list(symbols))
    assert sympy.expand(found - sympy.Matrix(3, 3, symbols).det()) == 0


def test_plan_of_the_determinant() -> None:
    plan = determinant_plan(5)
    assert plan.matrix_size == 24
    assert plan.monomial_bound == 120 * 25 + 1
    assert plan.depth == 5


@pytest.mark.parametrize("k", [1, 3, 5])
def test_permanent(k: int) -> None:
    A = random(k, k)
    wanted = sum(math.prod(A[i, p[i]].item() for i in range(k)) for p in itertools.permutations(range(k)))
    layer = permanent(k, dtype=torch.float64)
    assert layer.matrix_size == 2**k
    assert math.isclose(layer(A.flatten()).item(), wanted, rel_tol=1e-10)


@pytest.mark.parametrize(("k", "m"), [(1, 1), (5, 1), (5, 3), (6, 6), (8, 4)])
def test_elementary_symmetric(k: int, m: int) -> None:
    x = random(k)
    wanted = sum(math.prod(chosen) for chosen in itertools.combinations(x.tolist(), m))
    layer = elementary_symmetric(k, m, dtype=torch.float64)
    assert math.isclose(layer(x).item(), wanted, rel_tol=1e-10, abs_tol=1e-12)
    assert layer.matrix_size <= 2 + (m - 1) * (k - m + 1)


def test_rotations() -> None:
    t = torch.linspace(-20, 20, 41, dtype=torch.float64)[:, None]
    wanted = torch.cat([(2.5 * t).cos(), (2.5 * t).sin()], 1)
    assert torch.allclose(rotation(2.5, dtype=torch.float64)(t), wanted, atol=1e-12)
    wave = sum_of_cosines([2, 0.5], [3, 7.5], [0.3, -2], dtype=torch.float64)
    assert torch.allclose(wave(t), 2 * (3 * t + 0.3).cos() + 0.5 * (7.5 * t - 2).cos(), atol=1e-12)
    axis = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64)
    turned = rigid_body_rotation((1, 2, 3), dtype=torch.float64)(axis)
    # Rodrigues' formula; the paper's M turns by -|axis| about the axis.
    start, angle = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), -axis.norm()
    unit = axis / axis.norm()
    wanted = (
        start * angle.cos()
        + torch.linalg.cross(unit, start) * angle.sin()
        + unit * (unit @ start) * (1 - angle.cos())
    )
    assert torch.allclose(turned, wanted, atol=1e-12)


def test_invalid_arguments() -> None:
    with pytest.raises(ArgumentError, match="k must be from 1 to 12"):
        determinant(13)
    with pytest.raises(ArgumentError, match="k must be from 1 to 9"):
        permanent(10)
    with pytest.raises(ArgumentTypeError, match="k must be an integer"):
        determinant(2.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="m must be from 1 to 3"):
        elementary_symmetric(3, 4)
    with pytest.raises(ArgumentError, match="of one length"):
        sum_of_cosines([1, 2], [3])
    with pytest.raises(ArgumentError, match="vector of 3"):
        rigid_body_rotation((1, 2))
    with pytest.raises(ArgumentError, match="omega must be finite"):
        rotation(math.inf)
    with pytest.raises(ArgumentTypeError, match="omega must be real numbers"):
        rotation("fast")  # type: ignore[arg-type]
