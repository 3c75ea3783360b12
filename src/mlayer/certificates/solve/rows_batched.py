"""Matrices, gradients and quick bounds of all rows and rival classes of a chunk at once.

The numbers are those that `Row` and `Pair` would compute one at a time, by the same formulas: matrices,
exponentials, logarithmic norms, gradients, second derivatives. Products are taken row by row, in shapes that
do not depend on how many rows there are, so a row's result does not depend on the others.

For a fixed eps most rivals are settled here: those that the first order certifies, then those of rows that no
corner breaks and that the second order certifies by norms. Only what is left goes to `strategy`.
"""

from __future__ import annotations

import numpy as np

from mlayer.certificates.bounds.first_order import first_order_lower
from mlayer.certificates.bounds.methods import STRATEGY, is_closed_form, method_named
from mlayer.certificates.bounds.remainder import ReadoutRemainder, set_coarse
from mlayer.certificates.bounds.second_order_together import QuickSecondOrder, quadratic_term_apart
from mlayer.certificates.derivatives.polynomial_degree import FinitePath
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.linalg import frobenius_each, top_eigenvalue
from mlayer.certificates.overflow import unless_out_of_range
from mlayer.certificates.problem.expansion import Pair, Row
from mlayer.certificates.problem.margins import RivalMargins
from mlayer.certificates.problem.model import Model, exponentials, gradients, log_norms
from mlayer.certificates.problem.region import Region
from mlayer.certificates.solve.corner import corner
from mlayer.numerics.arrays import Array, Indices

_MOST_ROWS = 64
_ENTRIES = 4_000_000  # of the slopes or the block matrices of a chunk
# The remainder with the readout inside is mostly a fifth of that by norms, the coarse one somewhat more: it
# is not tried where it would have to be less than this part.
_LIKELY_SHARE = 0.28


