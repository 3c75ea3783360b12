"""NaN, infinities, overflow, huge and tiny numbers: kept in their own matrix, right, and never a hang."""

from __future__ import annotations

import math
from typing import Any

import flint
import pytest
import torch
from torch import Tensor

import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential import native, wide_exponents
from rounding import agree

POISONS = [torch.nan, torch.inf, -torch.inf]


def _gradient(a: Tensor, g: Tensor) -> Tensor:
    a = a.clone().requires_grad_()
    return torch.autograd.grad(mlayer.expm(a), a, g)[0]


@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 9, 16, 17, 40])
def test_poison_stays_in_its_own_item(n: int, poison: float, dtype: torch.dtype, implementation: str) -> None:
    """Value and gradient, poison in the argument; the kernel keeps every bit of the other items."""
    clean = torch.stack([random_matrix(n, x, dtype=dtype) for x in (1e-6, 0.1, 0.5, 1.0, 3.0, 9.0, 30.0)])
    g = torch.stack([random_matrix(n, 1.0, seed=1, dtype=dtype)] * len(clean))
    value, gradient = mlayer.expm(clean), _gradient(clean, g)
    for item in (0, 3, 6):
        for place in ((0, 0), (n - 1, 0), (0, n - 1)):
            dirty = clean.clone()
            dirty[(item, *place)] = poison
            others = [k for k in range(len(clean)) if k != item]
            got, got_gradient = mlayer.expm(dirty), _gradient(dirty, g)
            if implementation == "matmul":
                agree(got[others], value[others], clean[others])
                agree(got_gradient[others], gradient[others], clean[others])
            else:
                assert torch.equal(got[others], value[others])
                assert torch.equal(got_gradient[others], gradient[others])
            if n == 1:
                assert got[item].equal(dirty[item].exp()) or math.isnan(poison)
            else:
                assert got[item].isnan().all()
                assert got_gradient[item].isnan().all()


@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 9, 20])
def test_poisoned_gradient_stays_in_its_own_item(
    n: int, poison: float, dtype: torch.dtype, implementation: str
) -> None:
    a = torch.stack([random_matrix(n, x, dtype=dtype) for x in (0.1, 1.0, 9.0)])
    g = torch.stack([random_matrix(n, 1.0, seed=1, dtype=dtype)] * len(a))
    clean = _gradient(a, g)
    g[1, 0, n - 1] = poison
    dirty = _gradient(a, g)
    agree(dirty[[0, 2]], clean[[0, 2]], a[[0, 2]])
    assert not dirty[1].isfinite().all()


@pytest.mark.parametrize("n", [2, 6, 16, 17, 40])
def test_diagonal_overflow(n: int, dtype: torch.dtype, implementation: str) -> None:
    """Infinite exactly where exp of the entry is, right elsewhere, zero off the diagonal."""
    top = math.log(torch.finfo(dtype).max)
    for highest in (top + 0.5, 2 * top, 20 * top):
        entries = torch.linspace(-3, highest, n, dtype=dtype)
        value = mlayer.expm(entries.diag())
        exact = entries.double().exp().to(dtype)
        assert (value[~torch.eye(n, dtype=torch.bool)] == 0).all()
        finite = exact.isfinite()
        assert (value.diag()[~finite] == torch.inf).all()
        error = (value.diag()[finite].double() - exact[finite].double()).abs() / exact[finite].double()
        # A diagonal matrix in the careful path: relative error in each entry grows with the norm only.
        assert (error <= 8 * torch.finfo(dtype).eps * highest).all()


def _infinity_where_the_true_value_overflows(a: Tensor, measure: float) -> None:
    """Entry by entry as Arb says: infinite with the right sign, or finite."""
    value = mlayer.expm(a)
    assert not value.isnan().any()
    exact = oracle.exact_exp(oracle.to_arb(a))
    largest = torch.finfo(a.dtype).max
    slack = 16 * torch.finfo(a.dtype).eps * measure
    for i in range(len(a)):
        for j in range(len(a)):
            x, got = exact[i, j].mid(), float(value[i, j])
            if abs(x) > flint.arb(largest) * (1 + slack):
                assert got == (math.inf if x > 0 else -math.inf)
            elif abs(x) < flint.arb(largest) * (1 - slack):
                assert math.isfinite(got)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_signs_of_infinities(sign: float, dtype: torch.dtype, implementation: str) -> None:
    top = math.log(torch.finfo(dtype).max)
    mixing = torch.tensor([[1.0, sign], [0.0, 0.5]], dtype=dtype) * (top + 20)
    _infinity_where_the_true_value_overflows(mixing, top)
    basis = torch.tensor([[1.0, sign, 2.0], [0.5, -1.0, 0.25], [sign, 0.0, 1.0]], dtype=dtype)
    _infinity_where_the_true_value_overflows(basis * top, top)
    _infinity_where_the_true_value_overflows(
        torch.tensor([[0.0, sign * 3.0], [3.0 * sign, 0.0]], dtype=dtype) * top, top
    )


