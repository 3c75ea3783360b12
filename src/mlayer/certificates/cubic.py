"""The cubic term: c with |C[y, y, y]| <= c |y|^3.

docs/theory/certificates.md, theorem 5. C[y, y, y]^2 <= |y|^2 |C[y, y, .]|^2, and the second factor is a
quartic form K[y, y, y, y] whose matrix may be symmetrised over its four indices without changing it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.ellipsoid import INFLATE, proves_positive, top_eigenvalue

Array = NDArray[np.float64]

_POWER_STEPS = 12
_TRIES = 6


def flat_norm(C: Array) -> float:
    """The spectral norm of C flattened to d x d^2."""
    flat = C.reshape(len(C), -1)
    return float(np.sqrt(top_eigenvalue(flat @ flat.T))) * INFLATE


def symmetric_norm(C: Array) -> float:
    """The bound from the symmetrised quartic form; at most `flat_norm`, usually a tenth below it."""
    d = len(C)
    upper = flat_norm(C)
    if upper == 0 or d == 1:
        return upper
    flat = C.reshape(d * d, d)
    K = (flat @ flat.T).reshape(d, d, d, d)
    i, j = np.triu_indices(d)
    # On symmetric matrices y y^T: coordinates sqrt(2) y_i y_j off the diagonal.
    weight = np.where(i == j, 1.0, np.sqrt(2.0))
    A, B, D = i[:, None], j[:, None], (i[None, :], j[None, :])
    form = (K[A, B, D[0], D[1]] + K[A, D[0], B, D[1]] + K[A, D[1], B, D[0]]) / 3
    form *= weight[:, None] * weight[None, :]
    form = (form + form.T) / 2
    # A power iteration guesses the top eigenvalue; a Cholesky factorisation proves the guess.
    v = weight * 0 + 1.0
    guess = 0.0
    shifted = form + 0.5 * upper**2 * np.eye(len(form))
    for _ in range(_POWER_STEPS):
        v = shifted @ v
        v /= np.linalg.norm(v)
    guess = max(float(v @ form @ v), 1e-6 * upper**2)
    for k in range(_TRIES):
        trial = guess * (1.005 + 0.02 * k)
        if trial >= upper**2:
            break
        if proves_positive(trial * np.eye(len(form)) - form):
            return min(upper, float(np.sqrt(trial)) * INFLATE)
    return upper
