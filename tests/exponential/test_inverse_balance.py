"""logm and sqrtm of badly scaled matrices: values and derivatives against mpmath, on any BLAS."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor
from torch.func import jvp

import mlayer
from cases import random_matrix
from gallery import MATRICES
from mlayer.exponential.inverse.balance import balancing

EPS = 2.0**-52
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[mpmath.matrix], mpmath.matrix]]] = {
    "sqrtm": (mlayer.sqrtm, mpmath.sqrtm),
    "logm": (mlayer.logm, mpmath.logm),
}


def scaling(n: int, decades: float) -> Tensor:
    """Powers of two over so many decades."""
    return torch.exp2((torch.linspace(0, decades, n, dtype=torch.float64) / 0.30103).round())


def similar(x: Tensor, d: Tensor) -> Tensor:
    return x * d[:, None] / d


def exactly(function: Callable[[mpmath.matrix], mpmath.matrix], a: Tensor, h: Tensor | None = None) -> Tensor:
    """The function, or its derivative in the direction h, with 60 digits."""
    with mpmath.workdps(60):
        point = mpmath.matrix(a.tolist())
        if h is None:
            found = function(point)
        else:
            step = mpmath.mpf(10) ** -20 * mpmath.matrix(h.tolist())
            found = (function(point + step) - function(point - step)) * (mpmath.mpf(10) ** 20 / 2)
        rows = [[float(mpmath.re(x)) for x in row] for row in found.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def example(n: int) -> Tensor:
    return torch.linalg.matrix_exp(random_matrix(n, 1.0, seed=n))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("n", "decades"), [(3, 12), (5, 6), (5, 20), (8, 12)])
def test_badly_scaled_matrices(name: str, n: int, decades: float) -> None:
    """Right to rounding in the scaling in which the matrix is ordinary; unbalanced, all digits were lost."""
    function, truth = FUNCTIONS[name]
    plain, d = example(n), scaling(n, decades)
    found = similar(function(similar(plain, d)), 1 / d)
    expected = exactly(truth, plain)
    assert float((found - expected).abs().max()) <= 100 * EPS * float(expected.abs().max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_their_derivatives(name: str) -> None:
    function, truth = FUNCTIONS[name]
    plain, direction, d = example(4), random_matrix(4, 1.0, seed=11), scaling(4, 12)
    expected = exactly(truth, plain, direction)
    forward = jvp(function, (similar(plain, d),), (similar(direction, d),))[1]
    scaled = similar(plain, d).requires_grad_()
    weights = random_matrix(4, 1.0, seed=12)
    (gradient,) = torch.autograd.grad((similar(function(scaled), 1 / d) * weights).sum(), scaled)
    size = float(expected.abs().max())
    assert float((similar(forward, 1 / d) - expected).abs().max()) <= 200 * EPS * size
    reverse = float((gradient * similar(direction, d)).sum())
    assert reverse == pytest.approx(float((expected * weights).sum()), abs=400 * EPS * size)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_matrix_that_rounding_refused(name: str) -> None:
    """Unbalanced, rounding decided between an error and a logarithm whose exponential is infinite."""
    function, truth = FUNCTIONS[name]
    a, d = MATRICES["badly balanced 5, 12 decades"], scaling(5, 12)
    found, expected = (similar(x, 1 / d) for x in (function(a), exactly(truth, a)))
    assert float((found - expected).abs().max()) <= 1000 * EPS * float(expected.abs().max())


def test_ordinary_and_triangular_matrices_and_harmful_scalings_are_left_alone() -> None:
    with_zero_row = random_matrix(4, 1.0, seed=3)
    with_zero_row[1] = 0
    harmful = example(4)
    harmful[3, :3] *= (
        1e-12  # small couplings in an ordinary matrix: scaling back would multiply errors by 1e6
    )
    for a in (
        example(6),
        torch.eye(3).double(),
        similar(example(5), scaling(5, 9)).triu(),
        with_zero_row,
        harmful,
    ):
        assert balancing(a[None]).eq(1).all()
    batch = torch.stack([example(4), similar(example(4), scaling(4, 12))])
    assert balancing(batch).eq(1).all(1).tolist() == [True, False]
    assert balancing(batch.to(torch.complex128)).log2().tolist() == balancing(batch).log2().tolist()


def test_the_scale_of_the_whole_matrix_does_not_matter() -> None:
    """A chain that balancing would harm and a matrix that gains, near both ends of the range."""
    chain = torch.eye(4).double() + torch.ones(3).diag(1) * 100 + torch.ones(3).diag(-1) / 100
    for a, gains in ((chain, False), (similar(example(4), scaling(4, 12)), True)):
        for power in (-800, 0, 800):
            assert bool(balancing(a[None] * 2.0**power).ne(1).any()) == gains
