"""RMSprop, the paper's optimizer, in one call for all parameters.

torch has a fused CPU kernel for Adam and none for RMSprop. But RMSprop is Adam without a mean of gradients
(beta1 = 0) and without the correction of the first steps; and that correction, 1 / (1 - alpha^t), is 1 at
t = infinity. State and options are those of torch.optim.RMSprop, so that checkpoints fit either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float64)
# Options that the one call follows. Any other, also one that a later torch adds, is left to torch's own step.
_IN_ONE_CALL = frozenset({"lr", "alpha", "eps"})
_LATE = torch.tensor(math.inf)
# Steps between looks for subnormal numbers.
_SWEEP = 64


def fits_one_call(parameters: Sequence[Tensor], options: Mapping[str, Any]) -> bool:
    """Whether Adam's kernel takes these weights and knows everything in ``options``.

    >>> weights = [torch.zeros(3)]
    >>> fits_one_call(weights, {"alpha": 0.9}), fits_one_call(weights, {"momentum": 0.9})
    (True, False)
    """
    return (
        all(p.device.type == "cpu" and p.dtype in _DTYPES for p in parameters)
        and not any(value for name, value in options.items() if name not in _IN_ONE_CALL)
        and options.get("alpha", 0.99) < 1
    )


class RMSprop(torch.optim.RMSprop):
    """torch.optim.RMSprop for parameters and options that :func:`fits_one_call` accepts.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> optimizer = RMSprop([weight], lr=0.1, alpha=0.9)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> weight.detach()
    tensor([0.6838, 1.6838])
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step: v <- alpha v + (1 - alpha) g^2, then w <- w - lr g / (sqrt(v) + eps)."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not all(_in_order(p) for group in self.param_groups for p in group["params"]):
            super().step()
            return loss
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            gradients = [p.grad for p in weights]
            states = [self.state[p] or self._begin(p) for p in weights]
            torch._fused_adam_(
                weights,
                gradients,
                gradients,  # Adam's means of gradients: at beta1 = 0 the gradients, which stay as they are
                [state["square_avg"] for state in states],
                [],
                [_LATE] * len(weights),
                lr=group["lr"],
                beta1=0.0,
                beta2=group["alpha"],
                weight_decay=0.0,
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )
            torch._foreach_add_([state["step"] for state in states], 1)
            if int(states[0]["step"]) % _SWEEP == 0:
                _sweep_subnormals([state["square_avg"] for state in states], group["eps"])
        return loss

    def _begin(self, weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        state["step"] = torch.zeros(())
        state["square_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return state


def _in_order(weight: Tensor) -> bool:
    """Whether Adam's kernel, which walks through memory and not indices, takes weight and gradient."""
    return weight.is_contiguous() and (weight.grad is None or weight.grad.is_contiguous())


def _sweep_subnormals(squares: Sequence[Tensor], eps: float) -> None:
    """Put v to 0 where sqrt(v) + eps is eps anyway and v too small for the processor's fast path.

    Weights behind dead units have gradients of exactly 0. Their v shrinks until rounding holds it at a
    subnormal number, with which the processor is many times slower (benchmarks/rmsprop.py).
    """
    for v in squares:
        limits = torch.finfo(v.dtype)
        if math.sqrt(limits.tiny) < eps * limits.eps / 2:
            torch.threshold_(v, limits.tiny, 0.0)
