"""Affine functions below <W, exp(M(x))> + b on boxes, sound for the exact function of the stored weights.

docs/theory/certificates-boxes.md. A point of the box is x_i = c_i + r_i t_i, |t_i| <= 1. Each of these is
sound: no expansion at all; first order; second order with the tangent at the center; second order with the
tangent at a corner.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from mlayer.certificates.boxes.directions import Directions, FeatureDirections
from mlayer.certificates.boxes.enclosed import (
    Enclosed,
    frobenius,
    gamma,
    largest,
    spectral,
    top,
    top_singular,
)
from mlayer.certificates.boxes.jets import jet, trace_products
from mlayer.certificates.linalg import UNIT, VANISHED, proves_positive

# Of the trace, on the diagonal of Q: keeps its factor invertible and only enlarges the ellipsoid.
_RIDGE = 1e-9
_CORNERS = 3  # tries of the corner
_MORE = 1 + 1e-6  # on every sum of error bounds
_LARGEST_NU = 300.0  # beyond e^300 squares overflow: the bound is infinite
_LEAST_RATE = -500.0  # a bound of exp(M) below e^-500 may vanish, though factors up to e^300 follow


@dataclass(frozen=True)
class Planes:
    """value + slopes . t <= f(c + r t) for |t_i| <= 1; rounding is taken off the value.

    value: (rows, k); slopes: (rows, k, m).
    """

    value: Tensor
    slopes: Tensor

    def least(self) -> Tensor:
        """A lower bound over the box.  (rows, k)"""
        total = self.slopes.abs().sum(-1)
        return self.value - total - gamma(self.slopes.shape[-1]) * (total + self.value.abs()) - VANISHED

    def better(self, other: Planes) -> Planes:
        """Entry by entry the one with the larger minimum."""
        mine, theirs = self.least(), other.least()
        take = (theirs > mine) | (mine.isnan() & ~theirs.isnan())
        return Planes(
            torch.where(take, other.value, self.value),
            torch.where(take[..., None], other.slopes, self.slopes),
        )


def tail(q: Tensor, nu: Tensor, first: int) -> Tensor:
    """An upper bound of q^first sum_{j >= 0} nu^j / (first + j)!; infinite for nu > 300.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> float(tail(one, one, 2)) - 0.7182818284 < 1e-8
    True
    """
    term = torch.ones_like(q)
    for j in range(1, first + 1):
        term = term * q / j
    total = torch.zeros_like(q)
    # From j = 2 nu on each term is at most half of the one before.
    last = int(2 * float(nu.nan_to_num(0.0).clamp_max(_LARGEST_NU).max())) + 60 if nu.numel() else first
    for j in range(first, first + last):
        total = total + term
        term = term * nu / (j + 1)
    return torch.where(nu <= _LARGEST_NU, (total + 2 * term) * (1 + 1e-9) + VANISHED, torch.inf)


class Expansion:
    """f and its derivatives at the centers of boxes, for readouts W and biases b, with bounds of the errors.

    Args:
        directions: of the layer's inputs, or of its features.
        center: (rows, m); (rows, d) for features.
        reach: (rows, m), r.
        W: (k, n, n).
        b: (k,).
        curved: whether the second derivative is computed, which costs d times as much as the gradient.
    """

    def __init__(
        self,
        directions: Directions | FeatureDirections,
        center: Tensor,
        reach: Tensor,
        W: Tensor,
        b: Tensor,
        *,
        curved: bool = True,
    ) -> None:
        self.directions, self.reach = directions, reach
        M = directions.matrix(center)
        T = directions.T
        found = jet(M, W, T if curved else Enclosed(T.mid[:0], T.error[:0]))
        self.U = reach[..., None] * directions.U  # (rows, m, d), each entry right to half a unit
        self.f, self.f_error = _value(found.e, W, b)  # (rows, k)
        self.g, self.g_error = trace_products(directions.T, found.l)  # (rows, k, d)
        if curved:
            H, error = trace_products(directions.T, found.lb)  # (rows, k, d, d), of twice P_2
            self.H = (H + H.mT) / 4
            self.H_error = (error + error.mT) / 4 + UNIT * (H.abs() + H.mT.abs())
        mu = _growth_rate(M)
        self._ellipsoid(directions.T)
        self.size = _growth(mu)[:, None] * torch.minimum(top_singular(W), spectral(W)) * _MORE  # (rows, k)
        growth = _growth(mu + self.nu) * _MORE  # of ||exp(M)||_2 on the box
        # Times ||dW||_F: what an error dW of W can do.
        self.unread = growth * (W.shape[-1] ** 0.5 * _MORE)
        self.b, self.range = b, growth[:, None] * _nuclear(W)

    def _ellipsoid(self, T: Enclosed) -> None:
        """Weights w with sum <= 1, L with L L^T >= sum u_i u_i^T / w_i, and over the box q >= ||N(t)||_F.

        Also nu, at least the largest eigenvalue of (N + N^T) / 2.
        """
        _, m, d = self.U.shape
        wanted = self.reach * self.directions.input_norms
        moving = (self.reach > 0) & (self.U != 0).any(-1)
        floor = 1e-6 * wanted.amax(1, keepdim=True) + 1e-250
        wanted = torch.where(moving, torch.maximum(wanted, floor), 0.0)
        total = wanted.sum(1, keepdim=True).clamp_min(1e-250) * (1 + 1e-10)
        self.w = torch.where(moving, wanted / total, 0.0)
        scaled = torch.where(moving[..., None], self.U / self.w.clamp_min(1e-300)[..., None], 0.0)
        Q = self.U.mT @ scaled
        Q = (Q + Q.mT) / 2
        trace = Q.diagonal(dim1=1, dim2=2).sum(1)
        eye = torch.eye(d, dtype=torch.float64)
        L, info = torch.linalg.cholesky_ex(Q + (_RIDGE * trace)[:, None, None] * eye)
        square = L @ L.mT
        # The rounding error in norm: sums of m and d terms whose sizes sum to the two traces.
        off = 2 * gamma(m + 4) * trace + 2 * gamma(d) * square.diagonal(dim1=1, dim2=2).sum(1)
        gap = square - Q
        gap = (gap + gap.mT) / 2
        fine = (info == 0) & (trace > 1e-200)
        proved = [
            bool(ok) and proves_positive(g.numpy(), -float(o))
            for ok, g, o in zip(fine, gap, off, strict=True)
        ]
        fine = torch.tensor(proved, dtype=torch.bool)
        self.L = torch.where(fine[:, None, None], L, 0.0)
        still = ~moving.any(1)

        def largest_norm(generators: Tensor) -> Tensor:
            """The largest Frobenius norm of sum_a z_a T_a, T_a right to T.error; 0 for boxes of one point."""
            flat = generators.flatten(-2)
            error = frobenius(self.L.abs().mT @ flat.abs()) * gamma(d)
            error = error + frobenius(self.L) * torch.linalg.vector_norm(T.error)
            delta = top_singular(self.L.mT @ flat) + error * _MORE + VANISHED
            return torch.where(still, 0.0, torch.where(fine, delta, torch.inf))

        self.q = largest_norm(T.mid)
        self.nu = torch.minimum(self.q, largest_norm((T.mid + T.mid.mT) / 2))

    def negated(self) -> Expansion:
        """The same for -f."""
        other = copy(self)
        other.f, other.g, other.H, other.b = -self.f, -self.g, -self.H, -self.b
        return other

    def planes(self) -> list[Planes]:
        """All planes below f."""
        return [self.first_order(), *self.second_order()]

    def below(self) -> Planes:
        """The best of all planes below f, the constant one among them."""
        return reduce(Planes.better, [*self.planes(), self.constant()])

    def constant(self) -> Planes:
        """The bias less the largest that <W, exp(M)> can be."""
        return Planes(self.b - self.range - 4 * UNIT * self.b.abs(), torch.zeros_like(self.g @ self.U.mT))

    def first_order(self) -> Planes:
        """Value and gradient at the center, the rest by norms."""
        slopes, slack = self._slopes(self.g, self.g_error)
        return Planes(self.f - (self.f_error + slack + self._rest(2)) * _MORE, slopes)

    def _rest(self, order: int) -> Tensor:
        """A bound of the terms from this order on.  (rows, k)"""
        if self.directions.degree < order:  # theorem 10 of certificates.md
            return torch.zeros_like(self.size)
        return torch.where(self.q[:, None] == 0, 0.0, self.size * tail(self.q, self.nu, order)[:, None])

    def second_order(self) -> list[Planes]:
        """The tangents at the center and at corners."""
        curvature = self._curvature()
        third = self._rest(3)
        slopes, slack = self._slopes(self.g, self.g_error)
        found = [Planes(self.f - (self.f_error + slack + curvature + third) * _MORE, slopes)]
        corner = -torch.sign(slopes)
        for _ in range(_CORNERS):
            plane = self._tangent(corner, curvature, third)
            found.append(plane)
            corner = -torch.sign(plane.slopes)
        return found

    def _slopes(self, g: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes in t for a gradient in z, and a bound of all their errors together."""
        size = self.U.abs()
        slopes = g @ self.U.mT  # (rows, k, m)
        off = error @ size.mT + (gamma(g.shape[-1]) + 2 * UNIT) * (g.abs() @ size.mT)
        return slopes, off.sum(-1)

    def _curvature(self) -> Tensor:
        """A c >= 0 with H[z, z] >= -c sum w_i t_i^2.  (rows, k)"""
        d = self.H.shape[-1]
        L = self.L[:, None]
        form = L.mT @ self.H @ L
        sizes = L.abs().mT @ (self.H_error + 2 * gamma(d) * self.H.abs()) @ L.abs()
        return (top(-(form + form.mT) / 2) + frobenius(sizes)) * _MORE

    def _tangent(self, p: Tensor, curvature: Tensor, third: Tensor) -> Planes:
        """The tangent at p of the expansion to second order plus sum_i curvature w_i (t_i^2 - 1)."""
        m, d = self.U.shape[1:]
        z, z_size = p @ self.U, p.abs() @ self.U.abs()  # (rows, k, d)
        z_error = (gamma(m) + 2 * UNIT) * z_size
        H, H_size = self.H, self.H.abs()
        Hz = (H @ z[..., None])[..., 0]
        Hz_error = (
            (self.H_error @ (z.abs() + z_error)[..., None])[..., 0]
            + (H_size @ z_error[..., None])[..., 0]
            + gamma(d) * (H_size @ z.abs()[..., None])[..., 0]
        )
        gradient = self.g + 2 * Hz
        slopes, slack = self._slopes(
            gradient, self.g_error + 2 * Hz_error + 2 * UNIT * (self.g.abs() + 2 * Hz.abs())
        )
        shift = curvature[..., None] * self.w[:, None]  # (rows, k, m)
        slack = slack + 4 * UNIT * (slopes.abs().sum(-1) + 4 * shift.sum(-1))
        slopes = slopes + 2 * shift * p
        value = self.f + (self.g * z).sum(-1) + (z * Hz).sum(-1) + (shift * (p * p - 1)).sum(-1)
        error = (
            self.f_error
            + (self.g_error * (z.abs() + z_error) + self.g.abs() * z_error).sum(-1)
            + (z.abs() * Hz_error + z_error * (Hz.abs() + Hz_error)).sum(-1)
            + gamma(d + m) * ((self.g.abs() + Hz.abs()) * z.abs()).sum(-1)
            + gamma(m) * shift.sum(-1)
            + 8 * UNIT * self.f.abs()
        )
        constant = value - (slopes * p).sum(-1)
        error = (
            error + gamma(m) * (slopes.abs() * p.abs()).sum(-1) + 4 * UNIT * (constant.abs() + value.abs())
        )
        # The error of the slopes enters the value at p and the step from p to t, |t_i - p_i| <= 2.
        return Planes(constant - (error + 2 * slack + third) * _MORE, slopes)


