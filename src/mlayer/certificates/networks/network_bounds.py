"""Bounds of a network's outputs over boxes of its inputs: the M-layer's planes, carried back to the inputs.

docs/theory/certificates-networks.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.certificates.boxes import BoxBounds, OutputBounds
from mlayer.certificates.boxes.output_bounds import Finished, Plane, joined
from mlayer.certificates.modules import check_agreement
from mlayer.certificates.networks.network import Network
from mlayer.certificates.networks.relax import Box, Functional, Relaxed, through
from mlayer.certificates.networks.steps import AffineStep

# Boxes taken at once, to limit memory; points are cheaper.
_BOXES, _POINTS = 32, 256
_ENTRIES = 16_000_000  # of the slopes of all planes behind one step
_PLANES = 6  # of each side: first order, second order at the center and three corners, constant
# Times the widths of bounds at a point, which are the rounding of their sums, for that of torch's modules.
_ROUNDINGS = 1e3


class NetworkBounds:
    """Bounds of one network; what the weights of its M-layer alone decide is computed once.

    Attributes:
        behind: the bounds of the M-layer.
        embedding: its U and u, the identity and 0 where it has none.
    """

    def __init__(self, network: Network) -> None:
        self.network, self.behind = network, BoxBounds(network.layer)
        layer = network.layer
        d = len(layer.generators)
        U, u = layer.embedding, layer.embedding_bias
        self.embedding = (
            torch.eye(d, dtype=torch.float64) if U is None else U.detach(),
            torch.zeros(d, dtype=torch.float64) if u is None else u.detach(),
        )

    def __call__(self, low: Tensor, high: Tensor, C: Tensor | None = None) -> OutputBounds:
        """Bounds over boxes (rows, m) of flat inputs; C as for a layer (`BoxBounds`)."""
        if C is not None and C.dim() == 3 and not len(C):
            C = C.new_zeros(C.shape[1:])
        parts = []
        k = self.network.out_features if C is None else C.shape[-2]
        for rows in torch.arange(len(low)).split(self._rows_at_once(k)):
            relaxed = Relaxed(self.network.steps, Box(low[rows], high[rows]))
            if C is None or C.dim() == 2:
                parts.append(self._part(relaxed, C))
            else:
                parts += [self._part(relaxed.of(r[None]), C[rows[r]]) for r in torch.arange(len(rows))]
        return joined(parts)

    def _rows_at_once(self, k: int) -> int:
        widths = [
            max(step.inputs, step.outputs) for step in self.network.steps if isinstance(step, AffineStep)
        ]
        slopes = _PLANES * max(k, 1) * max([self.network.in_features, *widths])
        return max(1, min(_BOXES, self.behind.rows_at_once(k), _ENTRIES // slopes))

    def _part(self, relaxed: Relaxed, C: Tensor | None) -> OutputBounds:
        features = relaxed.features
        below, above = self.behind.planes_of_both_sides(features.low, features.high, C)
        return OutputBounds.of_sides(_best(relaxed, below), _best(relaxed, above))

    def influence(self, found: OutputBounds) -> Tensor:
        """The largest slope of each input, and a little of the others' where it is 0.  (rows, m)"""
        slopes = torch.cat([found.lower_slopes, found.upper_slopes], 1).abs().amax(1)
        return slopes + 1e-3 * slopes.amax(1, keepdim=True) + 1e-300

    def check_agreement(self, x: Tensor, features: Tensor, outputs: Tensor) -> None:
        """The modules must compute at x what the steps and the planes are about."""
        for rows in torch.arange(len(x)).split(_POINTS):
            point = Box(x[rows], x[rows])
            for step in self.network.steps:
                point = through(step, point)
            behind = self.behind(features[rows], features[rows])
            for found, low, high in (
                (features[rows], point.low, point.high),
                (outputs[rows], behind.lower, behind.upper),
            ):
                middle = low + (high - low) / 2
                check_agreement("model", found, middle, middle.abs(), _ROUNDINGS * (high - low))


def _best(relaxed: Relaxed, planes: list[Plane]) -> Finished:
    """The largest of all lower bounds, and of the planes carried back the one with the largest minimum.

    Where none could be carried back the number itself is the function.
    """
    slopes, constants = zip(*planes, strict=True)
    behind = Functional(torch.cat(slopes, 1), torch.cat(constants, 1))
    near = behind.minimum(relaxed.features)
    carried = relaxed.of_inputs(behind, len(relaxed.steps))
    least = carried.minimum(relaxed.boxes[0])
    proved = least.isfinite() & carried.constant.isfinite() & carried.slopes.isfinite().all(-1)
    least = torch.where(proved, least, -torch.inf)
    near = torch.where(near.isfinite(), near, -torch.inf)

    def of_each_plane(values: Tensor) -> Tensor:
        return values.unflatten(1, (len(planes), -1))  # (rows, planes, k, ...)

    number = of_each_plane(torch.maximum(least, near)).amax(1)
    largest, place = of_each_plane(least).max(1, keepdim=True)  # (rows, 1, k)
    none = (largest == -torch.inf)[:, 0]
    constant = of_each_plane(carried.constant).gather(1, place)[:, 0]
    m = carried.slopes.shape[-1]
    slope = of_each_plane(carried.slopes).gather(1, place[..., None].expand(-1, -1, -1, m))[:, 0]
    return number, torch.where(none[..., None], 0.0, slope), torch.where(none, number, constant)
