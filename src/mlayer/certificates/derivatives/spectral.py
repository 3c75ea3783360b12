"""Second and third derivative tensors of the margin through the eigenvectors of M.

docs/theory/certificates-derivatives.md, theorem 2: with M = V diag(l) V^-1,

    P_2[z, z]    = sum W~_ki f[ijk]  N~_ij N~_jk          N~ = V^-1 N V,  W~ = V^-1 W^T V
    P_3[z, z, z] = sum W~_li f[ijkl] N~_ij N~_jk N~_kl

The sum over j is conjugate symmetric, so half of it is computed and its real part doubled.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from mlayer.certificates.derivatives.divided_differences import Complex, Differences, differences
from mlayer.certificates.linalg import INFLATE, UNIT, frobenius
from mlayer.numerics.arrays import Array

# Past this condition number of the eigenvectors the other path (jets.py) is taken.
MAX_CONDITION = 1e3


class SpectralPath:
    """Derivatives of exp at one matrix M in the directions T_a.

    Args:
        M: (n, n).
        T: (d, n, n).
        vectors: eigenvectors of M, from :func:`usable_eigenvectors`.
        values: eigenvalues of M.
        condition: of the eigenvectors.
    """

    def __init__(self, M: Array, T: Array, values: Complex, vectors: Complex, condition: float) -> None:
        self.values, self._V, self._Vi = values, vectors, np.linalg.inv(vectors).astype(complex)
        self.generators = _in_basis(self._Vi, T, vectors)  # (d, n, n)
        self._differences: Differences | None = None
        self.condition = condition
        # Eigenvalues and eigenvectors are those of a matrix near M: this far from it, in their own basis.
        residual = float(np.linalg.norm(self._Vi @ M @ vectors - np.diag(values)))
        n = len(M)  # in the units of `Row.unit`
        self._residual = residual / (UNIT * (64 * n + 8 * n * n) * (4 + float(np.linalg.norm(M))))
        # ||sum_a |y_a| |T~_a| ||_F <= |y| times this: what the sums of absolute values are made of.
        # The 2-norm of a matrix is at most the root of its largest sum of a row times that of a column.
        sizes = np.abs(self.generators).reshape(len(self.generators), -1)
        self._size = math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max())) * INFLATE
        half = values.imag >= 0
        self.half = np.flatnonzero(half)
        self.times = np.where(values.imag[half] > 0, 2.0, 1.0)

    @cached_property
    def _columns(self) -> Complex:
        """T~_a,ij of the j in half of the sum; copies, for products of strided arrays are slow.  (j, d, i)"""
        return np.ascontiguousarray(self.generators[:, :, self.half].transpose(2, 0, 1))

    @cached_property
    def _rows(self) -> Array:
        """T~_b,jk of the same j: the real parts over minus the imaginary ones.  (2 j k, d)"""
        flat = self.generators[:, self.half, :].reshape(len(self.generators), -1).T
        return np.concatenate([flat.real, -flat.imag])

    def _f(self, order: int) -> Differences:
        f = self._differences
        if f is None or (order > 3 and f.four is None):
            f = self._differences = differences(self.values, order)
        return f

    def rounding(self, W: Array, order: int, plain: float, T_size: float) -> tuple[float, float]:
        """Bound of the terms that add up to the tensor of an order, times its factorial, and a factor.

        Args:
            W: the readout.
            order: 2 or 3.
            plain: unused here: of W : exp(M) in the layer's basis.
            T_size: unused here: of all generators in the layer's basis.
        """
        del plain, T_size
        growth = math.exp(min(float(self.values.real.max()), 700.0))
        return frobenius(
            np.abs(self.readout(W))
        ) * growth * self._size**order, self.condition + self._residual

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
        f = f[:, half, :].transpose(1, 0, 2) * self.times[:, None, None]  # (j, i, k)
        Z = f[:, :, None] * Wt.transpose(2, 0, 1)  # (j, i, readouts, k)
        X = self._columns @ Z.reshape(len(half), n, count * n)  # (j, d, (readouts, k))
        left = X.reshape(len(half), d, count, n).transpose(2, 1, 0, 3).reshape(count * d, -1)
        H = (np.hstack([left.real, left.imag]) @ self._rows).reshape(count, d, d)
        result: Array = (H + H.mT) / 2
        return result

    def third(self, W: Array) -> Array:
        """C with P_3 = C[z, z, z], not yet symmetric.  (d, d, d)"""
        T, f = self.generators, self._f(4).four
        assert f is not None
        d, n, _ = T.shape
        half = self.half
        Wt = self.readout(W)  # [l, i]
        Z = f[:, half].transpose(1, 0, 2, 3) * Wt.T[None, :, None, :]  # (j, i, k, l)
        Z *= self.times[:, None, None, None]
        X = self._columns @ Z.reshape(len(half), n, n * n)  # (j, a, (k, l))
        X = np.ascontiguousarray(X.reshape(len(half) * d, n, n).transpose(1, 0, 2))  # (k, (j, a), l)
        Y = X @ np.ascontiguousarray(T.transpose(1, 2, 0))  # (k, (j, a), c)
        Y = Y.reshape(n * len(half), d * d)  # ((k, j), (a, c))
        Tb = T[:, half, :].transpose(0, 2, 1).reshape(d, -1)  # (b, (k, j))
        C = np.hstack([Tb.real, -Tb.imag]) @ np.concatenate([Y.real, Y.imag])  # (b, (a, c))
        return C.reshape(d, d, d)


def _in_basis(inverse: Complex, T: Array, vectors: Complex) -> Complex:
    """V^-1 T_a V by two products of all matrices at once; T is real.  (d, n, n)"""
    d, n, _ = T.shape
    right = T.reshape(d * n, n) @ np.concatenate([vectors.real, vectors.imag], 1)
    halves = right.reshape(d, n, 2, n).transpose(1, 2, 0, 3)  # (n, 2, d, n)
    middle = np.ascontiguousarray(halves[:, 0]) + 1j * halves[:, 1]
    result = (inverse @ middle.reshape(n, d * n)).reshape(n, d, n)
    return np.ascontiguousarray(result.transpose(1, 0, 2))


def usable_eigenvectors(M: Array) -> tuple[Complex, Complex, float] | None:
    """Eigenvalues and eigenvectors of M and their condition; None if they are too ill-conditioned."""
    try:
        values, vectors = np.linalg.eig(M)
        values, vectors = values.astype(complex), vectors.astype(complex)
        condition = float(np.linalg.cond(vectors))
    except np.linalg.LinAlgError:
        return None
    return (values, vectors, condition) if condition <= MAX_CONDITION else None


def symmetrized(C: Array) -> Array:
    """The symmetric tensor with the same values on (z, z, z)."""
    C = (C + C.transpose(0, 2, 1)) / 2
    result: Array = (C + C.transpose(1, 0, 2) + C.transpose(2, 1, 0)) / 3
    return result
