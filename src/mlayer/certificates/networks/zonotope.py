"""The M-layer's features as affine functions of the inputs and of one error term for each ReLU in doubt.

docs/theory/certificates-networks.md, "Zonotopes". The features z = U h + u are carried back to the inputs as
they are, not their bounds: a ReLU whose sign is not known becomes its chord less half its height, plus a new
variable in [-1, 1] times that half. What the M-layer sees of a box of inputs is then a zonotope, so that
changes of the features keep their dependence on each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.certificates.linalg import UNIT, VANISHED
from mlayer.certificates.networks.relax import (
    TINY,
    Box,
    Functional,
    affine_before,
    chord,
    relative_rounding,
    through,
    windows_of,
)
from mlayer.certificates.networks.steps import AffineStep, MaxPool, Relu, Step

_SMALLEST = 1e-70  # smaller entries become errors: products of a few of them vanish


@dataclass(frozen=True)
class Zonotope:
    """z = center + sum_i t_i reach_i directions_i for some |t_i| <= 1.

    center: (rows, d); directions: (rows, m, d), their products with the reach right to half a unit;
    reach: (rows, m).
    """

    center: Tensor
    directions: Tensor
    reach: Tensor


class _Carried:
    """z_a = slopes_a . h + constant_a + sum_i t_i terms_i,a, within ``error``_a, h in front of some steps.

    What is the same for all rows may have one row.
    """

    def __init__(self, slopes: Tensor, constant: Tensor) -> None:
        self.now = Functional(slopes, constant)  # (rows, d, n), (rows, d)
        self.error = torch.zeros_like(constant)
        self.terms: list[Tensor] = []  # (rows, terms, d)

    def back(self, step: Step, before: Box) -> None:
        """Carry on to the inputs of one step more, which are in the box."""
        if isinstance(step, AffineStep):
            self.now, error = affine_before(step, self.now, before)
            self.error = self.error + error + 4 * UNIT * self.now.constant.abs()
        elif isinstance(step, Relu):
            slope, height = chord(before)
            # slope h <= max(h, 0) <= slope h + height
            self._replace(self.now.slopes * slope[:, None], height / 2, height / 2, before)
        else:
            self._back_max(step, before)

    def _replace(self, moved: Tensor, middle: Tensor, half: Tensor, before: Box) -> None:
        """Insert h = (what is moved) + middle + half t, coordinate by coordinate."""
        parts = self.now.slopes * half[:, None]  # (rows, d, n)
        offset = self.now.slopes * middle[:, None]
        sizes = offset.abs().sum(-1) + self.now.constant.abs()
        error = relative_rounding(self.now.slopes.shape[-1]) * sizes + VANISHED
        error = error + 4 * UNIT * (moved.abs() * before.size[:, None]).sum(-1)
        self.error = self.error + error + TINY * before.size.sum(-1, keepdim=True)
        self.now = Functional(moved, self.now.constant + offset.sum(-1))
        # Of each row the terms that are not 0, first; rows with fewer have zeros behind them.
        here = half > 0
        count = int(here.sum(1).max()) if len(here) else 0
        places = here.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :count]
        chosen = torch.take_along_dim(parts, places[:, None], 2)
        self.terms.append(torch.where(torch.take_along_dim(here, places, 1)[:, None], chosen, 0.0).mT)

    def _back_max(self, step: MaxPool, before: Box) -> None:
        """The entry that is the largest throughout, where there is one; else anything in the box behind."""
        sure, place, _ = windows_of(step, before)
        behind = through(step, before)
        middle = behind.low / 2 + behind.high / 2
        half = torch.maximum(behind.high - middle, middle - behind.low) * (1 + 4 * UNIT) + VANISHED
        kept = torch.where(sure[:, None], self.now.slopes, 0.0)
        rows, d, _ = kept.shape
        moved, size = (
            torch.zeros(rows, d, before.low.shape[1], dtype=kept.dtype).scatter_add(
                -1, place[:, None].expand_as(kept), part
            )
            for part in (kept, kept.abs())
        )
        rounding = relative_rounding(kept.shape[-1]) * (size * before.size[:, None]).sum(-1)
        self.error = self.error + rounding
        self._replace(moved, torch.where(sure, 0.0, middle), torch.where(sure, 0.0, half), before)

    def over(self, box: Box) -> Zonotope:
        """The zonotope for inputs in a box."""
        slopes, constant = self.now.slopes, self.now.constant
        middle = box.low + (box.high - box.low) / 2
        reach = torch.maximum(box.high - middle, middle - box.low) * (1 + 4 * UNIT)
        reach = torch.where(reach > 0, reach.clamp_min(_SMALLEST), reach)  # a wider box holds this one
        shift = slopes * middle[:, None]
        center = constant + shift.sum(-1)
        error = self.error + relative_rounding(shift.shape[-1]) * (shift.abs().sum(-1) + constant.abs())
        rows = len(box.low)
        terms = torch.cat(self.terms, 1) if self.terms else slopes.new_zeros(rows, 0, slopes.shape[1])
        directions = torch.cat([slopes.mT.expand(rows, -1, -1), terms], 1)
        reach = torch.cat([reach, torch.ones(terms.shape[:2], dtype=torch.float64)], 1)
        small = directions.abs() < _SMALLEST
        directions = torch.where(small, 0.0, directions)
        error = error + _SMALLEST * (reach.sum(1, keepdim=True) + reach.shape[1]) + VANISHED
        error = error * (1 + 1e-9)
        return Zonotope(
            center,
            torch.cat([directions, torch.diag_embed(error)], 1),
            torch.cat([reach, torch.ones_like(error)], 1),
        )


def zonotope(steps: list[Step], boxes: list[Box], slopes: Tensor, constant: Tensor) -> Zonotope:
    """A zonotope that holds z = slopes h + constant for the h that the steps compute.

    Args:
        steps: of a front.
        boxes: before each step, the first that of the inputs.
        slopes: (d, features), exact.
        constant: (d,), exact.
    """
    # One row, which stands for all until a step depends on the box.
    carried = _Carried(slopes[None], constant[None])
    for step, before in zip(reversed(steps), reversed(boxes[: len(steps)]), strict=True):
        carried.back(step, before)
    return carried.over(boxes[0])
