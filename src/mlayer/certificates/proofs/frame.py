"""The part of a proof that all rows share: gauge, ellipsoid and the two norms of N, found in float64.

Nothing here is trusted: `mlayer.certificates.checker` proves each number again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.checker import Layer
from mlayer.certificates.problem.fit import product_form
from mlayer.certificates.problem.model import Model
from mlayer.certificates.problem.weights import Weights
from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory

_RIDGE = 1e-12  # of the trace: keeps the ellipsoid invertible
_ABOVE = 1 + 1e-9  # claims lie that far above what float64 gives
_LEAST_WEIGHT = 1e-6  # of inputs that M does not depend on, relative to the least of the others
_FEW_INPUTS = 12  # up to which the inputs are the directions, however few the features
_EXACTLY = 20_000  # products up to which these are computed in rational arithmetic
_LARGEST_MULTIPLIER = 32  # n up to which delta_2 is proved, by a matrix of n^2 rows


@dataclass(frozen=True)
class FrameClaims:
    """The claims, and the same numbers for the search of the levels.

    Attributes:
        claims: as the checker reads it.
        active: (m,), inputs of scale > 0.
        w: (active inputs,).
        delta_F: claimed.
        delta_2: claimed.
    """

    claims: dict[str, Any]
    active: NDArray[np.bool_]
    w: Array
    delta_F: float  # noqa: N815 - the paper's letter
    delta_2: float


def plain_layer(weights: Weights) -> Layer:
    """The stored weights as the checker reads them."""
    return Layer(
        weights.n,
        len(weights.T0),
        len(weights.U0),
        len(weights.S),
        *(
            a.reshape(-1).tolist()
            for a in (weights.B, weights.T0, weights.U0, weights.u, weights.S, weights.V)
        ),
    )


def _products(U: Array, scale: Array, T: Array) -> Array:
    """A_i = scale_i sum_a U_ia T_a; of few numbers exactly, for they may cancel."""
    if U.size * T[0].size > _EXACTLY:
        found: Array = np.tensordot(U * scale[:, None], T, 1)
        return found
    flat = [[Fraction(v) for v in matrix.reshape(-1).tolist()] for matrix in T]
    rows = []
    for row, unit in zip(U.tolist(), scale.tolist(), strict=True):
        used = [(Fraction(u) * Fraction(unit), matrix) for u, matrix in zip(row, flat, strict=True) if u]
        rows.append([float(sum(u * matrix[k] for u, matrix in used)) for k in range(T[0].size)])
    return np.array(rows).reshape(len(U), *T.shape[1:])


class Frames:
    """Makes the claims when they are first asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @cached_property
    def shape(self) -> dict[str, Any]:
        """Norm, scale and box."""
        region = self._model.region
        return {
            "norm": region.norm,
            "scale": region.scale.numpy(),
            "low": None if region.low is None else region.low.numpy(),
            "high": None if region.high is None else region.high.numpy(),
        }

    @cached_property
    def full(self) -> FrameClaims | None:
        """All claims; None where float64 cannot hold them, or nothing moves."""
        weights, constants = self._model.weights, self._model.constants
        scale = self._model.region.scale.numpy()
        active = scale > 0
        if not active.any():
            return None
        U = weights.U0[active] * scale[active, None]
        T = weights.T0
        with np.errstate(all="ignore"):
            by_inputs = len(U) <= max(len(T), _FEW_INPUTS)
            if by_inputs:
                T, U = _products(weights.U0[active], scale[active], T), np.eye(len(U))
            w = self._weights(active)
            Q = U.T @ (U / w[:, None])
            Q += _RIDGE * np.trace(Q) * np.eye(len(Q))
            flat = (constants.P @ T @ constants.P_inverse).reshape(len(T), -1)
            try:
                L = np.linalg.cholesky(Q)
                delta_F = float(np.linalg.norm(L.T @ flat, 2)) * _ABOVE
                delta_2, Y = self._spectral(L.T @ flat, delta_F)
            except np.linalg.LinAlgError:
                return None
        if not (0 < delta_F < math.inf and 0 < delta_2 < math.inf):
            return None
        claims = {
            **self.shape,
            "directions": "inputs" if by_inputs else "features",
            "weights": w,
            "gauge": constants.P.reshape(-1),
            "ridge": _RIDGE,
            "delta_F": delta_F,
            "delta_2": delta_2,
            "multiplier": Y,
        }
        return FrameClaims(claims, active, w, delta_F, delta_2)

    def _weights(self, active: NDArray[np.bool_]) -> Array:
        if self._model.region.norm == "l2":
            return np.ones(int(active.sum()))
        w = self._model.constants.w[active]
        least = w[w > 0].min(initial=1.0)
        result: Array = np.where(w > 0, w, _LEAST_WEIGHT * least)
        return result

    def _spectral(self, flat: Array, delta_F: float) -> tuple[float, Array | None]:
        """Lemma 3 with the multiplier of the model's constants, rounded: any multiplier is sound."""
        n = self._model.weights.n
        if n > _LARGEST_MULTIPLIER or not 0 < delta_F < math.inf:
            return delta_F, None
        unit = math.ldexp(1.0, math.frexp(delta_F)[1])
        K = in_torch_memory(flat.T @ flat / unit**2)
        Y = in_torch_memory(self._model.constants.Y / unit**2).float().double()
        top = float(np.linalg.eigvalsh(product_form(K, (Y + Y.mT) / 2, n).numpy())[-1])
        multiplier: Array = (Y * unit**2).numpy().reshape(-1)
        return math.sqrt(max(top, 0.0)) * unit * _ABOVE, multiplier if multiplier.any() else None
