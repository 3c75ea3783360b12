"""A linear function below the margin that touches the convexified margin at a point near its minimum.

docs/theory/certificates.md, theorem 7. Second derivatives are bounded over the region once; the value and the
gradient at the point are computed, not bounded, so nothing is lost where the region is narrow enough for the
gradient to outweigh the curvature: the usual minimum in a corner is then found exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlayer.certificates.bounds.quadratic_terms import BoxQuadratic, Minorant
from mlayer.certificates.linalg import UNIT
from mlayer.certificates.problem.expansion import Pair
from mlayer.numerics.arrays import Array


@dataclass(frozen=True)
class Tangent:
    """The linear function, and the margin expanded at the point where it touches."""

    linear: Minorant
    there: Pair


def tangent(pair: Pair, box: BoxQuadratic, low: Array, high: Array, radius: float) -> Tangent | None:
    """A linear lower bound of the margin on the box, where |y| <= radius; None if the point is outside.

    Args:
        pair: the margin, expanded at the center.
        box: its quadratic terms, with a curvature such that half the second derivative of the margin is at
            least H - curvature for |y| <= radius.
        low: lower ends of the box around the center.
        high: its upper ends.
        radius: of the ball.
    """
    row = pair.row
    d, unit = box.shift, row.region.scale.numpy()
    at = row.x + np.clip(box.descend(low, high), low, high) * unit
    # The point in exact arithmetic is the rounded one.
    point = np.divide(at - row.x, unit, out=np.zeros_like(at), where=unit > 0)
    y = row.model.white.rows.T @ point
    if not float(np.linalg.norm(y)) <= radius * (1 + 1e-12):
        return None
    moved = row.moved(at)
    if not moved.computable:
        return None
    there = moved.pair(pair.rival)
    slopes = there.slopes + 2 * d * point - d * (low + high)
    value = there.margin + float(d @ ((point - low) * (point - high)))
    slack = there.value_slack(float((high - low).max()))
    # Of the sums with the shift; those with the gradient are in the slack.
    slack += (len(d) + 16) * UNIT * 4 * float(d @ (high - low) ** 2)
    return Tangent(Minorant(value - float(slopes @ point) - slack, slopes), there)
