"""Tighter numbers by splitting boxes: the extremes over a box are those over the parts that cover it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def refined(
    evaluate: Evaluate, low: Tensor, high: Tensor, influence: Tensor, splits: int
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of one function over boxes, each cut into at most ``splits`` + 1 parts.

    In turns the part with the least lower bound and the one with the largest upper bound is cut in half
    across the input that moves the matrix most.

    Args:
        evaluate: (boxes, m), (boxes, m) -> lower and upper bounds, (boxes,).
        low: (rows, m).
        high: (rows, m).
        influence: (m,), how much a unit of each input moves the matrix.
        splits: how many cuts.
    """
    rows, m = low.shape
    lower, upper = evaluate(low, high)
    lows, highs = low[:, None], high[:, None]  # (rows, parts, m)
    lower, upper = lower[:, None], upper[:, None]  # (rows, parts)
    row = torch.arange(rows)
    for step in range(splits if rows else 0):
        part = lower.argmin(1) if step % 2 == 0 else upper.argmax(1)
        begin, end = lows[row, part], highs[row, part]
        axis = ((end - begin) * influence).argmax(1)
        middle = begin + (end - begin) / 2
        cut = torch.arange(m) == axis[:, None]
        first, second = torch.where(cut, middle, end), torch.where(cut, middle, begin)
        below, above = evaluate(torch.cat([begin, second]), torch.cat([first, end]))
        lows, highs = torch.cat([lows, second[:, None]], 1), torch.cat([highs, end[:, None]], 1)
        lower, upper = torch.cat([lower, below[rows:, None]], 1), torch.cat([upper, above[rows:, None]], 1)
        highs[row, part], lower[row, part], upper[row, part] = first, below[:rows], above[:rows]
    # Parts may be worse than the whole by rounding, or where a bound of theirs is infinite.
    return lower.amin(1), upper.amax(1)
