"""`Prover`: proofs for rows of one model, each confirmed by the checker before it counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlayer.certificates.checker import Checker, ProofRegion, digest
from mlayer.certificates.checker.margins import INFINITE
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.problem.model import Model
from mlayer.certificates.proofs.frame import FrameClaims, Frames, plain_layer
from mlayer.certificates.proofs.levels import Chain
from mlayer.certificates.proofs.proof import Proof, plain

_BITS = (80, 192, 1024)  # precisions of the checker's balls, each tried where the one before is refused
_ACCURACY = 2e-3  # relative, of the largest radius that has a proof
_LOWERING = (1.0, 1 - 1e-6, 1 - 1e-3, 0.99, 0.9)  # of a radius whose proof the checker refuses
_FIRST_STEP, _GROWTH, _LARGEST_STEP = 0.004, 2.0, 0.3  # relative, down from a radius without proof
_DOUBLINGS = 25  # radii tried in each direction of the search
_BLINDLY = (1.0, 0.5, 0.1, 1e-2, 1e-3)  # of a radius that float64 found no proof for


class Prover:
    """Finds proofs in float64 and keeps those that the checker accepts."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.layer = plain_layer(model.weights)
        self._frames = Frames(model)
        shape = plain(self._frames.shape)
        self.region = ProofRegion(shape["norm"], shape["scale"], shape["low"], shape["high"])
        self._checker: Checker | None = None

    @property
    def _frame_claims(self) -> dict[str, Any]:
        full = self._frames.full
        return self._frames.shape if full is None else full.claims

    def proof(self, rows: tuple[dict[str, Any] | None, ...]) -> Proof:
        """The rows' claims with what they share."""
        return Proof(self.layer.digest, self._frame_claims, rows)

    def confirmed(self, row: Row, radius: float, fixed: bool) -> tuple[float, dict[str, Any] | None]:
        """The largest radius found, at most the one given, that the checker accepts; and its proof.

        Args:
            row: a row that is classified correctly.
            radius: what float64 claims.
            fixed: whether only this radius is of interest.

        Returns:
            the radius and its proof; 0 and None if there is none.
        """
        try:
            return self._confirmed(row, radius, fixed)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):  # numbers that float64 cannot hold
            return 0.0, None

    def _confirmed(self, row: Row, radius: float, fixed: bool) -> tuple[float, dict[str, Any] | None]:
        chains = _Chains(row, self._frames)
        if math.isinf(radius):
            found = self._accepted(row, chains.claims(math.inf), math.inf)
            if found is not None:
                return math.inf, found
        top = radius
        if not fixed and (math.isinf(radius) or chains.claims(radius) is None):

            def provable(eps: float) -> bool:
                return chains.claims(eps) is not None

            top = 0.0 if math.isinf(radius) else _below(provable, radius)
            if top == 0:  # far below: of a polynomial the checker knows the series of the exponential only
                top = min(_largest(provable, chains.guess), radius)
        for factor in (1.0,) if fixed else _LOWERING:
            found = self._accepted(row, chains.claims(top * factor), top * factor)
            if found is not None:
                return top * factor, found
        if not fixed and math.isfinite(radius):  # without what float64 thinks of the margin
            for factor in _BLINDLY:
                found = self._accepted(row, chains.linear_claims(), radius * factor)
                if found is not None:
                    return radius * factor, found
        return 0.0, None if fixed else self._accepted(row, chains.claims(0.0), 0.0)

    def _accepted(self, row: Row, rivals: dict[str, Any] | None, eps: float) -> dict[str, Any] | None:
        if rivals is None:
            return None
        if self._checker is None:
            shared = {"weights": self.layer.digest, "frame": plain(self._frame_claims)}
            self._checker = Checker(self.layer, self.region, shared)
        x = row.x.tolist()
        for bits in _BITS:
            claims = {
                "x": digest(x),
                "label": row.label,
                "eps": INFINITE if math.isinf(eps) else eps,
                "bits": bits,
                "rivals": rivals,
            }
            verdict = self._checker.check(x, row.label, plain(claims))
            if verdict.accepted:
                return claims
        return None


class _Chains:
    """The searches of one row, one for each rival."""

    def __init__(self, row: Row, frames: Frames) -> None:
        self._row, self._frames = row, frames
        self._chains: dict[int, Chain] = {}

    @property
    def guess(self) -> float:
        """A radius to begin with."""
        full = self._frames.full
        return 1.0 if full is None else 1 / full.delta_2

    def linear_claims(self) -> dict[str, Any] | None:
        """First-order claims for every rival, true or not."""
        full = self._frames.full
        if full is None:
            return None
        rivals = (rival for rival in range(len(self._row.outputs)) if rival != self._row.label)
        return {str(rival): self._chain(rival, full).linear() for rival in rivals}

    def _chain(self, rival: int, full: FrameClaims) -> Chain:
        if rival not in self._chains:
            self._chains[rival] = Chain(self._row, rival, full)
        return self._chains[rival]

    def claims(self, eps: float) -> dict[str, Any] | None:
        """The claims, by rival, that show every margin to be positive within eps; None if one is missing."""
        row, found = self._row, {}
        S = row.model.weights.S
        still = not row.model.weights.depends
        for rival in range(len(S)):
            if rival == row.label:
                continue
            if still or eps == 0 or np.array_equal(S[row.label], S[rival]):
                found[str(rival)] = {"constant": True}
                continue
            full = self._frames.full
            bounded = math.isfinite(eps) or row.region.low is not None
            if full is None or not bounded:
                return None
            claims = self._chain(rival, full).prove(eps)
            if claims is None:
                return None
            found[str(rival)] = claims
        return found


def _below(provable: Callable[[float], bool], ceiling: float) -> float:
    """The first radius with a proof on the way down, in growing steps; then one closer to the last."""
    above, step = ceiling, _FIRST_STEP
    for _ in range(_DOUBLINGS):
        eps = above * (1 - step)
        if provable(eps):
            middle = (eps + above) / 2
            return middle if step > _ACCURACY and provable(middle) else eps
        above, step = eps, min(_GROWTH * step, _LARGEST_STEP)
    return 0.0


def _largest(provable: Callable[[float], bool], guess: float) -> float:
    """The largest radius with a proof, approximately: by halving or doubling, then bisection."""
    low, high = 0.0, guess
    for _ in range(_DOUBLINGS):
        if provable(high):
            low, high = high, 2 * high
        elif low > 0:
            break
        else:
            high /= 2
    while high - low > _ACCURACY * high and low > 0:
        middle = (low + high) / 2
        if provable(middle):
            low = middle
        else:
            high = middle
    return low
