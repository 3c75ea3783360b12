"""Clean, attacked and certified accuracy at one radius of a network on images in [0, 1].

The certificates are those of `mlayer.certify`, which are proved: intervals for all images, more effort for
those that intervals do not settle. Every image is attacked, also the certified ones: one that is broken
would be a false certificate, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.certificates.adversarial_search import smallest_margin
from mlayer.certificates.networks.certifier import EFFORTS, ROWS, Effort, NetworkCertifier
from mlayer.certificates.networks.linear_end import LinearNetwork
from mlayer.certificates.networks.network import Network
from mlayer.certificates.problem.region import make_region
from mlayer.experiments.shared.robust_accuracy import Tally
from mlayer.experiments.shared.robust_loss import box_of
from mlayer.nn import MLayer

_CHUNK = 500
# Every image is attacked by a few steps; one that is not certified by more, and from several points.
_QUICK_STEPS = 10
_STEPS, _STARTS = 50, 4
_SEED = 0
Progress = Callable[[float], None]


@dataclass(frozen=True)
class NetworkTally:
    """Counts of the images."""

    tally: Tally  # images that are classified correctly: as they are, under attack, provably
    by_effort: dict[Effort, int]  # how many were certified by each effort
    false_certificates: int  # images that are certified and were broken

    def __add__(self, other: NetworkTally) -> NetworkTally:
        by_effort = {effort: count + other.by_effort[effort] for effort, count in self.by_effort.items()}
        false = self.false_certificates + other.false_certificates
        return NetworkTally(self.tally + other.tally, by_effort, false)

    def facts(self) -> dict[str, Any]:
        """Accuracies in percent, and the counts."""
        return {
            **self.tally.percent(),
            "certified_by": dict(self.by_effort),
            "false_certificates": self.false_certificates,
        }


def network_tally(
    network: nn.Sequential,
    x: Tensor,
    y: Tensor,
    eps: float,
    *,
    efforts: tuple[Effort, ...] = EFFORTS,
    progress: Progress | None = None,
) -> NetworkTally:
    """Certify every image at eps, attack every image.

    Args:
        network: ends in an M-layer or a linear map.
        x: images in [0, 1], (rows, colors, height, width).
        y: labels.
        eps: L-infinity radius; only steps inside [0, 1] count.
        efforts: of the certificates: the first for all images, others for those that withstand the attack.
        progress: called with the part that is done.
    """
    judged = _TestedNetwork(network, tuple(x.shape[1:]))
    total = NetworkTally(Tally(), dict.fromkeys(efforts, 0), 0)
    generator = torch.Generator().manual_seed(_SEED)
    for begin in range(0, len(x), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        total += _part(judged, x[part], y[part], eps, efforts, generator)
        if progress is not None:
            progress(min(1.0, (begin + _CHUNK) / len(x)))
    return total


class _TestedNetwork:
    """A network as it is trained, in float64, and its certificates."""

    def __init__(self, network: nn.Sequential, shape: tuple[int, ...]) -> None:
        self.network = network
        self.exact: Network | LinearNetwork
        if isinstance(network[-1], MLayer):
            self.exact = Network(network, shape)
            region = make_region(self.exact.in_features, "linf", None, (0.0, 1.0))
            self._certifier = NetworkCertifier(self.exact, region)
        else:
            self.exact = LinearNetwork(network, shape)

    def certify(self, x: Tensor, y: Tensor, eps: float, effort: Effort) -> Tensor:
        """A mask of the flat images that are certified at eps."""
        if isinstance(self.exact, Network):
            return self._certifier(x, y, eps, efforts=(effort,)).certified
        low, high = box_of(x, eps)
        # The ends are rounded: a box that is larger by a rounding holds the true one.
        low, high = torch.nextafter(low, low - 1), torch.nextafter(high, high + 1)
        proved = [
            (self.exact.margins(low[rows], high[rows], y[rows], effort) > 0).all(1)
            for rows in torch.arange(len(x)).split(ROWS[effort])
        ]
        return torch.cat(proved) if proved else torch.zeros(0, dtype=torch.bool)


def _part(  # noqa: PLR0917
    judged: _TestedNetwork,
    images: Tensor,
    labels: Tensor,
    eps: float,
    efforts: tuple[Effort, ...],
    generator: torch.Generator,
) -> NetworkTally:
    exact, flat = judged.exact, images.double().flatten(1)

    def attack(rows: Tensor, steps: int) -> Tensor:
        return broken_by_attack(judged.network, exact, images[rows], labels[rows], eps, steps, generator)

    def certify(rows: Tensor, effort: Effort) -> Tensor:
        return judged.certify(flat[rows], labels[rows], eps, effort)

    with torch.no_grad():
        clean = smallest_margin(exact(flat), labels)[0] > 0
    standing, certified = clean.clone(), torch.zeros_like(clean)
    # The attack and the first effort see the same images: neither knows of the other.
    standing[clean] = ~attack(clean, _QUICK_STEPS)
    certified[clean] = certify(clean, efforts[0])
    by_effort = {efforts[0]: int(certified.sum())}
    for _ in range(_STARTS):
        rows = torch.nonzero(standing & ~certified)[:, 0]
        standing[rows] = ~attack(rows, _STEPS)
    for effort in efforts[1:]:
        rows = torch.nonzero(standing & ~certified)[:, 0]
        certified[rows] = certify(rows, effort)
        by_effort[effort] = int(certified[rows].sum())
    tally = Tally(len(images), int(clean.sum()), int(standing.sum()), int(certified.sum()))
    return NetworkTally(tally, by_effort, int((certified & ~standing).sum()))


def broken_by_attack(  # noqa: PLR0917
    network: nn.Sequential,
    exact: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """A mask of the images that gradient descent on the smallest margin breaks within eps and [0, 1].

    The steps are made in float32; the end is moved into the box and judged in float64.
    """
    if not len(x):
        return torch.zeros(0, dtype=torch.bool)
    low, high = box_of(x, eps)
    point = low + torch.rand(x.shape, generator=generator) * (high - low)
    down = torch.zeros(len(x), dtype=torch.bool)
    exact_low, exact_high = box_of(x.double(), eps)
    for step in range(steps + 1):
        point.requires_grad_(True)
        with torch.enable_grad():
            margin, _ = smallest_margin(network(point), y)
            (gradient,) = torch.autograd.grad(margin.sum(), point)
        point = point.detach()
        likely = torch.nonzero((margin.detach() <= 0) & ~down)[:, 0]
        if len(likely):
            inside = point[likely].double().clamp(exact_low[likely], exact_high[likely])
            with torch.no_grad():
                scores = exact(inside.flatten(1))
            down[likely] = scores.argmax(1) != y[likely]
        # From half the box down to a hundredth of it.
        size = eps * max(0.01, 0.5 * (1 - step / max(1, steps)))
        point = (point - size * gradient.sign()).clamp(low, high)
    return down
