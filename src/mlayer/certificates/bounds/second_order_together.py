"""The cheap half of the second order for all rivals of a row at once.

docs/theory/certificates.md, theorem 3 with the model's own weights as shift and the touching point in the
corner that each gradient points to; the rest by norms (theorem 2). Most rivals need no more.
"""

from __future__ import annotations

import numpy as np

from mlayer.certificates.bounds.remainder import norm_remainder
from mlayer.certificates.linalg import INFLATE, UNIT
from mlayer.certificates.problem.margins import RivalMargins
from mlayer.numerics.arrays import Array


def quick_second_order(
    margins: RivalMargins, H: Array, fall: Array, slack: Array, eps: float
) -> tuple[Array, Array]:
    """Lower bounds of the margins over the L-infinity region of radius eps, and without remainder.  (k,)

    Args:
        margins: of k rivals.
        H: (k, d, d), their second derivatives.
        fall: (k,), numbers c >= 0 with H[y, y] >= -c |y|^2.
        slack: (k,), rounding of the quadratic terms within the region.
        eps: the radius.
    """
    row, white = margins.row, margins.row.model.white
    radius = row.radius(eps)
    level: Array = margins.margin - margins.value_slack(eps) - slack
    low, high = row.interval(eps)
    slopes, rows = margins.slopes, white.rows
    uphill = slopes > 0
    # |y|^2 <= reach^2 sum w_i delta_i^2: with the shift d = c w the form is convex.
    c, w = fall * white.reach**2 * INFLATE, white.w
    point = np.where(uphill, low, high)
    y = point @ rows
    Hy = (H @ y[:, :, None])[:, :, 0]
    bent = np.where(uphill, w * (low - high), w * (high - low))  # w (2 point - (low + high))
    bent *= c[:, None]
    gradient = (2 * Hy) @ rows.T
    gradient += slopes
    gradient += bent
    point *= point
    constant = c * (float(w @ (low * high)) - point @ w) - (y * Hy).sum(1)
    # From the middle of the box, less by half its width in every input.
    least = gradient @ ((low + high) / 2)
    least -= np.abs(gradient, out=gradient) @ ((high - low) / 2)
    # Of these sums, relative to the sums of absolute values.
    reach = np.maximum(np.abs(low), np.abs(high))
    size = float(row.model.row_norms @ reach)
    sums = np.abs(slopes) @ reach + 4 * c * float(w @ reach**2) + 4 * np.linalg.norm(H, axis=(1, 2)) * size**2
    touching = constant + least - (len(low) + H.shape[1] + 16) * UNIT * sums
    without: Array = level + touching
    return without - norm_remainder(margins, radius, 3), without