def test_finite_beside_infinite(dtype: torch.dtype, implementation: str) -> None:
    """Block triangular: exp(c) overflows by far, the other block and its couplings are ordinary numbers."""
    for c in (200.0, 2000.0, 1e5):
        a = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, c]], dtype=dtype)
        value = mlayer.expm(a)
        assert value[2, 2] == torch.inf or (dtype == torch.float64 and c == 200.0)
        expected = mlayer.expm(a[:2, :2])
        error = torch.linalg.matrix_norm((value[:2, :2] - expected).double())
        # The small block suffers the rounding of the large: a relative backward error of eps c.
        assert error <= 16 * torch.finfo(dtype).eps * c * torch.linalg.matrix_norm(expected.double())


HUGE = {torch.float32: (1e19, 1e30, 3e38), torch.float64: (1e151, 1.7e308)}


@pytest.mark.parametrize("n", [2, 5, 17])
def test_huge_norms_without_nan(n: int, dtype: torch.dtype, implementation: str) -> None:
    for size in HUGE[dtype]:
        for a in (random_matrix(n, 1.0, dtype=dtype) * size, torch.eye(n, dtype=dtype) * size):
            assert not mlayer.expm(a).isnan().any()
            assert not mlayer.expm(-a).isnan().any()
        assert (mlayer.expm(torch.eye(n, dtype=dtype) * size).diagonal() == torch.inf).all()
        assert (mlayer.expm(torch.eye(n, dtype=dtype) * -size) == 0).all()
        _gradient(random_matrix(n, 1.0, dtype=dtype) * size, torch.ones(n, n, dtype=dtype))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("derivative", [False, True], ids=["value", "derivative"])
