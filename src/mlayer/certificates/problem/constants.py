"""The constants of a model: computed once, kept on the Certifier, storable next to the model.

From a file only parameters are read of which any value is sound: weights w, gauge P, multiplier Y. Every
number that a proof rests on is computed from them and the layer again, so an edited file can make radii
smaller, never false.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlayer.arrayfile import read_arrays
from mlayer.certificates.linalg import INFLATE, UNIT, frobenius, gram_norm, top_eigenvalue
from mlayer.certificates.problem.coordinates import Whitened, plain_weights, whiten
from mlayer.certificates.problem.fit import Fitted, fit, product_form
from mlayer.certificates.problem.weights import Weights
from mlayer.disk import replace_bytes
from mlayer.errors import FileFormatError, in_one_line
from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory
from mlayer.tensorfile import DamagedError

FORMAT = 2
_FIELDS = ("w", "P", "P_inverse", "Y")
# ||P P^-1 - 1|| beyond which a gauge is not used: its rounding would cost more than it gains.
_GAUGE_RESIDUAL = 1e-8
_LARGEST = 1e300  # sums of larger numbers overflow; no fit gives them
_AGAIN = "Compute them again: Certifier(layer, ...).save(path)."


@dataclass(frozen=True)
class Constants:
    """The constants of a model that the bounds use for every input. docs/theory/certificates.md.

    Attributes:
        w: (m,), weights of the inputs (ones for L2).
        P: (n, n), the gauge.
        P_inverse: (n, n), nearly its inverse.
        Y: (n n, n n), the multiplier of lemma 3.
        delta_F: ||N||_F <= |y| delta_F in the gauge.
        delta_2: ||N||_2 <= |y| delta_2 in the gauge.
        delta_in: the paper's, ||M'||_2 <= delta_in eps.
        sum_F: bound of the sum over the inputs of ||A_i||_F (L-infinity) or its root sum of squares (L2),
            and of the terms of their sums.
        basis_error: the same of what rounding did to the A_i.
        basis_error_weighted: root of the sum of its squares over w_i.
        readout_norm: the paper's ||S||_2.
        condition: ||P||_2 ||P^-1||_2.
        gauge_error: P X P^-1 is computed to within this times ||X||_F.
    """

    w: Array
    P: Array
    P_inverse: Array
    Y: Array
    delta_F: float  # noqa: N815 - the paper's letter
    delta_2: float
    delta_in: float
    sum_F: float  # noqa: N815
    basis_error: float
    basis_error_weighted: float
    readout_norm: float
    condition: float
    gauge_error: float

    def save(self, path: str | Path, belongs_to: str) -> None:
        """Write what was fitted to an ``.npz`` file without pickles, all or nothing."""
        arrays = {name: getattr(self, name) for name in _FIELDS}
        buffer = io.BytesIO()
        np.savez(
            buffer,
            format=np.array(FORMAT),
            belongs_to=np.array(belongs_to),
            digest=np.array(_digest(belongs_to, arrays)),
            **arrays,
        )
        replace_bytes(Path(path), buffer.getvalue())


def _digest(belongs_to: str, arrays: dict[str, Any]) -> str:
    hasher = hashlib.sha256(belongs_to.encode())
    for name in _FIELDS:
        array = np.ascontiguousarray(arrays[name])
        hasher.update(f"{name} {array.dtype} {array.shape}\n".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def read_fitted(path: Path, weights: Weights, norm: str) -> Fitted:
    """The constants that `Constants.save` wrote; refused if damaged, or of another model or region."""
    try:
        arrays = read_arrays(path)
        version = int(arrays["format"])
        if version != FORMAT:
            raise FileFormatError(path, f"of format {FORMAT}", f"format {version}", _AGAIN)
        belongs_to, digest = str(arrays["belongs_to"]), str(arrays["digest"])
        arrays = {name: arrays[name] for name in _FIELDS}
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}; Certifier(layer, ...).save(path) writes one") from None
    except FileFormatError:
        raise
    except (DamagedError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(
            path, "constants that a Certifier saved", f"something else ({in_one_line(error)})", _AGAIN
        ) from None
    if belongs_to != owner_of(weights, norm):
        raise FileFormatError(
            path, "of this layer and region", "constants of other weights, norm or scale", _AGAIN
        )
    if digest != _digest(belongs_to, arrays):
        raise FileFormatError(path, "as it was saved", "a file whose digest does not match", _AGAIN)
    _check(path, arrays, weights)
    w = arrays["w"] if norm == "linf" else None
    return Fitted(w, arrays["P"], arrays["P_inverse"], arrays["Y"])


def _check(path: Path, arrays: dict[str, Any], weights: Weights) -> None:
    """Shapes, and numbers that can be computed with; a digest can be forged with the rest."""
    n, m = weights.n, len(weights.rows)
    shapes = {"w": (m,), "P": (n, n), "P_inverse": (n, n), "Y": (n * n, n * n)}
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float64 or not (np.abs(array) < _LARGEST).all():
            raise FileFormatError(path, f"with finite float64 {name} of shape {shape}", "others", _AGAIN)
    w = arrays["w"]
    used = (weights.rows != 0).any(1)
    if (w < 0).any() or (used & ~(w > 1e-12 * w.max(initial=0.0))).any() or not w.sum() < 1e6 * (m + 1):
        raise FileFormatError(path, "with weights of the inputs above 0", "others", _AGAIN)


def owner_of(weights: Weights, norm: str) -> str:
    """A digest of what constants belong to: weights, norm and scale."""
    return f"{norm}:{weights.digest()}"


def compute(weights: Weights, norm: str, references: Array, steps: int) -> tuple[Constants, Whitened]:
    """Fit and evaluate the constants.

    Args:
        weights: the layer.
        norm: "linf" or "l2".
        references: (r, m), inputs at which the gauge is fitted.
        steps: of the fit.
    """
    start = plain_weights(weights.rows, weights.T) if norm == "linf" else None
    M = np.stack([weights.matrix(x) for x in references])
    return evaluate(weights, norm, fit(weights.rows, weights.T, start, M, weights.S, steps))


def evaluate(weights: Weights, norm: str, fitted: Fitted) -> tuple[Constants, Whitened]:
    """The numbers that proofs rest on, for any fitted weights, gauge and multiplier."""
    n = weights.n
    white = whiten(weights.rows, weights.T, _normalized(fitted.w))
    P, P_inverse, condition, gauge_error = _usable_gauge(fitted.P, fitted.P_inverse)
    flat = (P @ white.T @ P_inverse).reshape(len(white.T), -1)
    rounding = gauge_error * frobenius(white.T)
    delta_F = gram_norm(flat)
    K, Y = in_torch_memory(flat.T @ flat), in_torch_memory((fitted.Y + fitted.Y.T) / 2)
    # Of the entries of K, sums of d products, and of the sums with the multiplier.
    entries = (len(flat) + 16) * UNIT * (float(K.trace()) + 4 * float(torch.linalg.norm(Y)))
    candidates = [delta_F]
    for multiplier in (Y, torch.zeros_like(Y)) if bool(Y.any()) else (Y,):
        product = product_form(K, multiplier, n).numpy()
        candidates.append(float(np.sqrt(top_eigenvalue(product) + entries)) * INFLATE)
    delta_2 = min(value for value in candidates if np.isfinite(value)) if np.isfinite(delta_F) else delta_F
    error = white.error + weights.forming_error
    used = white.w > 0
    weighted = float(np.sqrt((error[used] ** 2 / white.w[used]).sum())) * INFLATE + 1e-150
    moves = 1.0 if weights.depends else 0.0
    constants = Constants(
        white.w,
        P,
        P_inverse,
        fitted.Y,
        moves * (delta_F + rounding),
        moves * (delta_2 + rounding),
        _paper_delta(weights, norm),
        moves * _total(weights.sizes, norm),
        moves * _total(error, norm),
        moves * weighted,
        spectral_norm(weights.S.reshape(len(weights.S), -1)),
        condition,
        gauge_error,
    )
    return constants, white


def spectral_norm(A: Array) -> float:
    """The spectral norm, rounded up."""
    return float(np.linalg.norm(A, 2)) * INFLATE


def _normalized(w: Array | None) -> Array | None:
    return w / w.sum() * (1 - 1e-14) if w is not None and w.any() else w


def _usable_gauge(P: Array, P_inverse: Array) -> tuple[Array, Array, float, float]:
    """The gauge, its condition number, and the error of P X P^-1 over ||X||_F; none where it is too wide.

    With P P_inverse = 1 + R the exact inverse is P_inverse (1 + R)^-1.
    """
    n, one = len(P), np.eye(len(P))
    if (one == P).all() and (P_inverse == one).all():
        return one, one, 1.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        wide = float(np.linalg.norm(P) * np.linalg.norm(P_inverse)) * INFLATE
        residual = float(np.linalg.norm(P @ P_inverse - one)) + (n + 2) * UNIT * wide
    if not residual <= _GAUGE_RESIDUAL:
        return one, one, 1.0, 0.0
    condition = float(np.linalg.norm(P, 2) * np.linalg.norm(P_inverse, 2)) * (1 + 1e-7)
    return P, P_inverse, condition, wide * ((2 * n + 8) * UNIT + 2 * residual)


_CHUNK = 256


def _paper_delta(weights: Weights, norm: str) -> float:
    """delta_in of section 3.7: the 2-norm of the matrix of entrywise bounds of M'."""
    if not weights.depends:
        return 0.0
    flat, n = weights.T0.reshape(len(weights.T0), -1), weights.n
    unit = float(np.abs(flat).max()) or 1.0
    rows, flat = weights.U0 * weights.scale[:, None], flat / unit
    rounding = (len(flat) + 8) * UNIT
    total = np.zeros(n * n)
    for begin in range(0, len(rows), _CHUNK):
        part = rows[begin : begin + _CHUNK]
        lost = 2 * weights.lost[begin : begin + _CHUNK]
        A = np.abs(part @ flat) + (rounding * np.abs(part) + lost) @ np.abs(flat)
        total += A.sum(0) if norm == "linf" else (A**2).sum(0)
    if norm == "l2":
        total = np.sqrt(total) + 1e-150  # what squares that vanish could have been
    return spectral_norm(total.reshape(n, n)) * unit + 1e-280


def _total(sizes: Array, norm: str) -> float:
    return float(sizes.sum() * INFLATE) if norm == "linf" else frobenius(sizes)
