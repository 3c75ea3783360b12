"""exp(M) and what it contributes to value, gradient and second derivative, with bounds of the errors.

docs/theory/certificates-checker.md, theorem 2, in float64: exp(M + alpha W^T + beta T_b) with
alpha^2 = beta^2 = 0, by scaling and squaring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.certificates.boxes.enclosed import Enclosed, exact, frobenius, gamma, spectral
from mlayer.certificates.linalg import VANISHED

_SCALED = 2.0**-4  # largest norm of the scaled matrix
_DEGREE = 12  # 2 (3 / 16)^13 / 13! is below 2^-60
_MOST_SQUARINGS = 60  # for norms up to 2^56


@dataclass(frozen=True)
class Jet:
    """The coefficients e, l and l_b of theorem 2.  (rows, 1, n, n), (rows, k, n, n), (rows, k, d, n, n)"""

    e: Enclosed
    l: Enclosed  # noqa: E741 - the theorem's letter
    lb: Enclosed


def _power(size: Tensor) -> Tensor:
    """Powers of two about as large as the sizes, or a little larger; 1 where a size vanishes."""
    exponent = torch.ceil(torch.log2(size.clamp_min(1e-280)))
    return torch.where(size > 1e-280, torch.exp2(exponent), 1.0)


def jet(M: Enclosed, W: Tensor, T: Enclosed) -> Jet:
    """The jet at M (rows, n, n) for readouts W (k, n, n) and directions T (d, n, n).

    Where M is too large, every error is infinite.
    """
    unit_W, unit_T = _power(spectral(W)), _power(spectral(T.mid) + T.error)  # (k,), (d,)
    norm = spectral(M.mid) + M.error
    squarings = torch.ceil(torch.log2(norm.clamp_min(1.0) / _SCALED))
    usable = norm.isfinite() & (squarings <= _MOST_SQUARINGS)
    M = Enclosed(torch.where(usable[:, None, None], M.mid, 0.0), torch.where(usable, M.error, torch.inf))
    squarings = torch.where(usable, squarings, 0.0)
    half = torch.exp2(-squarings)  # (rows,)
    base = M.times(half)
    base = Enclosed(base.mid[:, None], base.error[:, None])  # (rows, 1, n, n)
    alpha = exact((W / unit_W[:, None, None]).mT * half[:, None, None, None]).widened(VANISHED)
    beta = T.times(1 / unit_T)
    beta = Enclosed(beta.mid * half[:, None, None, None], beta.error * half[:, None])
    beta = Enclosed(beta.mid[:, None], beta.error[:, None] + VANISHED)  # (rows, 1, d, n, n)
    # The norm of base + alpha + beta is at most 3 / 16: what the Taylor polynomial leaves out.
    left_out = 2 * (3 * _SCALED * (1 + 1e-9)) ** (_DEGREE + 1) / math.factorial(_DEGREE + 1)
    left_out *= math.sqrt(M.mid.shape[-1])  # in Frobenius norm
    e, l, eb, lb = (c.widened(left_out) for c in _taylor(base, alpha, beta))  # noqa: E741
    for step in range(int(squarings.max()) if len(squarings) else 0):
        goes_on = squarings > step
        e5, l5 = e.inner(), l.inner()
        lb = (lb @ e5 + e5 @ lb + l5 @ eb + eb @ l5).where(goes_on, lb)
        eb = (eb @ e5 + e5 @ eb).where(goes_on, eb)
        l = (l @ e + e @ l).where(goes_on, l)  # noqa: E741
        e = (e @ e).where(goes_on, e)
    lb = lb.times((unit_W[:, None] * unit_T).expand(*lb.error.shape))
    return Jet(e, l.times(unit_W.expand(*l.error.shape)), lb)


def _taylor(base: Enclosed, alpha: Enclosed, beta: Enclosed) -> tuple[Enclosed, Enclosed, Enclosed, Enclosed]:
    """The four coefficients of the Taylor polynomial; Horner's scheme: X <- 1 + (X Z) / j."""
    rows, n = len(base.mid), base.mid.shape[-1]
    k, d = alpha.mid.shape[1], beta.mid.shape[2]
    one = torch.eye(n, dtype=torch.float64)
    base5, alpha5 = base.inner(), alpha.inner()
    e = exact(one.expand(rows, 1, n, n))
    l = exact(torch.zeros(rows, k, n, n, dtype=torch.float64))  # noqa: E741
    eb = exact(torch.zeros(rows, 1, d, n, n, dtype=torch.float64))
    lb = exact(torch.zeros(rows, k, d, n, n, dtype=torch.float64))
    for j in range(_DEGREE, 0, -1):
        by = 1.0 / j
        lb = (lb @ base5 + l.inner() @ beta + eb @ alpha5).times(by)
        eb = (eb @ base5 + e.inner() @ beta).times(by)
        l = (l @ base + e @ alpha).times(by)  # noqa: E741
        e = (e @ base).times(by) + exact(one)
    return e, l, eb, lb


def trace_products(T: Enclosed, l: Enclosed) -> tuple[Tensor, Tensor]:  # noqa: E741
    """tr(T_a l) and a bound of its error.  (d, n, n), (rows, ..., n, n) -> (rows, ..., d), the same"""
    n = T.mid.shape[-1]
    mid = l.mid.mT.flatten(-2) @ T.mid.flatten(-2).mT
    size_T, size_l, error_l = frobenius(T.mid), frobenius(l.mid)[..., None], l.error[..., None]
    rounding = gamma(n * n) * size_T * size_l
    return mid, (size_T * error_l + T.error * (size_l + error_l) + rounding) * (1 + 1e-9) + VANISHED