def _value(e: Enclosed, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """<W, e> + b and a bound of its error.  (rows, k)"""
    n = W.shape[-1]
    product = e.mid[:, 0].flatten(1) @ W.flatten(1).mT
    value = product + b
    rounding = gamma(n * n) * frobenius(e.mid) * frobenius(W) + 4 * UNIT * (b.abs() + value.abs())
    return value, (e.error * frobenius(W) + rounding) * _MORE + VANISHED


def _nuclear(W: Tensor) -> Tensor:
    """Upper bounds of the nuclear norms, by singular values and by Frobenius norms.  (k, n, n) -> (k,)"""
    n, unit = W.shape[-1], largest(W)
    values = torch.linalg.svdvals(W / unit[..., None, None])
    found = unit * (values.sum(-1) + 1e-9 * n * values.amax(-1)) * _MORE
    return torch.minimum(found.nan_to_num(nan=torch.inf), n**0.5 * frobenius(W) * _MORE)


def _growth(rate: Tensor) -> Tensor:
    """e^rate, or more where that is too small for a float."""
    return torch.exp(rate.clamp_min(_LEAST_RATE))


def _growth_rate(M: Enclosed) -> Tensor:
    """A mu with ||exp(s M)||_2 <= e^(s mu) for s >= 0: at least the top eigenvalue of (M + M^T) / 2."""
    symmetric = (M.mid + M.mid.mT) / 2
    shift = frobenius(symmetric)  # the proved eigenvalue is cut at 0, this one may be negative
    eye = torch.eye(symmetric.shape[-1], dtype=torch.float64)
    return top(symmetric + shift[:, None, None] * eye) - shift + M.error + 8 * UNIT * shift
