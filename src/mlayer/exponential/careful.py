"""The rare cases of the matmul path: NaN, infinities, norms whose square overflows, overflowing results.

In double precision and with a running power of two, X = Y 2^p, so that an entry is infinite only
where its true value is too large. Slow, and only for the matrices that need it; kernel/careful.h is
its twin.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.exponential.schedule import one_norm

# A Taylor polynomial of this degree is below rounding where ||A^2||^(1/2) <= 1.
_DEGREE = 24
# Products of entries up to this size cannot overflow.
_ROOM = 2.0**400
# Exponents beyond this are infinite or zero in every dtype; clamping keeps them from overflowing.
_FAR = float(2**60)


def careful(matrices: Tensor, direction: Tensor | None) -> Tensor:
    """exp(A), or L(A, E).  (b, n, n) -> (b, n, n)"""
    result = torch.full_like(matrices, torch.nan)
    finite = matrices.isfinite().flatten(1).all(1)
    if direction is not None:
        finite &= direction.isfinite().flatten(1).all(1)
    for index in finite.nonzero().squeeze(1).tolist():
        result[index] = _one(matrices[index], None if direction is None else direction[index])
    return result


def _widen(matrix: Tensor) -> Tensor:
    if matrix.device.type == "mps":  # has no double precision
        return matrix
    return matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)


def _normalise(matrix: Tensor, exponent: float) -> tuple[Tensor, float]:
    """Moves the power of two of the largest entry into the exponent."""
    largest = matrix.abs().amax()
    if largest == 0:
        return matrix, exponent
    shift = float(torch.frexp(largest.cpu()).exponent)
    return _shift(matrix, -shift), exponent + shift


def _shift(matrix: Tensor, exponent: float) -> Tensor:
    """matrix 2^exponent, in steps whose factors are finite."""
    exponent = max(-6000.0, min(6000.0, exponent))
    while exponent:
        step = max(-1000.0, min(1000.0, exponent))
        matrix = matrix * 2.0**step
        exponent -= step
    return matrix


def _one(matrix: Tensor, direction: Tensor | None) -> Tensor:
    n = matrix.shape[-1]
    b, p = _normalise(_widen(matrix), 0.0)
    d, q = (None, 0.0) if direction is None else _normalise(_widen(direction), 0.0)
    spread = float(one_norm(b @ b)) ** 0.5
    if p > 500:  # B^2 may underflow where A^2 does not
        spread = max(spread, 2.0**-500)
    s = max(0.0, p + float(torch.frexp(torch.tensor(spread)).exponent)) if spread > 0 else 0.0
    b = _shift(b, p - s)
    identity = torch.eye(n, dtype=b.dtype, device=b.device)
    x, x_exponent = identity, 0.0
    h, h_exponent = torch.zeros_like(b), q - s
    for k in range(_DEGREE, 0, -1):  # Horner: X <- I + B X / k
        if d is not None:
            h = (b @ h + d @ x) / k
        x = identity + b @ x / k
    for _ in range(int(s)):
        if d is not None:
            h, h_exponent = _normalise(x @ h + h @ x, h_exponent + x_exponent)
        x, x_exponent = x @ x, 2 * x_exponent
        if x.abs().amax() > _ROOM:
            x, x_exponent = _normalise(x, x_exponent)
        x_exponent = max(-_FAR, min(_FAR, x_exponent))
        h_exponent = max(-_FAR, min(_FAR, h_exponent))
    result = _shift(x, x_exponent) if d is None else _shift(h, h_exponent)
    return result.to(matrix.dtype)
