"""Muon (Jordan et al., 2024) for weights of every shape: steps whose singular values are all about one.

The gradient of an embedding of pixels has a few large singular values, those of coarse brightness and color,
and SGD mostly follows these. Muon replaces the singular values of the mean gradient by ones, so that every
direction is learned at the same pace. torch.optim.Muon takes matrices only and iterates in bfloat16; here
the generators, (d, n, n), count as a d x n^2 matrix and a bias as a matrix of one row, in the weights' dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# A quintic whose iterates take singular values in (0, 1] to about 0.7 to 1.2 in five steps: the
# coefficients of torch.optim.Muon. It need not converge to 1: only the size of a step depends on it.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_NOT_ZERO = 1e-7


class Muon(torch.optim.Optimizer):
    """w <- (1 - lr weight_decay) w - lr sqrt(max(rows, columns)) O; O: the mean gradient made orthogonal.

    The root makes the mean square of a step's entries about lr^2, as Adam's are, whatever the shape.

    Args:
        params: weights of any shape; all dimensions after the first are one.
        lr: learning rate.
        weight_decay: decoupled from the gradient, as in AdamW.
        momentum: of the mean of gradients.
        nesterov: look one step ahead.
        ns_steps: of the iteration that makes a matrix orthogonal.

    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> optimizer = Muon([weight], lr=0.1)
    >>> (weight * torch.tensor([[3.0, 0.0], [0.0, 0.5]])).sum().backward()
    >>> optimizer.step()
    >>> (weight.diagonal().abs() > 0.08).all().item()  # both, although one gradient is six times the other
    True
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-4,
        *,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
    ) -> None:
        for name, value in (("lr", lr), ("weight_decay", weight_decay)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {value}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}")
        if not (isinstance(ns_steps, int) and 1 <= ns_steps <= 20):
            raise ValueError(f"ns_steps must be an integer from 1 to 20, got {ns_steps}")
        options = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
        }
        super().__init__(params, options)
        if any(p.is_complex() for group in self.param_groups for p in group["params"]):
            raise ValueError("Muon takes real weights only")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every weight that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                mean: Tensor = state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
                ahead = weight.grad.lerp(mean, group["momentum"]) if group["nesterov"] else mean
                matrix = ahead.reshape(len(ahead), -1) if ahead.dim() > 1 else ahead.reshape(1, -1)
                rate = group["lr"] * math.sqrt(max(matrix.shape))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.sub_(orthogonalized(matrix, group["ns_steps"]).reshape(weight.shape), alpha=rate)
        return loss


def orthogonalized(matrix: Tensor, steps: int = 5) -> Tensor:
    """A matrix with the same singular vectors and singular values of about 1; those of 0 stay 0.

    >>> values = torch.linalg.svdvals(orthogonalized(torch.diag(torch.tensor([5.0, 1.0, 0.2]))))
    >>> bool(((values > 0.6) & (values < 1.3)).all())
    True
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=_NOT_ZERO)
    a, b, c = _QUINTIC
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
