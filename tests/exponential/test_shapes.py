"""Batch shapes, strides and views; the same bits in any company; nothing of the user's is changed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import mlayer
from cases import random_matrix
from rounding import agree


def _batch(shape: tuple[int, ...], n: int, dtype: torch.dtype, scale: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, n, n, dtype=torch.float64, generator=generator).mul(scale).to(dtype)


SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3,), (2, 3), (2, 0, 3), (2, 1, 2, 2), (17,), (33,))


def _one_by_one(a: Tensor) -> Tensor:
    """Each matrix on its own, from fresh memory."""
    n = a.shape[-1]
    out = [mlayer.expm(m.clone(memory_format=torch.contiguous_format)) for m in a.reshape(-1, n, n)]
    return torch.stack(out).reshape(a.shape) if out else torch.empty(a.shape, dtype=a.dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 16, 17, 33])
def test_batch_shapes(n: int, dtype: torch.dtype, path: str) -> None:
    for shape in SHAPES:
        a = _batch(shape, n, dtype).requires_grad_()
        value = mlayer.expm(a)
        assert value.shape == a.shape
        assert value.dtype == dtype
        assert value.is_contiguous()
        (gradient,) = torch.autograd.grad(value, a, torch.ones_like(value))
        assert gradient.shape == a.shape
        agree(value, _one_by_one(a.detach()), a)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 0, 0)], ids=str)
def test_matrices_without_entries(shape: tuple[int, ...], dtype: torch.dtype, path: str) -> None:
    a = torch.zeros(shape, dtype=dtype, requires_grad=True)
    value = mlayer.expm(a)
    assert value.shape == shape
    torch.autograd.backward(value.sum())
    assert a.grad is not None
    assert a.grad.shape == shape


def _views(a: Tensor) -> dict[str, Tensor]:
    """The same kind of tensor, laid out in many ways; a is (4, 6, n, n)."""
    n = a.shape[-1]
    wide = torch.zeros(4, 6, n, 2 * n + 3, dtype=a.dtype)
    wide[..., 1 : n + 1] = a
    everywhere = torch.zeros(4, 6, n, n, 2, dtype=a.dtype)
    everywhere[..., 0] = a
    return {
        "transposed matrices": a.mT,
        "transposed batch": a.transpose(0, 1),
        "both transposed": a.transpose(0, 1).mT,
        "expanded": a[:, :1].expand(4, 6, n, n),
        "expanded transposed": a[:, :1].mT.expand(4, 6, n, n),
        "every other": a[::2, 1::3],
        "reversed batch": a.flip(0)[:, ::2],
        "columns of a wider matrix": wide[..., 1 : n + 1],
        "strided entries": everywhere[..., 0],
        "permuted (n, b, n, b)": a.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2),
        "unaligned": torch.cat([a.new_zeros(1), a.flatten()])[1:].view(a.shape),
        "one row repeated": a[..., :1, :].expand(4, 6, n, n),
    }


@pytest.mark.parametrize("n", [1, 2, 5, 16, 20])
def test_any_strides(n: int, dtype: torch.dtype, path: str) -> None:
    for name, view in _views(_batch((4, 6), n, dtype)).items():
        before = view.clone()
        value = mlayer.expm(view)
        assert value.is_contiguous(), name
        assert torch.equal(view, before), name
        agree(value, _one_by_one(view), view)
        leaf = view.detach().requires_grad_()
        g = _batch(tuple(view.shape[:-2]), n, dtype, seed=3)
        (gradient,) = torch.autograd.grad(mlayer.expm(leaf), leaf, g.mT)
        plain = view.clone(memory_format=torch.contiguous_format).requires_grad_()
        (expected,) = torch.autograd.grad(mlayer.expm(plain), plain, g.mT.contiguous())
        agree(gradient, expected, view)


@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_negative_bit_views(n: int, dtype: torch.dtype, path: str) -> None:
    """torch.imag of a conjugate is a view whose sign is pending."""
    z = torch.complex(_batch((3,), n, dtype), _batch((3,), n, dtype, seed=1))
    view = z.conj().imag
    assert view.is_neg()
    plain = view.resolve_neg().clone()
    agree(mlayer.expm(view), mlayer.expm(plain), plain)
    contiguous = torch._neg_view(-plain)  # the other kind of pending sign, on memory the kernel could take
    assert contiguous.is_neg()
    assert contiguous.is_contiguous()
    agree(mlayer.expm(contiguous), mlayer.expm(plain), plain)
    a = plain.clone().requires_grad_()
    value = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(value, a, view, retain_graph=True)
    (expected,) = torch.autograd.grad(value, a, plain, retain_graph=True)
    agree(gradient, expected, plain)
    (gradient,) = torch.autograd.grad(value, a, contiguous)
    agree(gradient, expected, plain)


def test_conjugate_views_of_complex_matrices() -> None:
    z = torch.complex(_batch((3,), 4, torch.float64), _batch((3,), 4, torch.float64, seed=1))
    agree(mlayer.expm(z.conj()), mlayer.expm(z.conj().resolve_conj()), z)
    agree(mlayer.expm(z.mH), mlayer.expm(z).mH.contiguous(), z.mH)
    assert mlayer.expm(z.conj()).is_contiguous()


def test_argument_and_incoming_gradient_are_never_changed(dtype: torch.dtype, implementation: str) -> None:
    for n in (1, 2, 6, 12, 20, 40):
        for norm in (0.0, 1e-3, 1.0, 50.0, *([1e20] if n in (2, 20) else [])):  # the last takes its time
            a = random_matrix(n, norm, dtype=dtype).expand(5, n, n).clone().requires_grad_()
            g = random_matrix(n, 1.0, seed=1, dtype=dtype).expand(5, n, n).clone()
            a_before, g_before = a.detach().clone(), g.clone()
            torch.autograd.grad(mlayer.expm(a), a, g)
            assert torch.equal(a.detach(), a_before)
            assert torch.equal(g, g_before)


def test_leaf_and_inner_node(dtype: torch.dtype, path: str) -> None:
    leaf = _batch((2,), 5, dtype).requires_grad_()
    torch.autograd.backward(mlayer.expm(leaf).sum())
    assert leaf.grad is not None
    inner = torch.nn.Parameter(leaf.detach() / 2)
    torch.autograd.backward(mlayer.expm(2 * inner).sum())
    assert inner.grad is not None
    agree(inner.grad, 2 * leaf.grad, leaf)
    with torch.no_grad():
        assert not mlayer.expm(leaf).requires_grad
    with torch.inference_mode():
        agree(mlayer.expm(leaf), mlayer.expm(leaf.detach().clone()), leaf)


def _company(n: int, dtype: torch.dtype) -> Tensor:
    """Matrices of every degree, few and many squarings, triangular ones, NaN, overflow, tiny entries."""
    norms = (0.0, 1e-12, 1e-5, 2e-4, 0.02, 0.04, 0.3, 0.5, 1.0, 2.1, 4.0, 9.0, 40.0, 5000.0, 1e20, 1e30)
    matrices = [random_matrix(n, x, seed=k, dtype=dtype) for k, x in enumerate(norms)]
    matrices += [random_matrix(n, 8.0, dtype=dtype).triu(1), random_matrix(n, 8.0, dtype=dtype).tril(-1)]
    matrices += [torch.full((n, n), torch.nan, dtype=dtype), torch.eye(n, dtype=dtype) * -torch.inf]
    return torch.stack(matrices)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """NaN of any kind counts as NaN."""
    a, b = (
        a.nan_to_num(nan=12345.0, posinf=torch.inf, neginf=-torch.inf),
        b.nan_to_num(nan=12345.0, posinf=torch.inf, neginf=-torch.inf),
    )
    bits = torch.int32 if a.dtype == torch.float32 else torch.int64
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 33])
def test_same_bits_alone_and_in_any_batch(n: int, dtype: torch.dtype, instruction_set: str) -> None:
    """A matrix does not notice its neighbors, its place or the size of the batch: value and gradient."""
    company = _company(n, dtype)
    g = random_matrix(n, 1.0, seed=99, dtype=dtype).expand(len(company), n, n)

    def both(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        a = a.clone().requires_grad_()
        value = mlayer.expm(a)
        return value.detach(), torch.autograd.grad(value, a, g)[0]

    alone = [both(a[None], g[:1]) for a in company]
    value = torch.cat([v for v, _ in alone])
    gradient = torch.cat([d for _, d in alone])
    order = torch.randperm(len(company), generator=torch.Generator().manual_seed(n))
    often = order.repeat(9 if n <= 12 else 2)
    for index in (torch.arange(len(company)), order, order[:7], order[3:4], often):
        v, d = both(company[index], g[:1].expand(len(index), n, n))
        assert _same_bits(v, value[index])
        assert _same_bits(d, gradient[index])


@pytest.mark.parametrize("n", [2, 3, 6, 12, 20])
def test_same_bits_of_subnormal_entries_beside_a_large_matrix(n: int, instruction_set: str) -> None:
    for dtype, tiny in ((torch.float32, 1.4e-44), (torch.float64, 5e-323)):
        a = torch.linspace(-4, 4, n, dtype=dtype).diag()
        a[0, 1], a[1, 0] = tiny, 1.5 * tiny
        beside = random_matrix(n, 9000.0, dtype=dtype)
        assert _same_bits(mlayer.expm(torch.stack([a, beside]))[0], mlayer.expm(a))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.lists(st.integers(0, 4), max_size=3),
    n=st.integers(1, 24),
    exponent=st.floats(-20, 8),
    seed=st.integers(0, 2**16),
    double=st.booleans(),
    transposed=st.booleans(),
)
def test_shapes_and_magnitudes(
    *, batch: list[int], n: int, exponent: float, seed: int, double: bool, transposed: bool, path: str
) -> None:
    """Shape and layout are right, and exp(A) exp(-A) = I to what the size of the two allows."""
    dtype = torch.float64 if double else torch.float32
    a = _batch(tuple(batch), n, dtype, scale=2.0**exponent / n, seed=seed)
    a = a.mT if transposed else a
    value, inverse = mlayer.expm(a), mlayer.expm(-a)
    assert value.shape == a.shape
    assert value.is_contiguous()
    assert not value.isnan().any()
    norm = torch.linalg.matrix_norm(a.double()).clamp(min=1)
    x, y = value.double(), inverse.double()
    size = torch.linalg.matrix_norm(x) * torch.linalg.matrix_norm(y) * norm
    ordinary = size.isfinite() & (size < 1e30)
    error = torch.linalg.matrix_norm(x @ y - torch.eye(n, dtype=torch.float64))
    # Condition numbers of random matrices stay within a few times their norm.
    assert (error <= 16 * torch.finfo(dtype).eps * size)[ordinary].all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 12),
    batch=st.integers(1, 40),
    position=st.integers(0, 39),
    exponents=st.lists(st.floats(-30, 30), min_size=40, max_size=40),
    seed=st.integers(0, 2**16),
)
def test_same_bits_at_random(
    *, n: int, batch: int, position: int, exponents: list[float], seed: int, instruction_set: str
) -> None:
    position %= batch
    scale = 2.0 ** torch.tensor(exponents[:batch])[:, None, None]
    a = _batch((batch,), n, torch.float32, seed=seed) * scale
    assert _same_bits(mlayer.expm(a)[position], mlayer.expm(a[position]))
