"""The matmul path in NumPy beside the one in torch, for every dtype, in both arrangements of memory."""

from __future__ import annotations

import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

import gallery
import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential import grouped, matmul, small, small_balance, small_polynomial
from rounding import agree

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(1, 2), (5, 3), (small_polynomial.MANY, 2), (small_polynomial.MANY + 3, 3), (3, 12), (1, 40)]
NORMS = {"tiny": 1e-5, "degree 4": 0.03, "degree 8": 0.3, "degree 16": 2.0, "squared": 30.0}


def batch(b: int, n: int, norms: list[float], dtype: torch.dtype, seed: int = 0) -> Tensor:
    made = torch.stack([random_matrix(n, norms[k % len(norms)], seed + k) for k in range(b)])
    if dtype.is_complex:
        return torch.complex(made, made.roll(1, 0)).to(dtype)
    return made.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("b", "n"), [(1, 2), (5, 3), (small_polynomial.MANY, 2), (small_polynomial.MANY + 3, 3), (3, 12), (1, 40)]
)
@pytest.mark.parametrize("norms", [[norm] for norm in NORMS.values()] + [list(NORMS.values())], ids=str)
def test_as_in_torch(b: int, n: int, norms: list[float], dtype: torch.dtype) -> None:
    a, g = batch(b, n, norms, dtype), batch(b, n, [1.0], dtype, seed=1000)
    assert small.takes(a)
    value, derivative = small.expm(a)[0], small.frechet(a, g)
    assert value is not None
    assert derivative is not None
    assert value.is_contiguous()
    assert derivative.is_contiguous()
    agree(value, grouped.expm(a), a)
    agree(derivative, grouped.frechet(a, g), a)


@pytest.mark.parametrize("b", [2, small_polynomial.MANY])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1e30, 200.0], ids=str)
def test_what_needs_care_is_left_to_the_grouped_path(b: int, poison: float) -> None:
    a = batch(b, 3, [2.0], torch.float32)
    a[1, 0, 0] = poison
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert small.expm(a)[0] is None
        assert small.frechet(a, a.clone().fill_(1.0)) is None
        if poison not in (200.0, 1e30):  # as a direction these are ordinary
            assert small.frechet(batch(b, 3, [2.0], torch.float32), a) is None
    found, expected = matmul.expm(a), grouped.expm(a)
    # exact: the same function of the same matrix computes both
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0, equal_nan=True)
    agree(found, expected, a)


@pytest.mark.parametrize("b", [3, small_polynomial.MANY])
def test_strictly_triangular_matrices_have_a_finite_series(b: int) -> None:
    a = batch(b, 3, [1.0], torch.float64)
    a[1] = torch.tensor([[0.0, 1e9, 3.0], [0.0, 0.0, 1e9], [0.0, 0.0, 0.0]])
    expected = torch.eye(3, dtype=torch.float64) + a[1] + a[1] @ a[1] / 2
    values = [small.expm(x)[0] for x in (a, a[1:2], a.mT)]  # among others, alone, below the diagonal
    for value, wanted in zip(values, (expected, expected, expected.mT), strict=True):
        assert value is not None
        assert torch.equal(value[1 if len(value) > 1 else 0], wanted)


