"""The constants of a model: computed once, kept on the Certifier, storable beside the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.certificates.ellipsoid import (
    INFLATE,
    Whitened,
    gram_norm,
    plain_weights,
    top_eigenvalue,
    whiten,
)
from mlayer.certificates.fit import fit, product_form
from mlayer.certificates.weights import Weights
from mlayer.errors import FileFormatError

Array = NDArray[np.float64]
FORMAT = 1


@dataclass(frozen=True)
class Constants:
    """What the bounds know of a model before they see an input. docs/theory/certificates.md.

    Attributes:
        digest: of the weights and the region that they belong to.
        w: (m,), weights of the inputs (ones for L2).
        P: (n, n), the gauge.
        P_inverse: (n, n).
        delta_F: ||N||_F <= eps delta_F in the gauge.
        delta_2: ||N||_2 <= eps delta_2 in the gauge.
        delta_in: the paper's, ||M'||_2 <= delta_in eps.
        sum_F: sum over the inputs of ||A_i||_F (L-infinity) or its root sum of squares (L2).
        readout_norm: the paper's ||S||_2.
    """

    digest: str
    w: Array
    P: Array
    P_inverse: Array
    delta_F: float  # noqa: N815 - the paper's letter
    delta_2: float
    delta_in: float
    sum_F: float  # noqa: N815
    readout_norm: float

    def save(self, path: str | Path) -> None:
        """Write to an ``.npz`` file without pickles."""
        with Path(path).open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(value) for name, value in asdict(self).items()}
            np.savez(file, format=np.array(FORMAT), **arrays)

    @classmethod
    def load(cls, path: str | Path, digest: str) -> Constants:
        """Read constants; refused if they belong to another model or region."""
        hint = "Compute them again: Certifier(layer, ...).save(path)."
        try:
            with np.load(path, allow_pickle=False) as file:
                content = {name: file[name] for name in file.files}
            version = int(content.pop("format"))
            found = str(content.pop("digest"))
            fields: dict[str, Any] = {name: content.pop(name) for name in ("w", "P", "P_inverse")}
            fields |= {name: float(value) for name, value in content.items()}
            result = cls(found, **fields)
        except FileNotFoundError:
            raise FileNotFoundError(f"no file {path}; Certifier(layer, ...).save(path) writes one") from None
        except Exception as error:
            raise FileFormatError(
                path, "constants that a Certifier saved", f"something else ({error})", hint
            ) from None
        if version != FORMAT:
            raise FileFormatError(path, f"of format {FORMAT}", f"format {version}", hint)
        if found != digest:
            raise FileFormatError(
                path, "of this layer and region", "constants of other weights, norm or scale", hint
            )
        return result


def digest_of(weights: Weights, norm: str) -> str:
    """What constants belong to."""
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
    fitted = fit(weights.rows, weights.T, start, M, weights.S, steps)
    white = whiten(weights.rows, weights.T, fitted.w)
    flat = (fitted.P @ white.T @ fitted.P_inverse).reshape(len(white.T), -1)
    delta_F = gram_norm(flat)
    n = weights.n
    K, Y = torch.from_numpy(flat.T @ flat), torch.from_numpy((fitted.Y + fitted.Y.T) / 2)
    candidates = [delta_F]
    for multiplier in (Y, torch.zeros_like(Y)) if bool(Y.any()) else (Y,):
        product = product_form(K, multiplier, n).numpy()
        candidates.append(float(np.sqrt(top_eigenvalue(product))) * INFLATE)
    total = _sum_of_norms(weights, norm)
    if total == 0:  # M does not depend on x at all
        delta_F, candidates = 0.0, [0.0]
    constants = Constants(
        digest_of(weights, norm),
        white.w,
        fitted.P,
        fitted.P_inverse,
        delta_F,
        min(candidates),
        _paper_delta(weights, norm),
        total,
        float(np.linalg.norm(weights.S.reshape(len(weights.S), -1), 2)),
    )
    return constants, white


def whitened(weights: Weights, constants: Constants, norm: str) -> Whitened:
    """The coordinates that belong to stored constants."""
    return whiten(weights.rows, weights.T, constants.w if norm == "linf" else None)


_CHUNK = 256


def _paper_delta(weights: Weights, norm: str) -> float:
    """delta_in of section 3.8: the 2-norm of the matrix of entrywise bounds of M'."""
    flat = weights.T.reshape(len(weights.T), -1)
    total = np.zeros(flat.shape[1])
    for begin in range(0, len(weights.rows), _CHUNK):
        A = weights.rows[begin : begin + _CHUNK] @ flat
        total += np.abs(A).sum(0) if norm == "linf" else (A**2).sum(0)
    if norm == "l2":
        total = np.sqrt(total)
    return float(np.linalg.norm(total.reshape(weights.n, weights.n), 2))


def _sum_of_norms(weights: Weights, norm: str) -> float:
    flat = weights.T.reshape(len(weights.T), -1)
    squares = np.einsum("ia,ab,ib->i", weights.rows, flat @ flat.T, weights.rows)
    squares = np.maximum(squares, 0.0)
    return float(np.sqrt(squares).sum() if norm == "linf" else np.sqrt(squares.sum()))
