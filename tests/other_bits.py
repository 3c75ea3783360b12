"""A pytest plugin that plays another machine's BLAS and LAPACK: make test-machines, or by hand

    python -m pytest -p other_bits tests/exponential tests/nn tests/certificates

torch's matrix products are computed by numpy's BLAS instead. Where the batch (of one matrix: the rows) is odd
in number the terms are summed backwards, and the last rows, those beyond a multiple of four, in another order
again, as libraries do that work in blocks; likewise all rows where an operand does not start at a full cache
line. Eigenvectors and singular vectors come with other signs, and the eigenvalues of a general matrix in
another order. A library is free to do all that for another batch, thread count or processor. Code and tests
that assume the opposite pass where they were written and fail on the next machine; here they fail on every
machine. Values stay right to rounding.

    python -m pytest -p other_bits --other-loops tests/training

Sums are computed backwards too where the first dimension is odd, and the last elements of exp and the like by
numpy's functions, as loops over vectors leave them to others.

    python -m pytest -p other_bits --sums=shape --sums-seed=3 tests/symbolic
    python -m pytest -p other_bits --sums=call tests/symbolic

The terms of products in a random order instead: one that belongs to the shapes of the operands, or another
one at every call. No library does the latter. A test that fails by `call` and passes by `shape`, for a few
seeds, compares a computation with its repetition to the bit, which is right; one that fails by `shape` has a
fault.
"""

from __future__ import annotations

import functools
import itertools
import warnings
import zlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

_BLOCK = 4
_LINE = 64  # bytes of a cache line
_library = torch.library.Library("aten", "IMPL")
_ELEMENTWISE = ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh")
_LANES = 8  # elements that a loop over vectors takes at once

# How the terms of a product are ordered: "batch", "shape" or "call", and the seed of the random orders.
_sums, _seed = "batch", 0
_calls = itertools.count()


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for matrices, batches of them, and vectors."""
    if a.dtype.itemsize == 2:  # half precision
        return _product(a.float(), b.float()).to(a.dtype)
    aligned = a.data_ptr() % _LINE == b.data_ptr() % _LINE == 0
    left, right = (x.detach().resolve_conj().resolve_neg().numpy() for x in (a, b))
    first, order = _orders(a.shape, b.shape, aligned)
    if first is not None:
        left, right = left[..., first], right[..., first, :] if right.ndim > 1 else right[first]
    result = np.asarray(left @ right)
    beyond = left.shape[-2] % _BLOCK if left.ndim > 1 else 0
    if beyond:
        other = right[..., order, :] if right.ndim > 1 else right[order]
        rows = (..., slice(-beyond, None), slice(None)) if right.ndim > 1 else slice(-beyond, None)
        result[rows] = left[..., -beyond:, order] @ other
    return torch.tensor(result)  # at a full cache line, as torch's own results are


def _orders(a: Sequence[int], b: Sequence[int], aligned: bool) -> tuple[np.ndarray | None, np.ndarray]:
    """The order of the terms, None for that of memory; and the order of the last rows, applied after it."""
    if _sums == "batch":
        return _by_batch(a[-1], len(a) == 1 or a[0] % 2 == 1, aligned)
    return _random_orders(tuple(a), tuple(b), aligned, next(_calls) if _sums == "call" else -1)


@functools.cache
def _by_batch(terms: int, backwards: bool, aligned: bool) -> tuple[np.ndarray | None, np.ndarray]:
    two_by_two = np.r_[0:terms:2, 1:terms:2]
    if backwards:
        return np.arange(terms)[::-1], two_by_two
    return (None if aligned else two_by_two), two_by_two


@functools.lru_cache(4096)
def _random_orders(
    a: tuple[int, ...], b: tuple[int, ...], aligned: bool, call: int
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(zlib.crc32(repr((_seed, a, b, aligned, call)).encode()))
    return random.permutation(a[-1]), random.permutation(a[-1])


def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    kind = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
    over = list(range(x.dim())) if dim is None or dim == [] else list(dim)
    if x.dim() and x.shape[0] % 2 and (x.is_floating_point() or x.is_complex()):
        x = x.flip(over)
    out = torch.empty(0, dtype=kind)
    return torch.ops.aten.sum.IntList_out(x, over, keepdim, dtype=dtype, out=out)


def _sum_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _sum(x, None, dtype=dtype)


def _elementwise(name: str) -> Callable[[Tensor], Tensor]:
    theirs, ours = getattr(torch, name), getattr(np, name)

    def changed(x: Tensor) -> Tensor:
        kind = x.dtype if x.is_floating_point() or x.is_complex() else torch.get_default_dtype()
        result = theirs(x, out=torch.empty_like(x, dtype=kind))
        last = x.numel() % _LANES
        if last and kind in (torch.float32, torch.float64) and result.is_contiguous():
            with np.errstate(all="ignore"):
                rest = ours(x.detach().resolve_neg().reshape(-1)[-last:].to(kind).numpy())
            result.view(-1)[-last:] = torch.from_numpy(rest)
        return result

    return changed


def _plus(start: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = product if alpha == 1 else alpha * product
    if beta == 0:  # what is there may be NaN
        return product
    return product + (start if beta == 1 else beta * start)


def _add_product(start: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _plus(start, _product(a, b), beta, alpha)


def _add_product_in_place(start: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return start.copy_(_add_product(start, a, b, beta=beta, alpha=alpha))


def _conjugate_dot(a: Tensor, b: Tensor) -> Tensor:
    return _product(a.conj(), b)


def _phases(vectors: Any) -> Any:
    """One for each column, of the vectors' own kind: 1, -1, 1, ... or 1, i, -1, ..."""
    count = vectors.shape[-1]
    if isinstance(vectors, Tensor):
        complex_ = vectors.is_complex()
        return torch.tensor([1j**k if complex_ else (-1) ** k for k in range(count)], dtype=vectors.dtype)
    complex_ = np.iscomplexobj(vectors)
    return np.array([1j**k if complex_ else (-1) ** k for k in range(count)], dtype=vectors.dtype)


