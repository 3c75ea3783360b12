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
from typing import Protocol

import torch
from torch import Tensor

from mlayer.certificates.problem.region import Region

# Effort of the search: rounds of direction and radius, then bisections along the last direction. What is
# found is evaluated in any case.
_ROUNDS = 12
_RAY_STEPS = 14
# Pairs with a first-order radius beyond this multiple of the row's smallest are not tried.
_REACH = 3.0
_CHUNK = 2048  # pairs of row and rival in one batch
# The rounding error of a margin is taken to be below this many units in the last place of its parts.
_ROUNDINGS = 4.0


class Attacked(Protocol):
    """The part of a model that the attack uses: an MLayer has it, and a network that ends in one."""

    in_features: int
    out_features: int

    @property
    def readout(self) -> Tensor:
        """S, (classes, n, n)."""

    @property
    def output_bias(self) -> Tensor | None:
        """V, (classes,)."""

    def matrix(self, x: Tensor) -> Tensor:
        """M at inputs."""

    def exponential(self, x: Tensor) -> Tensor:
        """exp(M) at inputs."""

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs."""


@dataclass
class Broken:
    """The smallest radius found to break each row, the step that does, and the class it turns into."""

    radius: Tensor  # (rows,), inf where nothing was found
    step: Tensor  # (rows, m): delta, in the inputs' units
    target: Tensor  # (rows,)
    certain: Tensor  # (rows,): whether the margin is below zero by more than rounding


def margins(layer: Attacked, x: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    """Output of the label's class minus that of the rival.  (rows,)"""
    p = layer(x)
    return p.gather(1, labels[:, None])[:, 0] - p.gather(1, rivals[:, None])[:, 0]


def rounding(layer: Attacked, x: Tensor, labels: Tensor, rivals: Tensor, eps: float) -> Tensor:
    """Bounds of the rounding of `margins` in the precision eps: beyond them a sign is certain.  (rows,)

    exp(M) is known to a relative eps ||M|| or so, and the margin sums |S_i - S_j| |exp(M)| and the biases.
    """
    with torch.no_grad():
        norm = layer.matrix(x).abs().sum(-2).amax(-1)
        size = torch.einsum("kij,bij->bk", layer.readout.abs(), layer.exponential(x).abs())
        if layer.output_bias is not None:
            size = size + layer.output_bias.abs()
        size = size.gather(1, labels[:, None])[:, 0] + size.gather(1, rivals[:, None])[:, 0]
        return _ROUNDINGS * eps * (2 + norm) * size


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
    precision: float = torch.finfo(torch.float64).eps,
) -> Broken:
    """Search all rivals within reach from several starts. ``layer`` and ``x`` are float64.

    ``precision`` is the eps of the arithmetic in which the examples must stay examples.
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
        part = slice(begin, begin + _CHUNK)
        for start in range(starts):
            _improve(
                layer, x, labels, region, row[part], rival[part], start, generator, first, result, precision
            )
    return result


def _improve(  # noqa: PLR0917
    layer: Attacked,
    x: Tensor,
    labels: Tensor,
    region: Region,
    row: Tensor,
    rival: Tensor,
    start: int,
    generator: torch.Generator,
    first: Tensor,
    result: Broken,
    precision: float,
) -> None:
    origin, label = x[row], labels[row]
    eps = first[row, rival]
    at = origin
    if start:  # begin at the gradient of a random point of the region
        noise = torch.rand(origin.shape, generator=generator, dtype=x.dtype).to(x.device) * 2 - 1
        at = origin + region.step(region.steepest(-noise), eps, origin)
    _, g = value_and_gradient(layer, at, label, rival)
    for _ in range(_ROUNDS):
        direction = region.steepest(g)
        step = region.step(direction, eps, origin)
        f, g = value_and_gradient(layer, origin + step, label, rival)
        slope = (g * region.free(direction, step, eps)).sum(1)
        newton = eps - f / torch.where(slope < 0, slope, -slope.abs().clamp_min(1e-300))
        # No further than twice or half at once: f is not linear far away.
        newton = torch.where(newton.isfinite(), newton, eps)
        change = ((newton - eps).abs() / eps).max()
        eps = torch.minimum(torch.maximum(newton, eps / 2), eps * 2)
        if bool(change < 1e-9):
            break
    _shorten(layer, region, origin, label, rival, row, direction, eps, result, precision)


def _shorten(  # noqa: PLR0917
    layer: Attacked,
    region: Region,
    origin: Tensor,
    label: Tensor,
    rival: Tensor,
    row: Tensor,
    direction: Tensor,
    eps: Tensor,
    result: Broken,
    precision: float,
) -> None:
    """The smallest radius along the last direction at which the margin was seen below zero."""
    with torch.no_grad():
        end = origin + region.step(direction, eps, origin)
        enough = 2 * rounding(layer, end, label, rival, precision)
        low, high, broken = torch.zeros_like(eps), eps, torch.zeros_like(eps, dtype=torch.bool)
        for k in range(_RAY_STEPS):
            trial = torch.where(broken, (low + high) / 2, eps * (1 + 1e-9 * 6.0**k))
            if k == 0:
                trial = eps
            f = margins(layer, origin + region.step(direction, trial, origin), label, rival)
            down = f < -enough
            low = torch.where(down, low, torch.maximum(low, trial))
            high = torch.where(down, trial, high)
            broken |= down
        for i in torch.nonzero(broken)[:, 0].tolist():
            r = int(row[i])
            if high[i] < result.radius[r]:
                result.radius[r] = high[i]
                result.step[r] = region.step(direction[i : i + 1], high[i : i + 1], origin[i : i + 1])[0]
                result.target[r] = rival[i]
                result.certain[r] = True
