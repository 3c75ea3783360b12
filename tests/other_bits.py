"""A pytest plugin that plays another machine's BLAS: make test-machines, or by hand

    python -m pytest -p other_bits tests/exponential tests/nn tests/certificates

torch's matrix products are computed by numpy's BLAS instead, and where the batch (of one matrix: the rows)
is odd in number the terms are summed backwards. A library is free to give other last bits for another batch,
thread count or processor. Code and tests that assume the opposite pass where they were written and fail on
the next machine; here they fail on every machine. Values stay right to rounding.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

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
    left, right = (x.detach().resolve_conj().resolve_neg().numpy() for x in (a, b))
    return torch.as_tensor(left @ right)


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
