"""Sound bounds through a front: intervals, then linear relaxations carried back to the input (CROWN).

docs/theory/certificates-networks.md. Every float64 sum is charged its rounding error, so the bounds hold for
the exact function: a computed sum of k products has error at most (k + 2) u times the sum of their sizes, and
by the smallest numbers where products vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.certificates.linalg import UNIT, VANISHED
from mlayer.certificates.networks.steps import AffineStep, MaxPool, Relu, Step

# More than what a product, or a factor of it, may lose by vanishing, denormal numbers taken as 0 or not.
TINY = 2.0**-1020
_CHUNK = 256  # neurons carried back at once, to limit memory


@dataclass(frozen=True)
class Box:
    """low <= h <= high.  (rows, n)"""

    low: Tensor
    high: Tensor

    @property
    def size(self) -> Tensor:
        """The largest |h|."""
        return torch.maximum(self.low.abs(), self.high.abs())

    def intersect(self, other: Box) -> Box:
        """The intersection of both boxes."""
        return Box(torch.maximum(self.low, other.low), torch.minimum(self.high, other.high))


def relative_rounding(terms: int) -> float:
    """Relative error of a sum of this many products, twice: the bound itself is rounded, too."""
    return 2 * (terms + 4) * UNIT


def positive_part(A: Tensor) -> Tensor:
    """The positive entries, and 0 for the others."""
    return A.clamp_min(0)


def negative_part(A: Tensor) -> Tensor:
    """The negative entries, and 0 for the others."""
    return A.clamp_max(0)


def through(step: Step, box: Box) -> Box:
    """Interval arithmetic, rounded outward."""
    if isinstance(step, Relu):
        return Box(box.low.relu(), box.high.relu())
    if isinstance(step, MaxPool):
        ends = []
        for end in (box.low, box.high):
            padded = torch.cat([end, end.new_full((len(end), 1), -torch.inf)], 1)
            ends.append(padded[:, step.windows].amax(-1))
        return Box(*ends)
    relative = relative_rounding(step.inputs) + 2 * step.relative
    size = box.size
    error = relative * (step.ahead(size, torch.abs) + step.b.abs()) + 2 * step.error + VANISHED
    # Factors that are denormal may be taken as 0.
    ones = torch.ones_like(size[:1])
    error = error + TINY * (step.ahead(ones, torch.abs) + size.sum(-1, keepdim=True))
    low = step.ahead(box.low, positive_part) + step.ahead(box.high, negative_part) + step.b - error
    high = step.ahead(box.high, positive_part) + step.ahead(box.low, negative_part) + step.b + error
    return Box(low, high)


@dataclass
class Functional:
    """slopes . h + constant <= what is bounded below, wherever h is in its box.

    slopes: (rows, q, n); constant: (rows, q), rounding already taken off.
    """

    slopes: Tensor
    constant: Tensor

    def minimum(self, box: Box) -> Tensor:
        """A lower bound over the box.  (rows, q)"""
        low, high = box.low[:, None], box.high[:, None]
        terms = torch.minimum(self.slopes * low, self.slopes * high)
        error = relative_rounding(terms.shape[-1]) * (terms.abs().sum(-1) + self.constant.abs()) + VANISHED
        error = error + TINY * (self.slopes.abs().sum(-1) + box.size.sum(-1, keepdim=True))
        return terms.sum(-1) + self.constant - error


def back(step: Step, behind: Functional, before: Box) -> Functional:
    """A functional of a step's output as one of its input, valid where the input is in its box."""
    if isinstance(step, AffineStep):
        return _back_affine(step, behind, before)
    if isinstance(step, Relu):
        return _back_relu(behind, before)
    return _back_max(step, behind, before)


def affine_before(step: AffineStep, behind: Functional, before: Box) -> tuple[Functional, Tensor]:
    """A functional of a step's output as one of its input, and a bound of its error on the box.  (rows, q)"""
    size = behind.slopes.abs()
    moved = step.behind(behind.slopes, torch.positive)
    relative = relative_rounding(step.outputs) + 2 * step.relative
    error = relative * (step.behind(size, torch.abs) * before.size[:, None]).sum(-1)
    error = error + relative * (size @ step.b.abs()) + 2 * (size @ step.error) + VANISHED
    # Slopes that vanish may stand before large numbers.
    error = error + TINY * (step.outputs + size.sum(-1)) * before.size.sum(-1, keepdim=True)
    return Functional(moved, behind.constant + behind.slopes @ step.b), error


def _back_affine(step: AffineStep, behind: Functional, before: Box) -> Functional:
    moved, error = affine_before(step, behind, before)
    return Functional(moved.slopes, moved.constant - error - 4 * UNIT * moved.constant.abs())


def chord(box: Box) -> tuple[Tensor, Tensor]:
    """Slope s and height t of a line above max(h, 0) on the box; any s in [0, 1] is sound.  (rows, n)"""
    low, high = box.low, box.high
    width = (high - low).clamp_min(1e-300)
    slope = torch.where(
        high <= 0, torch.zeros_like(high), torch.where(low >= 0, torch.ones_like(high), high / width)
    )
    slope = slope.clamp(0, 1)
    # Above at both ends: -s low and (1 - s) high, enlarged by more than their rounding.
    height = torch.maximum(-slope * low, (1 - slope) * high)
    crossing = (low < 0) & (high > 0)
    height = torch.where(crossing, height * (1 + 1e-12) + VANISHED, torch.zeros_like(height))
    return slope, height


