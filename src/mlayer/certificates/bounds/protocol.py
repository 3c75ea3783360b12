"""The interface of a bound of one pair of classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from mlayer.certificates.problem.expansion import Pair


class Bound(Protocol):
    """A lower bound of the margin of one pair over the region of any radius."""

    pair: Pair

    def lower(self, eps: float) -> float:
        """A lower bound over the region of radius eps, rounding included; -inf if there is none."""


class TaylorBound(Bound, Protocol):
    """A bound by linear and quadratic terms and a charge for the rest: what tangents and caps build on.

    Attributes:
        name: in `methods.METHODS`.
        first_cap_trial: the part of the aim at which caps from this bound are tried first: about the largest
            that they reach on the images that the thresholds were tuned on (docs/certificates.md).
    """

    name: str
    first_cap_trial: float

    def rest(self, radius: float) -> float:
        """A bound of how far the terms beyond the quadratic ones fall below 0."""

    def rests(self, radius: float) -> Iterator[float]:
        """Such bounds, from cheap to expensive; the last one is `rest`."""

    def curvature(self, radius: float) -> float:
        """Half the second derivative is at least H minus this."""
