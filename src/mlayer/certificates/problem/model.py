"""A layer with its region and constants: what all rows share, each computed once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.derivatives.jets import sorted_pairs
from mlayer.certificates.derivatives.polynomial_degree import FinitePath, degree_of
from mlayer.certificates.linalg import INFLATE, UNIT, frobenius, frobenius_each, ridge, top_eigenvalue
from mlayer.certificates.problem.constants import Constants
from mlayer.certificates.problem.coordinates import Whitened
from mlayer.certificates.problem.region import Region
from mlayer.certificates.problem.weights import Weights
from mlayer.exponential import expm
from mlayer.exponential.operator import frechet
from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory

# Exponentials up to e^300: their squares, which some bounds take, are numbers still.
LARGEST_MU = 300.0
# Readouts whose products with four generators (`within_range`) are numbers still, and their squares.
SMALLEST_W, LARGEST_W = 1e-100, 1e100
# Of the mean weight, added to the weights where fits begin.
_COLD = 1e-3


def ellipsoid(rows: Array, w: Array) -> Array:
    """L with L L^T >= sum_i rows_i rows_i^T / w_i.  (d, d)"""
    scaled = rows * (1 / np.sqrt(w))[:, None]
    Q = scaled.T @ scaled  # half of it is computed
    Q[np.diag_indices_from(Q)] += ridge(Q, len(rows))
    factor: Array = np.linalg.cholesky(Q)  # type: ignore[assignment]
    return factor


def rounded_up_exp(x: float) -> float:
    """e^x, infinite where it is too large for a float or for the squares that bounds take of it."""
    return math.exp(x) * INFLATE if x <= 2 * LARGEST_MU else math.inf


def growth_of(mu: float) -> float:
    """Bound of ||exp(M)||; infinite where it may be too large for a float."""
    return math.exp(mu) if mu <= LARGEST_MU else math.inf


def exponentials(A: Array) -> Array:
    """Exp of one or several matrices."""
    result: Array = expm(in_torch_memory(np.ascontiguousarray(A))).numpy()
    return result


@dataclass(frozen=True)
class ReadoutNorms:
    """Norms of the readouts W = S_label - S_j of one label, rounded up, one entry per class j.

    Attributes:
        nuclear: ||W||_nuc in the gauge.
        spectral: ||W||_2 in the gauge.
        factor: theorem 2's min(||W||_nuc, ||W||_2 (delta_F / delta_2)^2).
        size: ||W||_F n^(1/2), without the gauge.
    """

    nuclear: Array
    spectral: Array
    factor: Array
    size: Array


F = TypeVar("F", bound=Callable[..., Any])


def _remembered(method: F) -> F:
    """A method that computes once for each label or pair of labels; the results stay with the object."""
    place = f"_{method.__name__}"

    @wraps(method)
    def once(self: Model, *labels: int) -> Any:
        results = self.__dict__.setdefault(place, {})
        if labels not in results:
            results[labels] = method(self, *labels)
        return results[labels]

    return cast(F, once)


class Model:
    """A layer with its region and constants, ready for rows."""

    def __init__(self, weights: Weights, region: Region, constants: Constants, white: Whitened) -> None:
        self.weights, self.region, self.constants, self.white = weights, region, constants, white
        self.T_gauge: Array = constants.P @ white.T @ constants.P_inverse

        self.T_size = frobenius(white.T)  # of all generators together
        self.T_gauge_size = frobenius(self.T_gauge)

    @cached_property
    def row_norms(self) -> Array:
        """|rows_i|, with which y = rows^T delta is rounded.  (m,)"""
        result: Array = np.linalg.norm(self.white.rows, axis=1) * INFLATE
        return result

    @cached_property
    def used_inputs(self) -> NDArray[np.bool_]:
        """The inputs that M depends on.  (m,)"""
        return np.asarray((self.white.rows != 0).any(1))

    @cached_property
    def plain_ellipsoid(self) -> tuple[Array, Array]:
        """Weights of the inputs in use, where fits of a shift begin, and the factor of their ellipsoid."""
        rows = self.white.rows[self.used_inputs]
        w = self.white.w[self.used_inputs] + _COLD / max(len(rows), 1)
        w = w / w.sum()
        return w, ellipsoid(rows, w)

    @_remembered
    def differences(self, label: int) -> Array:
        """W = S_label - S_j for all classes j, the label's own among them.  (c, n, n)"""
        result: Array = self.weights.S[label] - self.weights.S
        return result

    @_remembered
    def readable(self, label: int) -> bool:
        """Whether all readout differences are of a size whose products are numbers still."""
        sizes = np.abs(self.differences(label)).max(axis=(1, 2))
        sizes = sizes[sizes > 0]
        return bool(((sizes >= SMALLEST_W) & (sizes <= LARGEST_W)).all())

    @_remembered
    def readout_in_gauge(self, label: int, rival: int) -> tuple[Array, Array]:
        """P^-T W P^T and its singular values."""
        W: Array = self.constants.P_inverse.T @ self.differences(label)[rival] @ self.constants.P.T
        values = np.full(len(W), math.inf)
        if np.isfinite(W).all():
            values = np.linalg.svd(W, compute_uv=False).astype(np.float64)
        return W, values

    @_remembered
    def readout_factors(self, label: int, rival: int) -> tuple[Array, Array, float]:
        """A Sigma^(1/2) and Sigma^(1/2) B^T of W^T = A Sigma B^T in the gauge; their nuclear error."""
        W, n = self.readout_in_gauge(label, rival)[0].T, self.weights.n
        left, values, right = np.linalg.svd(W)
        root = np.sqrt(values)
        left, right = left * root, root[:, None] * right
        # Of the factors, of their product here, and of W in the gauge.
        error = frobenius(W - left @ right) + (n + 4) * UNIT * frobenius(left) * frobenius(right)
        error += self.constants.gauge_error * frobenius(self.differences(label)[rival])
        return left, right, math.sqrt(n) * error * INFLATE

    @_remembered
    def readout_norms(self, label: int) -> ReadoutNorms:
        """Norms of W = S_label - S_j for all classes j."""
        constants, W = self.constants, self.differences(label)
        values = np.stack([self.readout_in_gauge(label, rival)[1] for rival in range(len(W))])
        sizes = np.array([frobenius(one) for one in W])
        error = constants.gauge_error * sizes  # of each singular value
        nuclear = (values.sum(1) + values.shape[1] * error) * INFLATE
        spectral = (values[:, 0] + error) * INFLATE
        ratio = (constants.delta_F / constants.delta_2) ** 2 if constants.delta_2 > 0 else math.inf
        factor = np.fmin(nuclear, spectral * ratio)
        return ReadoutNorms(nuclear, spectral, factor, sizes * math.sqrt(W.shape[1]))

    def outputs(self, E: Array) -> Array:
        """The outputs of all classes, row by row, from exponentials.  (r, n, n) -> (r, c)"""
        S = self.weights.S
        products = E.reshape(len(E), 1, -1) @ S.reshape(len(S), -1).T
        result: Array = self.weights.V + products[:, 0]
        return result

    @cached_property
    def degree(self) -> float:
        """The degree of the outputs as polynomials in the features; mostly infinite."""
        return degree_of(self.weights.B, self.weights.T0)

    @_remembered
    def quadratic_form(self, label: int, rival: int) -> tuple[Array, float]:
        """H of a margin of degree two, the same at every input, and a c >= 0 with H[y, y] >= -c |y|^2."""
        H = FinitePath(self.white.T).second(self.differences(label)[rival])
        return H, float(top_eigenvalue(-H))

    @cached_property
    def right_products(self) -> Array:
        """T_a^T T_b in the gauge, over sorted pairs; `in_triangle`, for products with symmetric matrices."""
        return _products(self.T_gauge.mT)

    @cached_property
    def left_products(self) -> Array:
        """T_a T_b^T in the gauge, likewise."""
        return _products(self.T_gauge)


