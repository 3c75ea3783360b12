"""Second and third derivative tensors of the margin through the eigenvectors of M.

docs/theory/certificates-derivatives.md, theorem 2: with M = V diag(l) V^-1,

    P_2[z, z]    = sum W~_ki f[ijk]  N~_ij N~_jk          N~ = V^-1 N V,  W~ = V^-1 W^T V
    P_3[z, z, z] = sum W~_li f[ijkl] N~_ij N~_jk N~_kl

The sum over j is conjugate symmetric, so half of it is computed and its real part doubled.
"""

from __future__ import annotations

import math

import numpy as np

from mlayer.certificates.derivatives.divided_differences import Complex, Differences, differences
from mlayer.certificates.linalg import UNIT, frobenius, gram_norm
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
    """

    def __init__(self, M: Array, T: Array, values: Complex, vectors: Complex) -> None:
        self.values, self._V, self._Vi = values, vectors, np.linalg.inv(vectors)
        self.generators = np.ascontiguousarray(self._Vi @ T @ self._V)  # (d, n, n)
        self._differences: Differences | None = None
        self.condition = float(np.linalg.cond(vectors))
        # Eigenvalues and eigenvectors are those of a matrix near M: this far from it, in their own basis.
        residual = float(np.linalg.norm(self._Vi @ M @ vectors - np.diag(values)))
        n = len(M)  # in the units of `Row.unit`
        self._residual = residual / (UNIT * (64 * n + 8 * n * n) * (4 + float(np.linalg.norm(M))))
        # ||sum_a |y_a| |T~_a| ||_F <= |y| times this: what the sums of absolute values are made of.
        self._size = gram_norm(np.abs(self.generators).reshape(len(self.generators), -1))
        half = values.imag >= 0
        self.half = np.flatnonzero(half)
        self.times = np.where(values.imag[half] > 0, 2.0, 1.0)

    def _f(self, order: int) -> Differences:
        f = self._differences
        if f is None or (order > 3 and f.four is None):
            f = self._differences = differences(self.values, order)
        return f

    def rounding(self, W: Array, order: int, plain: float, T_size: float) -> tuple[float, float]:
        """Bound of what the tensor of an order, times its factorial, is summed up from, and a factor.

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
        Z = f[:, half, :].transpose(1, 0, 2) * Wt.mT[:, None]  # (readouts, j, i, k)
        X = T[:, :, half].transpose(2, 0, 1) @ Z  # (readouts, j, d, k)
        X *= self.times[:, None, None]
        Tj = T[:, half, :].transpose(1, 2, 0)  # (j, k, d)
        left = X.transpose(0, 2, 1, 3).reshape(len(W), d, -1)
        right = Tj.reshape(-1, d)
        H = left.real @ right.real - left.imag @ right.imag
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
        X = T[:, :, half].transpose(2, 0, 1) @ Z.reshape(len(half), n, n * n)  # (j, a, (k, l))
        X = X.reshape(len(half) * d, n, n).transpose(1, 0, 2)  # (k, (j, a), l)
        Y = X @ T.transpose(1, 2, 0)  # (k, (j, a), c)
        Y = Y.reshape(n, len(half), d * d).reshape(-1, d * d)  # ((k, j), (a, c))
        Tb = T[:, half, :].transpose(0, 2, 1).reshape(d, -1)  # (b, (k, j))
        C = Tb.real @ Y.real - Tb.imag @ Y.imag  # (b, (a, c))
        return C.reshape(d, d, d)


def usable_eigenvectors(M: Array) -> tuple[Complex, Complex] | None:
    """Eigenvalues and eigenvectors of M, or None if they are too ill-conditioned to be used."""
    try:
        values, vectors = np.linalg.eig(M)
        values, vectors = values.astype(complex), vectors.astype(complex)
        condition = np.linalg.cond(vectors)
    except np.linalg.LinAlgError:
        return None
    return (values, vectors) if condition <= MAX_CONDITION else None


def symmetrized(C: Array) -> Array:
    """The symmetric tensor with the same values on (z, z, z)."""
    C = (C + C.transpose(0, 2, 1)) / 2
    result: Array = (C + C.transpose(1, 0, 2) + C.transpose(2, 1, 0)) / 3
    return result
