"""The layer as plain numbers: M(x) = B + sum_a T_a (U x + u)_a, outputs V + <S, exp(M)>."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from mlayer.certificates.checker.balls import Matrix, ProofError, ball, matrix

_NAMES = ("B", "T", "U", "u", "S", "V")


def digest(*arrays: Sequence[float]) -> str:
    """SHA-256 of the lengths and the float64 values, little-endian."""
    hasher = hashlib.sha256()
    for array in arrays:
        hasher.update(struct.pack("<q", len(array)))
        hasher.update(struct.pack(f"<{len(array)}d", *array))
    return hasher.hexdigest()


def floats(values: Iterable[float], size: int, what: str) -> list[float]:
    """A list of this many finite floats, or a refusal."""
    found = list(values)
    if len(found) != size:
        raise ProofError(f"{what} has {len(found)} numbers, not {size}")
    for value in found:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise ProofError(f"{what} holds {value!r}, which is not a finite number")
    return [float(value) for value in found]


@dataclass(frozen=True)
class Layer:
    """Stored weights, exact: flat lists of floats in row-major order.

    Attributes:
        n: size of the matrices.
        d: number of generators.
        m: number of inputs.
        classes: number of outputs.
        B: (n, n).
        T: (d, n, n).
        U: (m, d), one row for each input.
        u: (d,).
        S: (classes, n, n).
        V: (classes,).
    """

    n: int
    d: int
    m: int
    classes: int
    B: Sequence[float]
    T: Sequence[float]
    U: Sequence[float]
    u: Sequence[float]
    S: Sequence[float]
    V: Sequence[float]

    def __post_init__(self) -> None:
        """Check the sizes."""
        n, d, m, classes = self.n, self.d, self.m, self.classes
        for name, size in zip(_NAMES, (n * n, d * n * n, m * d, d, classes * n * n, classes), strict=True):
            object.__setattr__(self, name, floats(getattr(self, name), size, f"weight {name}"))

    @property
    def digest(self) -> str:
        """The digest of sizes and weights."""
        sizes = [float(size) for size in (self.n, self.d, self.m, self.classes)]
        return digest(sizes, *(getattr(self, name) for name in _NAMES))

    def generators(self) -> list[Matrix]:
        """The matrices T_a."""
        n, size = self.n, self.n * self.n
        return [matrix(n, n, self.T[a * size : (a + 1) * size]) for a in range(self.d)]

    def matrix_at(self, x: Sequence[float], generators: Sequence[Matrix]) -> Matrix:
        """M(x)"""
        features = matrix(1, self.m, x) * matrix(self.m, self.d, self.U)
        M = matrix(self.n, self.n, self.B)
        for a, T in enumerate(generators):
            M = M + T * (features[0, a] + ball(self.u[a]))
        return M

    def difference(self, label: int, rival: int) -> tuple[Matrix, Matrix]:
        """W = S_label - S_rival and, as a 1 x 1 matrix, V_label - V_rival."""
        size = self.n * self.n
        one, other = (matrix(self.n, self.n, self.S[j * size : (j + 1) * size]) for j in (label, rival))
        return one - other, matrix(1, 1, [self.V[label]]) - matrix(1, 1, [self.V[rival]])

    def same_readout(self, label: int, rival: int) -> bool:
        """Whether the two readouts are equal, number by number."""
        size = self.n * self.n
        return list(self.S[label * size : (label + 1) * size]) == list(
            self.S[rival * size : (rival + 1) * size]
        )
