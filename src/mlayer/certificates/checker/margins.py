"""One row: every margin is positive over the region, by a chain of linear lower bounds for each rival.

docs/theory/certificates-checker.md, theorems 4 to 7. A level of the chain is a linear function below the
margin on what earlier levels have left over:

    "linear"      value and gradient at a center, the rest by norms;
    "quadratic"   the second derivative too, convexified by a shift; the rest by norms;
    "touching"    value and gradient at a point of the convexified margin itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from mlayer.certificates.checker.balls import (
    Ball,
    Matrix,
    ProofError,
    ball,
    dot,
    exponential_tail,
    identity,
    inverse,
    matrix,
    positive_definite,
    prove_positive_definite,
    squared_norm,
    symmetric_part,
    upper_root,
)
from mlayer.certificates.checker.exponential import Exponential
from mlayer.certificates.checker.frame import Frame, number
from mlayer.certificates.checker.layer import floats

INFINITE = "infinite"
# Limits on what a proof may ask for, so that a hostile one ends.
_MOST_LEVELS = 1000  # of a rival, in all parts of the box; provers use 3 in each of 101 parts, or 8
_MOST_SPLITS = 60  # one inside the other


def _positive(least: Ball) -> None:
    if not least > 0:
        raise ProofError("the lower bound of the margin is not positive")


class ProofRow:
    """An input with its region."""

    def __init__(self, frame: Frame, x: Sequence[float], eps: float | str) -> None:
        self.frame, layer, shape = frame, frame.layer, frame.shape
        self._at_row: dict[int, tuple[Matrix, Matrix, Exponential]] = {}
        self.M = layer.matrix_at(x, frame.generators)
        self.eps = None if eps == INFINITE else ball(floats([eps], 1, "eps")[0])  # type: ignore[list-item]
        if self.eps is not None and not self.eps >= 0:
            raise ProofError("eps is negative")
        self.low: list[Ball] = []
        self.high: list[Ball] = []
        if shape.norm == "l2":
            return
        for i in shape.active:
            ends = [] if self.eps is None else [(-self.eps, self.eps)]
            if shape.low is not None and shape.high is not None:
                if not shape.low[i] <= x[i] <= shape.high[i]:
                    raise ProofError("the row is outside the box")
                unit = ball(shape.scale[i])
                ends.append(tuple((ball(end[i]) - ball(x[i])) / unit for end in (shape.low, shape.high)))
            if not ends:
                return  # unbounded: only a margin that never moves is certified
            self.low.append(ends[0][0].max(ends[-1][0]))
            self.high.append(ends[0][1].min(ends[-1][1]))

    def expansion(self, delta: Sequence[Ball] | None, order: int) -> tuple[Matrix, Matrix, Exponential]:
        """z, M and the exponential at a step; at the row itself (None) computed once for all rivals."""
        if delta is None and order in self._at_row:
            return self._at_row[order]
        z, N = self.frame.step([ball(0.0)] * self.frame.U.nrows() if delta is None else delta)
        M = self.M + N
        found = z, M, Exponential(M, self.frame.T if order == 2 else [])
        if delta is None:
            self._at_row[order] = found
        return found

    def half(self, i: int, at: Ball, upper: bool) -> ProofRow:
        """The part of the box on one side of delta_i = at."""
        part = copy(self)
        part.low, part.high = list(self.low), list(self.high)
        if upper:
            part.low[i] = self.low[i].max(at)
        else:
            part.high[i] = self.high[i].min(at)
        return part

    @property
    def bounded(self) -> bool:
        """Whether the region is larger than one point."""
        return self.eps is not None or self.frame.shape.low is not None

    @property
    def is_point(self) -> bool:
        """Whether the region is the row alone."""
        return self.eps is not None and bool(self.eps == 0)

    def farthest(self, center: Sequence[Ball]) -> Ball:
        """Max of sum w_i (delta_i - center_i)^2 over the region."""
        if self.eps is not None and self.frame.shape.norm == "l2":
            return self.eps**2
        far = [
            ((low - c) ** 2).max((high - c) ** 2)
            for low, high, c in zip(self.low, self.high, center, strict=True)
        ]
        return dot(self.frame.w, far)


class ProofPlane:
    """The linear function value + slopes . (delta - at)."""

    def __init__(self, value: Ball, slopes: Sequence[Ball], at: Sequence[Ball]) -> None:
        self.value, self.slopes, self.at = value, slopes, at

    def least(self, row: ProofRow) -> Ball:
        """A lower bound of its minimum over the box."""
        terms = [
            (s * (low - p)).min(s * (high - p))
            for s, low, high, p in zip(self.slopes, row.low, row.high, self.at, strict=True)
        ]
        return self.value + sum(terms, ball(0.0))

    def cap(self, row: ProofRow, nu: Ball, center: Sequence[Ball]) -> Ball:
        """Theorem 6: sum w_i (delta_i - center_i)^2 is at most this where the function is <= 0."""
        total = -nu * self.value
        for i, (s, p, c) in enumerate(zip(self.slopes, self.at, center, strict=True)):
            low, high, w = row.low[i], row.high[i], row.frame.w[i]
            total += (w * (low - c) ** 2 - nu * s * (low - p)).max(w * (high - c) ** 2 - nu * s * (high - p))
        return total


class Rival:
    """The margin f of the label over one rival: W and what its size is in the gauge."""

    def __init__(self, row: ProofRow, label: int, rival: int, claims: Mapping[str, Any]) -> None:
        self.row, self.frame, self._claims = row, row.frame, claims
        layer = row.frame.layer
        self.W, bias = layer.difference(label, rival)
        self.bias = bias[0, 0]
        self.constant = layer.same_readout(label, rival)
        self._levels_left = _MOST_LEVELS

    @cached_property
    def size(self) -> Ball:
        """Lemma 4: c with |tr(W^T X_0 N_1 X_1 ... N_k X_k)| <= c prod ||X_i|| prod (delta_2 |z_i|)."""
        frame, n = self.frame, self.frame.layer.n
        W = frame.gauge_inverse.transpose() * self.W * frame.gauge.transpose()
        bounds = []
        if self._claims.get("spectral") is not None:
            spectral = ball(number(self._claims, "spectral", 0.0))
            gram = symmetric_part(W.transpose() * W)
            prove_positive_definite(identity(n) * spectral**2 - gram, "the spectral norm is not proved")
            bounds.append(spectral * (frame.delta_F / frame.delta_2) ** 2)
        if self._claims.get("left") is not None:
            left, right = (
                matrix(n, n, floats(self._claims.get(side, ()), n * n, side)) for side in ("left", "right")
            )
            rest = W - left * right
            bounds.append(
                upper_root(squared_norm(left)) * upper_root(squared_norm(right))
                + upper_root(squared_norm(rest)) * ball(n).sqrt()
            )
        if not bounds:
            raise ProofError("no norm of the readout is claimed")
        return (bounds[0].min(bounds[-1])).upper()

    def expand(
        self, delta: Sequence[Ball] | None, order: int
    ) -> tuple[Matrix, Matrix, Ball, Matrix, Matrix | None]:
        """M, z, value and gradient in z at a step and, at order 2, half the second derivative."""
        T = self.frame.T
        z, M, exponential = self.row.expansion(delta, order)
        value, l, second = exponential.derivatives(self.W)  # noqa: E741
        d, n = self.frame.d, self.frame.layer.n
        flat = matrix(d, n * n, [entry for t in T for entry in t.entries()])
        gradient = flat * matrix(n * n, 1, l.transpose().entries())
        H = None
        if order == 2:
            columns = matrix(d, n * n, [entry for lb in second for entry in lb.transpose().entries()])
            H = symmetric_part(flat * columns.transpose()) / 2
        return M, z, value + self.bias, gradient, H

    def prove(self) -> None:
        """The margin is positive over the region, or a refusal."""
        if self._claims.get("constant") is True:
            if not (self.constant or self.row.is_point or self.frame.never_moves()):
                raise ProofError("the margin is not constant")
            value = self.bias if self.constant else self.expand(None, 1)[2]
            if not value > 0:
                raise ProofError("the margin is not positive")
            return
        if not self.row.bounded:
            raise ProofError("an infinite radius is claimed and the margin is not constant")
        if self.frame.shape.norm == "l2":
            _positive(self._over_ball())
        else:
            self._prove_box(self.row, self._claims, 0)

    def _prove_box(self, row: ProofRow, claims: Mapping[str, Any], depth: int) -> None:
        """Prove a box by levels, or in two parts on both sides of a split, each with its own proof."""
        if "split" not in claims:
            _positive(self._over_box(row, claims))
            return
        i, parts = claims["split"], claims.get("parts")
        if type(i) is not int or not 0 <= i < len(row.low) or depth > _MOST_SPLITS:
            raise ProofError("a split of no input, or too many")
        if not isinstance(parts, list) or len(parts) != 2:
            raise ProofError("a split without two parts")
        at = ball(number(claims, "at"))
        for upper, part in enumerate(parts):
            self._prove_box(row.half(i, at, bool(upper)), part, depth + 1)

    def _levels(self, claims: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        levels = claims.get("levels")
        if not isinstance(levels, list) or not 1 <= len(levels) <= self._levels_left:
            raise ProofError("levels are missing or too many")
        self._levels_left -= len(levels)
        return levels

    def _growth(self, M: Matrix, level: Mapping[str, Any]) -> Ball:
        """Lemma 5: e^mu, where ||P e^{sM} P^-1||_2 <= e^{s mu} for all s >= 0."""
        mu = ball(number(level, "mu"))
        n = self.frame.layer.n
        moved = symmetric_part(self.frame.gauge * M * self.frame.gauge_inverse)
        prove_positive_definite(identity(n) * mu - moved, "mu is not proved")
        return mu.exp()

    def _over_ball(self) -> Ball:
        """Theorem 7."""
        level = self._levels(self._claims)[0]
        frame, kind, eps = self.frame, level.get("kind"), self.row.eps
        if eps is None:
            raise ProofError("an infinite ball")
        M, _, value, gradient, H = self.expand(None, 1 if kind == "linear" else 2)
        rest = (
            self.size * self._growth(M, level) * exponential_tail(eps * frame.delta_2, 2 if H is None else 3)
        )
        if H is None:
            return value - eps * upper_root(squared_norm(frame.U * gradient)) - rest
        shift = ball(number(level, "shift", 0.0))
        form = H + frame.metric * shift
        prove_positive_definite(form, "the shifted quadratic form is not proved positive")
        square = (gradient.transpose() * inverse(form, "the form") * gradient)[0, 0]
        return value - square / 4 - shift * eps**2 - rest

    def _over_box(self, row: ProofRow, claims: Mapping[str, Any]) -> Ball:
        first, *others = self._levels(claims)
        plane = self._plane(row, first, None)
        for level in others:
            plane = self._plane(row, level, plane)
        return plane.least(row)

    def _plane(self, row: ProofRow, level: Mapping[str, Any], before: ProofPlane | None) -> ProofPlane:
        """A linear function below the margin wherever in the box the one before is <= 0."""
        frame, kind = self.frame, level.get("kind")
        if kind not in ("linear", "quadratic", "touching"):
            raise ProofError(f"unknown kind of level {kind!r}")
        zero = [ball(0.0)] * frame.U.nrows()
        center = self._vector(level, "center", zero)
        far = row.farthest(center)
        if before is not None:
            far = far.min(before.cap(row, ball(number(level, "nu", 0.0)), center))
        point = self._vector(level, "point", center)
        if kind == "touching":  # the ball around the center holds the point too
            far = far.max(dot(frame.w, [(p - c) ** 2 for p, c in zip(point, center, strict=True)]))
        q = upper_root(far) * frame.delta_2
        M, z, value, gradient, H = self.expand(
            None if level.get("center") is None else center, 1 if kind == "linear" else 2
        )
        size = self.size * self._growth(M, level)
        if H is None:
            return ProofPlane(value - size * exponential_tail(q, 2), self._slopes(gradient), center)
        shift = self._vector(level, "shift", zero) if level.get("shift") is not None else None
        if kind == "touching":
            curvature = size * frame.delta_2**2 * exponential_tail(q, 1) / 2
            self._prove_convex(H - frame.metric * curvature, shift, level)
            _, _, value, gradient, _ = self.expand(point, 1)
        else:
            self._prove_convex(H, shift, level)
            away = frame.step(point)[0] - z
            H_away = H * away
            value += (gradient.transpose() * away)[0, 0] + (away.transpose() * H_away)[0, 0]
            value -= size * exponential_tail(q, 3)
            gradient = gradient + H_away * 2
        slopes = self._slopes(gradient)
        if (
            shift is not None
        ):  # plus sum shift_i (delta_i - low_i) (delta_i - high_i), which is <= 0 in the box
            for i, (s, p) in enumerate(zip(shift, point, strict=True)):
                low, high = row.low[i], row.high[i]
                value += s * (p - low) * (p - high)
                slopes[i] += s * (2 * p - low - high)
        return ProofPlane(value, slopes, point)

    def _vector(self, level: Mapping[str, Any], name: str, default: Sequence[Ball]) -> Sequence[Ball]:
        given = level.get(name)
        return default if given is None else [ball(v) for v in floats(given, len(default), name)]

    def _slopes(self, gradient: Matrix) -> list[Ball]:
        slopes: list[Ball] = (self.frame.U * gradient).entries()
        return slopes

    def _prove_convex(self, form: Matrix, shift: Sequence[Ball] | None, level: Mapping[str, Any]) -> None:
        """Theorem 5: form[z, z] + sum_i shift_i delta_i^2 >= 0 for every step."""
        if shift is None:
            prove_positive_definite(form, "the quadratic form is not proved convex")
            return
        if not all(s > 0 for s in shift):
            raise ProofError("a shift is not positive")
        Q = self.frame.spread(shift, number(level, "shift_ridge", 0.0))
        total = form + symmetric_part(inverse(Q, "the shift's ellipsoid"))
        if not positive_definite(total):
            raise ProofError("the shifted quadratic form is not proved convex")
