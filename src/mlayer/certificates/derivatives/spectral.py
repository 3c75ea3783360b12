"""Second and third derivative tensors of the margin through the eigenvectors of M.

docs/theory/certificates-derivatives.md, theorem 2: with M = V diag(l) V^-1,

    P_2[z, z]    = sum W~_ki f[ijk]  N~_ij N~_jk          N~ = V^-1 N V,  W~ = V^-1 W^T V
    P_3[z, z, z] = sum W~_li f[ijkl] N~_ij N~_jk N~_kl

The sum over j is conjugate symmetric, so half of it is computed and its real part doubled; where j is real,
so is the sum over k.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlayer.certificates.derivatives.divided_differences import Complex, Differences, Indices, differences
from mlayer.certificates.linalg import INFLATE, UNIT, frobenius, frobenius_each
from mlayer.numerics.arrays import Array

# Past this condition number of the eigenvectors the other path (jets.py) is taken.
MAX_CONDITION = 1e3
# ||X V - 1|| of the eigenvectors and their computed inverse; with the condition above it is below 1e-10.
_LARGEST_INVERSE_ERROR = 1e-3
_NORM_STEPS = 4


class _CubicPart(NamedTuple):
    """Factors of a part of the cubic sum, and memory for its products."""

    f: Complex  # (j, i, k, l)
    columns: Complex  # (j, d, i)
    real: Array  # (k, 2 l, d)
    imaginary: Array
    rows: Array  # (d, 2 k j)
    products: Array  # (2, k, j d, d): real and imaginary parts


class SpectralPath:
    """Derivatives of exp at one matrix M in the directions T_a.

    Args:
        M: (n, n).
        T: (d, n, n).
        vectors: eigenvectors of M, from :func:`usable_eigenvectors`.
        values: eigenvalues of M.
        inverse: their computed inverse.
    """

    def __init__(self, M: Array, T: Array, values: Complex, vectors: Complex, inverse: Complex) -> None:
        self.values = values
        self._V, self._Vi = _balanced(vectors, inverse)
        self.generators = _in_basis(self._Vi, T, self._V)  # (d, n, n)
        self._differences: Differences | None = None
        half = values.imag >= 0
        self.half = np.flatnonzero(half)
        self.times = np.where(values.imag[half] > 0, 2.0, 1.0)
        self._allow_for_rounding(M, T)

    def _allow_for_rounding(self, M: Array, T: Array) -> None:
        """docs/theory/certificates-rounding.md, 4: of the eigenvalues and eigenvectors, and of the sums."""
        n, V, X, values = len(M), self._V, self._Vi, self.values
        products = 2 * (n + 4) * UNIT  # of the entries of a product of complex matrices
        sizes = float(np.linalg.norm(V)) * INFLATE, float(np.linalg.norm(X)) * INFLATE
        # X V = 1 + R: the exact inverse is (1 + R)^-1 X.
        off = float(np.linalg.norm(X @ V - np.eye(n))) + products * frobenius(np.abs(X) @ np.abs(V))
        largest = float(np.abs(values).max(initial=0.0))
        # V diag(values) V^-1 is a matrix near M, whose derivatives these are.
        residual = float(np.linalg.norm(M @ V - V * values))
        residual += products * (frobenius(M) + largest) * sizes[0]
        usable = off < _LARGEST_INVERSE_ERROR
        self.distance = residual * sizes[1] / (1 - off) * INFLATE if usable else math.inf
        # In the eigenvectors' basis a matrix is computed to within (relative to its own norm there, and to
        # its norm in the layer's basis).
        self._relative = off / (1 - off) * INFLATE if usable else math.inf
        self._absolute = 2 * products * sizes[0] * sizes[1] / (1 - off) * INFLATE if usable else math.inf
        self._T_size = frobenius(T)
        # ||sum_a |y_a| |T~_a| ||_F <= |y| times this: what the sums of absolute values are made of.
        self._size = _norm_of_absolute_values(self.generators.reshape(len(T), -1))
        # Divided differences: 2^s <= max(1, 4 reach) copies of a rounding; the sums over indices.
        reach = float(np.abs(values - values.mean()).max(initial=0.0)) if n else 0.0
        self._sums = (160 * max(1.0, 4 * reach) + 8 * largest + 4 * (n * n + 2 * n + 32)) * UNIT

    @cached_property
    def _columns(self) -> Complex:
        """T~_a,ij of the j in half of the sum; copies, for products of strided arrays are slow.  (j, d, i)"""
        return np.ascontiguousarray(self.generators[:, :, self.half].transpose(2, 0, 1))

    @cached_property
    def _rows(self) -> Array:
        """T~_b,jk of the same j: below each real part minus the imaginary one.  (j, 2 k, d)"""
        rows = self.generators[:, self.half, :].transpose(1, 2, 0)
        return np.stack([rows.real, -rows.imag], 2).reshape(len(rows), -1, len(self.generators))

    def _f(self, order: int) -> Differences:
        f = self._differences
        if f is None or (order > 3 and f.four is None):
            f = self._differences = differences(self.values, order)
        return f

    def rounding(self, W: Array, order: int, plain: float, T_size: float, unit: float) -> float:
        """Bound of the error of the term of an order for |y| <= 1, as the derivative at the nearby matrix.

        Args:
            W: the readout.
            order: 2, 3 or 4.
            plain: unused here: of W : exp(M) in the layer's basis.
            T_size: unused here: of all generators in the layer's basis.
            unit: unused here: relative rounding of an exponential.
        """
        del plain, T_size, unit
        return float(self.roundings(W[None], order)[0])

    def roundings(self, W: Array, order: int) -> Array:
        """The same for several readouts.  (k, n, n) -> (k,)"""
        growth = math.exp(min(float(self.values.real.max()), 700.0)) / math.factorial(order)
        in_basis = np.abs(self._Vi @ W.mT @ self._V)
        sizes = frobenius_each(np.concatenate([in_basis, W]).reshape(2 * len(W), -1))
        W_size, T_size = sizes[: len(W)], self._size
        off_W = self._relative * W_size + self._absolute * sizes[len(W) :]
        off_T = self._relative * T_size + self._absolute * self._T_size
        total = W_size + off_W
        # The derivative of total (T_size + off_T)^order along the two errors, at its far end, and rounding of
        # the sums; half of a sum counts twice.
        share = order * off_T / (T_size + off_T) if off_T > 0 else 0.0
        errors = off_W + total * (share + 2 * self._sums)
        result: Array = 2 * growth * (T_size + off_T) ** order * errors * INFLATE
        return result

    def readout(self, W: Array) -> Complex:
        """V^-1 W^T V."""
        result: Complex = self._Vi @ W.T @ self._V
        return result

    def second(self, W: Array) -> Array:
        """H with P_2 = z^T H z, symmetric.  (d, d)"""
        return self.seconds(W[None])[0]

    def seconds(self, W: Array) -> Array:
        """H for several readouts.  (k, n, n) -> (k, d, d)"""
        T, f = self.generators, self._f(3).three
        assert f is not None
        d, half = len(T), self.half
        Wt = self._Vi @ W.mT @ self._V  # [k, i]
        n, count = T.shape[1], len(W)
        f = f[half] * self.times[:, None, None]  # (j, i, k); f is symmetric
        Z = np.multiply(f[:, :, None], Wt.transpose(2, 0, 1), order="C")  # (j, i, readouts, k)
        X = self._columns @ Z.reshape(len(half), n, count * n)  # (j, d, (readouts, k))
        parts = X.view(np.float64).reshape(len(half), d * count, 2 * n) @ self._rows
        H = parts.sum(0).reshape(d, count, d).transpose(1, 0, 2)
        result: Array = (H + H.mT) / 2
        return result

    def third(self, W: Array) -> Array:
        """C with P_3 = C[z, z, z], not yet symmetric.  (d, d, d)"""
        d, n, _ = self.generators.shape
        Wt = self.readout(W).T[:, None]  # [i, 1, l]; W~ is [l, i]
        C = np.zeros((d, d * d))
        for part in self._parts_of_third:
            j, k = len(part.f), part.f.shape[2]
            X = part.columns @ (part.f * Wt).reshape(j, n, k * n)  # (j, a, (k, l))
            # From here on in real numbers, real and imaginary parts of l next to each other.
            pieces = X.view(np.float64).reshape(-1, k, 2 * n).transpose(1, 0, 2)  # (k, (j, a), 2 l)
            np.matmul(pieces, part.real, out=part.products[0])
            np.matmul(pieces, part.imaginary, out=part.products[1])
            C += part.rows @ part.products.reshape(-1, d * d)  # (b, (a, c))
        return C.reshape(d, d, d)

    @cached_property
    def _parts_of_third(self) -> list[_CubicPart]:
        """The factors of `third`, the same for all readouts: j with a positive imaginary part, and real j.

        With j real the sum over k is conjugate symmetric too: half of it is enough.
        """
        positive, half = self.values.imag[self.half] > 0, self.half
        everyone = np.arange(len(self.values))
        chosen = ((half[positive], everyone), (half[~positive], half))
        return [self._part_of_third(j, k) for j, k in chosen if len(j)]

    def _part_of_third(self, j: Indices, k: Indices) -> _CubicPart:
        T, f = self.generators, self._f(4).four
        assert f is not None
        d, n, _ = T.shape
        twice = (self.values.imag[j] > 0) | (self.values.imag[k] > 0)[:, None]  # (k, j)
        rows = T[:, j[None], k[:, None]] * np.where(twice, 2.0, 1.0)  # (b, k, j)
        rows = rows.reshape(d, -1)
        beside = T[:, k].transpose(1, 2, 0)  # (k, l, c)
        real = np.stack([beside.real, -beside.imag], 2).reshape(len(k), 2 * n, d)
        imaginary = np.stack([beside.imag, beside.real], 2).reshape(len(k), 2 * n, d)
        return _CubicPart(
            np.ascontiguousarray(f[j][:, :, k]),  # f is symmetric
            np.ascontiguousarray(T[:, :, j].transpose(2, 0, 1)),
            real,
            imaginary,
            np.hstack([rows.real, -rows.imag]),
            np.empty((2, len(k), len(j) * d, d)),
        )


def _balanced(vectors: Complex, inverse: Complex) -> tuple[Complex, Complex]:
    """Eigenvectors and their inverse, scaled by powers of two so that rows and columns are of one size.

    The sums do not depend on the scaling, their absolute values do: this makes them small.
    """
    ratio = np.linalg.norm(inverse, axis=1) / np.linalg.norm(vectors, axis=0)
    scale = np.ldexp(1.0, np.frexp(np.sqrt(ratio))[1] - 1)
    return vectors * scale, inverse / scale[:, None]


def _norm_of_absolute_values(A: Complex) -> float:
    """Upper bound of the spectral norm of the matrix of absolute values.

    Schur's test: for a matrix S of entries >= 0 and every p > 0, ||S||^2 is at most the largest of
    (S S^T p)_i / p_i. From p = 1 it is near the norm after some products.
    """
    S = np.abs(A)
    p = np.ones(len(S))
    found = math.inf
    for _ in range(_NORM_STEPS):
        q = S @ (p @ S)
        used = p > 0
        if not np.isfinite(q).all() or not used.any():
            break
        found = min(found, float((q[used] / p[used]).max()))
        largest = float(q.max())
        if largest == 0:
            return 0.0
        # Zeros stay zero: those rows of S vanish. Others are kept from vanishing by rounding.
        p = np.where(q > 0, np.maximum(q / largest, 1e-100), 0.0)
    return math.sqrt(found) * INFLATE


def _in_basis(inverse: Complex, T: Array, vectors: Complex) -> Complex:
    """V^-1 T_a V by two products of all matrices at once; T is real.  (d, n, n)"""
    d, n, _ = T.shape
    right = T.reshape(d * n, n) @ np.concatenate([vectors.real, vectors.imag], 1)
    halves = right.reshape(d, n, 2, n).transpose(1, 2, 0, 3)  # (n, 2, d, n)
    middle = np.ascontiguousarray(halves[:, 0]) + 1j * halves[:, 1]
    result = (inverse @ middle.reshape(n, d * n)).reshape(n, d, n)
    return np.ascontiguousarray(result.transpose(1, 0, 2))


def usable_eigenvectors(M: Array) -> tuple[Complex, Complex, Complex] | None:
    """Eigenvalues and eigenvectors of M and their inverse; None if they are too ill-conditioned."""
    try:
        values, vectors = np.linalg.eig(M)
        values, vectors = values.astype(complex), vectors.astype(complex)
        inverse = np.linalg.inv(vectors)
        # Frobenius norms first: the condition number is at most their product.
        condition = float(np.linalg.norm(vectors) * np.linalg.norm(inverse))
        if not condition <= MAX_CONDITION:
            condition = float(np.linalg.cond(vectors))
    except np.linalg.LinAlgError:
        return None
    return (values, vectors, inverse) if condition <= MAX_CONDITION else None


def symmetrized(C: Array) -> Array:
    """The symmetric tensor with the same values on (z, z, z)."""
    C = (C + C.transpose(0, 2, 1)) / 2
    result: Array = (C + C.transpose(1, 0, 2) + C.transpose(2, 1, 0)) / 3
    return result
