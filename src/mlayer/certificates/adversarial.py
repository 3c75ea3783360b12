"""`attack`: adversarial examples within eps, and the smallest radius that breaks each row.

docs/theory/certificates-attack.md. With `certify` it brackets the truth: certified <= true for the exact
function, true <= attacked as far as float64 evaluates margins with the right sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.certificates.adversarial_search import (
    Attacked,
    rounding,
    smallest_margin,
    smallest_radius,
    value_and_gradient,
)
from mlayer.certificates.arguments import (
    as_inputs,
    as_labels,
    as_layer,
    as_radius,
    check_count,
    inside_box,
)
from mlayer.certificates.networks.network import as_network, flat_ends
from mlayer.certificates.problem.region import Box, Norm, Region, make_region
from mlayer.certificates.problem.weights import float64_copy
from mlayer.certificates.torch_state import own_conditions

_SEED = 0
_MOST = 10**6  # starts, steps or restarts: more would run for days, 2**63 without end


@dataclass(frozen=True)
class Attack:
    """The result of an attack, one entry per row; float64 on the CPU.

    Attributes:
        radius: the smallest radius at which a misclassified example was found; inf if none was, 0 for rows
            that are misclassified or tied to begin with. An upper bound of the true radius.
        adversarial: (rows, m). Where ``success``, an input within eps that is misclassified (without eps:
            the one at ``radius``), by a margin beyond the rounding of the layer's own precision: it stays
            misclassified in another batch and on another machine. Elsewhere the input itself.
        success: whether such an input was found.
        target: the class it turns into; the label where there is none.
        eps: the radius asked about, or None.
    """

    radius: Tensor
    adversarial: Tensor
    success: Tensor
    target: Tensor
    eps: float | None


@own_conditions()
def attack(
    layer: Any,
    x: Tensor,
    labels: Tensor,
    eps: float | None = None,
    norm: Norm = "linf",
    *,
    scale: Tensor | float | None = None,
    box: Box | None = None,
    starts: int = 4,
    pgd_steps: int = 40,
    pgd_restarts: int = 2,
) -> Attack:
    """Search for inputs near x that are misclassified.

    The smallest radius comes from a fixed-point and Newton search (`adversarial_search.py`); rows that it
    does not break within ``eps`` are attacked there by projected gradient descent with restarts.

    Args:
        layer: an MLayer, an estimator with ``to_mlayer()``, or a Sequential that ends in an MLayer.
        x: (rows, in_features), or the shape that the Sequential takes.
        labels: (rows,).
        eps: the radius of interest, or None for the smallest only.
        norm: "linf" or "l2".
        scale: unit of each feature, as in `certify`.
        box: (low, high), as in `certify`.
        starts: of the search for the smallest radius; a million at most.
        pgd_steps: steps of projected gradient descent; a million at most.
        pgd_restarts: its restarts; a million at most.

    >>> import torch, mlayer
    >>> from mlayer.certificates import attack
    >>> layer = mlayer.MLayer(3, 2, matrix_size=3, embedding_size=None).double()
    >>> x = torch.rand(5, 3).double()
    >>> found = attack(layer, x, layer(x).argmax(1), eps=0.1)
    >>> bool(((found.adversarial - x).abs() <= 0.1 + 1e-12).all())
    True
    """
    layer64: Attacked
    if isinstance(layer, nn.Sequential):
        layer64, flat = as_network(layer, x)
        precision = torch.finfo(layer64.stored_in)
        region = make_region(layer64.in_features, norm, flat_ends(scale), flat_ends(box))
        shape, x = x.shape, flat
    else:
        layer = as_layer(layer)
        precision = torch.finfo(layer.readout.dtype)
        layer64 = float64_copy(layer)
        region = make_region(layer64.in_features, norm, scale, box)
        x = as_inputs(layer64, x)
        shape = x.shape
    labels = as_labels(layer64, labels, len(x))
    inside_box(x, region.low, region.high)
    for name, count, least in (
        ("starts", starts, 1),
        ("pgd_steps", pgd_steps, 0),
        ("pgd_restarts", pgd_restarts, 0),
    ):
        check_count(name, count, least, _MOST, "Leave it out for the default.")
    radius = None if eps is None else as_radius(eps)
    generator = torch.Generator().manual_seed(_SEED)  # its own: the same call finds the same
    found = smallest_radius(layer64, x, labels, region, starts, generator, precision)
    success = found.certain & (found.radius <= (torch.inf if radius is None else radius))
    adversarial = torch.where(success[:, None], region.moved(x, found.step), x)
    if radius is not None and pgd_steps and pgd_restarts:
        left = torch.nonzero(~success)[:, 0]
        for _ in range(pgd_restarts):
            if not len(left):
                break
            points = descend(layer64, x[left], labels[left], region, radius, pgd_steps, generator)
            with torch.no_grad():
                outputs = layer64(points)
            margin, rivals = smallest_margin(outputs, labels[left])
            down = margin < -rounding(layer64, points, labels[left], rivals, precision)
            hit = left[down]
            success[hit], adversarial[hit] = True, points[down]
            # Found within eps, though the search had thought eps too small.
            found.radius[hit] = torch.minimum(found.radius[hit], torch.full_like(found.radius[hit], radius))
            left = left[~down]
    # The class that was searched for need not be the largest: another one may be above it there.
    with torch.no_grad():
        _, classes = smallest_margin(layer64(adversarial), labels)
    target = torch.where(success, classes, labels)
    return Attack(found.radius, adversarial.reshape(shape), success, target, radius)


def descend(  # noqa: PLR0917
    layer: Attacked,
    x: Tensor,
    labels: Tensor,
    region: Region,
    eps: float,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """Projected gradient descent on the smallest margin, from a random point of the region."""
    size = torch.full((len(x),), eps, dtype=x.dtype)
    noise = torch.rand(x.shape, generator=generator, dtype=x.dtype) * 2 - 1
    inner = torch.rand(len(x), generator=generator, dtype=x.dtype)
    step = region.step(region.steepest(noise), size * inner, x)
    rows = torch.arange(len(x))
    for k in range(steps):
        with torch.no_grad():
            point = region.moved(x, step)
            outputs = layer(point)
            outputs[rows, labels] = -torch.inf
        _, gradient = value_and_gradient(layer, point, labels, outputs.argmax(1))
        rate = eps * 0.5 * (1 - k / steps) + eps * 0.01
        step = _project(region, step + rate * region.steepest(gradient), eps, x)
    return region.moved(x, step)


def _project(region: Region, step: Tensor, eps: float, x: Tensor) -> Tensor:
    if region.norm == "linf":
        most = eps * region.scale * region.inward(region.scale)
        step = torch.minimum(torch.maximum(step, -most), most)
    else:
        unit = torch.where(region.scale > 0, region.scale, torch.ones_like(region.scale))
        length = (step / unit).norm(dim=1, keepdim=True)
        step = step * (eps / length.clamp_min(eps if eps > 0 else 1e-300)) * region.inward(unit)
    return region.cut(step, x)
