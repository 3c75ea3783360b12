"""Cross-entropy under attack plus what the certificates of a one-ReLU-layer network lose: certified training.

For networks of `pooled_network`, whose certificates are those of zonotopes. To first order in the box three
terms bound the worst loss: the loss at the corner that its gradient points to; the heights of the ReLUs'
chords, weighed by the gradient of the loss in their outputs; and the rest of third order of the M-layer's
margins (docs/theory/certificates-boxes.md), weighed by the probability of the other classes. The first is
that of adversarial training; the others cost little more, and without them nothing would be certified.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d, cross_entropy, pad

from mlayer.certificates.loss import pair_norms, top_of_product
from mlayer.experiments.shared.interval_loss import as_images
from mlayer.experiments.shared.robust_loss import box_of
from mlayer.nn import MLayer


class PooledModel(nn.Module):
    """A network of standardized flat images; it counts the batches of its training.

    Args:
        network: of `pooled_network`.
        shape: (height, width, colors) of the images; flat ones have this order.
        mean: (colors,), what becomes 0.
        deviation: (colors,), what becomes 1 above that.

    Attributes:
        batches: of training seen so far; in the state, so that a resumed run knows it.
    """

    batches: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(
        self, network: nn.Sequential, shape: tuple[int, ...], mean: Tensor, deviation: Tensor
    ) -> None:
        super().__init__()
        self.network, self.shape = network, shape
        self.register_buffer("mean", mean[:, None, None], persistent=False)
        self.register_buffer("deviation", deviation[:, None, None], persistent=False)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(b, h w c) -> (b, classes)"""
        return self.behind(self.before(x).relu())

    def before(self, x: Tensor) -> Tensor:
        """The inputs of the ReLUs.  (b, h w c) -> (b, channels, height, width)"""
        found: Tensor = self.network[0]((as_images(x, self.shape) - self.mean) / self.deviation)
        return found

    def behind(self, h: Tensor) -> Tensor:
        """The outputs, from the outputs of the ReLUs."""
        outputs: Tensor = self.network[2:](h)
        return outputs

    @torch.no_grad()
    def plain(self) -> nn.Sequential:
        """The network of images in [0, 1], of which it keeps no other copy."""
        first = self.network[0]
        assert isinstance(first, nn.Conv2d)
        assert first.bias is not None
        first.weight.div_(self.deviation)
        first.bias.sub_((first.weight * self.mean).sum((1, 2, 3)))
        return self.network


