"""The smallest radius that breaks a row: a fixed point in the direction, Newton in the radius.

docs/theory/certificates-attack.md. For one pair (row, rival class) with margin f and steepest unit
direction s, the pair (s, eps) is improved by

    s <- the unit step along which the linearised margin at eps s falls fastest
    eps <- eps - f(eps s) / (d/d eps) f(eps s)

until f(eps s) = 0. What is returned was evaluated and found broken: it is an upper bound of the true
radius whatever the iteration did.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.certificates.region import Region
from mlayer.nn.layer import MLayer

_ROUNDS = 12
_RAY_STEPS = 14
# Pairs with a first-order radius beyond this multiple of the row's smallest are not tried.
_REACH = 3.0
_CHUNK = 2048


@dataclass
class Broken:
    """Per row: the smallest radius found to break it, the step that does, and the class it turns into."""

    radius: Tensor  # (rows,), inf where nothing was found
    step: Tensor  # (rows, m): delta, in the inputs' units
    target: Tensor  # (rows,)


def margins(layer: MLayer, x: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    """Output of the label's class minus that of the rival.  (rows,)"""
    p = layer(x)
    return p.gather(1, labels[:, None])[:, 0] - p.gather(1, rivals[:, None])[:, 0]


def value_and_gradient(layer: MLayer, x: Tensor, labels: Tensor, rivals: Tensor) -> tuple[Tensor, Tensor]:
    """Margins and their gradients in x."""
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        f = margins(layer, point, labels, rivals)
        (gradient,) = torch.autograd.grad(f.sum(), point)
    return f.detach(), gradient


def smallest_radius(  # noqa: PLR0917
    layer: MLayer, x: Tensor, labels: Tensor, region: Region, starts: int, generator: torch.Generator
) -> Broken:
    """Search all rivals within reach from several starts. ``layer`` and ``x`` are float64."""
    rows, classes = len(x), layer.out_features
    result = Broken(
        torch.full((rows,), torch.inf, dtype=x.dtype, device=x.device),
        torch.zeros_like(x),
        labels.clone(),
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
    limit = _REACH * first.min(1, keepdim=True).values
    row, rival = torch.nonzero((first <= limit) & first.isfinite() & ~wrong[:, None], as_tuple=True)
    for begin in range(0, len(row), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        for start in range(starts):
            _improve(layer, x, labels, region, row[part], rival[part], start, generator, first, result)
    return result


def _improve(  # noqa: PLR0917
    layer: MLayer,
    x: Tensor,
    labels: Tensor,
    region: Region,
    row: Tensor,
    rival: Tensor,
    start: int,
    generator: torch.Generator,
    first: Tensor,
    result: Broken,
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
    _shorten(layer, region, origin, label, rival, row, direction, eps, result)


def _shorten(  # noqa: PLR0917
    layer: MLayer,
    region: Region,
    origin: Tensor,
    label: Tensor,
    rival: Tensor,
    row: Tensor,
    direction: Tensor,
    eps: Tensor,
    result: Broken,
) -> None:
    """Along the last direction, the smallest radius at which the margin was seen to be <= 0."""
    with torch.no_grad():
        low, high, broken = torch.zeros_like(eps), eps, torch.zeros_like(eps, dtype=torch.bool)
        for k in range(_RAY_STEPS):
            trial = torch.where(broken, (low + high) / 2, eps * (1 + 1e-9 * 6.0**k))
            if k == 0:
                trial = eps
            f = margins(layer, origin + region.step(direction, trial, origin), label, rival)
            down = f <= 0
            low = torch.where(down, low, torch.maximum(low, trial))
            high = torch.where(down, trial, high)
            broken |= down
        for i in torch.nonzero(broken)[:, 0].tolist():
            r = int(row[i])
            if high[i] < result.radius[r]:
                result.radius[r] = high[i]
                result.step[r] = region.step(direction[i : i + 1], high[i : i + 1], origin[i : i + 1])[0]
                result.target[r] = rival[i]
