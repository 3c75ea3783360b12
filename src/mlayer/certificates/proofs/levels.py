"""The part of a proof for one row and one rival: a chain of linear lower bounds, found in float64.

docs/theory/certificates-checker.md, theorems 4 to 7. Nothing here is trusted; the checker proves it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.certificates.bounds.quadratic_terms import BoxQuadratic, linear_minimum
from mlayer.certificates.bounds.remainder import exponential_tail
from mlayer.certificates.golden_section import least_of
from mlayer.certificates.problem.expansion import Pair, Row
from mlayer.certificates.proofs.frame import FrameClaims
from mlayer.numerics.arrays import Array

# Limits of the search for a proof: beyond them a radius counts as not proved, and a smaller one is tried.
_MOST_LEVELS = 8
_FEW_INPUTS = 12  # up to which a box is proved in parts
_MOST_PARTS = 100
_LEVELS_OF_A_PART = 3
_PARTS_IN_VAIN = 300  # of all radii of a row without a proof
_SHRINK = 0.9  # a cap that is not smaller than this part of the last one ends the search
# Claims are raised by these factors above what float64 gives, so that the checker's balls can confirm them.
_ABOVE = 1 + 1e-9
_SHIFT_ABOVE = 1 + 1e-7
_LEAST_SHIFT = 1e-9  # smallest shift, relative to the largest entry of the form
_ROUNDS = 9  # of the fit of the shift, as in bounds/quadratic_terms.py
_SPARE = 1e-7  # of the margin, by which a bound exceeds 0 so that the checker's balls confirm it


def short(values: Array) -> Array:
    """Round to single precision where no number overflows or vanishes: a proof may use any nearby value."""
    rounded: Array = values.astype(np.float32).astype(np.float64)
    return rounded if np.isfinite(rounded).all() and ((rounded != 0) == (values != 0)).all() else values


@dataclass(frozen=True)
class Plane:
    """The linear function value + slopes . (delta - at), and what it was made of."""

    value: float
    slopes: Array
    at: Array
    level: dict[str, Any]

    def least(self, low: Array, high: Array) -> float:
        """The minimum over the box."""
        return self.value + linear_minimum(self.slopes, low - self.at, high - self.at)


def readout_claims(pair: Pair) -> tuple[dict[str, Any], float, float]:
    """Norms of the readout difference in the gauge, claimed: spectral, and nuclear by two factors."""
    left, values, right = np.linalg.svd(pair.W_gauge)
    root = np.sqrt(values)
    spectral = float(values[0]) * _ABOVE
    claims = {
        "spectral": spectral,
        "left": (left * root).reshape(-1),
        "right": (root[:, None] * right).reshape(-1),
    }
    return claims, spectral, float(values.sum()) * _ABOVE


_SEARCH = 40  # rounds of a golden section


class Chain:
    """Searches the levels for one pair."""

    def __init__(self, row: Row, rival: int, frame: FrameClaims) -> None:
        self._row, self._rival, self._frame = row, rival, frame
        self._pair = row.pair(rival)
        self._readout, spectral, nuclear = readout_claims(self._pair)
        self._parts, self._parts_left = 1, _PARTS_IN_VAIN
        self._size = min(nuclear, spectral * (frame.delta_F / frame.delta_2) ** 2)

    def prove(self, eps: float) -> dict[str, Any] | None:
        """The claims that show the margin positive within eps, or None."""
        with np.errstate(all="ignore"):
            if not self._pair.margin > 0:
                return None
            if self._row.region.norm == "l2":
                level = self._over_ball(eps)
                levels = None if level is None else [level]
            else:
                found = self._over_region(eps)
                return None if found is None else {**self._readout, **found}
        return None if levels is None else {**self._readout, "levels": levels}

    def _over_region(self, eps: float) -> dict[str, Any] | None:
        """Levels for the whole box or, where inputs are few, for parts of it."""
        row, frame = self._row, self._frame
        low, high = (end[frame.active] for end in row.interval(eps))
        self._parts = min(_MOST_PARTS, self._parts_left) if len(low) <= _FEW_INPUTS else 1
        before = self._parts
        found = self._in_parts(low, high, 0)
        self._parts_left -= before - max(self._parts, 0) if found is None else 0
        return found

    def _in_parts(self, low: Array, high: Array, depth: int) -> dict[str, Any] | None:
        levels = self._over_box(low, high, depth > 0)
        if levels is not None:
            return {"levels": levels}
        self._parts -= 1
        if self._parts <= 0:
            return None
        i = int((self._frame.w * (high - low) ** 2).argmax())
        at = float((low[i] + high[i]) / 2)
        parts = []
        for upper in (False, True):
            ends = low.copy(), high.copy()
            ends[0 if upper else 1][i] = at
            part = self._in_parts(*ends, depth + 1)
            if part is None:
                return None
            parts.append(part)
        return {"split": i, "at": at, "parts": parts}

    def linear(self) -> dict[str, Any]:
        """The claims of a first-order proof."""
        return {**self._readout, "levels": [{"kind": "linear", "mu": self._mu(self._pair)}]}

    def _mu(self, pair: Pair) -> float:
        """The largest eigenvalue of the symmetric part of M in the gauge, a little enlarged."""
        M = pair.row.M_gauge
        return float(np.linalg.eigvalsh((M + M.T) / 2)[-1]) + 1e-9 * (1 + float(np.linalg.norm(M)))

    def _over_ball(self, eps: float) -> dict[str, Any] | None:
        pair, frame = self._pair, self._frame
        mu, q = self._mu(pair), eps * frame.delta_2
        size = self._size * math.exp(min(mu, 600.0))
        enough = _SPARE * pair.margin
        if pair.margin - eps * float(np.linalg.norm(pair.slopes)) - size * exponential_tail(q, 2) > enough:
            return {"kind": "linear", "mu": mu}
        shift, lower = best_shift(pair.second, pair.first, eps)
        if pair.margin + lower - size * exponential_tail(q, 3) > enough:
            return {"kind": "quadratic", "mu": mu, "shift": shift}
        return None

    def _over_box(self, low: Array, high: Array, part: bool) -> list[dict[str, Any]] | None:
        frame, enough = self._frame, _SPARE * self._pair.margin
        center, pair, levels = np.zeros(len(low)), self._pair, []
        extra: dict[str, Any] = {}
        if part:
            center = short((low + high) / 2)
            pair, extra = self._moved(center), {"center": center}
            if not pair.margin > 0:
                self._parts = 0  # broken: there is no proof
                return None
        far = float(frame.w @ np.maximum((low - center) ** 2, (high - center) ** 2))
        for depth in range(_LEVELS_OF_A_PART if part else _MOST_LEVELS):
            planes = self._planes(pair, center, low, high, math.sqrt(max(far, 0.0)), depth == 0)
            best = max(planes, key=lambda plane: plane.least(low, high))
            levels.append({**best.level, **extra})
            least = best.least(low, high)
            if least > enough:
                return levels
            if not math.isfinite(least):
                return None
            nu, center, next_far = smallest_cap(best, frame.w, low, high)
            if not next_far < _SHRINK**2 * far:
                return None
            far = next_far * _ABOVE
            extra = {"nu": nu, "center": center}
            pair = self._moved(center)
        return None

    def _moved(self, step: Array) -> Pair:
        """The margin expanded at another point of the region."""
        row = self._row
        x = row.x.copy()
        x[self._frame.active] += step * row.region.scale.numpy()[self._frame.active]
        return row.moved(x).pair(self._rival)

    def _slopes(self, pair: Pair) -> Array:
        result: Array = pair.slopes[self._frame.active]
        return result

    def _planes(  # noqa: PLR0917
        self, pair: Pair, center: Array, low: Array, high: Array, rho: float, first: bool
    ) -> list[Plane]:
        """Linear functions below the margin within rho of the center, cheap ones first."""
        mu, q = self._mu(pair), rho * self._frame.delta_2
        size = self._size * math.exp(min(mu, 600.0))
        found = []
        if first:
            value = pair.margin - size * exponential_tail(q, 2)
            found.append(Plane(value, self._slopes(pair), center, {"kind": "linear", "mu": mu}))
            if found[0].least(low, high) > _SPARE * self._pair.margin:
                return found
        for kind in ("quadratic", "touching"):
            curvature = (
                0.5 * size * self._frame.delta_2**2 * exponential_tail(q, 1) if kind == "touching" else 0.0
            )
            if math.isfinite(curvature):
                plane = self._convexified_plane(pair, center, low, high, curvature)
                rest = 0.0 if kind == "touching" else size * exponential_tail(q, 3)
                found.append(
                    Plane(plane.value - rest, plane.slopes, plane.at, {"kind": kind, "mu": mu, **plane.level})
                )
                if found[-1].least(low, high) > _SPARE * self._pair.margin:
                    break
        return found

    def _convexified_plane(
        self, pair: Pair, center: Array, low: Array, high: Array, curvature: float
    ) -> Plane:
        """The tangent of the convexified margin (curvature > 0) or of its quadratic terms."""
        active = self._frame.active
        ends = np.zeros(len(active)), np.zeros(len(active))
        ends[0][active], ends[1][active] = low - center, high - center
        box = BoxQuadratic(pair, *ends, _ROUNDS, curvature)
        shift = box.shift[active] * _SHIFT_ABOVE
        H = pair.second
        least = _LEAST_SHIFT * (float(np.abs(H).max(initial=0.0)) + curvature) * self._frame.w
        shift = short(np.maximum(shift, least + 1e-300))
        step = np.clip(box.descend(*ends)[active], ends[0][active], ends[1][active])
        point = short(step + center)
        step = point - center
        if curvature > 0:
            there = self._moved(point)
            if not there.margin > 0 and (low <= point).all() and (point <= high).all():
                self._parts = 0  # broken: there is no proof
            value, slopes = there.margin, self._slopes(there)
        else:
            rows = pair.row.model.white.rows[active]
            y = rows.T @ step
            value = pair.margin + float(self._slopes(pair) @ step) + float(y @ H @ y)
            slopes = self._slopes(pair) + 2 * rows @ (H @ y)
        value += float(shift @ ((point - low) * (point - high)))
        slopes = slopes + shift * (2 * point - low - high)
        return Plane(value, slopes, point, {"shift": shift, "shift_ridge": 1e-12, "point": point})


def best_shift(H: Array, g: Array, radius: float) -> tuple[float, float]:
    """The shift lam and the bound -1/4 g^T (H + lam)^-1 g - lam r^2 of g.y + H[y, y] over |y| <= r."""
    values, vectors = np.linalg.eigh(H)
    g2 = (vectors.T @ g) ** 2
    least = max(0.0, -float(values[0])) + 1e-9 * float(np.abs(values).max(initial=0.0))
    span = math.sqrt(float(g2.sum())) / (2 * radius) + 1e-300

    def lower(extra: float) -> float:
        lam = least + extra
        return float(-0.25 * (g2 / (values + lam)).sum() - lam * radius**2)

    ends = math.log(span) - 27, math.log(span + least) + 2
    extra = math.exp(least_of(lambda t: -lower(math.exp(t)), *ends, _SEARCH)[0])
    return least + extra, lower(extra)


def smallest_cap(plane: Plane, w: Array, low: Array, high: Array) -> tuple[float, Array, float]:
    """Nu, the center and the squared radius of a ball around {delta in the box: plane <= 0} (theorem 6)."""
    slopes, width = plane.slopes, high - low
    depth = -plane.least(low, high)
    away = np.abs(slopes)

    def distance(nu: float) -> Array:
        result: Array = np.maximum(0.0, width / 2 - nu * away / (2 * w))
        return result

    def radius(log_nu: float) -> float:
        nu = math.exp(log_nu)
        return nu * depth + float(w @ distance(nu) ** 2)

    typical = float(w @ width**2) / max(float(away @ width), 1e-300)
    at = math.log(typical + 1e-300)
    nu = math.exp(least_of(radius, at - 12, at + 6, _SEARCH)[0])
    c = distance(nu)
    center = short(np.where(slopes > 0, low + c, high - c))
    # As the checker computes it: the larger of both ends, for each input.
    ends = [w * (end - center) ** 2 - nu * slopes * (end - plane.at) for end in (low, high)]
    return nu, center, -nu * plane.value + float(np.maximum(*ends).sum())