@dataclass(frozen=True)
class RelaxedCrossEntropy:
    """The loss of a `PooledModel` within eps (L-infinity), cut to [0, 1].

    In evaluation mode the outputs are those at the attacked corner: their accuracy is that under attack.
    """

    eps: float  # the radius at the end of the ramp
    ramp: int = 0  # training batches over which the radius grows from 0
    chords: float = 1.0  # times what the chords of the ReLUs lose
    rest: float = 1.0  # times the rest of third order
    some: int = 4  # the chords of the first images of a batch, a part of 1 / this, stand for all of them
    rest_every: int = 4  # batches; the rest moves slowly, and costs as much as the loss itself

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs and the loss of each example."""
        assert isinstance(model, PooledModel)
        if not model.training:
            corner = _corner(model, x, y, *box_of(x, self.eps))
            outputs = model(corner)
            return outputs, cross_entropy(outputs, y, reduction="none")
        done = int(model.batches)
        eps = self.eps * (min(1.0, (done + 1) / self.ramp) if self.ramp else 1.0)
        model.batches += 1
        low, high = box_of(x, eps)
        middle = ((low + high) / 2).requires_grad_(True)
        h = model.before(middle).relu()
        loss = cross_entropy(model.behind(h), y, reduction="sum")
        toward, weights = torch.autograd.grad(loss, [middle, h])
        outputs = model(torch.where(toward > 0, high, low))
        losses = cross_entropy(outputs, y, reduction="none")
        some = -(-len(x) // self.some)
        before = model.before(middle[:some].detach())
        if self.chords:
            lost = self._of_chords(model, before, weights[:some], eps)
            losses = losses + pad(self.chords * len(x) / some * lost, [0, len(x) - some])
        if self.rest and done % self.rest_every == 0 and isinstance(model.network[-1], MLayer):
            wrong = 1 - torch.softmax(outputs.detach(), 1).gather(1, y[:, None])[:, 0]
            losses = losses + self.rest * self.rest_every * wrong * self._rest(model, before, eps)
        return outputs, losses

    def _of_chords(self, model: PooledModel, before: Tensor, weights: Tensor, eps: float) -> Tensor:
        """Upper bounds of what the ReLUs' distance from planes adds to the loss, to first order.  (b,)

        Where the loss grows with an output the plane is above the ReLU, its chord; else below, 0 or h.
        """
        reach = eps * _reach(model)
        least = torch.minimum(reach - before, reach + before).relu()  # 0 where the sign is known
        chord = least * torch.maximum(reach - before, reach + before) / (2 * reach)
        return (weights.abs() * torch.where(weights > 0, chord, least)).flatten(1).sum(1)

    def _rest(self, model: PooledModel, before: Tensor, eps: float) -> Tensor:
        """||W||_2 e^mu (e^q - 1 - q - q^2 / 2), with the q of the first image, the mean mu and W.

        q is that of theorem 1 of docs/theory/certificates-boxes.md for the zonotope of features.
        """
        *_, layer = model.network
        assert isinstance(layer, MLayer)
        U, flat = layer.embedding, layer.generators.flatten(1)  # (d, features), (d, n^2)
        assert U is not None
        directions = _zonotope(model, U, before[:1].detach(), eps)  # (d, m)
        with torch.no_grad():
            sizes = ((flat @ flat.mT @ directions) * directions).sum(0).clamp_min(0).sqrt() + 1e-9
            weights = sizes / sizes.sum()
        q = top_of_product(flat, (directions / weights) @ directions.mT).clamp_min(1e-12).sqrt()
        M = layer.matrix(model.network[1:-1](before.detach()))
        mu = torch.linalg.eigvalsh((M + M.mT) / 2)[:, -1]
        norms = pair_norms(layer.readout)
        norm = norms.sum() / (len(norms) * (len(norms) - 1))
        return norm * mu.exp().mean() * (q**3 / 6 * (1 + q / 4 + q**2 / 20))


def _corner(model: PooledModel, x: Tensor, y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The corner that the gradient of the loss in the middle of the box points to."""
    with torch.enable_grad():
        middle = ((low + high) / 2).requires_grad_(True)
        loss = cross_entropy(model(middle), y, reduction="sum")
        (toward,) = torch.autograd.grad(loss, middle)
    return torch.where(toward > 0, high, low)


def _reach(model: PooledModel) -> Tensor:
    """The largest move of the input of each ReLU while pixels move by 1.  (channels, 1, 1)"""
    first = model.network[0]
    assert isinstance(first, nn.Conv2d)
    return (first.weight.abs() / model.deviation).sum((1, 2, 3))[:, None, None]


def _zonotope(model: PooledModel, U: Tensor, before: Tensor, eps: float) -> Tensor:
    """The moves of the features U h with the pixels of one image and with the errors of its ReLUs.  (d, m)"""
    first, places = model.network[0], before.shape[1:]
    assert isinstance(first, nn.Conv2d)
    reach = eps * _reach(model)
    slope = ((before + reach) / (2 * reach)).clamp(0, 1)
    half = (reach - before).relu() * (reach + before).relu() / (4 * reach)  # of the chords' heights
    # U behind averages, as a map of the ReLUs: the transpose of averaging.
    zero = torch.zeros(len(U), *places, requires_grad=True)
    (spread,) = torch.autograd.grad(model.network[2:-1](zero), zero, U, create_graph=True)
    height, width = model.shape[:2]
    unread = [
        full - first.kernel_size[0] - first.stride[0] * (out - 1)
        for full, out in zip((height, width), places[1:], strict=True)
    ]
    moved = conv_transpose2d(spread * slope, first.weight, None, first.stride, output_padding=unread)
    return torch.cat([(moved * (eps / model.deviation)).flatten(1), (spread * half).flatten(1)], 1)
