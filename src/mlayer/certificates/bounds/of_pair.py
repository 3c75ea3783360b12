"""All bounds of one pair of classes, each built from the table when it is first needed."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from mlayer.certificates.bounds.caps import Caps
from mlayer.certificates.bounds.fourth_order import FourthOrder
from mlayer.certificates.bounds.methods import method_named
from mlayer.certificates.bounds.protocol import TaylorBound
from mlayer.certificates.bounds.quadratic_terms import BoxQuadratic
from mlayer.certificates.bounds.second_order import SecondOrder
from mlayer.certificates.bounds.third_order import ThirdOrder
from mlayer.certificates.overflow import unless_out_of_range
from mlayer.certificates.problem.expansion import Pair

# Rounds of the fit of the shift for tangents; more gained less than a thousandth of the radius on the images
# that the thresholds were tuned on (docs/certificates.md).
_TANGENT_FIT_ROUNDS = 9
# A fit serves for radii down to this part of the one it was made at: below, a new one is tighter.
_TANGENT_REFIT_BELOW = 0.97


class Bounds:
    """The bounds of one pair; ``bounds[name]`` is the one of that name in `methods.METHODS`."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._built: dict[str, Any] = {}
        self._tangents: dict[str, tuple[float, BoxQuadratic]] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self._file(name).build(self)
        return self._built[name]

    def _file(self, name: str) -> Any:
        """The file of a bound that is made for the norm of the region."""
        return method_named(name).load(self.pair.row.region.norm)

    @property
    def second(self) -> SecondOrder:
        """The second-order bound."""
        bound: SecondOrder = self["second_order"]
        return bound

    @property
    def third(self) -> ThirdOrder:
        """The third-order bound."""
        bound: ThirdOrder = self["third_order"]
        return bound

    @property
    def fourth(self) -> FourthOrder:
        """The fourth-order bound."""
        bound: FourthOrder = self["fourth_order"]
        return bound

    @unless_out_of_range(False)
    def quickly_passes(self, eps: float) -> bool:
        """Whether a cheap bound already certifies against this rival."""
        return bool(self["first_order"].lower(eps) > 0) or self.second.quickly_passes(eps)

    @unless_out_of_range(-math.inf)
    def lower(self, method: str, eps: float) -> float:
        """The lower bound of one method."""
        return float(self[method].lower(eps))

    @unless_out_of_range(-math.inf)
    def tangent(self, order: TaylorBound, eps: float) -> float:
        """The least value over the region of the linear function that touches the margin (theorem 7)."""
        row = self.pair.row
        low, high = row.interval(eps)
        radius = row.radius(eps)
        at, box = self._tangents.get(order.name, (0.0, None))
        # The curvature grows with the radius: a fit serves for smaller ones too.
        if box is None or not _TANGENT_REFIT_BELOW * at < eps <= at:
            curvature = order.curvature(radius)
            extra = self.pair.curvature_of_basis(radius, float((high - low).max()))
            if not (math.isfinite(curvature) and math.isfinite(extra)):
                return -math.inf
            box = BoxQuadratic(self.pair, low, high, _TANGENT_FIT_ROUNDS, curvature, extra=extra)
            self._tangents[order.name] = eps, box
        found = self._file("tangent").tangent(self.pair, box, low, high, radius)
        if found is None:
            return -math.inf
        return found.linear.minimum(low, high)

    @cached_property
    def caps(self) -> Caps:
        """Caps within caps (theorem 8), from the third order."""
        return self._caps(self.third)

    @cached_property
    def deep_caps(self) -> Caps:
        """The same from the fourth order, which is used again only where the third falls short."""
        return self._caps(self.fourth, FourthOrder)

    def _caps(self, first: TaylorBound, deeper: type[FourthOrder] | None = None) -> Caps:
        found: Caps = self._file("caps").Caps(first, self.second.box, _third_order_elsewhere, deeper)
        return found


def _third_order_elsewhere(pair: Pair) -> ThirdOrder:
    """The third order at the center of a cap."""
    return ThirdOrder(SecondOrder(pair), symmetrize=False)
