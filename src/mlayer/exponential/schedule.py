"""The choice of Taylor polynomial and number of squarings, with the error bound of every exponential.

exp(A) is computed as T(2^-s A)^(2^s), T one of four nested Taylor polynomials that cost 1, 2, 3
and 4 matrix products. Both numbers follow from one cheap norm, d = ||A^2||^(1/2), which is never larger
than ||A|| and often far smaller, so that matrices far from normal are not overscaled. The norm is the
1-norm or the Frobenius norm, whichever gives the smaller d.

The promise (proved in docs/theory/expm.md): in exact arithmetic the result is exp(A + E) with
||E|| <= u ||A||, u the unit roundoff of the dtype, because s is chosen so that 2^-s d <= theta. The
derivative has its own thresholds, for an error of 5 u: there d alone says too little, ||A|| comes in.
In single precision the backward pass squares no more often than the forward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

DEGREES = (2, 4, 8, 16)

# From this size on, operations on the entries of a matrix take a few percent of the time of its products: the
# matmul path takes the smaller of two norms, keeps rounding errors of sums and looks for balancing.
LARGE = 97

# Up to these powers the polynomials have Taylor's coefficients; the last one of degree 16 is 0.546 / 16!.
EXACT_DEGREES = (2, 4, 8, 15)

# Degree 4: A2 (FOUR[0] A2 + FOUR[1] A) + A2 / 2 + A + I.
FOUR = (1 / 24, 1 / 6)

# Degrees 8 and 16: J. Sastre, "Efficient evaluation of matrix polynomials" (2018) and J. Sastre,
# J. Ibanez, E. Defez, "Boosting the computation of the matrix exponential" (2019). The digits are our
# own solution of their equations, docs/theory/derive_coefficients.py.
#   Y = A2 (e0 A2 + e1 A)
#   (Y + e2 A2 + e3 A) (Y + e4 A2) + e5 Y + A2 / 2 + A + I
EIGHT = (
    0.004980119205559973,
    0.019920476822239893,
    0.07665265321119147,
    0.8765009801785553,
    0.12255211501120747,
    2.9743072048476265,
)
#   Y = A2 (c0 A2 + c1 A)
#   W = (Y + c2 A2 + c3 A) (Y + c4 A2) + c5 Y + c6 A2
#   (W + c7 A2 + c8 A) (W + c9 Y + c10 A) + c11 W + c12 Y + c13 A2 + c14 A + I
SIXTEEN = (
    0.00040187616102010355,
    0.002945531440279683,
    -0.008709066576837676,
    0.4017568440673568,
    0.03230762888122312,
    5.768988513026145,
    0.02338576034271299,
    0.23810703738709872,
    2.2242091724963737,
    -5.792361707073261,
    -0.04130276365929783,
    10.408017352313543,
    -63.31712455883371,
    0.3484665863364574,
    1.0,
)


@dataclass(frozen=True)
class Schedule:
    """Thresholds for one precision, for the value or for the derivative."""

    unit_roundoff: float
    # Degree DEGREES[k] keeps the promise if d <= theta[k] or ||A||_1 <= norm_theta[k].
    theta: tuple[float, float, float, float]
    # A^2 is safe from overflow up to this norm; beyond it the careful path takes over.
    largest_norm: float
    norm_theta: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    def degree(self, d: float, norm: float = math.inf) -> int:
        """Smallest degree that needs no squaring at d = ||A^2||^(1/2) and ||A||, else 16."""
        rows = zip(DEGREES, self.theta, self.norm_theta, strict=True)
        return next((m for m, t, b in rows if d <= t or norm <= b), DEGREES[-1])

    def squarings(self, d: float) -> int:
        """Squarings that bring d within reach of degree 16."""
        return max(0, math.ceil(math.log2(d / self.theta[-1]))) if d > self.theta[-1] else 0


# For the derivative, degree 2 has no threshold on d: A^2 = 0 does not make the terms A E A vanish.
_NEVER = math.nan  # compares false with every d, 0 included

# All from docs/theory/derive_coefficients.py, rounded down.
SINGLE = Schedule(
    unit_roundoff=2.0**-24,
    theta=(5.978858893e-04, 5.116619363e-02, 5.800524627e-01, 2.346206912e00),
    largest_norm=2.0**60,
)
SINGLE_DERIVATIVE = replace(
    SINGLE,
    theta=(_NEVER, 1.726333536e-03, 4.010248696e-01, 2.346206912e00),
    norm_theta=(5.978858893e-04, 5.105892715e-02, 5.379799767e-01, 2.176300250e00),
)
DOUBLE = Schedule(
    unit_roundoff=2.0**-53,
    theta=(2.580956802e-08, 3.397168839e-04, 4.991228871e-02, 6.764217495e-01),
    largest_norm=2.0**500,
)
DOUBLE_DERIVATIVE = replace(
    DOUBLE,
    theta=(_NEVER, 7.450580596e-08, 1.425545715e-02, 5.874734437e-01),
    norm_theta=(2.580956802e-08, 3.397120758e-04, 4.636821868e-02, 6.263706808e-01),
)


def schedule_for(dtype: torch.dtype, derivative: bool = False) -> Schedule:
    """The thresholds for the precision in which ``dtype`` is computed."""
    if dtype in (torch.float64, torch.complex128):
        return DOUBLE_DERIVATIVE if derivative else DOUBLE
    return SINGLE_DERIVATIVE if derivative else SINGLE


def squarings_without_identity(dtype: torch.dtype) -> int:
    """The number of first squarings that are computed as Y <- 2 Y + Y^2 with Y = exp(B) - I.

    Rounding X = I + Y loses a digit that Y keeps, as long as Y is not larger than X. In double precision that
    holds twice; the scaled matrices of single precision are too large for it from the start.
    """
    return 2 if dtype in (torch.float64, torch.complex128) else 0


def one_norm(matrices: Tensor) -> Tensor:
    """Largest absolute column sum.  (..., n, n) -> (...)"""
    return matrices.abs().sum(-2).amax(-1)


def frobenius_norms(matrices: Tensor) -> Tensor:
    """(b, n, n) -> (b,)"""
    if matrices.is_complex():  # torch's norm of complex numbers is many times slower
        return torch.linalg.vector_norm(torch.view_as_real(matrices), dim=(-3, -2, -1))
    return torch.linalg.vector_norm(matrices, dim=(-2, -1))


def real_parts(matrices: Tensor) -> Tensor:
    """(b, n, n) -> (b, n, n, 1), or 2 of complex ones"""
    return torch.view_as_real(matrices) if matrices.is_complex() else matrices.unsqueeze(-1)


def row_and_column_sums(parts: Tensor) -> tuple[Tensor, Tensor]:
    """(b, n, n, 1 or 2) -> (b, n) twice; over long rows, which torch sums many times faster than pairs."""
    return parts.flatten(-2).sum(-1), parts.sum(-3).sum(-1)


def square_norms(squares: Tensor) -> Tensor:
    """||A^2|| in a norm that is the same for A and its adjoint.  (b, n, n) -> (b,)

    The Frobenius norm; of large matrices the larger of the 1-norm and the infinity norm (of the real form,
    if complex), if that is smaller.
    """
    found = frobenius_norms(squares)
    if squares.shape[-1] < LARGE:
        return found
    row, column = row_and_column_sums(real_parts(squares).abs())
    other = torch.maximum(row, column).amax(-1)
    return torch.where(found.isfinite(), torch.minimum(found, other), found)


def root_of_square_norm(squares: Tensor) -> Tensor:
    """The d = ||A^2||^(1/2) of A^2, in the 1-norm or the Frobenius norm, whichever is smaller."""
    return torch.minimum(one_norm(squares), torch.linalg.matrix_norm(squares)).sqrt()


def exact_degree(depth: int, derivative: bool) -> int | None:
    """Degree of the polynomial that is exact at every norm when A^(depth + 1) = 0, if there is one.

    The terms A^i E A^j of the derivative vanish only from i + j = 2 depth + 1 on. Degree 16 does not
    serve: its coefficients have both signs and cancel beyond its threshold.
    """
    last = 2 * depth + 1 if derivative else depth
    return next((m for m in DEGREES[:-1] if last <= m), None)
