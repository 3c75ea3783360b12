"""Certificates of a network that ends in an M-layer: relaxations of the front, planes below the margins.

docs/theory/certificates-networks.md. The box of inputs becomes a box of features; over it the M-layer's
margins lie above planes; the planes are carried back through the front to the inputs and minimized there.
At a fixed radius all rows are first tried with intervals alone, and only what is left with more effort.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from mlayer.certificates.adversarial_search import smallest_margin
from mlayer.certificates.arguments import as_labels, as_radius, inside_box
from mlayer.certificates.linalg import VANISHED
from mlayer.certificates.networks.network import Network
from mlayer.certificates.networks.network_bounds import NetworkBounds
from mlayer.certificates.networks.relax import Box, Functional, Relaxed
from mlayer.certificates.networks.zonotope import zonotope
from mlayer.certificates.problem.region import Region
from mlayer.certificates.result import Certificates

METHOD = "relaxation"
# "intervals": boxes by interval arithmetic, margins over the box of features. "margins": the margins are
# carried back to the inputs. "zonotopes": the features are. "boxes": margins and the boxes of all neurons.
Effort = Literal["intervals", "margins", "zonotopes", "boxes"]
EFFORTS: tuple[Effort, ...] = ("intervals", "margins", "zonotopes", "boxes")
# Rows bounded in one batch, to limit memory.
ROWS = {"intervals": 256, "margins": 64, "zonotopes": 16, "boxes": 32}
# Steps of the search for a radius: 2^40 spans twelve decades; 12 halvings are below the tolerance.
_DOUBLINGS = 40
_BISECTIONS = 12
# Relative accuracy of a radius. Relaxations are looser than that by far.
_TOLERANCE = 1e-3


class NetworkCertifier:
    """Lower bounds of margins of one network within regions around its inputs."""

    def __init__(self, network: Network, region: Region) -> None:
        self.network, self.region = network, region
        self._bounds = NetworkBounds(network)

    def __call__(
        self,
        x: Tensor,
        labels: Tensor,
        eps: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        efforts: tuple[Effort, ...] = EFFORTS,
    ) -> Certificates:
        """Certify rows (rows, in_features) at eps by these efforts in turn, or find their radii."""
        labels = as_labels(self.network.layer, labels, len(x))
        inside_box(x, self.region.low, self.region.high)
        asked = None if eps is None else as_radius(eps)
        with torch.no_grad():
            features = self.network.features(x)
            outputs = self.network.layer(features)
        self._bounds.check_agreement(x, features, outputs)
        margin, runner_up = smallest_margin(outputs, labels)
        right = margin > 0
        radius = torch.zeros(len(x), dtype=torch.float64)
        certified = torch.zeros(len(x), dtype=torch.bool)
        rival = runner_up.clone()
        ready = len(x) - int(right.sum())  # the wrong ones
        if asked is not None:
            for effort in efforts:
                last = effort == efforts[-1]
                for part in torch.nonzero(right & ~certified)[:, 0].split(ROWS[effort]):
                    size = torch.full((len(part),), asked, dtype=torch.float64)
                    least, rival[part] = self.margins(x[part], labels[part], size, effort).min(1)
                    certified[part] = least > 0
                    ready += len(part) if last else int((least > 0).sum())
                    if progress is not None:
                        progress(ready, len(x))
            radius[certified] = asked
        else:
            for part in torch.nonzero(right)[:, 0].split(ROWS["boxes"]):
                radius[part] = self._radii(x[part], labels[part])
                ready += len(part)
                if progress is not None:
                    progress(ready, len(x))
            certified = radius > 0
        if progress is not None:
            progress(len(x), len(x))
        return Certificates(
            radius=radius,
            margin=margin,
            runner_up=runner_up,
            rival=rival,
            correct=right,
            certified=certified,
            method=tuple(METHOD if ok else "misclassified" for ok in right.tolist()),
            rounding_checked=torch.zeros(len(x), dtype=torch.bool),
            norm=self.region.norm,
            eps=asked,
        )

    def box(self, x: Tensor, eps: Tensor) -> Box:
        """The inputs within eps, rounded outward."""
        reach = eps[:, None] * self.region.scale
        reach = reach * (1 + 1e-15)
        moves = (eps[:, None] > 0) & (self.region.scale > 0)
        slack = torch.where(moves, 2.0**-52 * (x.abs() + reach) + VANISHED, 0.0)
        low, high = x - reach - slack, x + reach + slack
        if self.region.low is not None and self.region.high is not None:
            low, high = torch.maximum(low, self.region.low), torch.minimum(high, self.region.high)
        return Box(low, high)

    def margins(self, x: Tensor, labels: Tensor, eps: Tensor, effort: Effort = "boxes") -> Tensor:
        """Lower bounds of output[label] - output[j] within eps of each row; inf for j = label.  (rows, c)"""
        relaxed = Relaxed(self.network.steps, self.box(x, eps), carry=effort == "boxes")
        return relaxed.margins(labels, self.network.out_features, partial(self._lower, effort))

    def _lower(self, effort: Effort, relaxed: Relaxed, C: Tensor) -> Tensor:
        if effort == "zonotopes":
            held = zonotope(relaxed.steps, relaxed.boxes, *self._bounds.embedding)
            return self._bounds.behind.least_over(held.center, held.directions, held.reach, C)
        features = relaxed.features
        best = torch.full((len(features.low), len(C)), -torch.inf, dtype=torch.float64)
        for plane in self._bounds.behind.lower_planes(features.low, features.high, C):
            below = Functional(*plane)
            found = (
                below.minimum(features) if effort == "intervals" else relaxed.lower(below, len(relaxed.steps))
            )
            best = torch.maximum(best, found.nan_to_num(nan=-torch.inf, neginf=-torch.inf))
        return best

    def _radii(self, x: Tensor, labels: Tensor) -> Tensor:
        """The largest eps found at which all margins are positive, all rows at once."""
        rows = torch.arange(len(x))
        low = torch.zeros(len(x), dtype=torch.float64)
        high = torch.full_like(low, torch.inf)
        trial = self._first_guess(x, labels)
        for _ in range(_DOUBLINGS + _BISECTIONS):
            going = rows[(high - low > _TOLERANCE * low) & (low < self._whole(x))]
            if not len(going):
                break
            passed = (self.margins(x[going], labels[going], trial[going]) > 0).all(1)
            low[going] = torch.where(passed, trial[going], low[going])
            high[going] = torch.where(passed, high[going], trial[going])
            middle = torch.where(low > 0, (low + high) / 2, high / 4)
            trial = torch.where(high.isfinite(), middle, 2 * low)
        return torch.where(low >= self._whole(x), torch.inf, low)

    def _whole(self, x: Tensor) -> Tensor:
        """The eps, above 0, from which the region grows no more; infinite if it always does.  (rows,)"""
        region, still = self.region, torch.zeros(len(x), 1, dtype=torch.float64)
        moving = region.scale > 0
        if bool(moving.any()) and (region.low is None or region.high is None):
            return torch.full((len(x),), torch.inf, dtype=torch.float64)
        if region.low is not None and region.high is not None:
            reach = torch.maximum(region.high - x, x - region.low)[:, moving] / region.scale[moving]
            still = torch.cat([still, reach], 1)
        # Never 0: even a region of one point needs a proof at some eps.
        return still.amax(1) * (1 + 1e-12) + 1e-300

    def _first_guess(self, x: Tensor, labels: Tensor) -> Tensor:
        """Half of the radius that the gradient at the row promises; only where the search begins."""
        with torch.enable_grad():
            point = x.detach().requires_grad_(True)
            margin, _ = smallest_margin(self.network(point), labels)
            (gradient,) = torch.autograd.grad(margin.sum(), point)
        slope = (gradient.abs() * self.region.scale).sum(1)
        guess = 0.5 * margin.detach() / slope.clamp_min(1e-12)
        return torch.where(guess.isfinite(), guess, 1.0).clamp(1e-9, 1e6)
