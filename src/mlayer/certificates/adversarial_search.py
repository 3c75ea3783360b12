"""The smallest radius that breaks a row: a fixed point in the direction, Newton in the radius.

docs/theory/certificates-attack.md. For one pair (row, rival class) with margin f and steepest unit
direction s, the pair (s, eps) is improved by

    s <- the unit step along which the linearized margin at eps s falls fastest
    eps <- eps - f(eps s) / (d/d eps) f(eps s)

until f(eps s) = 0. What is returned was evaluated and found broken by more than rounding: it is an upper
bound of the true radius whatever the iteration did, and the example stays one when it is evaluated in another
batch, on another processor or in the layer's own precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.certificates.networks.network import Network
from mlayer.certificates.problem.region import Region
from mlayer.nn.layer import MLayer

Attacked = MLayer | Network

# Effort of the search: rounds of direction and radius, then bisections along the last direction. What is
# found is evaluated in any case.
_ROUNDS = 12
_RAY_STEPS = 14
# Pairs with a first-order radius beyond this multiple of the row's smallest are not tried.
_REACH = 3.0
_CHUNK = 2048  # pairs of row and rival in one batch
# The rounding error of a margin is taken to be below this many units in the last place of its parts.
_ROUNDINGS = 4.0


@dataclass
class Broken:
    """The smallest radius found to break each row, the step that does, and the class it turns into."""

    radius: Tensor  # (rows,), inf where nothing was found
    step: Tensor  # (rows, m): delta, in the inputs' units; `Region.moved` makes it
    target: Tensor  # (rows,)
    certain: Tensor  # (rows,): whether the margin is below zero by more than rounding


def margins(layer: Attacked, x: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    """Output of the label's class minus that of the rival.  (rows,)"""
    p = layer(x)
    return p.gather(1, labels[:, None])[:, 0] - p.gather(1, rivals[:, None])[:, 0]


