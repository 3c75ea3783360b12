"""Regions: which inputs count as near. A ball of the L-infinity or L2 norm, scaled, cut to the data's box.

A radius eps allows the steps delta with |delta_i| <= eps scale_i (L-infinity) or
sum (delta_i / scale_i)^2 <= eps^2 (L2) and, with a box, low <= x + delta <= high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mlayer.checks import one_of
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.arguments import check_not_nested
from mlayer.numerics.arrays import Array

Norm = Literal["linf", "l2"]
Box = tuple[Tensor | float, Tensor | float]
NORMS = ("linf", "l2")


@dataclass(frozen=True)
class Region:
    """The shape of a neighborhood; its size eps comes with each question.

    Attributes:
        norm: "linf" or "l2".
        scale: (m,), the unit of each feature.
        low: lower end of the data's box, (m,), or None.
        high: upper end, (m,), or None.
    """

    norm: Norm
    scale: Tensor
    low: Tensor | None = None
    high: Tensor | None = None

    # ---- For the attack: torch, batched. ---------------------------------------------------------

    def steepest(self, gradient: Tensor) -> Tensor:
        """The step of size 1 along which a linear function falls fastest.  (b, m) -> (b, m)"""
        if self.norm == "linf":
            return -gradient.sign() * self.scale
        scaled = gradient * self.scale
        length = scaled.norm(dim=1, keepdim=True).clamp_min(1e-300)
        return -scaled / length * self.scale

    def step(self, direction: Tensor, eps: Tensor, origin: Tensor) -> Tensor:
        """The step of size eps in a direction, cut to the box."""
        return self.cut(direction * eps[:, None] * self.inward(direction), origin)

    def cut(self, step: Tensor, origin: Tensor) -> Tensor:
        """A step to the ends of the box, where it leads out of it; elsewhere as it is."""
        if self.low is None or self.high is None:
            return step
        point = origin + step
        step = torch.where(point < self.low, self.low - origin, step)
        return torch.where(point > self.high, self.high - origin, step)

    def moved(self, origin: Tensor, step: Tensor) -> Tensor:
        """Origin + step as float64 numbers that are no farther from the origin, and in the box."""
        point = origin + step
        # What the sum lost, exactly (Knuth's two-sum): against the step, the point lies beyond it.
        back = point - origin
        lost = (origin - (point - back)) + (step - back)
        point = torch.where(lost * step.sign() < 0, torch.nextafter(point, origin), point)
        if self.low is not None and self.high is not None:
            point = torch.minimum(torch.maximum(point, self.low), self.high)
        return point

    def inward(self, direction: Tensor) -> Tensor:
        """Factors that keep products with a direction of size 1 within eps, for all their rounding."""
        off = (len(self.scale) + 8) * 2.0**-53
        exact = (direction.abs() == 1) & (self.norm == "linf")
        return 1 - off * (~exact).to(direction)

    def free(self, direction: Tensor, step: Tensor, eps: Tensor) -> Tensor:
        """The direction without the coordinates that the box holds back."""
        held = step.abs() < (1 - 1e-9) * direction.abs() * eps[:, None]
        return torch.where(held, torch.zeros_like(direction), direction)

    # ---- For the bounds: one row, float64 numpy, in units of the scale. ----------------------------

    def interval(self, x: Array, eps: float) -> tuple[Array, Array]:
        """Ends of each delta_i / scale_i at radius eps (L-infinity).  (m,), (m,)"""
        low, high = np.full(len(x), -eps), np.full(len(x), eps)
        if self.low is not None and self.high is not None:
            scale = np.where(self.scale.numpy() > 0, self.scale.numpy(), 1.0)
            # Outward by a few roundings: the region certified is never smaller than the true one.
            low = np.maximum(low, np.minimum((self.low.numpy() - x) / scale, 0.0) * (1 + 1e-14))
            high = np.minimum(high, np.maximum((self.high.numpy() - x) / scale, 0.0) * (1 + 1e-14))
        return low, high

    def whole(self, x: Array) -> float:
        """A radius whose region is the whole box; infinite without one."""
        if self.norm != "linf" or self.low is None or self.high is None:
            return math.inf
        scale = self.scale.numpy()
        reach = np.maximum(self.high.numpy() - x, x - self.low.numpy())[scale > 0] / scale[scale > 0]
        return float(reach.max(initial=0.0)) * (1 + 1e-12) + 1e-300

    def holds_all(self, x: Array, eps: float) -> bool:
        """Whether the region of radius eps holds the whole box, so that a larger eps changes nothing."""
        if self.norm != "linf" or self.low is None or self.high is None:
            return False
        low, high = self.interval(x, eps)
        moving = self.scale.numpy() > 0
        return bool((low > -eps)[moving].all() and (high < eps)[moving].all())


def make_region(
    in_features: int,
    norm: object,
    scale: Tensor | float | None,
    box: Box | None,
) -> Region:
    """A checked region."""
    one_of("norm", norm, NORMS, "L-infinity is the usual one.")
    unit = _vector("scale", 1.0 if scale is None else scale, in_features)
    if not bool((unit >= 0).all()):
        raise ArgumentError(
            "scale", "non-negative", f"a least entry of {float(unit.min()):.3g}", "0 holds a feature still."
        )
    region = Region("linf" if norm == "linf" else "l2", unit)
    return region if box is None else regions_of_rows(region, box, None)[0]


def regions_of_rows(region: Region, box: Box, rows: int | None) -> list[Region]:
    """The region with a box for each row, or with one box if ``rows`` is None.

    Args:
        region: its norm and scale.
        box: the ends, each a number, (m,) or, with ``rows``, (rows, m).
        rows: how many.
    """
    if region.norm == "l2":
        raise ArgumentError(
            "box", "None with norm='l2'", "a box", "A ball is certified whole; leave box out."
        )
    if not isinstance(box, tuple | list) or len(box) != 2:
        raise ArgumentTypeError("box", "a pair (low, high)", type(box).__name__, "For images: box=(0, 1).")
    size = len(region.scale)
    low, high = (_vector(f"box[{k}]", end, size, rows) for k, end in enumerate(box))
    if not bool((low <= high).all()):
        raise ArgumentError("box", "a pair with low <= high", "one with low > high", "Swap the two.")
    count = 1 if rows is None else rows
    ends = (end.expand(count, size).unbind() for end in (low, high))
    return [Region("linf", region.scale, *pair) for pair in zip(*ends, strict=True)]


def _vector(argument: str, value: object, size: int, rows: int | None = None) -> Tensor:
    """One number per feature, or with ``rows`` one per row and feature.  (m,) or (rows, m)"""
    wanted = f"a number or a vector of {size}"
    if rows is not None:
        wanted += f", or of shape ({rows}, {size})"
    if isinstance(value, Tensor):
        check_not_nested(value, argument)
    try:
        # A copy: what the caller writes into it later is no part of the certificate.
        tensor = torch.as_tensor(value, dtype=torch.float64, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentTypeError(argument, wanted, type(value).__name__, "One entry per feature.") from None
    each_row = rows is not None and tensor.shape == (rows, size)
    if not each_row and (tensor.dim() > 1 or tensor.numel() not in (1, size)):
        raise ArgumentError(argument, wanted, f"shape {tuple(tensor.shape)}", "One entry per feature.")
    if not bool(tensor.isfinite().all()):
        raise ArgumentError(argument, "finite", "NaN or infinity", "Leave out what has no bound.")
    return tensor.contiguous() if each_row else tensor.reshape(-1).expand(size).contiguous()
