"""The principal logarithm by inverse scaling and squaring: roots until A is near I, then a Pade approximant.

log A = 2^s log A^(1/2^s). Near I the approximant of order [8/8], in the form of the Gauss-Legendre quadrature
of log(I + X) = int_0^1 X (I + t X)^-1 dt, is right to rounding up to ||X||_1 = 0.34 in double precision
(docs/theory/inverse.md).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.exponential.inverse.pairs import MatrixPair
from mlayer.exponential.inverse.root import square_root

ORDER = 8
NEAR = 0.34
_MOST_ROOTS = 100
# Within this distance from I, and with an inverse smaller than this, A^(1/2) - I is (A - I) (A^(1/2) + I)^-1,
# which loses no digits; further away small eigenvalues of A would be lost in A - I.
_CLOSE, _REGULAR = 2.0, 4.0
# Gauss-Legendre on [-1, 1], correctly rounded: node, weight; and -node, weight. The weights of NumPy's
# leggauss are wrong in their last five bits, in a way that depends on its LAPACK.
_HALF = (
    (0.1834346424956498, 0.362683783378362),
    (0.525532409916329, 0.31370664587788727),
    (0.7966664774136267, 0.22238103445337448),
    (0.9602898564975363, 0.10122853629037626),
)
QUADRATURE = (*((-node, weight) for node, weight in _HALF[::-1]), *_HALF)


def logarithm(a: MatrixPair) -> tuple[MatrixPair, Tensor]:
    """Log A, and the largest relative residual of the roots on the way.  -> , (b,)"""
    power = torch.zeros(len(a.x), dtype=a.x.real.dtype, device=a.x.device)
    worst = torch.zeros_like(power)
    x = a.plus_identity(-1.0)
    for _ in range(_MOST_ROOTS):
        distance = _one_norm(x.x)
        far = distance > NEAR
        if not bool(far.any()):
            break
        index = far.nonzero().squeeze(1)
        part = a.select(index)
        root, residual = square_root(part)
        close = (distance[index] < _CLOSE) & (_one_norm(MatrixPair(part.x).inverse()[0].x) < _REGULAR)
        minus = root.plus_identity(-1.0)
        if bool(close.any()):
            minus = (x.select(index) @ root.plus_identity().inverse()[0]).where(close, minus)
        a, x = a.replaced(index, root), x.replaced(index, minus)
        power = power + far
        worst[index] = torch.maximum(worst[index], residual)
    return torch.exp2(power)[:, None, None] * _near_identity(x), worst


def _one_norm(x: Tensor) -> Tensor:
    return x.abs().sum(1).amax(1)


def _near_identity(x: MatrixPair) -> MatrixPair:
    total: MatrixPair | None = None
    for node, weight in QUADRATURE:
        inverse, _ = ((node + 1) / 2 * x).plus_identity().inverse()
        term = (weight / 2) * (x @ inverse)
        total = term if total is None else total + term
    assert total is not None
    return total