def _back_relu(behind: Functional, before: Box) -> Functional:
    slope, height = chord(before)
    alpha = (before.high > -before.low).to(slope)  # the triangle of smaller area
    flat, steep = before.high <= 0, before.low >= 0
    alpha = torch.where(flat, 0.0, torch.where(steep, 1.0, alpha))[:, None]
    positive, negative = behind.slopes.clamp_min(0), behind.slopes.clamp_max(0)
    moved = positive * alpha + negative * slope[:, None]
    offset = (negative * height[:, None]).sum(-1)
    error = 4 * UNIT * (moved.abs() * before.size[:, None]).sum(-1)
    error = error + TINY * before.size.sum(-1, keepdim=True)
    error = error + relative_rounding(moved.shape[-1]) * (offset.abs() + behind.constant.abs()) + VANISHED
    return Functional(moved, behind.constant + offset - error)


def windows_of(step: MaxPool, before: Box) -> tuple[Tensor, Tensor, Tensor]:
    """For each window whether one entry is the largest throughout, its place, the largest upper end.

    (rows, out) each. Where none is, the place is that of the largest lower end.
    """
    rows = len(before.low)
    pad = before.low.new_full((rows, 1), -torch.inf)
    # Of numbers that overflowed, too, an entry is taken and no padding.
    ends = before.low.clamp_min(torch.finfo(before.low.dtype).min)
    low = torch.cat([ends, pad], 1)[:, step.windows]  # (rows, out, window)
    high = torch.cat([before.high, pad], 1)[:, step.windows]
    least, choice = low.max(-1)
    others = high.scatter(-1, choice[..., None], -torch.inf).amax(-1)
    place = step.windows.expand(rows, -1, -1).gather(-1, choice[..., None])[..., 0]
    return least >= others, place, high.amax(-1)


def _back_max(step: MaxPool, behind: Functional, before: Box) -> Functional:
    rows, q, _ = behind.slopes.shape
    n = before.low.shape[1]
    sure, place, largest = windows_of(step, before)
    positive, negative = behind.slopes.clamp_min(0), behind.slopes.clamp_max(0)
    kept = positive + torch.where(sure[:, None], negative, 0.0)
    moved, size = (
        torch.zeros(rows, q, n, dtype=kept.dtype).scatter_add(-1, place[:, None].expand_as(kept), part)
        for part in (kept, kept.abs())
    )
    offsets = torch.where(sure[:, None], 0.0, negative * largest[:, None])
    # The upper ends have both signs: their sum may cancel.
    sizes = (size * before.size[:, None]).sum(-1) + offsets.abs().sum(-1) + behind.constant.abs()
    error = relative_rounding(behind.slopes.shape[-1]) * sizes + VANISHED
    return Functional(moved, behind.constant + offsets.sum(-1) - error)


class Relaxed:
    """The boxes before and behind every step, for inputs in a box.

    Args:
        steps: of a front.
        box: of the inputs.
        carry: whether neurons are carried back; otherwise the boxes come from interval arithmetic alone.
    """

    def __init__(self, steps: list[Step], box: Box, carry: bool = True) -> None:
        self.steps = steps
        self.boxes = [box]
        for k, step in enumerate(steps):
            behind = through(step, self.boxes[-1])
            # Interval arithmetic is exact after the first affine map; further on, carry back.
            needed = (carry and k > 0) and (
                isinstance(step, AffineStep)
                and (k + 1 == len(steps) or isinstance(steps[k + 1], Relu | MaxPool))
            )
            if needed:
                behind = behind.intersect(self._carried(k, behind.low.shape[1]))
            self.boxes.append(behind)

    def _carried(self, k: int, n: int) -> Box:
        rows = len(self.boxes[0].low)
        low, high = [], []
        eye = torch.eye(n, dtype=torch.float64)
        zero = torch.zeros(rows, 1, dtype=torch.float64)
        for begin in range(0, n, _CHUNK):
            unit = eye[begin : begin + _CHUNK].expand(rows, -1, -1)
            constant = zero.expand(rows, unit.shape[1])
            low.append(self.lower(Functional(unit, constant), k + 1))
            high.append(-self.lower(Functional(-unit, constant), k + 1))
        return Box(torch.cat(low, 1), torch.cat(high, 1))

    def lower(self, functional: Functional, behind: int) -> Tensor:
        """A lower bound of a functional of the output of the first ``behind`` steps.  (rows, q)"""
        best = functional.minimum(self.boxes[behind]) if behind < len(self.boxes) else None
        found = self.of_inputs(functional, behind).minimum(self.boxes[0])
        return found if best is None else torch.maximum(best, found)

    def of_inputs(self, functional: Functional, behind: int) -> Functional:
        """A functional of the output of the first ``behind`` steps as one of the inputs."""
        for k in range(behind - 1, -1, -1):
            functional = back(self.steps[k], functional, self.boxes[k])
        return functional

    def margins(self, labels: Tensor, c: int, lower: Callable[[Relaxed, Tensor], Tensor]) -> Tensor:
        """Lower bounds of output[label] - output[j]; inf for j = label.  (rows, c)

        ``lower(relaxed, C)`` bounds C times the outputs from below, for rows with one label.
        """
        result = torch.full((len(labels), c), torch.inf, dtype=torch.float64)
        eye = torch.eye(c, dtype=torch.float64)
        for label in labels.unique().tolist():
            rows = labels == label
            rivals = [j for j in range(c) if j != label]
            places = torch.nonzero(rows)
            result[places, torch.tensor(rivals)] = lower(self.of(rows), eye[label] - eye[rivals])
        return result

    def of(self, rows: Tensor) -> Relaxed:
        """The same for some of the rows."""
        part = copy(self)
        part.boxes = [Box(box.low[rows], box.high[rows]) for box in self.boxes]
        return part

    @property
    def features(self) -> Box:
        """The box behind the last step."""
        return self.boxes[-1]