def log_norms(M: Array) -> Array:
    """The largest eigenvalues of (M + M^T) / 2, rounded up; infinite if M is not.  (k, n, n) -> (k,)"""
    finite = np.asarray(np.isfinite(M).all(axis=(1, 2)))
    M = np.where(finite[:, None, None], M, 0.0)
    symmetric = (M + M.mT) / 2
    # top_eigenvalue is cut at 0; mu may be negative, so shift first.
    shift = frobenius_each(symmetric.reshape(len(M), -1))
    top = top_eigenvalue(symmetric + shift[:, None, None] * np.eye(M.shape[-1])) - shift
    result: Array = np.where(finite, top, math.inf)
    return result


def exponential_sum(x: float, degree: float) -> float:
    """1 + x + ... + x^degree / degree!, rounded up; infinite if there is no degree."""
    if math.isinf(degree):
        return math.inf
    with np.errstate(over="ignore"):
        terms = np.float64(x) ** np.arange(int(degree) + 1)
    total = sum(float(term) / math.factorial(k) for k, term in enumerate(terms))
    return total * INFLATE if total < 1e70 else math.inf


def _products(T: Array) -> Array:
    """T_a T_b^T over sorted pairs, folded: products with `in_triangle` are traces.  (pairs, n (n + 1) / 2)"""
    i, j = sorted_pairs(len(T))[0].T
    products = T[i] @ T[j].mT
    diagonal = np.eye(T.shape[-1], dtype=bool)
    return in_triangle(np.where(diagonal, products, products + products.mT))


def in_triangle(A: Array) -> Array:
    """The entries on and above the diagonals.  (..., n, n) -> (..., n (n + 1) / 2)"""
    i, j = np.triu_indices(A.shape[-1])
    result: Array = A[..., i, j]
    return result


def gradients(model: Model, M: Array, W: Array) -> Array:
    """Gradients of W : exp(M) along T_a, k readouts per row.  (r, n, n), (r, k, n, n) -> (r, k, d)

    The derivative of exp at M^T in the direction W is the adjoint derivative at M applied to W.
    """
    (r, k, n, _), T = W.shape, model.weights.T
    at = np.broadcast_to(M.mT[:, None], W.shape)
    adjoint = frechet(in_torch_memory(at.reshape(r * k, n, n)), in_torch_memory(W.reshape(r * k, n, n)))
    # One product for each row: a row's numbers do not depend on the other rows.
    result: Array = adjoint.numpy().reshape(r, k, n * n) @ T.reshape(len(T), -1).T
    return result
