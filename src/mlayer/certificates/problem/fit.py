"""Fit the parameters of which any value is sound and a good one is tight: weights w, gauge P, multiplier Y.

docs/theory/certificates.md, lemmas 2 to 4. Adam minimizes the logarithm of what the fourth-order remainder
is proportional to: mean log ||W||_nuc + mu(M) + 4 log delta_2, at reference inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlayer.numerics.arrays import Array
from mlayer.numerics.light_optimizers import light
from mlayer.numerics.torch_memory import in_torch_memory

# Learning rates of the tuning; any outcome is sound, a better one gives smaller constants.
_RATE = 0.03
_MULTIPLIER_RATE = 0.015 * _RATE
_SHARPNESS = (50.0, 1000.0)  # of the smooth maximum of eigenvalues, first and last step


@dataclass(frozen=True)
class Fitted:
    """Weights of the inputs (None for L2), gauge, its inverse, multiplier."""

    w: Array | None
    P: Array
    P_inverse: Array
    Y: Array


def partial_transpose(Y: Tensor, n: int) -> Tensor:
    """Swap the two column indices of an operator on pairs.  (n n, n n)"""
    return Y.reshape(n, n, n, n).permute(0, 3, 2, 1).reshape(n * n, n * n)


def product_form(K: Tensor, Y: Tensor, n: int) -> Tensor:
    """The matrix of lemma 3: equal to K on product vectors, its top eigenvalue smaller."""
    A = (K + partial_transpose(K, n)) / 2 + Y - partial_transpose(Y, n)
    return (A + A.mT) / 2


def fit(  # noqa: PLR0917
    rows: Array, T: Array, start: Array | None, M: Array, S: Array, steps: int
) -> Fitted:
    """Fit to generators T (d, n, n), rows u_i (m, d), reference matrices M (r, n, n), readout S.

    Args:
        rows: (m, d).
        T: (d, n, n).
        start: first weights w, or None for L2.
        M: (r, n, n), matrices at reference inputs.
        S: (c, n, n).
        steps: of Adam; 0 gives the start.
    """
    n = T.shape[-1]
    used = np.ones(len(rows), bool) if start is None else start > 0
    U, G, Mr = in_torch_memory(rows[used]), in_torch_memory(T), in_torch_memory(M)
    W = in_torch_memory(S - S.mean(0))
    free_w = torch.zeros(0) if start is None else in_torch_memory(np.log(start[used]))
    free_w.requires_grad_(True)
    free_Y = torch.zeros(n * n, n * n, dtype=torch.float64, requires_grad=True)
    free_P = torch.zeros(n, n, dtype=torch.float64, requires_grad=True)
    groups = [{"params": [free_Y], "lr": _MULTIPLIER_RATE}, {"params": [free_P], "lr": _RATE}]
    if start is not None:
        groups.append({"params": [free_w], "lr": 2 * _RATE})
    adam = light(torch.optim.Adam)(groups)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, max(steps, 1), eta_min=0.01 * _RATE)
    size = 0.0
    best, kept = np.inf, Fitted(start, np.eye(n), np.eye(n), np.zeros((n * n, n * n)))
    for k in range(steps):
        w = None if start is None else torch.softmax(free_w, 0)
        Q = U.mT @ (U if w is None else U / w[:, None])
        X = (free_P + free_P.mT) / 2
        P, P_inverse = torch.linalg.matrix_exp(X), torch.linalg.matrix_exp(-X)
        flat = (P @ G @ P_inverse).flatten(1)
        K = flat.mT @ Q @ flat
        if k == 0:
            size = max(torch.linalg.eigvalsh(K.detach())[-1].item(), 1e-300)
        Y = (free_Y + free_Y.mT) / 2
        try:
            values = torch.linalg.eigvalsh(product_form(K / size, Y, n))
        except RuntimeError:  # numbers out of range: what was found so far stands
            break
        top = values[-1].item()
        if not 0 < top < np.inf:  # delta_2 = 0: nothing to fit
            break
        sharp = (_SHARPNESS[0] + (_SHARPNESS[1] - _SHARPNESS[0]) * k / steps) / top
        smooth = torch.logsumexp(sharp * values, 0) / sharp
        Mp = P @ Mr @ P_inverse
        mu = torch.linalg.eigvalsh((Mp + Mp.mT) / 2)[:, -1].mean()
        Wp = P_inverse.mT @ W @ P.mT
        nuclear = (torch.linalg.matrix_norm(Wp, "nuc") + 1e-300).log().mean()
        goal = (nuclear + mu).item() + 2 * np.log(top)
        if goal < best:
            best = goal
            kept = Fitted(
                None if w is None else _spread(w.detach().numpy(), used),
                P.detach().numpy().copy(),
                P_inverse.detach().numpy().copy(),
                size * Y.detach().numpy(),
            )
        loss = nuclear + mu + 2 * smooth.log()
        if not bool(loss.isfinite()):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
        decay.step()
    return kept


def _spread(values: Array, used: NDArray[np.bool_]) -> Array:
    result = np.zeros(len(used))
    # No weight far below the rest: 1 / w stays harmless.
    result[used] = np.maximum(values, 1e-6 * values.max())
    spread: Array = result / result.sum()
    return spread
