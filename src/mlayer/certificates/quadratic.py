"""The linear and quadratic terms together: a lower bound of slopes . delta + H[y, y] over the region.

docs/theory/certificates.md, theorem 3. L-infinity: add d_i delta_i^2 so that the form is convex, take it
away again by its chords, and bound the convex function by its tangent at a point near its minimum. Any
d >= 0 that makes it convex and any point are sound; d is chosen to cost little where it costs at all.
L2: the dual of the trust-region problem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.ellipsoid import top_eigenvalue
from mlayer.certificates.expansion import Pair

Array = NDArray[np.float64]

_ROUNDS = 12  # of the choice of d
_SHARPNESS = 40.0  # of the weights of the eigenvectors
_DESCENT = 24  # steps towards the minimum of the convex function


def linear_minimum(slopes: Array, low: Array, high: Array) -> float:
    """Min of slopes . delta over low <= delta <= high."""
    return float(np.minimum(slopes * low, slopes * high).sum())


class BoxQuadratic:
    """Lower bounds over L-infinity regions, for one pair; the shift d is fitted at one radius.

    Args:
        pair: the pair.
        eps: where to fit.
        rounds: of the fit; 1 takes the model's own weights.
    """

    def __init__(self, pair: Pair, eps: float, rounds: int = _ROUNDS) -> None:
        self._pair = pair
        self._rows = pair.row.model.white.rows
        self._near: Array | None = None  # the last point, in units of the box
        self.shift = self._fit(eps, rounds)

    def _fit(self, eps: float, rounds: int) -> Array:
        rows, H, slopes = self._rows, self._pair.second, self._pair.slopes
        m = len(rows)
        used = (rows != 0).any(1)
        w = np.where(used, self._pair.row.model.white.w, 0.0)
        rows_u, start = rows[used], w[used]
        best, shift = np.inf, np.zeros(m)
        if not used.any():
            return shift
        corner = -eps * np.sign(slopes[used])
        resistance = np.sign(slopes[used]) * (slopes[used] + 2 * rows_u @ (H @ (rows_u.T @ corner)))
        typical = float(np.abs(resistance).mean()) + 1e-300
        log_w = np.log(start + 1e-3 / len(start))
        for _ in range(rounds):
            w = np.exp(log_w - log_w.max())
            w /= w.sum()
            Q = rows_u.T @ (rows_u / w[:, None])
            Q += 1e-11 * np.trace(Q) / len(Q) * np.eye(len(Q))
            L = np.linalg.cholesky(Q)
            values, vectors = np.linalg.eigh(-L.T @ H @ L)
            top = float(values[-1]) + 1e-12 * len(values) * float(np.abs(values).max())
            if top <= 0:  # convex already
                return np.zeros(m)
            d = top * w
            loss = float(np.maximum(2 * eps * d - resistance, 0.0).sum())
            if loss < best:
                best, shift = loss, np.zeros(m)
                shift[used] = d
            share = np.exp(_SHARPNESS * (values - values[-1]) / top)  # the largest is 1: the sum is never 0
            share /= share.sum()
            keep = share > 1e-4
            dual = np.linalg.solve(L.T, vectors[:, keep])
            pull = np.sqrt(((rows_u @ dual) ** 2) @ share[keep])
            # Where the gradient resists, a shift costs nothing: it may be large there.
            cost = 0.02 + 0.98 * np.clip((2 * eps * d - resistance) / (0.3 * typical) + 0.5, 0.0, 1.0)
            wanted = pull / np.sqrt(cost)
            total = float(wanted.sum())
            if total <= 0:
                break
            log_w = 0.5 * np.log(w) + 0.5 * np.log(wanted / total + 1e-4 / len(w))
        return shift

    def lower(self, low: Array, high: Array) -> float:
        """Lower bound of the two terms over the box."""
        rows, H, d = self._rows, self._pair.second, self.shift
        # -d delta^2 >= -d ((low + high) delta - low high) for low <= delta <= high.
        slopes = self._pair.slopes - d * (low + high)
        constant = float((d * low * high).sum())
        doubled = 2 * d
        size = max(float(high.max()), -float(low.min()))
        if self._near is None:
            point = np.where(slopes > 0, low, high)
        else:  # the minimum moves little with the radius
            point = np.clip(self._near * size, low, high)
        best = -np.inf
        for _ in range(_DESCENT):
            y = rows.T @ point
            Hy = H @ y
            linear = slopes + 2 * (rows @ Hy)
            gradient = linear + doubled * point
            # h(p) - grad h(p) . p = -H[y, y] - d p^2 for a quadratic h without constant.
            bound = linear_minimum(gradient, low, high) - float(y @ Hy) - float(d @ point**2)
            if bound > best and size > 0:
                self._near = point / size
            done = bound <= best + 1e-6 * abs(best) and best > -np.inf
            best = max(best, bound)
            if done:
                break
            with np.errstate(divide="ignore", invalid="ignore"):
                target = np.where(doubled > 0, -linear / doubled, np.where(linear > 0, -np.inf, np.inf))
            point = 0.5 * point + 0.5 * np.clip(target, low, high)
        return best + constant


class BallQuadratic:
    """Lower bounds over L2 balls: for every lam >= max(0, -least eigenvalue of H),

    g.y + H[y, y] >= -1/4 g^T (H + lam)^-1 g - lam r^2   for |y| <= r.
    """

    def __init__(self, pair: Pair) -> None:
        values, vectors = np.linalg.eigh(pair.second)
        self._values, self._g2 = values, (vectors.T @ pair.first) ** 2
        largest = float(np.abs(values).max(initial=0.0))
        self._rounding = 1e-12 * len(values) * largest + 1e-300
        self._least = max(0.0, -float(values[0]) + self._rounding)

    def lower(self, radius: float) -> float:
        """The best of a geometric search over lam; each lam is sound."""
        g = float(np.sqrt(self._g2.sum()))
        span = g / (2 * radius) + self._rounding

        def dual(extra: float) -> float:
            # Eigenvalues lowered by their rounding error: the bound only gets weaker.
            inner = np.maximum(self._values - self._rounding + self._least + extra, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(self._g2 > 0, self._g2 / inner, 0.0)
            return float(-0.25 * terms.sum() - (self._least + extra) * radius**2)

        # -dual is convex in lam, hence unimodal in its logarithm: golden section.
        low, high = np.log(span * 1e-12), np.log(span * 4 + 4 * self._least + 1e-300)
        ratio = (np.sqrt(5) - 1) / 2
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        f_left, f_right = dual(np.exp(left)), dual(np.exp(right))
        for _ in range(60):
            if f_left > f_right:
                high, right, f_right = right, left, f_left
                left = high - ratio * (high - low)
                f_left = dual(np.exp(left))
            else:
                low, left, f_left = left, right, f_right
                right = low + ratio * (high - low)
                f_right = dual(np.exp(right))
        return max(
            f_left,
            f_right,
            -g * radius - max(0.0, -float(self._values[0])) * radius**2 - self._rounding * radius**2,
        )


def curvature_bound(pair: Pair) -> float:
    """Max of |H[y, y]| over |y| <= 1."""
    return float(np.maximum(top_eigenvalue(pair.second), top_eigenvalue(-pair.second)))
