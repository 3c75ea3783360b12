"""`Checker`: says yes or no to each row of a proof."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from mlayer.certificates.checker.balls import ProofError, precision
from mlayer.certificates.checker.frame import Frame, ProofRegion
from mlayer.certificates.checker.layer import Layer, digest, floats
from mlayer.certificates.checker.margins import INFINITE, ProofRow, Rival

_BITS = range(53, 4097)
_MOST_PRECISIONS = 8  # of the rows of a proof; for each the frame is computed again, and provers use 3
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class Verdict:
    """The result of a check for one row.

    Attributes:
        accepted: whether the label's output is strictly the largest at every input of the region.
        radius: of that region; 0 if refused.
        reason: why it was refused, else "".
        rival: whose margin was not proved, or None.
    """

    accepted: bool
    radius: float
    reason: str = ""
    rival: int | None = None


class Checker:
    """Checks a proof about a layer; work that rows share is done once.

    Args:
        layer: the stored weights.
        region: which steps count; a proof about another region is refused.
        proof: as :func:`read_proof` gives it.
    """

    def __init__(self, layer: Layer, region: ProofRegion, proof: Mapping[str, Any]) -> None:
        self._layer, self._region, self._proof = layer, region, proof
        self._frames: dict[int, Frame] = {}
        self._same_weights = proof.get("weights") == layer.digest

    def check(self, x: Sequence[float], label: int, claims: Mapping[str, Any]) -> Verdict:
        """Check one entry of the proof's rows. Whatever goes wrong is a refusal."""
        rival: int | None = None
        try:
            if not self._same_weights:
                raise ProofError("the proof is about other weights")
            bits = claims.get("bits")
            if type(bits) is not int or bits not in _BITS:
                raise ProofError(f"bits is {bits!r}, not from {_BITS[0]} to {_BITS[-1]}")
            x = floats(x, self._layer.m, "the row")
            if claims.get("x") != digest(x):
                raise ProofError("the proof is about another row")
            classes = self._layer.classes
            if type(label) is not int or not 0 <= label < classes or claims.get("label") != label:
                raise ProofError("the proof is about another label")
            rivals = claims["rivals"]
            wanted = {str(j) for j in range(classes) if j != label}
            if not isinstance(rivals, dict) or set(rivals) != wanted:
                raise ProofError("the proof does not treat every rival once")
            eps = claims.get("eps")
            with _ONE_AT_A_TIME, precision(bits):  # the precision belongs to the process
                row = ProofRow(self._frame(bits), x, eps)  # type: ignore[arg-type]
                for rival in sorted(int(j) for j in wanted):
                    Rival(row, label, rival, rivals[str(rival)]).prove()
        except ProofError as refusal:
            return Verdict(False, 0.0, str(refusal), rival)
        except Exception as error:  # a forged proof may hold anything
            return Verdict(False, 0.0, f"the proof is malformed ({type(error).__name__}: {error})", rival)
        return Verdict(True, math.inf if eps == INFINITE else float(eps))  # type: ignore[arg-type]

    def _frame(self, bits: int) -> Frame:
        if bits not in self._frames:
            if len(self._frames) >= _MOST_PRECISIONS:
                raise ProofError(f"rows of more than {_MOST_PRECISIONS} precisions")
            self._frames[bits] = Frame(self._layer, self._region, self._proof["frame"])
        return self._frames[bits]