def chunk_size(model: Model) -> int:
    """Rows that are taken together."""
    rivals, n, m = len(model.weights.S) - 1, model.weights.n, len(model.weights.rows)
    return max(1, min(_MOST_ROWS, _ENTRIES // max(rivals * max(m, 4 * n * n), 1)))


def rows_together(
    model: Model,
    x: Array,
    labels: list[int],
    method: str,
    eps: float | None,
    *,
    regions: list[Region] | None = None,
) -> list[Row]:
    """The rows of a chunk, with what their answers read first.

    Args:
        model: the layer.
        x: (rows, m).
        labels: one per row.
        method: of the bounds.
        eps: the radius asked about, or None.
        regions: one per row; the model's by default.
    """
    regions = regions or [model.region] * len(x)
    M = model.weights.matrices(x)
    E = exponentials(M)
    outputs = model.outputs(E)
    rows = [Row(model, x[k], label, regions[k], M=M[k], E=E[k]) for k, label in enumerate(labels)]
    for row, output in zip(rows, outputs, strict=True):
        row.outputs = output
    right = [row for row in rows if row.is_right]
    if not right:
        return rows
    _with_norms(model, right)
    right = [row for row in right if row.in_range]
    if is_closed_form(method):
        return rows
    fixed = eps if eps is not None and eps > 0 and method == STRATEGY else None
    if fixed is not None:
        right = _unbroken(model, right, fixed)
    if right:
        _with_slopes(model, right)
        if fixed is not None:
            _with_screening(right, fixed)
    return rows


def _with_norms(model: Model, rows: list[Row]) -> None:
    """Norms of M, of its rounding, and its logarithmic norms, with and without the gauge."""
    M = np.stack([row.M for row in rows])
    in_gauge = model.constants.P @ M @ model.constants.P_inverse
    roundings = model.weights.matrix_roundings(np.stack([row.x for row in rows]))
    norms, gauge_norms = (frobenius_each(A.reshape(len(rows), -1)) for A in (M, in_gauge))
    both = log_norms(np.concatenate([M, in_gauge]))
    for k, row in enumerate(rows):
        row.rounding, row.M_norm, row.M_gauge_norm = (
            float(roundings[k]),
            float(norms[k]),
            float(gauge_norms[k]),
        )
        row.M_gauge, row.log_norm = in_gauge[k], float(both[k])
        row.mu = float(both[len(rows) + k]) + row.off


def _unbroken(model: Model, rows: list[Row], eps: float) -> list[Row]:
    """The rows whose margin over the second largest output is positive in the corner of its gradient.

    One gradient each: for the others nothing is left to compute.
    """
    pairs = [Pair(row, row.runner_up) for row in rows]
    if not pairs:
        return []
    W = np.stack([pair.W for pair in pairs])[:, None]
    found = gradients(model, np.stack([row.M for row in rows]), W)[:, 0]
    for row, pair, gradient in zip(rows, pairs, found, strict=True):
        pair.gradient, row.known[pair.rival] = gradient, pair
    _look_at_corners(pairs, eps)
    return [pair.row for pair in pairs if not pair.broken[eps]]


def _with_slopes(model: Model, rows: list[Row]) -> None:
    """Every pair's gradient, in the features and in the inputs."""
    everyone = np.arange(len(model.weights.S))
    classes = [np.delete(everyone, row.label) for row in rows]
    W = np.stack([model.differences(row.label)[rivals] for row, rivals in zip(rows, classes, strict=True)])
    found = gradients(model, np.stack([row.M for row in rows]), W)
    for row, rivals, gradient in zip(rows, classes, found, strict=True):
        row.rivals = RivalMargins(row, rivals, gradient)


@unless_out_of_range(None)
def _with_screening(rows: list[Row], eps: float) -> None:
    """For a fixed eps: what the first order certifies, which corners break a margin, the second order."""
    hard, likeliest = [], []
    for row in rows:
        left, first = _first_order(row, eps)
        if len(left):
            hard.append((row, left))
            likeliest.append(row.pair(first))
    _look_at_corners([pair for pair in likeliest if eps not in pair.broken], eps)
    hard = [item for item, pair in zip(hard, likeliest, strict=True) if not pair.broken[eps]]
    if rows[0].region.norm == "linf":
        for row, left in hard:
            _second_order(row, left, [row.pair(int(rival)) for rival in _margins(row).classes[left]], eps)


def _margins(row: Row) -> RivalMargins:
    assert row.rivals is not None
    return row.rivals


@unless_out_of_range((np.zeros(0, np.int64), -1))
def _first_order(row: Row, eps: float) -> tuple[Indices, int]:
    """Settle the rivals that the first order certifies; the places of the others, and the likeliest rival."""
    margins = _margins(row)
    linear = margins.linear_term(eps)
    method_named("first_order").load(row.region.norm)  # refuses norms that it is not made for
    easy = first_order_lower(margins, linear, eps) > 0
    row.settled = eps, dict.fromkeys(margins.classes[easy].tolist(), "first_order")
    aims = np.where(linear < 0, margins.margin / np.where(linear < 0, -linear, 1.0), np.inf)
    return np.flatnonzero(~easy), int(margins.classes[aims.argmin()])


def settled_together(row: Row, eps: float) -> dict[int, str]:
    """The rivals of one row that the quick bounds of all at once certify at eps, and by which bound."""
    if row.rivals is None:
        return {}
    left, _ = _first_order(row, eps)
    if len(left) and row.region.norm == "linf":
        _second_order(row, left, [row.pair(int(rival)) for rival in _margins(row).classes[left]], eps)
    return row.settled[1] if row.settled[0] == eps else {}


@unless_out_of_range(None)
def _second_order(row: Row, left: Indices, pairs: list[Pair], eps: float) -> None:
    """Settle the rivals that the quick second order certifies."""
    path, radius = row.derivatives, row.radius(eps)
    new = [pair for pair in pairs if "second" not in vars(pair)]
    if isinstance(path, SpectralPath) and new:
        W = np.stack([pair.W for pair in new])
        for pair, found, rounding in zip(new, path.seconds(W), path.roundings(W, 2).tolist(), strict=True):
            pair.second = found
            pair.set_rounding(2, rounding)
    H = np.stack([pair.second for pair in pairs])
    slack = np.array([pair.tensor_slack(radius, 2) for pair in pairs])
    norms = frobenius_each(H.reshape(len(H), -1))
    # Most rivals pass with the two terms apart, and a norm in the place of the eigenvalue.
    apart = quadratic_term_apart(_margins(row).take(left), norms, slack, eps) > 0
    row.settled[1].update((pairs[k].rival, "second_order") for k in np.flatnonzero(apart))
    places = np.flatnonzero(~apart)
    if not len(places):
        return
    pairs = [pairs[k] for k in places]
    quick = QuickSecondOrder(_margins(row).take(left[places]), H[places], slack[places], eps)
    lower, without = quick.lower(norms[places])
    hard = np.flatnonzero(~(lower > 0))
    if len(hard):
        _set_falls([pairs[k] for k in hard])
        falls = np.array([pairs[k].fall for k in hard])
        lower[hard], without[hard] = quick.lower(falls, hard)
    for pair, level in zip(pairs, without.tolist(), strict=True):
        pair.level = eps, level
    # The remainder with the readout inside is more expensive: only where it can help.
    likely = without > _LIKELY_SHARE * (without - lower)
    unsettled = [pair for k, pair in enumerate(pairs) if likely[k] and not lower[k] > 0]
    set_coarse(unsettled)
    passed = [
        pair
        for k, pair in enumerate(pairs)
        if lower[k] > 0 or (likely[k] and without[k] > ReadoutRemainder(pair, pair.coarse)(radius, 3))
    ]
    row.settled[1].update((pair.rival, "second_order") for pair in passed)


def _set_falls(pairs: list[Pair]) -> None:
    """The falls of those that have none yet, together."""
    new = [pair for pair in pairs if "fall" not in vars(pair)]
    if new and not isinstance(new[0].row.derivatives, FinitePath):
        for pair, fall in zip(new, top_eigenvalue(-np.stack([pair.second for pair in new])), strict=True):
            pair.fall = float(fall)


def _look_at_corners(pairs: list[Pair], eps: float) -> None:
    """Whether each margin is negative in the corner that its gradient points to."""
    if not pairs:
        return
    model = pairs[0].row.model
    scale = model.region.scale.numpy()
    M = model.weights.matrices(np.stack([pair.row.x + corner(pair, eps) * scale for pair in pairs]))
    for pair, E in zip(pairs, exponentials(M), strict=True):
        pair.broken[eps] = bool(pair.bias + float((pair.W * E).sum()) < 0)
