"""Intervals and affine bounds of a layer's outputs over boxes of inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from mlayer.certificates.boxes.directions import Directions
from mlayer.certificates.boxes.enclosed import frobenius, gamma
from mlayer.certificates.boxes.planes import Expansion, Planes
from mlayer.certificates.boxes.splitting import Parts, refined
from mlayer.certificates.linalg import UNIT, VANISHED
from mlayer.certificates.modules import check_agreement
from mlayer.nn.layer import MLayer

_ENTRIES = 4_000_000  # of one tensor of second derivatives: boxes are taken in chunks
# Where products of a few weights neither vanish nor overflow.
_SMALLEST, _LARGEST = 1e-70, 1e70
_LEAST = 2.0**-1020  # more than what a quotient may lose by vanishing, denormal numbers taken as 0 or not

_Readout = tuple[Tensor, Tensor, Tensor, Tensor]  # C S, C V, and bounds of their errors
Finished = tuple[Tensor, Tensor, Tensor]  # least value, slopes in x, constant
Plane = tuple[Tensor, Tensor]  # slopes in x, constant


@dataclass(frozen=True)
class OutputBounds:
    """Bounds of C p(x) for low <= x <= high, float64 on the CPU; infinite where nothing could be proved.

    Attributes:
        lower: (rows, k), C p(x) is at least this.
        upper: (rows, k), C p(x) is at most this.
        lower_slopes: (rows, k, m). With lower_constant: slopes . x + constant <= C p(x) on the box, for a
            network with x flattened.
        lower_constant: (rows, k).
        upper_slopes: (rows, k, m). With upper_constant: slopes . x + constant >= C p(x) on the box.
        upper_constant: (rows, k).
    """

    lower: Tensor
    upper: Tensor
    lower_slopes: Tensor
    lower_constant: Tensor
    upper_slopes: Tensor
    upper_constant: Tensor

    @classmethod
    def of_sides(cls, below: Finished, above: Finished) -> OutputBounds:
        """The bounds, of those below C p(x) and those below its negative."""
        return cls(below[0], -above[0], *below[1:], -above[1], -above[2])


class BoundsOfBoxes(Protocol):
    """Bounds of a model over boxes of its inputs."""

    def __call__(self, low: Tensor, high: Tensor, C: Tensor | None = None) -> OutputBounds:
        """Bounds over boxes (rows, m)."""
        ...

    def influence(self, found: OutputBounds) -> Tensor:
        """Weights of the inputs, by which boxes are cut.  (rows, m)"""
        ...


class BoxBounds:
    """Bounds of one layer in float64; what its weights alone decide is computed once."""

    def __init__(self, layer: MLayer) -> None:
        self.layer = layer
        self._directions = Directions(layer)
        tensors = [layer.generators, layer.readout, *([] if layer.embedding is None else [layer.embedding])]
        self._in_range = all(bool(_in_range(tensor.detach().reshape(1, -1))) for tensor in tensors)

    def __call__(self, low: Tensor, high: Tensor, C: Tensor | None = None) -> OutputBounds:
        """Bounds over boxes (rows, m); C (k, c) for all rows or (rows, k, c), or None for the outputs."""
        if C is not None and C.dim() == 3:
            if not len(C):
                return self(low, high, C.new_zeros(C.shape[1:]))
            return joined([self(low[r : r + 1], high[r : r + 1], C[r]) for r in range(len(C))])
        readout = self._readout(C)
        chunk = self.rows_at_once(len(readout[0]))
        return joined(
            [
                self._part(low[k : k + chunk], high[k : k + chunk], readout)
                for k in range(0, max(len(low), 1), chunk)
            ]
        )

    def rows_at_once(self, k: int) -> int:
        """The number of boxes in one chunk, for k combinations."""
        d, n = self._directions.T.mid.shape[:2]
        return max(1, _ENTRIES // max(k * d * n * n, 1))

    def influence(self, found: OutputBounds) -> Tensor:
        """The norms by which a unit of each input moves the matrix, whatever the box.  (rows, m)"""
        return self._directions.input_norms.expand(len(found.lower), -1)

    def _readout(self, C: Tensor | None) -> _Readout:
        """C S and C V, and bounds of their errors: (k, n, n), (k,), (k,), (k,)."""
        S, bias = self.layer.readout.detach(), self.layer.output_bias
        V = S.new_zeros(len(S)) if bias is None else bias.detach()
        if C is None:
            return S, V, S.new_zeros(len(S)), S.new_zeros(len(S))
        c = len(S)
        W_error = gamma(c) * frobenius(torch.tensordot(C.abs(), S.abs(), 1)) + VANISHED
        b_error = gamma(c) * (C.abs() @ V.abs()) + VANISHED
        # One output, perhaps negated, is copied without rounding.
        copied = ((C != 0).sum(1) <= 1) & ((C == 0) | (C.abs() == 1)).all(1)
        W_error, b_error = torch.where(copied, 0.0, W_error), torch.where(copied, 0.0, b_error)
        return torch.tensordot(C, S, 1), C @ V, W_error, b_error

    def check_agreement(self, found: OutputBounds, center: Tensor, C: Tensor | None) -> None:
        """The layer must compute in the centers of the boxes what the bounds are about."""
        with torch.no_grad():
            outputs = self.layer(center)
        values = outputs if C is None else (C @ outputs[:, :, None])[:, :, 0]
        finite = values.isfinite() & found.lower.isfinite() & found.upper.isfinite()
        values, lower, upper = (v[finite] for v in (values, found.lower, found.upper))
        inside = torch.minimum(torch.maximum(values, lower), upper)
        check_agreement("layer", values, inside, values.abs(), upper - lower)

    def lower_planes(self, low: Tensor, high: Tensor, C: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Slopes and constants of several functions below C p(x) on each box.  (rows, k, m), (rows, k)"""
        readout = self._readout(C)
        here, finish = self._expanded(low, high, readout)
        return [finish(plane)[1:] for plane in here.planes()]

    def planes_of_both_sides(self, low: Tensor, high: Tensor, C: Tensor | None) -> list[list[Plane]]:
        """All planes below C p(x) on each box, and all below its negative; the constant ones, too."""
        here, finish = self._expanded(low, high, self._readout(C))
        sides = (here, here.negated())
        return [[finish(plane)[1:] for plane in [*side.planes(), side.constant()]] for side in sides]

    def _part(self, low: Tensor, high: Tensor, readout: _Readout) -> OutputBounds:
        here, finish = self._expanded(low, high, readout)
        return OutputBounds.of_sides(finish(here.below()), finish(here.negated().below()))

    def _expanded(
        self, low: Tensor, high: Tensor, readout: _Readout
    ) -> tuple[Expansion, Callable[[Planes], Finished]]:
        """The expansion at the centers, and what makes functions of x of its planes."""
        W, b, W_error, b_error = readout
        center = low + (high - low) / 2
        reach = torch.maximum(high - center, center - low) * (1 + 4 * UNIT)
        # A wider box holds this one; below there is no relative error.
        reach = torch.where(reach > 0, reach.clamp_min(_SMALLEST), reach)
        here = Expansion(self._directions, center, reach, W, b)
        unread = _unread(here, W_error, b_error)
        trusted = _in_range(reach)[:, None] & _in_range(W.flatten(1)) & self._in_range  # (rows, k)
        return here, partial(_finished, unread=unread, trusted=trusted, center=center, reach=reach)

    def least_over(self, center: Tensor, directions: Tensor, reach: Tensor, C: Tensor) -> Tensor:
        """Lower bounds of C p where the features are center + sum_i t_i reach_i directions_i, |t_i| <= 1.

        Those that first order proves positive are not tightened further.

        (rows, d), (rows, m, d), (rows, m), (k, c) -> (rows, k)
        """
        W, b, W_error, b_error = self._readout(C)
        trusted = _in_range(reach) & _in_range(directions.flatten(1)) & center.isfinite().all(1)
        center, directions, reach = (
            torch.where(trusted.view(-1, *[1] * (v.dim() - 1)), v, 0.0) for v in (center, directions, reach)
        )
        usable = _in_range(W.flatten(1)) & self._in_range  # (k,)

        def least(rows: slice, columns: Tensor, curved: bool) -> Tensor:
            along = self._directions.of_features(directions[rows])
            here = Expansion(along, center[rows], reach[rows], W[columns], b[columns], curved=curved)
            best = here.below() if curved else here.first_order()
            unread = _unread(here, W_error[columns], b_error[columns])
            value = best.value - unread - 2 * UNIT * best.value.abs()
            found = Planes(value, best.slopes).least()
            return torch.where(usable[columns] & found.isfinite(), found, -torch.inf)

        found = least(slice(None), torch.arange(len(W)), False)
        for row, columns in enumerate(found <= 0):  # only these may gain a sign
            if columns.any():
                places = columns.nonzero()[:, 0]
                again = least(slice(row, row + 1), places, True)[0]
                found[row, places] = torch.maximum(found[row, places], again)
        return torch.where(trusted[:, None], found, -torch.inf)


