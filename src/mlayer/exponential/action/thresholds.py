"""Taylor's polynomial of degree m: the norm up to which it suffices, for the value and the derivative.

The tables are those of A. Al-Mohy and N. Higham, "Computing the action of the matrix exponential" (SIAM J.
Sci. Comput. 33, 2011), recomputed by docs/theory/derive_action.py and rounded down; the bounds are proved in
docs/theory/action.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Precision:
    """The demands of a dtype on the polynomial."""

    unit_roundoff: float
    # theta[m - 1]: at this norm the relative backward error of degree m is the unit roundoff.
    theta: tuple[float, ...]
    # Up to this degree the terms of the series are never so large that their cancellation costs more than
    # about 8 units per unit of norm: exp(theta) / (theta sqrt(2 pi theta)) <= 8.
    cautious_degree: int


SINGLE = Precision(
    2.0**-24,
    (
        *(1.1920e-07, 5.9788e-04, 1.1233e-02, 5.1166e-02, 1.3084e-01, 2.4952e-01, 4.0145e-01, 5.8005e-01),
        *(7.7951e-01, 9.9518e-01, 1.2234e00, 1.4616e00, 1.7076e00, 1.9598e00, 2.2170e00, 2.4782e00),
        *(2.7428e00, 3.0100e00, 3.2795e00, 3.5509e00, 3.8238e00, 4.0981e00, 4.3734e00, 4.6497e00),
        *(4.9268e00, 5.2047e00, 5.4831e00, 5.7620e00, 6.0413e00, 6.3210e00, 6.6011e00, 6.8814e00),
        *(7.1620e00, 7.4428e00, 7.7238e00, 8.0049e00, 8.2862e00, 8.5675e00, 8.8490e00, 9.1306e00),
        *(9.4123e00, 9.6940e00, 9.9757e00, 1.0257e01, 1.0539e01, 1.0821e01, 1.1103e01, 1.1385e01),
        *(1.1667e01, 1.1949e01, 1.2230e01, 1.2512e01, 1.2794e01, 1.3076e01, 1.3358e01),
    ),
    cautious_degree=26,
)
DOUBLE = Precision(
    2.0**-53,
    (
        *(2.2204e-16, 2.5809e-08, 1.3863e-05, 3.3971e-04, 2.4008e-03, 9.0656e-03, 2.3844e-02, 4.9912e-02),
        *(8.9577e-02, 1.4418e-01, 2.1423e-01, 2.9961e-01, 3.9977e-01, 5.1391e-01, 6.4108e-01, 7.8028e-01),
        *(9.3053e-01, 1.0908e00, 1.2603e00, 1.4382e00, 1.6237e00, 1.8160e00, 2.0147e00, 2.2190e00),
        *(2.4285e00, 2.6428e00, 2.8614e00, 3.0840e00, 3.3101e00, 3.5396e00, 3.7722e00, 4.0075e00),
        *(4.2454e00, 4.4858e00, 4.7283e00, 4.9729e00, 5.2193e00, 5.4675e00, 5.7174e00, 5.9688e00),
        *(6.2215e00, 6.4756e00, 6.7310e00, 6.9875e00, 7.2450e00, 7.5036e00, 7.7631e00, 8.0235e00),
        *(8.2848e00, 8.5469e00, 8.8096e00, 9.0731e00, 9.3373e00, 9.6021e00, 9.8674e00),
    ),
    cautious_degree=38,
)


def precision_for(dtype: torch.dtype) -> Precision:
    """The precision in which ``dtype`` is computed."""
    return DOUBLE if dtype in (torch.float64, torch.complex128) else SINGLE


def derivative_degree(powers: Sequence[float], u: float, largest: int) -> int | None:
    """Smallest degree whose derivative in A is right to 2 u, or None up to ``largest``.

    ``powers[i]`` bounds ||B^i||, B one step's matrix, as far as it is known. The derivative consists of the
    terms B^i E B^j, and B^2 = 0 does not make B E B vanish, so the norms of all powers come in; the error is
    compared with the first terms of the series, 1, B and B^2 / 6 in size (docs/theory/action.md).
    """
    size = max(1.0, powers[1], powers[1] ** 2 / 6)
    known = list(powers)
    count = 2 * largest + 40
    while len(known) < count:
        i = len(known)
        known.append(min(known[a] * known[i - a] for a in range(1, min(len(powers), i))))
    sums = [sum(known[i] * known[k - i] for i in range(k + 1)) for k in range(count)]
    for m in range(1, largest + 1):
        # |c_k| = 1 / (m! (k - m - 1)! k), the coefficients of the backward error.
        error = 0.0
        for k in range(m + 1, min(count, m + 41 + m)):
            logarithm = math.lgamma(m + 1) + math.lgamma(k - m) + math.log(k)
            if sums[k - 1] > 0:
                error += math.exp(min(700.0, math.log(sums[k - 1]) - logarithm))
        if error <= 2 * u * size:
            return m
    return None