def smallest_margin(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The label's output less the largest of the others, and the class of that one.  (rows,), (rows,)"""
    others, rivals = outputs.scatter(1, labels[:, None], -torch.inf).max(1)
    return outputs.gather(1, labels[:, None])[:, 0] - others, rivals


def rounding(layer: Attacked, x: Tensor, labels: Tensor, rivals: Tensor, precision: torch.finfo) -> Tensor:
    """Bounds of the rounding of `margins` in a precision: beyond them a sign is certain.  (rows,)

    docs/theory/certificates-attack.md: that of M, carried through the exponential, and the exponential's own.
    What overflows in that precision has no sign.
    """
    with torch.no_grad():
        if isinstance(layer, MLayer):
            last, features, sizes = layer, x, x.abs()
        else:
            last, features, sizes = layer.layer, layer.features(x), layer.feature_terms(x)
        M, terms = last.matrix(features), _absolute_terms(last, sizes)
        half = last.structure.exponential(M / 2)
        e, half = (half @ half).abs(), half.abs()
        carried = (terms @ e + 4 * half @ terms @ half + e @ terms) / 6
        norm = M.abs().sum(-2).amax(-1)[:, None, None]
        errors = _read_sizes(last, carried + (2 + norm) * (half @ half), labels, rivals)
        size = _read_sizes(last, e, labels, rivals)
        found = _ROUNDINGS * precision.eps * (errors + size)
        return torch.where(torch.maximum(size, e.amax((1, 2))) <= precision.max, found, torch.inf)


def _read_sizes(layer: MLayer, sizes: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    """The terms of two outputs, read from matrices of sizes (rows, n, n), with their biases.  (rows,)"""
    read = torch.einsum("kij,bij->bk", layer.readout.abs(), sizes)
    if layer.output_bias is not None:
        read = read + layer.output_bias.abs()
    return read.gather(1, labels[:, None])[:, 0] + read.gather(1, rivals[:, None])[:, 0]


def _absolute_terms(layer: MLayer, sizes: Tensor) -> Tensor:
    """M from the absolute values of its terms, for sizes of the layer's inputs.  (rows, n, n)"""
    if layer.embedding is not None:
        sizes = sizes @ layer.embedding.abs().mT
        if layer.embedding_bias is not None:
            sizes = sizes + layer.embedding_bias.abs()
    terms = torch.tensordot(sizes, layer.generators.abs(), 1)
    return terms if layer.matrix_bias is None else terms + layer.matrix_bias.abs()


def value_and_gradient(layer: Attacked, x: Tensor, labels: Tensor, rivals: Tensor) -> tuple[Tensor, Tensor]:
    """Margins and their gradients in x."""
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        f = margins(layer, point, labels, rivals)
        (gradient,) = torch.autograd.grad(f.sum(), point)
    return f.detach(), gradient


def smallest_radius(  # noqa: PLR0917
    layer: Attacked,
    x: Tensor,
    labels: Tensor,
    region: Region,
    starts: int,
    generator: torch.Generator,
    precision: torch.finfo,
) -> Broken:
    """Search all rivals within reach from several starts. ``layer`` and ``x`` are float64.

    ``precision`` is that of the arithmetic in which the examples must stay examples.
    """
    rows, classes = len(x), layer.out_features
    result = Broken(
        torch.full((rows,), torch.inf, dtype=x.dtype, device=x.device),
        torch.zeros_like(x),
        labels.clone(),
        torch.zeros_like(labels, dtype=torch.bool),
    )
    first = torch.full((rows, classes), torch.inf, dtype=x.dtype, device=x.device)
    for j in range(classes):
        rivals = torch.full_like(labels, j)
        f, g = value_and_gradient(layer, x, labels, rivals)
        slope = -(region.steepest(g) * g).sum(1)
        first[:, j] = torch.where(labels == j, torch.inf, f / slope.clamp_min(1e-300))
    wrong = first.min(1).values <= 0
    result.radius[wrong] = 0
    result.target[wrong] = first.argmin(1)[wrong]
    own = margins(layer, x, labels, result.target).detach()
    result.certain = wrong & (own < -rounding(layer, x, labels, result.target, precision))  # not a mere tie
    limit = _REACH * first.min(1, keepdim=True).values
    row, rival = torch.nonzero((first <= limit) & first.isfinite() & ~wrong[:, None], as_tuple=True)
    for begin in range(0, len(row), _CHUNK):
        part, against = row[begin : begin + _CHUNK], rival[begin : begin + _CHUNK]
        pairs = _Pairs(layer, region, x[part], labels[part], against)
        for start in range(starts):
            eps, at = first[part, against], pairs.origin
            if start:  # begin at the gradient of a random point of the region
                noise = torch.rand(at.shape, generator=generator, dtype=x.dtype).to(x.device) * 2 - 1
                at = region.moved(at, region.step(region.steepest(-noise), eps, at))
            direction, eps = pairs.improved(at, eps)
            radius, broken = pairs.shortened(direction, eps, precision)
            for i in torch.nonzero(broken)[:, 0].tolist():
                r, one = int(part[i]), slice(i, i + 1)
                if radius[i] < result.radius[r]:
                    result.radius[r] = radius[i]
                    result.step[r] = region.step(direction[one], radius[one], pairs.origin[one])[0]
                    result.target[r], result.certain[r] = against[i], True
    return result


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a row and a rival class that are searched together."""

    layer: Attacked
    region: Region
    origin: Tensor  # (pairs, m)
    label: Tensor  # (pairs,)
    rival: Tensor  # (pairs,)

    def _point(self, direction: Tensor, eps: Tensor) -> Tensor:
        return self.region.moved(self.origin, self.region.step(direction, eps, self.origin))

    def improved(self, at: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
        """Directions and radii after the iteration above, from the gradients at some points."""
        _, g = value_and_gradient(self.layer, at, self.label, self.rival)
        for _ in range(_ROUNDS):
            direction = self.region.steepest(g)
            step = self.region.step(direction, eps, self.origin)
            f, g = value_and_gradient(
                self.layer, self.region.moved(self.origin, step), self.label, self.rival
            )
            slope = (g * self.region.free(direction, step, eps)).sum(1)
            newton = eps - f / torch.where(slope < 0, slope, -slope.abs().clamp_min(1e-300))
            # No further than twice or half at once: f is not linear far away.
            newton = torch.where(newton.isfinite(), newton, eps)
            change = ((newton - eps).abs() / eps).max()
            eps = torch.minimum(torch.maximum(newton, eps / 2), eps * 2)
            if bool(change < 1e-9):
                break
        return direction, eps

    @torch.no_grad()
    def shortened(self, direction: Tensor, eps: Tensor, precision: torch.finfo) -> tuple[Tensor, Tensor]:
        """The smallest radii in a direction at which margins were seen below zero, and where any were."""
        end = self._point(direction, eps)
        enough = 2 * rounding(self.layer, end, self.label, self.rival, precision)
        low, high, broken = torch.zeros_like(eps), eps, torch.zeros_like(eps, dtype=torch.bool)
        for k in range(_RAY_STEPS):
            trial = torch.where(broken, (low + high) / 2, eps * (1 + 1e-9 * 6.0**k)) if k else eps
            down = margins(self.layer, self._point(direction, trial), self.label, self.rival) < -enough
            low = torch.where(down, low, torch.maximum(low, trial))
            high = torch.where(down, trial, high)
            broken |= down
        return high, broken
