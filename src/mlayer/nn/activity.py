"""The penalty on exp(M) that keeps training stable."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mlayer.errors import ArgumentError

ActivityKind = Literal["frobenius", "l1"]
# The order of the norm of all entries together, and the power it is raised to.
_NORMS = {"frobenius": (2.0, 2), "l1": (1.0, 1)}


def activity_of(exponentials: Tensor, kind: ActivityKind = "frobenius") -> Tensor:
    """Mean over the batch of ||E||_F^2 (the paper's text) or of the sum of |E| (the authors' notebooks).

    Args:
        exponentials: (..., n, n), from :meth:`mlayer.MLayer.exponential`.
        kind: "frobenius" or "l1".

    Returns:
        A scalar; 0 for an empty batch.

    >>> import torch
    >>> round(activity_of(torch.tensor([[[1.0, -2.0], [0.0, 3.0]]])).item(), 4)
    14.0
    >>> activity_of(torch.tensor([[[1.0, -2.0], [0.0, 3.0]]]), "l1").item()
    6.0
    """
    if kind not in _NORMS:
        raise ArgumentError(
            "kind", f"one of {', '.join(map(repr, _NORMS))}", repr(kind), "The paper's text uses 'frobenius'."
        )
    order, power = _NORMS[kind]
    batch = max(1, exponentials.shape[:-2].numel())
    # One pass over memory, and nothing but E itself is kept for the backward pass.
    norm: Tensor = torch.linalg.vector_norm(exponentials, order)
    return norm**power / batch