def _result_like(found: Any, *parts: Any) -> Any:
    """A named tuple of the same kind: torch's take a sequence, numpy's take the parts."""
    return type(found)(parts) if isinstance(parts[0], Tensor) else type(found)(*parts)


def _eigh(found: Any) -> Any:
    values, vectors = found
    return _result_like(found, values, vectors * _phases(vectors))


def _eig(found: Any) -> Any:
    values, vectors = found
    backwards = list(range(values.shape[-1]))[::-1]
    return _result_like(found, values[..., backwards], (vectors * _phases(vectors))[..., backwards])


def _svd(found: Any) -> Any:
    if not isinstance(found, tuple):  # numpy's with compute_uv=False
        return found
    left, values, right = found
    rank = values.shape[-1]
    signs = (_phases(left[..., :rank]), _phases(left[..., :rank]))
    left = _joined(left[..., :rank] * signs[0], left[..., rank:], -1)
    conjugate = signs[1].conj()[:, None]
    return _result_like(
        found, left, values, _joined(right[..., :rank, :] * conjugate, right[..., rank:, :], -2)
    )


def _joined(a: Any, b: Any, axis: int) -> Any:
    return torch.cat([a, b], axis) if isinstance(a, Tensor) else np.concatenate([a, b], axis)


def _change(module: ModuleType, name: str, change: Callable[[Any], Any]) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def changed(*arguments: Any, **options: Any) -> Any:
        return change(original(*arguments, **options))

    setattr(module, name, changed)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sums", choices=("batch", "shape", "call"), default="batch", help="order of the terms")
    parser.addoption("--other-loops", action="store_true", help="other sums and elementwise functions too")
    parser.addoption("--sums-seed", type=int, default=0, metavar="N", help="of the random orders")


def pytest_configure(config: pytest.Config) -> None:
    """Only when asked for with -p: the doctests import every module of this folder."""
    global _sums, _seed
    _sums, _seed = config.getoption("--sums"), config.getoption("--sums-seed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is the point
        for name in ("mm", "bmm", "mv"):
            _library.impl(name, _product, "CPU")
        for name in ("addmm", "baddbmm", "addmv"):
            _library.impl(name, _add_product, "CPU")
            _library.impl(f"{name}_", _add_product_in_place, "CPU")
        _library.impl("dot", _product, "CPU")
        _library.impl("vdot", _conjugate_dot, "CPU")
        if config.getoption("--other-loops"):
            _library.impl("sum.dim_IntList", _sum, "CPU")
            _library.impl("sum", _sum_of_all, "CPU")
            for name in _ELEMENTWISE:
                _library.impl(name, _elementwise(name), "CPU")
    for module in (np.linalg, torch.linalg):
        for name, change in (("eigh", _eigh), ("eig", _eig), ("svd", _svd)):
            _change(module, name, change)
