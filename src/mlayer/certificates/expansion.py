"""One row and one rival class: everything the bounds read, each computed once and only when asked for."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.certificates.constants import Constants
from mlayer.certificates.ellipsoid import Whitened, gram_norm, power_of_two, top_eigenvalue
from mlayer.certificates.finite import FinitePath, degree_of
from mlayer.certificates.jets import JetPath, sorted_pairs
from mlayer.certificates.region import Region
from mlayer.certificates.spectral import SpectralPath, symmetrised, usable_eigenvectors
from mlayer.certificates.weights import Weights
from mlayer.exponential import expm

Array = NDArray[np.float64]

# Rounding of a computed value, relative to the bound of everything that goes into it:
# docs/theory/certificates-rounding.md.
_ROUNDING = 64 * 2.0**-53
# Exponentials up to e^300: their squares, which some bounds take, are numbers still.
LARGEST_MU = 300.0
# Readouts whose products with four generators (`within_range`) are numbers still, and their squares.
SMALLEST_W, LARGEST_W = 1e-100, 1e100


def _growth(mu: float) -> float:
    """Bound of ||exp(M)||; infinite where it may be too large for a float."""
    return math.exp(mu) if mu <= LARGEST_MU else math.inf


def exponentials(A: Array) -> Array:
    """Exp of one or several matrices."""
    result: Array = expm(torch.from_numpy(np.ascontiguousarray(A))).numpy()
    return result


class Model:
    """A layer with its region and constants, ready for rows."""

    def __init__(self, weights: Weights, region: Region, constants: Constants, white: Whitened) -> None:
        self.weights, self.region, self.constants, self.white = weights, region, constants, white
        self.T_gauge: Array = constants.P @ white.T @ constants.P_inverse

    @cached_property
    def gauge_condition(self) -> float:
        """||P|| ||P^-1||"""
        constants = self.constants
        return float(np.linalg.norm(constants.P, 2) * np.linalg.norm(constants.P_inverse, 2)) * (1 + 1e-9)

    @cached_property
    def degree(self) -> float:
        """Of the outputs as polynomials in the features; mostly infinite."""
        return degree_of(self.weights)

    @cached_property
    def right_products(self) -> Array:
        """T_a^T T_b in the gauge, over sorted pairs; for products with symmetric matrices.  (pairs, n n)"""
        return _products(self.T_gauge.mT)

    @cached_property
    def left_products(self) -> Array:
        """T_a T_b^T in the gauge, likewise."""
        return _products(self.T_gauge)


def _products(T: Array) -> Array:
    i, j = sorted_pairs(len(T))[0].T
    return np.ascontiguousarray((T[i] @ T[j].mT).reshape(len(i), -1))


class Row:
    """One input x with its label."""

    def __init__(self, model: Model, x: Array, label: int) -> None:
        self.model, self.x, self.label = model, x, label
        weights, constants = model.weights, model.constants
        self.M = weights.matrix(x)
        self.M_norm = float(np.linalg.norm(self.M))
        self.E = exponentials(self.M)
        self.outputs: Array = weights.V + np.tensordot(weights.S, self.E, 2)
        # What M may be off in the gauge: it is a sum, and its terms may cancel.
        self.off = model.gauge_condition * weights.matrix_rounding(x)
        self.M_gauge: Array = constants.P @ self.M @ constants.P_inverse
        symmetric = (self.M_gauge + self.M_gauge.T) / 2
        # top_eigenvalue is cut at 0; mu may be negative, so shift first.
        shift = float(np.linalg.norm(symmetric))
        self.mu = float(top_eigenvalue(symmetric + shift * np.eye(len(symmetric)))) - shift + self.off
        self._commutator, self._commutator_norms = model.T_gauge, [constants.delta_2]
        self.unit = _ROUNDING * len(self.M) * (4 + self.M_norm + float(np.linalg.norm(self.M_gauge)))

    def gradient(self, W: Array) -> Array:
        """Of W : exp(M) in the directions T_a.  (d,)

        The upper right block of exp([[M^T, W], [0, M^T]]) is the adjoint derivative applied to W.
        """
        weights, n = self.model.weights, len(W)
        block = np.zeros((2 * n, 2 * n))
        block[:n, :n] = block[n:, n:] = self.M.T
        # The block is linear in W: scaled to size 1 it needs no squarings of its own.
        largest = float(np.abs(W).max())
        size = power_of_two(largest) * n if largest > 0 else 1.0
        block[:n, n:] = W / size
        adjoint = exponentials(block)[:n, n:] * size
        result: Array = weights.T.reshape(len(weights.T), -1) @ adjoint.reshape(-1)
        return result

    @property
    def in_range(self) -> bool:
        """Are the outputs numbers, and can bounds be computed without vanishing or overflowing?"""
        S = self.model.weights.S
        sizes = np.abs(S[self.label] - S).max(axis=(1, 2))
        sizes = sizes[sizes > 0]
        readable = bool(((sizes >= SMALLEST_W) & (sizes <= LARGEST_W)).all())
        return readable and bool(np.isfinite(self.outputs).all()) and self.mu <= LARGEST_MU

    @cached_property
    def _derivatives(self) -> tuple[SpectralPath | JetPath | FinitePath, float]:
        """The path to higher derivatives, and the factor of its rounding error."""
        if self.model.degree <= 2:
            return FinitePath(self.model.white.T), 1.0
        found = usable_eigenvectors(self.M)
        if found is None:
            return JetPath(self.M, self.model.white.T), 1.0
        return SpectralPath(self.M, self.model.white.T, *found), float(np.linalg.cond(found[1])) ** 2

    @property
    def derivatives(self) -> SpectralPath | JetPath | FinitePath:
        """Second and third derivative tensors."""
        return self._derivatives[0]

    @property
    def derivative_factor(self) -> float:
        """By what the path of the derivatives enlarges rounding errors."""
        return self._derivatives[1]

    def commutator_norms(self, most: int) -> Array:
        """Bounds of ||N||, ||[M, N]||, ||[M, [M, N]]||, ... over |y| <= 1 in the gauge.  (most + 1,)

        N itself in spectral norm, the others in Frobenius norm.
        """
        constants, M = self.model.constants, self.M_gauge
        with np.errstate(over="ignore", invalid="ignore"):
            size = 2 * (np.linalg.norm(M) + 1)
            while len(self._commutator_norms) <= most:
                self._commutator = M @ self._commutator - self._commutator @ M
                norm = gram_norm(self._commutator.reshape(len(self._commutator), -1))
                # Rounding, relative to the products that cancel.
                k = len(self._commutator_norms)
                rounding = (self.unit + self.off) * constants.delta_F * size**k
                self._commutator_norms.append(norm + float(rounding))
        return np.array(self._commutator_norms[: most + 1])

    def pair(self, rival: int) -> Pair:
        """The margin over one rival class."""
        return Pair(self, rival)

    def moved(self, x: Array) -> Row:
        """The same label at another input."""
        return Row(self.model, x, self.label)

    def radius(self, eps: float) -> float:
        """|y| <= radius for all steps of size eps: lemma 2, with the data's box."""
        region, white = self.model.region, self.model.white
        if region.norm == "l2" or region.low is None:
            return eps
        low, high = region.interval(self.x, eps)
        return min(eps, float(np.sqrt(np.maximum(low**2, high**2) @ white.w)) * (1 + 1e-12))


