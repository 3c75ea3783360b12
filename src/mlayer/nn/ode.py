"""The linear-ODE view (section 3.6 of the paper): exp(t M) solves dY/dt = M Y from Y(0) = I."""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential import expm
from mlayer.exponential.arguments import check_matrices


def trajectory(matrices: Tensor, t: Tensor | float) -> Tensor:
    """exp(t M) for every matrix and every time; each is computed on its own, so no error builds up along t.

    Args:
        matrices: M, (..., n, n).
        t: times, any shape.

    Returns:
        (..., *t.shape, n, n).
    """
    check_matrices(matrices, "matrices")
    if isinstance(t, Tensor):
        if t.is_complex() or t.dtype == torch.bool:
            raise ArgumentTypeError("t", "real times", str(t.dtype), "Convert it with t.float().")
        if t.device.type == "meta":
            raise ArgumentError("t", "times with values", "a tensor on meta", "Move it with t.to('cpu').")
        times = t.to(matrices)
    elif isinstance(t, (int, float)) and not isinstance(t, bool):
        times = torch.tensor(t, dtype=matrices.dtype, device=matrices.device)
    else:
        raise ArgumentTypeError("t", "a number or a tensor of times", type(t).__name__, "Use torch.linspace.")
    n = matrices.shape[-1]
    times = times[..., None, None]
    return expm(matrices.reshape(*matrices.shape[:-2], *(1,) * (times.dim() - 2), n, n) * times)


def evolve(matrices: Tensor, t: Tensor | float, start: Tensor) -> Tensor:
    """Y(t) = exp(t M) Y(0), the state that has evolved from ``start``.

    Args:
        matrices: M, (..., n, n).
        t: times, any shape.
        start: Y(0), (n,).

    Returns:
        (..., *t.shape, n).

    >>> import math, torch
    >>> quarter = evolve(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), math.pi / 2, torch.tensor([1.0, 0.0]))
    >>> torch.allclose(quarter, torch.tensor([0.0, 1.0]), atol=1e-6)
    True
    """
    check_matrices(matrices, "matrices")
    n = matrices.shape[-1]
    if not isinstance(start, Tensor) or start.shape != (n,):
        came = f"shape {tuple(start.shape)}" if isinstance(start, Tensor) else brief(start)
        raise ArgumentError("start", f"a tensor of shape ({n},)", came, "Give one state.")
    return trajectory(matrices, t) @ start.to(matrices)
