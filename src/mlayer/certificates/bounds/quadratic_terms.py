"""The linear and quadratic terms together: a lower bound of slopes . delta + H[y, y] over the region.

docs/theory/certificates.md, theorem 3. L-infinity: add d_i delta_i^2 so that the form is convex, take it
away again by its chords, and bound the convex function by its tangent at a point near its minimum. Any
d >= 0 that makes it convex and any point are sound; d is chosen to cost little where it costs at all.
L2: the dual of the trust-region problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlayer.certificates.golden_section import least_of
from mlayer.certificates.linalg import UNIT, proves_positive, top_eigenvalue
from mlayer.certificates.problem.expansion import Pair
from mlayer.certificates.problem.model import ellipsoid
from mlayer.numerics.arrays import Array

# These decide how long the choice of the shift d is refined and where the descent stops: a poor choice gives
# a weaker bound, never a wrong one. Tuned as in solve/strategy.py.
_ROUNDS = 9  # of the choice of d
_STEP = {"cold": 0.5, "warm": 0.25}  # of the choice of d, from the model's weights or from fitted ones
_SHORTER = 0.4  # factor of the step after a round without gain
_LEAST_STEP = 0.05  # below this step the choice ends
_GAIN = 0.004  # of the margin: less than that ends the choice
_SHARPNESS = 15.0  # of the weights of the eigenvectors
_DESCENT = 24  # steps toward the minimum of the convex function
_ACCURACY = 2e-4  # of the margin: where the descent and the fit stop
_DUAL_SEARCH = 60  # rounds of the golden section for the multiplier of the L2 ball
_SHARE_OF_H = 0.3  # of the largest eigenvalue of H, in the steps of the descent


def linear_minimum(slopes: Array, low: Array, high: Array) -> float:
    """Min of slopes . delta over low <= delta <= high."""
    return float(np.minimum(slopes * low, slopes * high).sum())


def _clipped(point: Array, low: Array, high: Array) -> Array:
    """The nearest point of the box, in place."""
    np.maximum(point, low, out=point)
    return np.minimum(point, high, out=point)


def _wanted(pull: Array, excess: Array, resistance: Array) -> Array:
    """Logarithms of the weights that the top eigenvectors favor, larger where a shift costs nothing.

    That is where the gradient resists it: where the excess of the shift over the resistance is negative.
    """
    typical = float(np.abs(resistance).mean()) + 1e-300
    cost = 0.02 + 0.98 * np.clip(excess / (0.3 * typical) + 0.5, 0.0, 1.0)
    wanted = pull / np.sqrt(cost)
    result: Array = np.log(wanted / (float(wanted.sum()) + 1e-300) + 1e-4 / len(wanted))
    return result


@dataclass(frozen=True)
class Minorant:
    """The linear function constant + slopes . delta."""

    constant: float
    slopes: Array

    def minimum(self, low: Array, high: Array) -> float:
        """The minimum over the box."""
        return self.constant + linear_minimum(self.slopes, low, high)


class BoxQuadratic:
    """Linear lower bounds over L-infinity regions, for one pair; the shift d is fitted at one box.

    Args:
        pair: the pair.
        low: lower ends of the box to fit at, (m,).
        high: its upper ends.
        rounds: of the fit; 1 takes the model's own weights.
        curvature: the form made convex is H - curvature |y|^2.
        start: a shift to begin with, such as one fitted for another center.
        extra: added to the shift, times the model's weights: half the second derivative that the form does
            not know of.
    """

    def __init__(  # noqa: PLR0917
        self,
        pair: Pair,
        low: Array,
        high: Array,
        rounds: int = _ROUNDS,
        curvature: float = 0.0,
        start: Array | None = None,
        extra: float = 0.0,
    ) -> None:
        self._pair = pair
        self._rows = pair.row.model.white.rows
        self._near: Array | None = None  # the last point, from 0 (low end) to 1 (high end)
        self._form: Array = pair.second - curvature * np.eye(len(pair.second))
        self._form_size = float(np.linalg.norm(self._form))
        self.shift = self._fit(low, high, rounds, start) + extra * pair.row.model.white.w

    def _fit(self, low: Array, high: Array, rounds: int, start: Array | None) -> Array:
        """The shift d = top w of the weights w that cost least among those tried.

        From the best weights so far a step leads toward those that their top eigenvectors ask for; one that
        does not help is made shorter.
        """
        rows, H, slopes = self._rows, self._form, self._pair.slopes
        m, width = len(rows), high - low
        used = self._pair.row.model.used_inputs
        if not used.any():
            return np.zeros(m)
        corner = np.where(slopes > 0, low, high)
        resistance = np.sign(slopes) * (slopes + 2 * rows @ (H @ (rows.T @ corner)))
        if not used.all():
            rows, width, resistance = rows[used], width[used], resistance[used]
        warm = start is not None and bool(start.any())
        if start is not None and warm:
            w, L = start[used] / start.sum() + 1e-9 / len(rows), None
            w /= w.sum()
        else:
            w, L = self._pair.row.model.plain_ellipsoid
        kept = wanted = np.log(w)
        best, found = np.inf, (H, np.inf, 0.0, w)
        step, margin = _STEP["warm" if warm else "cold"], self._pair.margin
        for k in range(rounds):
            if L is None:
                L = ellipsoid(rows, w)
            form = -L.T @ H @ L
            form = (form + form.T) / 2
            values, vectors = np.linalg.eigh(form)
            # The entries of the form are sums of products, too.
            rounding = (2 * len(H) + 8) * UNIT * float(np.sum(L * L)) * self._form_size
            claim = float(values[-1]) + 1e-11 * len(values) * float(np.abs(values).max())
            top = claim + rounding
            d = top * w
            loss = float(np.maximum(width * d - resistance, 0.0) @ width)
            if k == 0 or loss < best or top <= 0:
                gain, best, found = best - loss, loss, (form, claim, rounding, w)
                convex_already = top <= 0
                enough = loss <= _ACCURACY * margin or gain <= _GAIN * margin
                if k == rounds - 1 or convex_already or enough:
                    break
                share = np.exp(_SHARPNESS * (values - values[-1]) / top)  # the largest is 1
                share /= share.sum()
                keep = share > 1e-4
                dual = np.linalg.solve(L.T, vectors[:, keep])
                pull = np.sqrt(((rows @ dual) ** 2) @ share[keep])
                kept, wanted = np.log(w), _wanted(pull, width * d - resistance, resistance)
            else:
                step *= _SHORTER
                if step < _LEAST_STEP:
                    break
            log_w = kept + step * (wanted - kept)
            w, L = np.exp(log_w - log_w.max()), None
            w /= w.sum()
        # Guessed on the way, proved for the weights that are kept.
        form, claim, rounding, w = found
        proved = claim if proves_positive(-form, claim) else float(top_eigenvalue(form))
        shift = np.zeros(m)
        shift[used] = max(proved + rounding, 0.0) * w
        return shift

    @cached_property
    def _most(self) -> float:
        """Largest eigenvalue of the form, at least 0."""
        return max(float(np.linalg.eigvalsh(self._form)[-1]), 0.0)

    def _stiffness(self, share: float) -> Array:
        """Stiffnesses that limit the steps of the descent; with share 1 none leads uphill (lemma 2).  (m,)"""
        result: Array = 2 * (self.shift + share * self._most * self._pair.row.model.white.w)
        return result + 1e-12 * float(result.max(initial=0.0)) + 1e-300

    def descend(self, low: Array, high: Array) -> Array:
        """A point near the minimum over the box of the convex function."""
        return self._descended(low, high, 0.0)[0]

    def _descended(self, low: Array, high: Array, tilt: float) -> tuple[Array, Array, float]:
        """A point near the minimum over the box of the convex function less ``tilt`` of its linear term.

        With the function's gradient there, without the tilt, and its quadratic terms.
        """
        rows, H, d = self._rows, self._form, self.shift
        # -d delta^2 >= -d ((low + high) delta - low high) for low <= delta <= high.
        slopes = (1 - tilt) * self._pair.slopes - d * (low + high)
        # The minimum moves little with the radius: begin at the last one.
        near = np.where(slopes > 0, 0.0, 1.0) if self._near is None else self._near
        point = last = low + near * (high - low)
        best, momentum = -np.inf, 1.0
        kept = point, math.nan * point, math.nan  # proves nothing where numbers are out of range
        value, share = np.inf, _SHARE_OF_H
        stiffness = self._stiffness(share)
        enough = _ACCURACY * self._pair.margin
        for _ in range(_DESCENT):
            y = point @ rows
            Hy = H @ y
            bent = d * point
            gradient = rows @ (2 * Hy)
            gradient += slopes
            gradient += bent
            gradient += bent
            # h(p) - grad h(p) . p = -H[y, y] - d p^2 for a quadratic h without constant.
            form = float(y @ Hy) + float(bent @ point)
            least = linear_minimum(gradient, low, high)
            if least - form > best:
                best, kept = least - form, (point, gradient, form)
            # h(p) less the bound is the most that any other point could gain.
            before, value = value, float(slopes @ point) + form
            if value - best <= enough:
                break
            if value > before and share < 1:  # too bold
                share, momentum = min(3 * share, 1.0), 1.0
                stiffness = self._stiffness(share)
            step = _clipped(point - gradient / stiffness, low, high)
            # Nesterov's momentum, dropped where it leads uphill.
            if float(gradient @ (step - last)) > 0:
                momentum = 1.0
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            point = step
            if momentum > 1:
                point = _clipped(step + (momentum - 1) / following * (step - last), low, high)
            last, momentum = step, following
        if tilt == 0.0:
            with np.errstate(divide="ignore", invalid="ignore"):
                self._near = np.where(high > low, (kept[0] - low) / (high - low), 0.0)
            return kept
        return kept[0], kept[1] + tilt * self._pair.slopes, kept[2]

    def minorant(self, low: Array, high: Array, tilt: float = 0.0) -> Minorant:
        """A linear function below the linear and quadratic terms on the box; H itself must be its form."""
        _, slopes, form = self._descended(low, high, tilt)
        constant = float(self.shift @ (low * high)) - form
        return Minorant(constant - self._rounding(low, high), slopes)

    def _rounding(self, low: Array, high: Array) -> float:
        """Rounding of the sums above and of the minimum, relative to the sums of absolute values."""
        reach = np.maximum(np.abs(low), np.abs(high))
        y = float(self._pair.row.model.row_norms @ reach)
        sums = (
            float(np.abs(self._pair.slopes) @ reach + 4 * self.shift @ reach**2) + 4 * self._form_size * y**2
        )
        return (len(low) + len(self._form) + 16) * UNIT * sums

    def lower(self, low: Array, high: Array) -> float:
        """Lower bound of the two terms over the box."""
        return self.minorant(low, high).minimum(low, high)


class BallQuadratic:
    """Lower bounds over L2 balls: for every lam >= max(0, -least eigenvalue of H),

    g.y + H[y, y] >= -1/4 g^T (H + lam)^-1 g - lam r^2   for |y| <= r.
    """

    def __init__(self, pair: Pair) -> None:
        values, vectors = np.linalg.eigh(pair.second)
        self._values, self._g2 = values, (vectors.T @ pair.first) ** 2
        largest = float(np.abs(values).max(initial=0.0))
        self._rounding = 1e-12 * len(values) * largest + 1e-300
        self._g_rounding = 8 * len(values) * UNIT * float(np.linalg.norm(pair.first))
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
        ends = math.log(span * 1e-12), math.log(span * 4 + 4 * self._least + 1e-300)
        _, least = least_of(lambda extra: -dual(math.exp(extra)), *ends, _DUAL_SEARCH)
        best = max(
            -least, -g * radius - max(0.0, -float(self._values[0])) * radius**2 - self._rounding * radius**2
        )
        return best - self._g_rounding * radius
