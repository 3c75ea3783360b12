"""exp(A) in operations that torch.export and the ONNX exporter can write down."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop

from mlayer.exponential.grouped import degree_16
from mlayer.exponential.schedule import (
    SIXTEEN,
    one_norm,
    root_of_square_norm,
    schedule_for,
    squarings_without_identity,
)


def expm_traced(matrices: Tensor) -> Tensor:
    """exp(A), written down as products and one loop.

    One polynomial for all, squarings in a loop that runs as often as the matrix of largest norm needs; the
    others wait. A result that overflows has infinities where its largest entries overflowed, and NaN
    may stand in the rest.
    """
    a = matrices.reshape(-1, *matrices.shape[-2:])
    schedule = schedule_for(a.dtype)

    def halvings(size: Tensor, limit: float) -> Tensor:
        needed = (torch.log2(size) - math.log2(limit)).ceil().clamp(min=0.0, max=1100.0)
        # NaN and infinity have no schedule: they must not decide for the others.
        return torch.where(size.isfinite(), needed, torch.zeros_like(needed))

    first = halvings(one_norm(a), schedule.largest_norm)  # where A^2 could overflow
    a = a * torch.exp2(-first)[:, None, None]
    a2 = a @ a
    more = halvings(root_of_square_norm(a2), schedule.theta[-1])
    scale = torch.exp2(-more)[:, None, None]
    # As tensors of the dtype: the ONNX exporter writes Python's numbers in single precision.
    coefficients = [torch.tensor(c, dtype=a.dtype, device=a.device) for c in SIXTEEN]
    # Plain tensors: torch.export(strict=True) cannot follow the operators of a class of ours.
    x = degree_16(a * scale, a2 * scale * scale, coefficients)
    squarings = first + more
    without = squarings_without_identity(a.dtype)
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    after = (squarings > without)[:, None, None]  # others get their identity at the end
    if not without:
        x = x + identity
    most = torch.cat([squarings, torch.zeros_like(squarings.sum())[None]]).max()  # 0 for an empty batch

    def unfinished(step: Tensor, _: Tensor) -> Tensor:
        return step < most

    def square(step: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        squared = x @ x
        if without:
            squared = torch.where(step < without, squared + (x + x), squared)
            squared = torch.where((step == without - 1) & after, squared + identity, squared)
        return step + 1, torch.where((step < squarings)[:, None, None], squared, x)

    _, x = while_loop(unfinished, square, (torch.zeros_like(most), x))
    if without:
        x = torch.where(after, x, x + identity)
    return x.reshape(matrices.shape)