def _unread(here: Expansion, W_error: Tensor, b_error: Tensor) -> Tensor:
    """A bound of what the errors of C S and C V do to a plane.  (rows, k)"""
    return (torch.where(W_error > 0, here.unread[:, None] * W_error, 0.0) + b_error) * (1 + 1e-6)


def _in_range(values: Tensor) -> Tensor:
    """Whether every number is 0 or of a size that can be multiplied a few times.  (rows, ...) -> (rows,)"""
    size = values.abs()
    return ((size == 0) | ((size >= _SMALLEST) & (size <= _LARGEST))).all(-1)


def _finished(plane: Planes, unread: Tensor, trusted: Tensor, center: Tensor, reach: Tensor) -> Finished:
    """The least value, and the function in x instead of t; what is not proved becomes -infinity."""
    plane = Planes(plane.value - unread - 2 * UNIT * plane.value.abs(), plane.slopes)
    least = plane.least()
    moves = (reach > 0)[:, None]
    slopes = torch.where(moves, plane.slopes / torch.where(moves, reach[:, None], 1.0), 0.0)
    shift = (slopes * center[:, None]).sum(-1)
    size = (slopes.abs() * center.abs()[:, None]).sum(-1) + plane.slopes.abs().sum(-1) + plane.value.abs()
    # A slope that vanishes is right to no relative error, and is multiplied by up to r.
    vanished = VANISHED + _LEAST * reach.sum(-1)[:, None]
    constant = plane.value - shift - gamma(slopes.shape[-1] + 8) * size - vanished
    proved = trusted & least.isfinite() & constant.isfinite() & slopes.isfinite().all(-1)
    least, constant = (torch.where(proved, v, -torch.inf) for v in (least, constant))
    return least, torch.where(proved[..., None], slopes, 0.0), constant


