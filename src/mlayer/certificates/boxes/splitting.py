"""Tighter numbers by splitting boxes: the extremes over a box are those over the parts that cover it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Of the width of the interval: a box is cut no further where it is known to be wider than the truth by less.
_ENOUGH = 1e-3


@dataclass(frozen=True)
class Parts:
    """Bounds and values of one function on boxes.  (boxes,) each

    Attributes:
        lower: bounds of its values.
        upper: likewise.
        seen_low: a value, or about one, that it is not above somewhere in the box; only to see when to stop.
        seen_high: one that it is not below somewhere.
    """

    lower: Tensor
    upper: Tensor
    seen_low: Tensor
    seen_high: Tensor


def refined(
    evaluate: Callable[[Tensor, Tensor], Parts], low: Tensor, high: Tensor, influence: Tensor, splits: int
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of one function over boxes, each cut into at most ``splits`` + 1 parts.

    In turns the part with the least lower bound and the one with the largest upper bound is cut in half
    across the input that counts most, until the interval is nearly the one of the values seen.

    Args:
        evaluate: of boxes (boxes, m), (boxes, m).
        low: (rows, m).
        high: (rows, m).
        influence: (rows, m), about how much a unit of each input counts.
        splits: how many cuts.
    """
    m = low.shape[1]
    found = evaluate(low, high)
    lows, highs = low[:, None], high[:, None]  # (rows, parts, m)
    lower, upper = found.lower[:, None], found.upper[:, None]  # (rows, parts)
    seen_low, seen_high = found.seen_low, found.seen_high
    for step in range(splits):
        row = torch.nonzero(_wide(lower.amin(1), upper.amax(1), seen_low, seen_high))[:, 0]
        if not len(row):
            break
        part = lower[row].argmin(1) if step % 2 == 0 else upper[row].argmax(1)
        begin, end = lows[row, part], highs[row, part]
        axis = ((end - begin) * influence[row]).argmax(1)
        middle = begin + (end - begin) / 2
        cut = torch.arange(m) == axis[:, None]
        first, second = torch.where(cut, middle, end), torch.where(cut, middle, begin)
        halves = evaluate(torch.cat([begin, second]), torch.cat([first, end]))
        # One part more for every row; where none was cut it is empty.
        lows, highs = torch.cat([lows, lows[:, :1]], 1), torch.cat([highs, highs[:, :1]], 1)
        lower = torch.cat([lower, torch.full_like(lower[:, :1], torch.inf)], 1)
        upper = torch.cat([upper, torch.full_like(upper[:, :1], -torch.inf)], 1)
        lows[row, -1], highs[row, -1], highs[row, part] = second, end, first
        for bound, ends in ((lower, halves.lower), (upper, halves.upper)):
            bound[row, part], bound[row, -1] = ends.chunk(2)
        seen_low[row] = torch.minimum(seen_low[row], torch.minimum(*halves.seen_low.chunk(2)))
        seen_high[row] = torch.maximum(seen_high[row], torch.maximum(*halves.seen_high.chunk(2)))
    # Parts may be worse than the whole by rounding, or where a bound of theirs is infinite.
    return lower.amin(1), upper.amax(1)


def _wide(lower: Tensor, upper: Tensor, seen_low: Tensor, seen_high: Tensor) -> Tensor:
    """Whether an interval may be much wider than the values: not where that is unknown."""
    width = upper - lower
    excess = (seen_low - lower) + (upper - seen_high)
    return ~((excess <= _ENOUGH * width) & width.isfinite())