def test_squaring_stops_when_every_entry_is_infinite_or_zero(
    derivative: bool, sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A norm of 1e300 asks for a thousand squarings; counted, since time depends on the machine."""
    products = 0
    multiply = wide_exponents._sum

    def counted(*arguments: Any, **more: Any) -> wide_exponents.Wide:
        nonlocal products
        products += 1
        return multiply(*arguments, **more)

    monkeypatch.setattr(wide_exponents, "_sum", counted)
    a = sign * 1e300 * torch.eye(3, dtype=torch.float64) + 1e299 * random_matrix(3, 1.0)
    value = wide_exponents.careful(a[None], torch.ones(1, 3, 3, dtype=torch.float64) if derivative else None)
    assert (value.isinf() if sign > 0 else value == 0).all()
    assert products <= (2 if derivative else 1) * 100


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("derivative", [False, True], ids=["value", "derivative"])
@pytest.mark.parametrize("hole", [False, True], ids=["one exponent", "an exponent each"])
def test_the_kernel_stops_squaring_too(
    derivative: bool, sign: float, hole: bool, instruction_set: str
) -> None:
    a = sign * 1e300 * torch.eye(3, dtype=torch.float64) + 1e299 * random_matrix(3, 1.0)
    if hole:  # 0 may be a lost entry: the first try gives up
        a[0, 1:] = 0
    before = native.careful_squarings()
    value = native.frechet(a, torch.ones_like(a)) if derivative else native.expm(a)
    assert not value.isnan().any()
    assert (value[1:, 1:].isinf() if sign > 0 else value == 0).all()
    assert 30 <= native.careful_squarings() - before <= 100


def test_squaring_goes_on_while_one_entry_is_ordinary() -> None:
    """One entry is infinite long before the others are done: a block that grows, a path that fills up."""
    a = torch.zeros(3, 3, dtype=torch.float64)
    a[0, 0], a[1, 2] = 2.0**60, 1.0  # exp of the second block is [[1, 1], [0, 1]], doubled up from 2^-60
    value = wide_exponents.careful(a[None], None)[0]
    assert value[0, 0] == torch.inf
    assert value[1:, 1:].tolist() == [[1.0, 1.0], [0.0, 1.0]]
    long = torch.diag(torch.full((39,), 2.0**60, dtype=torch.float64), 1)
    # A path of 39 steps: the polynomial of degree 20 fills half of the triangle, the squarings the rest.
    value = wide_exponents.careful((long + 2.0**60 * torch.eye(40))[None], None)[0]
    assert int((value.triu() == torch.inf).sum()) == 40 * 41 // 2


@pytest.mark.parametrize("size", [1e10, 1e30, 1e38, 1e100, 1e155, 1e200, 1e300])
def test_huge_nilpotent(size: float, dtype: torch.dtype, implementation: str) -> None:
    """exp is I + A exactly, however large A is."""
    if size > torch.finfo(dtype).max:
        pytest.skip("not a number of this precision")
    a = torch.tensor([[0.0, size], [0.0, 0.0]], dtype=dtype)
    assert torch.equal(mlayer.expm(a), torch.eye(2, dtype=dtype) + a)
    assert torch.equal(mlayer.expm(a.mT), torch.eye(2, dtype=dtype) + a.mT)
    wide = torch.zeros(20, 20, dtype=dtype)
    wide[0, 19] = size
    assert torch.equal(mlayer.expm(wide), torch.eye(20, dtype=dtype) + wide)


@pytest.mark.parametrize("size", [1e10, 1e30, 1e37, 1e100, 1e155, 1e200, 1e300])
def test_huge_coupling(size: float, dtype: torch.dtype, implementation: str) -> None:
    """[[1, s], [0, -1]]: exp is [[e, s sinh 1], [0, 1 / e]]."""
    if size > torch.finfo(dtype).max:
        pytest.skip("not a number of this precision")
    value = mlayer.expm(torch.tensor([[1.0, size], [0.0, -1.0]], dtype=dtype)).double()
    expected = torch.tensor([[math.e, size * math.sinh(1)], [0.0, 1 / math.e]], dtype=torch.float64)
    torch.testing.assert_close(value, expected, rtol=8 * torch.finfo(dtype).eps, atol=0)


def test_huge_entries_in_the_direction(dtype: torch.dtype, implementation: str) -> None:
    """L is linear in E: near the end of the range it is as right as at 1."""
    top = torch.finfo(dtype).max / 64
    for n in (2, 9, 20):
        a = random_matrix(n, 1.0, dtype=dtype)
        g = random_matrix(n, 1.0, seed=1, dtype=dtype)
        agree(_gradient(a, g * top) / top, _gradient(a, g), a)


def test_very_negative_is_zero(dtype: torch.dtype, implementation: str) -> None:
    for n in (1, 2, 9, 20):
        for size in (1e3, 1e6, 1e18):
            value = mlayer.expm(-size * torch.eye(n, dtype=dtype))
            assert torch.equal(value, torch.zeros(n, n, dtype=dtype))


def test_tiny_and_subnormal_entries(dtype: torch.dtype, implementation: str) -> None:
    info = torch.finfo(dtype)
    for size in (info.tiny, info.smallest_normal / 8, info.tiny * info.eps, 1e-30):
        for n in (2, 7, 12, 20):
            a = torch.full((n, n), size, dtype=dtype)
            value = mlayer.expm(a)
            expected = a + torch.eye(n, dtype=dtype)
            assert torch.equal(value, expected)
            g = random_matrix(n, 1.0, seed=1, dtype=dtype)
            torch.testing.assert_close(_gradient(a, g), g, rtol=4 * info.eps, atol=0)


def test_negative_zero(dtype: torch.dtype, implementation: str) -> None:
    for n in (1, 2, 7, 20):
        value = mlayer.expm(torch.full((n, n), -0.0, dtype=dtype))
        assert torch.equal(value, torch.eye(n, dtype=dtype))


def test_subnormal_direction(dtype: torch.dtype, implementation: str) -> None:
    info = torch.finfo(dtype)
    g = torch.full((3, 3), info.tiny / 4, dtype=dtype)
    gradient = _gradient(torch.zeros(3, 3, dtype=dtype), g)
    assert torch.equal(gradient, g)


def test_many_huge_items() -> None:
    a = random_matrix(16, 1e37, dtype=torch.float32).expand(64, 16, 16)
    assert not mlayer.expm(a).isnan().any()


def test_complex_overflow_is_infinite() -> None:
    value = mlayer.expm(torch.diag(torch.tensor([1000 + 1j, 1 + 0j])))
    assert value[0, 0].real == torch.inf
    assert value[0, 0].imag == torch.inf
    torch.testing.assert_close(value[1, 1], torch.tensor(torch.e + 0j))
    assert value[0, 1] == value[1, 0] == 0