def test_no_kernel_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public function behaves the same: shapes, gradients, the argument unchanged."""
    monkeypatch.setenv("MLAYER_EXPM", "matmul")
    a = batch(6, 3, list(NORMS.values()), torch.float64).reshape(2, 3, 3, 3).requires_grad_()
    before = a.detach().clone()
    assert torch.autograd.gradcheck(mlayer.expm, a[0, :2].detach().requires_grad_())
    (gradient,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    monkeypatch.setattr(small, "takes", lambda matrices: False)
    (expected,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    agree(gradient, expected, a)
    assert torch.equal(a, before)


UNIT_ROUNDOFF = 2.0**-53
TWO_ROWS = {
    "full": [[3.0, -7.0], [2.0, 5.0]],
    "small": [[3e-9, -7e-10], [2e-9, 5e-9]],
    "rotation": [[0.0, -40.0], [40.0, 0.0]],
    "shifted rotation": [[-50.25, -9.0], [4.0, -50.5]],
    "nilpotent": [[1.0, 1.0], [-1.0, -1.0]],
    "coupled": [[-3.0, 1e6], [0.0, -17.0]],
    "lower": [[-700.0, 0.0], [5.0, 2.0]],
    "diagonal": [[-40.0, 0.0], [0.0, 1.0]],
    "badly scaled": [[1.0, 3 * 2.0**40], [5 * 2.0**-40, -2.0]],
    "almost defective": [[2.0, 1e3], [-1e-12, 2.0 + 1e-9]],
    "zero": [[0.0, 0.0], [0.0, 0.0]],
    "complex": [[3 + 1j, -7j], [2 + 2j, 5 - 1j]],
    "unitary": [[30j, 7 + 2j], [-7 + 2j, -50j]],
    "complex triangle": [[-1 + 30j, 0], [1e4j, -20.0]],
}


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("name", TWO_ROWS)
def test_two_rows(name: str, dtype: torch.dtype) -> None:
    """Value and derivative by their formulas against Arb, alone and all in a batch."""
    rows = torch.tensor(TWO_ROWS[name])
    a = torch.tensor(TWO_ROWS[name], dtype=dtype.to_complex() if rows.is_complex() else dtype)
    e = random_matrix(2, 1.0, 3).to(a.dtype)
    others = [torch.tensor(x, dtype=a.dtype) for x in TWO_ROWS.values() if not torch.tensor(x).is_complex()]
    batch = torch.stack([a, *others])
    unit = UNIT_ROUNDOFF if dtype == torch.float64 else 2.0**-24
    size = (
        8 + float(a.abs().max()) if a.dtype.to_real() == torch.float64 else 8
    )  # where long double is double
    exact, direction = oracle.to_arb(_real_form(a)), oracle.to_arb(_real_form(e))
    expected = oracle.exact_exp(exact), oracle.exact_frechet(exact, direction)
    for company in (a[None], batch):
        value, derivative = small.expm(company)[0], small.frechet(company, e.expand_as(company))
        assert value is not None
        assert derivative is not None
        assert value.dtype == derivative.dtype == a.dtype
        for found, wanted in zip((value[0], derivative[0]), expected, strict=True):
            assert oracle.relative_error(_real_form(found).double(), wanted) <= size * unit


@pytest.mark.parametrize("entry", [torch.nan, torch.inf, 1e200, 800.0], ids=str)
def test_two_rows_that_overflow_are_left_to_the_grouped_path(entry: float) -> None:
    a = torch.tensor([[[entry, 1.0], [1.0, 0.0]]], dtype=torch.float64)
    assert small.expm(a)[0] is None
    assert small.frechet(a, torch.ones_like(a)) is None


SCALES = torch.exp2(torch.tensor([0.0, 9.0, -3.0, 20.0, -14.0], dtype=torch.float64))
FAMILIES: dict[str, tuple[Tensor, Tensor]] = {
    "full": (torch.ones(5, 5), torch.ones(())),
    "upper": (torch.ones(5, 5).triu(), torch.ones(())),
    "lower": (torch.ones(5, 5).tril(), torch.ones(())),
    "badly scaled": (torch.ones(5, 5), SCALES / SCALES[:, None]),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("norm", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_the_backward_pass_by_what_the_forward_pass_found(
    monkeypatch: pytest.MonkeyPatch, name: str, norm: float, dtype: torch.dtype
) -> None:
    """L(A^H, G) with the norms, triangles and scalings of A, in the basis in which A is well scaled."""
    pattern, factors = FAMILIES[name]
    plain = batch(3, 5, [norm, norm / 9, norm / 2], dtype, seed=11) * pattern
    adjoints, g = plain.mH.resolve_conj(), batch(3, 5, [1.0], dtype, seed=50)
    _, found = small.expm((adjoints * factors).mH.resolve_conj())
    assert found is not None
    assert (found.balancing is not None) == (name == "badly scaled")
    assert found.triangle == (name if norm == 30.0 and name in ("upper", "lower") else None)
    if found.looked:
        monkeypatch.setattr(small_balance, "look", lambda *_: pytest.fail("looked again"))
        monkeypatch.setattr(small, "_plain", lambda *_: pytest.fail("not balanced"))
    tangents = small.frechet(adjoints * factors, g * factors, found)
    assert tangents is not None
    for x, direction, tangent in zip(adjoints, g, tangents / factors, strict=True):
        exact = oracle.exact_frechet(oracle.to_arb(_real_form(x)), oracle.to_arb(_real_form(direction)))
        assert oracle.relative_error(_real_form(tangent), exact) <= max(16.0, 2 * norm) * UNIT_ROUNDOFF


# Without balancing their largest errors were 7e4 units, of value and derivative.
BADLY_BALANCED = [name for name in gallery.MATRICES if name.startswith("badly balanced")]


@pytest.mark.parametrize("name", BADLY_BALANCED)
@pytest.mark.parametrize("company", [False, True], ids=["alone", "in a batch"])
def test_badly_scaled_matrices_are_balanced(name: str, company: bool) -> None:
    """The value, alone and in a batch with matrices that are well scaled, against Arb."""
    a = gallery.MATRICES[name]
    others = [random_matrix(len(a), 30.0, 5), random_matrix(len(a), 0.1, 6)] if company else []
    batch = torch.stack([a, *others])
    found = mlayer.expm(batch, path="matmul")
    assert oracle.relative_error(found[0], oracle.exact_exp(oracle.to_arb(a))) <= 20 * UNIT_ROUNDOFF
    agree(found[1:], grouped.expm(batch[1:]), batch[1:])


@pytest.mark.parametrize("decades", [4, 12])
def test_the_derivative_of_a_badly_scaled_matrix(decades: int) -> None:
    """L(D A D^-1, D E D^-1) is D L(A, E) D^-1, without rounding, in a badly scaled basis."""
    plain, e = random_matrix(4, 6.0, 1) / 2, random_matrix(4, 1.0, 2)
    scale = torch.exp2(torch.linspace(0, decades * 10 / 3, 4, dtype=torch.float64).round())
    factors = scale[:, None] / scale
    found = small.frechet((plain * factors)[None], (e * factors)[None])
    assert found is not None
    exact = oracle.exact_frechet(oracle.to_arb(plain), oracle.to_arb(e))
    assert oracle.relative_error(found[0] / factors, exact) <= 40 * UNIT_ROUNDOFF


def test_complex_matrices_are_balanced() -> None:
    plain = torch.complex(random_matrix(3, 4.0, 3), random_matrix(3, 4.0, 4))
    scale = torch.tensor([1.0, 2.0**20, 2.0**-20], dtype=torch.float64)
    factors = scale[:, None] / scale
    found = mlayer.expm((plain * factors)[None], path="matmul")[0] / factors
    agree(found[None], grouped.expm(plain[None]), plain[None])


# Norms of 15 to 25 and, with couplings of a thousand, of 5,000: 5 to 13 squarings.
TRIANGULAR = {
    "upper": torch.tensor([[8.0, -6.0, -3.5, -5.0], [0, 6, -4, 7], [0, 0, -3, 8], [0, 0, 0, -2]]),
    "equal eigenvalues": 12 * torch.eye(4) + torch.diag(torch.tensor([3.0, -5, 7]), 1),
    "coupled": torch.tensor([[-9.0, 4e3, 0], [0, -17, 5e3], [0, 0, 3]]),
    "coupled, complex": torch.tensor([[-9.0, 4e3j, 20], [0, -17 + 3j, 5e3], [0, 0, 3]]),
}


@pytest.mark.parametrize("company", [False, True], ids=["alone", "in a batch"])
@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
@pytest.mark.parametrize("name", TRIANGULAR)
def test_triangular_matrices_have_exact_diagonals(name: str, lower: bool, company: bool) -> None:
    """Value and derivative against Arb; up to 1,700 units were lost without that."""
    a = TRIANGULAR[name].to(torch.complex128 if TRIANGULAR[name].is_complex() else torch.float64)
    a = a.mT.contiguous() if lower else a
    e = random_matrix(len(a), 1.0, 8).to(a.dtype)
    others = [random_matrix(len(a), 30.0, 5).to(a.dtype)] if company else []
    batch, directions = torch.stack([a, *others]), torch.stack([e] * (1 + len(others)))
    exact = [oracle.to_arb(_real_form(x)) for x in (a, e)]
    value, derivative = small.expm(batch)[0], small.frechet(batch, directions)
    assert value is not None
    assert derivative is not None
    assert oracle.relative_error(_real_form(value[0]), oracle.exact_exp(exact[0])) <= 8 * UNIT_ROUNDOFF
    expected = oracle.exact_frechet(*exact)
    assert oracle.relative_error(_real_form(derivative[0]), expected) <= 8 * UNIT_ROUNDOFF
    agree(value[1:], grouped.expm(batch[1:]), batch[1:])


@pytest.mark.parametrize("derivative", [False, True], ids=["value", "derivative"])
def test_triangular_matrices_are_computed_once(monkeypatch: pytest.MonkeyPatch, derivative: bool) -> None:
    """Before, a batch with some took three, and a search for a balancing that changed nothing."""
    calls = {"polynomial": 0, "equalizing_exponents": 0}

    def count(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: object) -> object:
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(small, "polynomial")
    count(small_balance, "equalizing_exponents")
    full = torch.stack([random_matrix(12, 30.0, k) for k in range(4)])
    upper = full.triu() * (30 / torch.linalg.matrix_norm(full.triu(), 2))[:, None, None]
    for batch, groups in ((upper, 1), (upper.mT, 1), (torch.cat([upper[:2], full[:2]]), 2)):
        calls["polynomial"] = 0
        found = small.frechet(batch, full) if derivative else small.expm(batch)[0]
        assert found is not None
        assert calls["polynomial"] == groups
        exact = oracle.to_arb(batch[0])
        expected = (
            oracle.exact_frechet(exact, oracle.to_arb(full[0])) if derivative else oracle.exact_exp(exact)
        )
        assert oracle.relative_error(found[0], expected) <= 16 * UNIT_ROUNDOFF
    assert calls["equalizing_exponents"] == 0


@pytest.mark.parametrize("n", [2, 5, 64])
def test_large_norms_that_do_not_overflow_stay_on_the_fast_path(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """The norm alone does not rule an overflow out: rotations by 300, in NumPy and, for 64, in torch."""
    for path in ("expm", "frechet"):
        monkeypatch.setattr(grouped, path, lambda *_: pytest.fail("the slow path was taken"))
    a = torch.stack([random_matrix(n, 1.0, k) for k in range(5)])
    a = (a - a.mT) * (300 / torch.linalg.matrix_norm(a - a.mT, 2))[:, None, None]
    g = torch.stack([random_matrix(n, 1.0, 7)] * 5)
    value, derivative = matmul.expm(a.float()), matmul.frechet(a.float(), g.float())
    exact = [oracle.to_arb(a[0].float()), oracle.to_arb(g[0].float())]
    assert oracle.relative_error(value[0].double(), oracle.exact_exp(exact[0])) <= 300 * 2.0**-22
    assert oracle.relative_error(derivative[0].double(), oracle.exact_frechet(*exact)) <= 300 * 2.0**-22


@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_strong_couplings_are_balanced_without_a_search(
    monkeypatch: pytest.MonkeyPatch, n: int, lower: bool
) -> None:
    """The longest path gives the scaling; the search took up to twenty sweeps over all rows."""
    monkeypatch.setattr(small_balance, "equalizing_exponents", lambda a: pytest.fail("searched"))
    a = random_matrix(n, 2e4, 3).triu(1) + torch.diag(-torch.linspace(0, 20, n, dtype=torch.float64))
    a = a.mT.contiguous() if lower else a
    e = random_matrix(n, 1.0, 8)
    value, derivative = small.expm(a[None])[0], small.frechet(a[None], e[None])
    assert value is not None
    assert derivative is not None
    assert oracle.relative_error(value[0], oracle.exact_exp(oracle.to_arb(a))) <= 8 * UNIT_ROUNDOFF
    exact = oracle.exact_frechet(oracle.to_arb(a), oracle.to_arb(e))
    assert oracle.relative_error(derivative[0], exact) <= 8 * UNIT_ROUNDOFF


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_diagonal_matrices_are_not_squared(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(small, "polynomial", lambda *_: pytest.fail("squared"))
    entries = torch.tensor([30.0, -40.0, 30.0, 2.0], dtype=dtype) * (1 + (0.5j if dtype.is_complex else 0))
    a, e = torch.diag(entries), random_matrix(4, 1.0, 8).to(dtype)
    value, derivative = small.expm(a[None])[0], small.frechet(a[None], e[None])
    assert value is not None
    assert derivative is not None
    assert torch.equal(value[0].diagonal(), torch.from_numpy(np.exp(entries.numpy())))
    exact = oracle.exact_frechet(oracle.to_arb(_real_form(a)), oracle.to_arb(_real_form(e)))
    assert oracle.relative_error(_real_form(derivative[0]), exact) <= 4 * UNIT_ROUNDOFF


def _real_form(a: Tensor) -> Tensor:
    if not a.is_complex():
        return a
    return torch.cat([torch.cat([a.real, -a.imag], 1), torch.cat([a.imag, a.real], 1)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_the_search_for_imbalance_leaves_the_diagonal_out_whatever_the_strides(dtype: torch.dtype) -> None:
    """The backward pass looks at a transposed view, of which the diagonal was counted."""
    a = (random_matrix(4, 3.0, 9) + 100 * torch.eye(4)).to(dtype)[None].numpy()
    row, column = small_balance._sums(a)
    other_row, other_column = small_balance._sums(a.transpose(0, 2, 1))
    assert row.max() < 100
    assert np.allclose(row, other_column)
    assert np.allclose(column, other_row)
