"""Comparisons that allow for rounding and for nothing else.

A BLAS may sum in another order on another processor, with another number of threads or for another batch, so
two correct results of the matmul path differ in their last digits. `agree` allows each of two exponentials
(or gradients) the error that tests/exponential/test_accuracy.py allows one: relative, normwise, per matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor

# In units of eps times the measure of a matrix; test_accuracy.py says where they come from.
MULTIPLE = 4.0
MULTIPLES = {
    torch.float32: 2 * MULTIPLE,
    torch.complex64: 2 * MULTIPLE,
    torch.float64: MULTIPLE,
    torch.complex128: MULTIPLE,
}


def agree(computed: Tensor, expected: Tensor, matrices: Tensor) -> None:
    """Assert that two values or gradients of exp at the matrices differ by no more than both may be wrong.

    All are (..., n, n). Entries that are not finite must be the same.
    """
    assert computed.shape == expected.shape
    assert computed.dtype == expected.dtype
    computed, expected = computed.detach(), expected.detach()
    torch.testing.assert_close(computed.isnan(), expected.isnan(), rtol=0, atol=0)
    ordinary = expected.isfinite()
    assert torch.equal(computed[~ordinary].nan_to_num(nan=0.5), expected[~ordinary].nan_to_num(nan=0.5))
    wider = torch.complex128 if expected.is_complex() else torch.float64
    left = torch.where(ordinary, computed, 0).to(wider)
    right = torch.where(ordinary, expected, 0).to(wider)
    norm = matrices.detach().abs().double().sum(-2).amax(-1).nan_to_num(nan=1.0, posinf=1.0).clamp(min=1)
    bound = 2 * MULTIPLES[expected.dtype] * torch.finfo(expected.dtype).eps * norm
    difference = torch.linalg.matrix_norm(left - right)
    excess = difference - bound * torch.linalg.matrix_norm(right)
    assert (excess <= 0).all(), f"beyond rounding by up to {float(excess.max()):.3g}"
