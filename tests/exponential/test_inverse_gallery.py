"""expm(logm(A)) = A over the gallery, wherever A has a principal logarithm."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

import gallery
import mlayer
from mlayer.errors import ArgumentError

UNIT_ROUNDOFF = 2.0**-53
MULTIPLE = 50.0
# Residuals beyond 50 condition numbers, up to 200: logm itself loses digits on these.
LOSES_DIGITS = ("rotated blocks 4, coupling 100000", "rotated blocks 6, coupling 1000")
# Rounding the logarithm to float64 alone may change its exponential by more than this: nothing to compare.
MEANINGLESS = 0.1


def condition(log: Tensor) -> float:
    """The condition of the exponential at a logarithm, in the Frobenius norm; infinite if not computable."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = float(scipy.linalg.expm_cond(log.numpy()))
        except ValueError:  # the derivative overflows
            return np.inf
    return found if np.isfinite(found) else np.inf


def test_exp_of_log_over_the_gallery() -> None:
    tried = 0
    for name, a in gallery.MATRICES.items():
        if name in LOSES_DIGITS:
            continue
        try:
            log = mlayer.logm(a)
        except ArgumentError:
            continue  # an eigenvalue on the closed negative axis, or A is singular
        size = max(1.0, float(torch.linalg.matrix_norm(log, 1)))
        bound = MULTIPLE * UNIT_ROUNDOFF * max(size, condition(log))
        if bound > MEANINGLESS:
            continue
        residual = torch.linalg.matrix_norm(mlayer.expm(log) - a) / torch.linalg.matrix_norm(a)
        assert float(residual) <= bound, name
        tried += 1
    assert tried >= 35


@pytest.mark.parametrize(
    "name", [n for n in gallery.MATRICES if n.startswith(("random", "Hamil", "skew", "symm"))]
)
def test_square_of_the_root_of_an_exponential(name: str) -> None:
    """exp(A / 8) has eigenvalues near 1, so its root is exp(A / 16)."""
    a = gallery.MATRICES[name]
    a = a / (8 * max(1.0, float(torch.linalg.matrix_norm(a, 2))))
    x = mlayer.expm(a)
    root = mlayer.sqrtm(x)
    torch.testing.assert_close(root @ root, x, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(root, mlayer.expm(a / 2), rtol=1e-14, atol=1e-14)
