"""A pytest plugin that plays another machine's BLAS and LAPACK: make test-machines, or by hand

    python -m pytest -p other_bits tests/exponential tests/nn tests/certificates

torch's matrix products are computed by numpy's BLAS instead. Where the batch (of one matrix: the rows) is odd
in number the terms are summed backwards, and the last rows, those beyond a multiple of four, in another order
again, as libraries do that work in blocks; likewise all rows where an operand does not start at a full cache
line. Eigenvectors and singular vectors come with other signs, and the eigenvalues of a general matrix in
another order. A library is free to do all that for another batch, thread count or processor. Code and tests
that assume the opposite pass where they were written and fail on the next machine; here they fail on every
machine. Values stay right to rounding.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_BLOCK = 4
_LINE = 64  # bytes of a cache line
_HALVES = (torch.float16, torch.bfloat16)
_library = torch.library.Library("aten", "IMPL")


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for matrices, batches of them, and vectors."""
    if a.dtype in _HALVES:
        return _product(a.float(), b.float()).to(a.dtype)
    if a.dim() == 1:
        a, b = a.flip(0), b.flip(0)
    elif a.shape[0] % 2:
        a, b = a.flip(-1), b.flip(-2 if b.dim() > 1 else -1)
    aligned = a.data_ptr() % _LINE == b.data_ptr() % _LINE == 0
    left, right = (x.detach().resolve_conj().resolve_neg().numpy() for x in (a, b))
    order = np.r_[0 : left.shape[-1] : 2, 1 : left.shape[-1] : 2]
    if not aligned:
        left, right = left[..., order], right[..., order, :] if right.ndim > 1 else right[order]
    result = np.asarray(left @ right)
    beyond = left.shape[-2] % _BLOCK if left.ndim > 1 else 0
    if beyond:
        other = right[..., order, :] if right.ndim > 1 else right[order]
        rows = (..., slice(-beyond, None), slice(None)) if right.ndim > 1 else slice(-beyond, None)
        result[rows] = left[..., -beyond:, order] @ other
    return torch.tensor(result)  # at a full cache line, as torch's own results are


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


def pytest_configure() -> None:
    """Only when asked for with -p: the doctests import every module of this folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is the point
        for name in ("mm", "bmm", "mv"):
            _library.impl(name, _product, "CPU")
        for name in ("addmm", "baddbmm", "addmv"):
            _library.impl(name, _add_product, "CPU")
            _library.impl(f"{name}_", _add_product_in_place, "CPU")
        _library.impl("dot", _product, "CPU")
        _library.impl("vdot", _conjugate_dot, "CPU")
    for module in (np.linalg, torch.linalg):
        for name, change in (("eigh", _eigh), ("eig", _eig), ("svd", _svd)):
            _change(module, name, change)
