"""The cubic term: c with |C[y, y, y]| <= c |y|^3.

docs/theory/certificates.md, theorem 5. C[y, y, y]^2 <= |y|^2 |C[y, y, .]|^2, and the second factor is a
quartic form K[y, y, y, y] whose matrix may be symmetrized over its four indices without changing it.
"""

from __future__ import annotations

import numpy as np

from mlayer.certificates.bounds.symmetric_forms import least_ritz_value, symmetric_form
from mlayer.certificates.derivatives.jets import sorted_pairs
from mlayer.certificates.linalg import INFLATE, gram_norm, proves_positive
from mlayer.numerics.arrays import Array

# Lanczos guesses an eigenvalue, a Cholesky factorization proves it; a guess that is refused is raised and
# tried again. More steps give a closer guess, and each costs a product with the form.
_LANCZOS_STEPS = 14
_TRIES = 6


def flat_norm(C: Array) -> float:
    """The spectral norm of C flattened to d x d^2."""
    return gram_norm(C.reshape(len(C), -1))


def symmetric_norm(C: Array) -> float:
    """The bound from the symmetrized quartic form; at most `flat_norm`, usually a tenth below it."""
    d = len(C)
    upper = flat_norm(C)
    if upper == 0 or d == 1:
        return upper
    i, j = sorted_pairs(d)[0].T
    C = C / upper  # squares of tiny entries would vanish
    flat = C[i, j]  # (pairs, d)
    negative = -symmetric_form(flat @ flat.T, d)
    # Lanczos guesses the top eigenvalue; a Cholesky factorization proves the guess.
    guess = max(-least_ritz_value(negative, _LANCZOS_STEPS), 1e-6)
    for k in range(_TRIES):
        trial = guess * (1.01 + 0.02 * k)
        if trial >= 1:
            break
        if proves_positive(negative, trial):
            return upper * float(np.sqrt(trial)) * INFLATE
    return upper
