"""The cheap half of the second order for all rivals of a row at once.

docs/theory/certificates.md, "A fixed eps": first the terms one by one, then theorem 3 with the model's own
weights as shift and the touching point in the corner that each gradient points to; the rest by norms (theorem
2). Most rivals need no more than the first.
"""

from __future__ import annotations

import numpy as np

from mlayer.certificates.bounds.remainder import norm_remainder
from mlayer.certificates.linalg import INFLATE, UNIT
from mlayer.certificates.problem.margins import RivalMargins
from mlayer.numerics.arrays import Array, Indices


def quadratic_term_apart(margins: RivalMargins, norms: Array, slack: Array, eps: float) -> Array:
    """Lower bounds of several margins over the L-infinity region of radius eps, the terms one by one.  (k,)

    Args:
        margins: of k rivals.
        norms: (k,), numbers c with |H[y, y]| <= c |y|^2.
        slack: (k,), rounding of the quadratic terms within the region.
        eps: the radius.
    """
    radius = margins.row.radius(eps)
    level: Array = margins.margin - margins.value_slack(eps) + margins.linear_term(eps)
    return level - norms * radius**2 - norm_remainder(margins, radius, 3) - slack


class QuickSecondOrder:
    """Lower bounds of several margins over the L-infinity region of radius eps.

    Args:
        margins: of k rivals.
        H: (k, d, d), their second derivatives.
        slack: (k,), rounding of the quadratic terms within the region.
        eps: the radius.
    """

    def __init__(self, margins: RivalMargins, H: Array, slack: Array, eps: float) -> None:
        row, white = margins.row, margins.row.model.white
        self._level: Array = margins.margin - margins.value_slack(eps) - slack
        self._remainder: Array = norm_remainder(margins, row.radius(eps), 3)
        self._low, self._high = low, high = row.interval(eps)
        uphill, w = margins.slopes > 0, white.w
        point = np.where(uphill, low, high)
        y = point @ white.rows
        Hy = (H @ y[:, :, None])[:, :, 0]
        self._gradient = (2 * Hy) @ white.rows.T
        self._gradient += margins.slopes
        self._form = (y * Hy).sum(1)
        # What a shift w adds: w (2 point - (low + high)) to the gradient, and to the constant.
        width = w * (high - low)
        self._bent = np.where(uphill, -width, width)
        point *= point
        self._chords = float(w @ (low * high)) - point @ w
        # Rounding of these sums is relative to the sums of absolute values.
        reach = np.maximum(np.abs(low), np.abs(high))
        size = float(row.model.row_norms @ reach)
        self._sums = np.abs(margins.slopes) @ reach + 4 * np.linalg.norm(H, axis=(1, 2)) * size**2
        self._shift_sums = 4 * float(w @ reach**2)
        self._terms = len(low) + H.shape[1] + 16
        # |y|^2 <= reach^2 sum w_i delta_i^2: with the shift c reach^2 w the form is convex.
        self._factor = white.reach**2 * INFLATE

    def lower(self, fall: Array, places: Indices | slice = slice(None)) -> tuple[Array, Array]:
        """The bounds for some of the rivals, and the same without what is beyond the quadratic terms.

        Args:
            fall: one for each of them, numbers c >= 0 with H[y, y] >= -c |y|^2.
            places: which rivals.
        """
        low, high, c = self._low, self._high, fall * self._factor
        gradient = c[:, None] * self._bent[places]
        gradient += self._gradient[places]
        constant = c * self._chords[places] - self._form[places]
        # From the middle of the box, less by half its width in every input.
        least = gradient @ ((low + high) / 2)
        least -= np.abs(gradient, out=gradient) @ ((high - low) / 2)
        rounding = self._terms * UNIT * (self._sums[places] + c * self._shift_sums)
        without: Array = self._level[places] + constant + least - rounding
        return without - self._remainder[places], without