def _seen(found: OutputBounds, low: Tensor, high: Tensor) -> Parts:
    """The bounds of one combination, and where its values are: between the two planes at their extremes."""
    below, above = found.lower_slopes[:, 0], found.upper_slopes[:, 0]
    seen_low = (above * torch.where(below > 0, low, high)).sum(1) + found.upper_constant[:, 0]
    seen_high = (below * torch.where(above > 0, high, low)).sum(1) + found.lower_constant[:, 0]
    return Parts(found.lower[:, 0], found.upper[:, 0], seen_low, seen_high)


def refine(  # noqa: PLR0917
    bounds: BoundsOfBoxes, found: OutputBounds, low: Tensor, high: Tensor, C: Tensor, splits: int
) -> OutputBounds:
    """The same bounds with tighter numbers, from boxes cut into parts; C as in the call of ``bounds``."""
    lower, upper = found.lower.clone(), found.upper.clone()
    influence, each = bounds.influence(found), C.dim() == 3
    parts = [(slice(r, r + 1), C[r]) for r in range(len(C))] if each else [(slice(None), C)]
    for rows, of_rows in parts:
        for k in range(len(of_rows)):

            def evaluate(a: Tensor, b: Tensor, one: Tensor = of_rows[k : k + 1]) -> Parts:
                return _seen(bounds(a, b, one), a, b)

            ends = refined(evaluate, low[rows], high[rows], influence[rows], splits)
            lower[rows, k] = torch.maximum(lower[rows, k], ends[0])
            upper[rows, k] = torch.minimum(upper[rows, k], ends[1])
    return replace(found, lower=lower, upper=upper)


def joined(parts: list[OutputBounds]) -> OutputBounds:
    """The bounds of rows of all parts."""
    names = [field.name for field in fields(OutputBounds)]
    return OutputBounds(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})
