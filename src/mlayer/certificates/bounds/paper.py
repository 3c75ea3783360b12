"""The paper's bound (section 3.7): closed form by Lambert's W, and its Lipschitz form.

docs/theory/certificates.md, theorem 1. ||output change||_2 <= sqrt(n) ||S||_2 ||M'|| e^||M'|| e^||M||, with
||M'|| <= delta_in eps; a change below half the margin does not change the class.
"""

from __future__ import annotations

import math

import numpy as np

from mlayer.certificates.problem.expansion import Row

_DOWN = 1 - 1e-9  # below the rounding of what goes into the radius


def lambert_w(t: float) -> float:
    """The solution v >= 0 of v e^v = t >= 0, rounded down.

    >>> abs(lambert_w(1.0) - 0.5671432904) < 1e-9
    True
    """
    if t <= 0:
        return 0.0
    v = math.log1p(t)
    for _ in range(60):
        # Newton on v + log v = log t: no overflow.
        step = (v + math.log(v) - math.log(t)) * v / (1 + v)
        v = max(v - step, v * 1e-3)
        if abs(step) <= 1e-16 * v:
            break
    return v * (1 - 1e-12)


def _evidence(row: Row) -> float:
    """Margin / (2 sqrt(n) ||S||_2 e^||M||_2)"""
    constants = row.model.constants
    pairs = [row.pair(rival) for rival in range(len(row.outputs)) if rival != row.label]
    margin = min(pair.margin - pair.value_slack(0.0) for pair in pairs)
    norm = float(np.linalg.norm(row.M, 2)) * (1 + 1e-12) + row.rounding
    scale = 2 * math.sqrt(len(row.M)) * constants.readout_norm
    if margin <= 0:
        return 0.0
    if scale == 0:
        return math.inf
    return margin / scale * math.exp(-norm)


def paper_radius(row: Row) -> float:
    """Eps = W(margin / (2 sqrt(n) ||S||_2 e^||M||_2)) / delta_in."""
    evidence, delta = _evidence(row), row.model.constants.delta_in
    if delta == 0 or math.isinf(evidence):
        return math.inf if evidence > 0 else 0.0
    return lambert_w(evidence) / delta * _DOWN


def lipschitz_radius(row: Row) -> float:
    """The same with e^{delta_in eps} replaced by its value e at the reach 1 / delta_in, and no radius beyond.

    A constant slope, of which at most a factor e is lost against `paper_radius`.
    """
    evidence, delta = _evidence(row), row.model.constants.delta_in
    if delta == 0 or math.isinf(evidence):
        return math.inf if evidence > 0 else 0.0
    return min(1.0, evidence / math.e) / delta * _DOWN