class Pair:
    """The margin f(delta) = f_0 + g.y + H[y, y] + C[y, y, y] + ... of the label over one rival."""

    def __init__(self, row: Row, rival: int) -> None:
        self.row, self.rival = row, rival
        weights = row.model.weights
        self.W: Array = weights.S[row.label] - weights.S[rival]
        # From W and not as a difference of outputs, which may be much larger.
        self.margin = float(weights.V[row.label] - weights.V[rival] + (self.W * row.E).sum())
        constants = row.model.constants
        self.W_gauge: Array = constants.P_inverse.T @ self.W @ constants.P.T
        values = np.linalg.svd(self.W_gauge, compute_uv=False)
        self.nuclear = float(values.sum()) * (1 + 1e-9)
        self.spectral = float(values[0]) * (1 + 1e-9)
        self.growth = _growth(row.mu)
        # Bound of |W : exp(M)| and of every product inside it.
        self._size = self.nuclear * _growth(max(row.mu, 0.0))
        self._biases = abs(float(weights.V[row.label])) + abs(float(weights.V[rival]))

    def value_slack(self, eps: float) -> float:
        """Rounding of f_0 and of the linear term over the region of radius eps."""
        row = self.row
        return (row.unit + row.off) * (self._biases + self._size * (1 + eps * row.model.constants.sum_F))

    def tensor_slack(self, radius: float, order: int) -> float:
        """Rounding of the quadratic (order 2) and cubic (order 3) terms within |y| <= radius."""
        q = radius * self.row.model.constants.delta_F
        terms = q**2 / 2 + (q**3 / 6 if order == 3 else 0.0)
        return (self.row.unit * self.row.derivative_factor + self.row.off) * self._size * terms

    @cached_property
    def _gradient(self) -> Array:
        return self.row.gradient(self.W)

    @cached_property
    def slopes(self) -> Array:
        """Gradient of the margin in each input.  (m,)"""
        result: Array = self.row.model.weights.rows @ self._gradient
        return result

    @cached_property
    def first(self) -> Array:
        """The same gradient in the coordinates y.  (d,)"""
        result: Array = self.row.model.white.L.T @ self._gradient
        return result

    @cached_property
    def second(self) -> Array:
        """H.  (d, d)"""
        return self.row.derivatives.second(self.W)

    @cached_property
    def third(self) -> Array:
        """C, symmetric.  (d, d, d)"""
        return symmetrised(self.row.derivatives.third(self.W))
