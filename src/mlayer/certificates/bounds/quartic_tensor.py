"""The quartic term: c_4 with Q[y, y, y, y] >= -c_4 |y|^4.

docs/theory/certificates.md, theorem 6. In the eigenvectors of M,

    P_4 = sum W~_mi f[ijklm] N~_ij N~_jk N~_kl N~_lm,   f[ijklm] = int_0^1 f_{1-t}[im] f_t[jkl] dt

with f_t the divided differences of exp(t x). Gauss's rule for the weight (1 - t) t^2 that the
integrand contains makes the integral a short sum, so that the form is a sum of products of two forms in pairs
of indices; the error of the rule is bounded and added.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.bounds.quadrature import gauss_rule, nodes_needed
from mlayer.certificates.bounds.symmetric_forms import least_ritz_value, symmetric_form
from mlayer.certificates.derivatives.divided_differences import Complex, Indices, differences
from mlayer.certificates.derivatives.jets import sorted_pairs
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.linalg import INFLATE, power_of_two, proves_positive, top_eigenvalue
from mlayer.certificates.problem.expansion import Pair
from mlayer.numerics.arrays import Array

Single = NDArray[np.float32]

# As in cubic_norm.py: steps of the guess, and factorizations tried with a raised guess.
_LANCZOS_STEPS = 20
_TRIES = 6
_MOST = 0.1  # of a product in single precision: what more roundings would leave is no use


class Quartic:
    """The quartic tensor of one pair.

    Args:
        pair: the pair.
        tolerance: of the quadrature, as a norm of the tensor.
    """

    def __init__(self, pair: Pair, tolerance: float) -> None:
        self.fall = math.inf
        path = pair.row.derivatives
        if not isinstance(path, SpectralPath):
            return  # no eigenvectors, no quartic tensor: the third order stands
        nodes, error = nodes_needed(pair, tolerance)
        if nodes == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # of exponentials near the end of the range
            form, off = quartic_form(path, pair.W, nodes)
        if not (math.isfinite(off) and np.isfinite(form).all()):
            return
        rounding = path.rounding(pair.W, 4, 0.0, 0.0, 0.0)
        # The error of M moves the form by no more than that times the bound of theorem 2.
        rounding += pair.moved_with(path.distance) * pair.row.model.constants.delta_2**4 / 24
        self.fall = (least_eigenvalue(form) + error + off + rounding) * INFLATE


def quartic_form(path: SpectralPath, W: Array, nodes: int) -> tuple[Array, float]:
    """The form of Q on y y^T (`symmetric_form`), and a bound of its error for |y| = 1.

    The last and largest product is in single precision. Its error is bounded from the norms of its factors
    and is small compared with that of the rule (docs/theory/certificates-rounding.md).
    """
    T, half = path.generators, path.half
    d = len(T)
    i, j = sorted_pairs(d)[0].T
    one, other, count = i * d + j, j * d + i, len(i)
    largest = float(np.abs(W).max())
    unit = power_of_two(largest) if largest > 0 else 1.0
    Wt = path.readout(W / unit)
    # The sum over j, l is conjugate symmetric: half of j and, where j is real, half of l.
    upper = path.values.imag[half] > 0
    chosen = ((half[upper], np.arange(T.shape[1])), (half[~upper], half))
    parts = [_QuarticPart(path, first, second) for first, second in chosen if len(first)]
    width = sum(part.width for part in parts)
    left, right = np.empty((2, count, width), complex)
    total = _Total(i == j)  # of Q_{ab,cd}, symmetric in a, b and in c, d, over sorted pairs
    for t, weight in zip(*gauss_rule(nodes), strict=True):
        # f_{1-t}[im] and f_t[jkl] over the weight: differences over the scaled eigenvalues.
        two = differences(path.values * (1 - t), 2).two * weight
        three = differences(path.values * t, 3).three
        assert three is not None
        TA = T @ (Wt * two.T)  # (a, l, i)
        three, begin = 0.5 * three.conj(), 0
        for part in parts:
            place = slice(begin, begin + part.width)
            outer = part.outer(TA)
            np.add(outer[one], outer[other], out=left[:, place])
            part.inner(three, one, other, right[:, place])
            begin += part.width
        total.add(left, right)
    return symmetric_form(total.sum, d) * total.unit * unit, total.error * unit


class _QuarticPart:
    """The sums over some j and l, factors that are the same at all nodes.

    Args:
        path: the eigenvectors.
        j: (jj,).
        l: (ll,).
    """

    def __init__(self, path: SpectralPath, j: Indices, l: Indices) -> None:  # noqa: E741
        T, imaginary = path.generators, path.values.imag
        n = T.shape[1]
        self._j, self._l, self.width = j, l, len(j) * len(l)
        times = np.where((imaginary[j] > 0)[:, None] | (imaginary[l] > 0), 2.0, 1.0)
        self._times = times.reshape(-1)
        self._columns = (0.5 * T[:, :, j]).transpose(0, 2, 1).reshape(-1, n)  # ((b, j), i)
        # The right factors are conjugated: Re(x y) = (Re x, Im x).(Re y, -Im y).
        self._rows = np.ascontiguousarray(T[:, j, :].transpose(1, 0, 2)).conj()  # (j, c, k)
        self._beside = np.ascontiguousarray(T[:, :, l].transpose(1, 0, 2)).conj()  # (k, d, l)

    def outer(self, TA: Complex) -> Complex:
        """Left factors ((a, b), (j, l)) from (a, l, i)."""
        found = self._columns @ TA[:, self._l].transpose(0, 2, 1)
        return found.reshape(len(TA) ** 2, self.width) * self._times

    def inner(self, three: Complex, one: Indices, other: Indices, out: Complex) -> None:
        """Right factors over sorted pairs of c, d, to ``out``.  (pairs, (j, l))"""
        n, d, wide = self._beside.shape
        for place, row in enumerate(self._j):
            B = (three[row][:, None, self._l] * self._beside).reshape(n, d * wide)  # (k, (d, l))
            inner = (self._rows[place] @ B).reshape(d * d, wide)  # ((c, d), l)
            np.add(inner[one], inner[other], out=out[:, place * wide : (place + 1) * wide])


class _Total:
    """A sum of products Re(left right^*) in single precision, in units of the first one's size.

    Args:
        single: (pairs,), pairs (a, a), which stand once in the form; the others stand twice.
    """

    def __init__(self, single: NDArray[np.bool_]) -> None:
        self.sum: Single = np.zeros((len(single), len(single)), np.float32)
        self.unit, self.error = 0.0, 0.0
        self._single = single

    def _norm(self, part: Complex) -> float:
        """Norm of the factor in the form's coordinates."""
        once = part[self._single]
        return math.sqrt(2 * float(np.vdot(part, part).real) - float(np.vdot(once, once).real))

    def add(self, left: Complex, right: Complex) -> None:
        """Add a product of (pairs, k) and (k, pairs), and the bound of the error of its form."""
        norms = [self._norm(left), self._norm(right)]
        size = norms[0] * norms[1]
        if size == 0:
            return
        self.unit = self.unit or size
        # Scaled, so that nothing of weight falls out of the narrower range. Seen as real arrays, with real
        # and imaginary parts next to each other.
        one, other = [
            (part.view(np.float64) / norm).astype(np.float32)
            for part, norm in ((left, norms[0]), (right, norms[1]))
        ]
        self.sum += (one @ other.T) * np.float32(size / self.unit)
        # Two roundings of the factors, 2 k of their product, and a few of the scaling and of the sums in
        # `symmetric_form`.
        roundings = (2 * left.shape[1] + 32) * 2.0**-24
        self.error += roundings / (1 - 2 * roundings) * size if roundings < _MOST else math.inf


def least_eigenvalue(form: Array) -> float:
    """A c >= 0 with form + c positive semidefinite, near the least: guessed by Lanczos, then proved."""
    largest = float(np.abs(form).max())
    if largest == 0:
        return 0.0
    size = largest * float(np.linalg.norm(form / largest))  # squares of tiny entries would vanish
    guess = max(-least_ritz_value(form, _LANCZOS_STEPS), 1e-6 * size)
    for k in range(_TRIES):
        trial = guess * (1.005 + 0.02 * k)
        if proves_positive(form, trial):
            return trial
    return float(top_eigenvalue(-form))
