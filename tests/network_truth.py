"""The truth about networks that end in an M-layer: modules written out number by number, in Arb balls.

Nothing of `mlayer.certificates` is used here.
"""

from __future__ import annotations

from typing import Any

import flint
import torch
from torch import Tensor, nn

from certificate_truth import BITS, outputs, stored
from mlayer import MLayer

arb = flint.arb


def exact_front(front: Any, image: Any) -> list[Any]:
    """The features of one input, written out number by number; `image` is nested lists of balls."""
    h = image
    for module in front:
        if isinstance(module, nn.Linear):
            weight, bias = module.weight.double().tolist(), module.bias.double().tolist()
            h = [
                sum((arb(w) * v for w, v in zip(row, h, strict=True)), arb(b))
                for row, b in zip(weight, bias, strict=True)
            ]
        elif isinstance(module, nn.ReLU):
            h = each(h, lambda v: v if v >= 0 else arb(0))
        elif isinstance(module, nn.Flatten):
            h = [v for channel in h for line in channel for v in line]
        elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            h = [each(part, _normal(module, c)) for c, part in enumerate(h)]
        elif isinstance(module, nn.Conv2d):
            h = _convolve(module, h)
        elif isinstance(module, nn.MaxPool2d | nn.AvgPool2d):
            h = [_pool(module, channel) for channel in h]
        elif isinstance(module, nn.Sequential):
            h = exact_front(module, h)
        elif not isinstance(module, nn.Dropout | nn.Identity):
            raise TypeError(module)
    return list(h)


def each(h: Any, function: Any) -> Any:
    """The function of every number of nested lists."""
    return [each(v, function) for v in h] if isinstance(h, list) else function(h)


def _normal(module: Any, c: int) -> Any:
    mean, var = (arb(float(v[c])) for v in (module.running_mean.double(), module.running_var.double()))
    gain, shift = arb(float(module.weight.double()[c])), arb(float(module.bias.double()[c]))
    return lambda v: gain * (v - mean) / (var + arb(module.eps)).sqrt() + shift


def _convolve(module: Any, h: Any) -> Any:
    weight = module.weight.double().tolist()
    (s, _), (p, _), k = module.stride, module.padding, len(weight[0][0])
    size = len(h[0])
    out = (size + 2 * p - k) // s + 1
    result = []
    for o, kernels in enumerate(weight):
        bias = arb(float(module.bias.double()[o])) if module.bias is not None else arb(0)
        plane = [[bias for _ in range(out)] for _ in range(out)]
        for i in range(out):
            for j in range(out):
                for c, kernel in enumerate(kernels):
                    for a in range(k):
                        for b in range(k):
                            y, x = i * s + a - p, j * s + b - p
                            if 0 <= y < size and 0 <= x < size:
                                plane[i][j] = plane[i][j] + arb(kernel[a][b]) * h[c][y][x]
        result.append(plane)
    return result


def _pool(module: Any, channel: Any) -> Any:
    k, s, p, size = module.kernel_size, module.stride, module.padding, len(channel)
    out = (size + 2 * p - k) // s + 1
    plane = []
    for i in range(out):
        line = []
        for j in range(out):
            ys = [y for y in range(i * s - p, i * s - p + k) if 0 <= y < size]
            xs = [x for x in range(j * s - p, j * s - p + k) if 0 <= x < size]
            cells = [channel[y][x] for y in ys for x in xs]
            if isinstance(module, nn.AvgPool2d):
                line.append(sum(cells, arb(0)) / (k * k if module.count_include_pad else len(cells)))
            else:
                best = cells[0]
                for cell in cells[1:]:
                    best = cell if cell > best else best
                line.append(best)
        plane.append(line)
    return plane


def vectors(seed: int) -> tuple[nn.Sequential, Tensor]:
    """A network on vectors, and rows for it."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(4, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 5),
        nn.ReLU(),
        nn.Dropout(0.5),
        MLayer(5, 3, matrix_size=4),
    )
    return filled(model, generator), torch.rand(3, 4, generator=generator)


def images(seed: int) -> tuple[nn.Sequential, Tensor]:
    """A network on images, and rows for it."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=1, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2, padding=seed % 2),
        nn.AvgPool2d(2, stride=1, padding=seed % 2, count_include_pad=seed % 4 < 2),
        nn.Flatten(),
        nn.Linear({0: 3, 1: 48}[seed % 2], 4),
        nn.ReLU(),
        MLayer(4, 3, matrix_size=3),
    )
    return filled(model, generator), torch.rand(3, 1, 4, 4, generator=generator)


def filled(model: nn.Sequential, generator: torch.Generator) -> nn.Sequential:
    """Weights with which radii are about 0.1, and statistics as after training."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        for module in model:
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean = torch.randn(module.num_features, generator=generator)
                module.running_var = torch.rand(module.num_features, generator=generator) + 0.3
    return model.eval().requires_grad_(False)


def exact_outputs(model: nn.Sequential, x: Tensor) -> list[Any]:
    """The outputs at one float64 input."""
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        features = exact_front(model[:-1], each(x.double().tolist(), arb))
        return outputs(stored(model[-1]), features)  # type: ignore[arg-type]
    finally:
        flint.ctx.prec = before
