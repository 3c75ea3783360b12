"""The claims of a proof about the layer and the shape of the region, proved once for all rows.

Lemmas 1 to 3 of docs/theory/certificates-checker.md: in the gauge P and for weights w of the inputs,

    |z|_Q^2 <= sum_i w_i delta_i^2,  ||P N(z) P^-1||_F <= delta_F |z|_Q,  ||P N(z) P^-1||_2 <= delta_2 |z|_Q
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from mlayer.certificates.checker.balls import (
    Ball,
    Matrix,
    ProofError,
    ball,
    identity,
    inverse,
    matrix,
    prove_positive_definite,
    symmetric_part,
)
from mlayer.certificates.checker.layer import Layer, floats

NORMS = ("linf", "l2")


def number(claims: Mapping[str, Any], name: str, least: float | None = None) -> float:
    """A finite number of the proof."""
    (value,) = floats([claims.get(name)], 1, name)  # type: ignore[list-item]
    if least is not None and value < least:
        raise ProofError(f"{name} is {value}, which is below {least}")
    return value


@dataclass(frozen=True)
class ProofRegion:
    """The question: which steps count. It comes from whoever asks, and the proof must be about the same.

    A radius eps allows |delta_i| <= eps scale_i, or sum (delta_i / scale_i)^2 <= eps^2, and with a box
    low <= x + delta <= high.

    Attributes:
        norm: "linf" or "l2".
        scale: unit of each input, >= 0; inputs of scale 0 do not move.
        low: lower ends of the data's box, or None.
        high: upper ends, or None.
    """

    norm: str
    scale: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    @property
    def active(self) -> list[int]:
        """Inputs that move."""
        return [i for i, unit in enumerate(self.scale) if unit > 0]

    def prove_same(self, inputs: int, claims: Mapping[str, Any]) -> None:
        """Refuse a region that makes no sense, and claims about another one."""
        if self.norm not in NORMS:
            raise ProofError(f"norm is {self.norm!r}, not one of {NORMS}")
        if min(floats(self.scale, inputs, "scale"), default=0.0) < 0:
            raise ProofError("scale is negative somewhere")
        if (self.low is None) != (self.high is None) or (self.norm == "l2" and self.low is not None):
            raise ProofError("a box with one end, or with the L2 norm")
        for name in ("scale", "low", "high"):
            mine, theirs = getattr(self, name), claims.get(name)
            if mine is not None:
                mine = floats(mine, inputs, name)
            if (mine is None) != (theirs is None) or (mine is not None and list(theirs) != mine):  # type: ignore[arg-type]
                raise ProofError(f"the proof is about another region: {name} differs")
        if claims.get("norm") != self.norm:
            raise ProofError(f"the proof is about the norm {claims.get('norm')!r}, not {self.norm!r}")


class Frame:
    """The directions in which M moves, with the gauge and the ellipsoid that a proof uses."""

    def __init__(self, layer: Layer, region: ProofRegion, claims: Mapping[str, Any]) -> None:
        region.prove_same(layer.m, claims)
        self.layer, self.shape = layer, region
        self.generators = layer.generators()
        active, scale = self.shape.active, self.shape.scale
        n, d, m = layer.n, layer.d, len(active)
        self._embedding = [layer.U[i * d : (i + 1) * d] for i in active]
        U = matrix(m, d, [ball(scale[i]) * ball(u) for i in active for u in layer.U[i * d : (i + 1) * d]])
        if claims.get("directions") == "inputs":  # A_i = scale_i sum_a U_ia T_a
            flat = U * matrix(d, n * n, layer.T)
            self.T = [matrix(n, n, [flat[i, k] for k in range(n * n)]) for i in range(m)]
            self.U = identity(m)
        else:
            self.T, self.U = self.generators, U
        self.d = len(self.T)
        self._claims = claims

    @cached_property
    def w(self) -> list[Ball]:
        """Weights of the inputs."""
        found = [ball(w) for w in floats(self._claims.get("weights", ()), self.U.nrows(), "weights")]
        if not all(w > 0 for w in found):
            raise ProofError("a weight of an input is not positive")
        if self.shape.norm == "l2" and not all(w == 1 for w in found):
            raise ProofError("weights other than 1 with the L2 norm")
        return found

    @cached_property
    def gauge(self) -> Matrix:
        """The gauge."""
        n = self.layer.n
        return matrix(n, n, floats(self._claims.get("gauge", ()), n * n, "gauge"))

    @cached_property
    def gauge_inverse(self) -> Matrix:
        """Its inverse."""
        return inverse(self.gauge, "the gauge")

    @cached_property
    def _flat(self) -> Matrix:
        """P T_a P^-1 as rows."""
        moved = [self.gauge * T * self.gauge_inverse for T in self.T]
        return matrix(self.d, self.layer.n**2, [entry for T in moved for entry in T.entries()])

    @cached_property
    def _ellipsoid(self) -> Matrix:
        return self.spread(self.w, number(self._claims, "ridge", 0.0))

    @cached_property
    def metric(self) -> Matrix:
        """Q^-1: |z|_Q^2 = z^T Q^-1 z."""
        return symmetric_part(inverse(self._ellipsoid, "the ellipsoid"))

    @cached_property
    def delta_F(self) -> Ball:  # noqa: N802 - the letter of the theory
        """Lemma 2."""
        claimed = ball(number(self._claims, "delta_F", 0.0))
        gram = self._flat * self._flat.transpose()
        prove_positive_definite(self.metric * claimed**2 - gram, "delta_F is not proved")
        return claimed

    @cached_property
    def delta_2(self) -> Ball:
        """Lemma 3; delta_F where nothing is claimed."""
        if self._claims.get("delta_2") is None:
            return self.delta_F
        n, claimed = self.layer.n, ball(number(self._claims, "delta_2", 0.0))
        K = self._flat.transpose() * self._ellipsoid * self._flat
        form = (K + partial_transpose(K, n)) / 2
        if self._claims.get("multiplier") is not None:
            Y = symmetric_part(matrix(n * n, n * n, floats(self._claims["multiplier"], n**4, "multiplier")))
            form = form + Y - partial_transpose(Y, n)
        prove_positive_definite(identity(n * n) * claimed**2 - form, "delta_2 is not proved")
        return claimed

    def spread(self, weights: Sequence[Ball], ridge: float) -> Matrix:
        """sum_i u_i u_i^T / weight_i plus ``ridge`` times its trace on the diagonal."""
        m, d = len(weights), self.d
        U = self.U.tolist()
        scaled = matrix(m, d, [entry / w for row, w in zip(U, weights, strict=True) for entry in row])
        Q = self.U.transpose() * scaled
        return symmetric_part(Q) + identity(d) * (Q.trace() * ball(ridge))

    def step(self, delta: Sequence[Ball]) -> tuple[Matrix, Matrix]:
        """Z = U^T delta as a column, and N(z)."""
        z = self.U.transpose() * matrix(len(delta), 1, delta)
        N = matrix(self.layer.n, self.layer.n, [0] * self.layer.n**2)
        for a, T in enumerate(self.T):
            N = N + T * z[a, 0]
        return z, N

    def never_moves(self) -> bool:
        """Whether all A_i = scale_i sum_a U_ia T_a are exactly zero, in rational arithmetic."""
        size = self.layer.n**2
        for row in self._embedding:
            used = [(a, Fraction(u)) for a, u in enumerate(row) if u]
            for k in range(size):
                if sum(u * Fraction(self.layer.T[a * size + k]) for a, u in used):
                    return False
        return True


def partial_transpose(Y: Matrix, n: int) -> Matrix:
    """Swap the two column indices of a matrix on pairs: entry ((i, j), (k, l)) becomes ((i, l), (k, j))."""
    entries = Y.tolist()
    return matrix(
        n * n,
        n * n,
        [
            entries[i * n + l][k * n + j]
            for i in range(n)
            for j in range(n)
            for k in range(n)
            for l in range(n)  # noqa: E741
        ],
    )
