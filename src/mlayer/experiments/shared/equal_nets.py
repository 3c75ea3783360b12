"""Nets with the M-layer's number of parameters: the dense net of the paper's table of run times, and others.

| set | M-layer | ReLU | maxout | linear |
|---|---|---|---|---|
| MNIST | 68,885 | 784-65-100-100-10: 68,735 | 784-33-100-48-10, two maps per unit: 68,796 | 7,850 |
| CIFAR-10, SVHN | 148,965 | 3072-43-100-100-10: 147,649 | 3072-21-100-73-10: 148,952 | 30,730 |

The ReLU net of CIFAR-10 is the paper's; the others have its shape, the first width chosen for the count.
`LARGE` is not of equal size: the dense net of the paper's table of accuracies, with 8,049,010 parameters.
"""

from __future__ import annotations

from mlayer.experiments.shared.image_rivals import WIDTHS, dense_classifier
from mlayer.experiments.shared.image_training import Build, layer_builder

NETS = ("M-layer", "ReLU", "maxout", "linear")
LARGE = "large ReLU"
_RELU = {"mnist": (65, 100, 100), "cifar10": (43, 100, 100), "svhn": (43, 100, 100), "digits": (20, 16)}
_MAXOUT = {"mnist": (33, 100, 48), "cifar10": (21, 100, 73), "svhn": (21, 100, 73), "digits": (10, 16)}


def _dense_builder(kind: str, widths: tuple[int, ...]) -> Build:
    """Makes a dense net, Glorot uniform weights and zero biases whatever the recipe's start."""
    return lambda inputs, classes, _, generator: dense_classifier(kind, inputs, widths, classes, generator)


def build_net(net: str, name: str) -> Build:
    """The builder of one of `NETS`, or `LARGE`, for an image set.

    >>> import torch
    >>> def count(net, name, inputs):
    ...     made = build_net(net, name)(inputs, 10, "notebook", torch.Generator())
    ...     return sum(p.numel() for p in made.parameters())
    >>> [count(net, "mnist", 784) for net in NETS]
    [68885, 68735, 68796, 7850]
    >>> [count(net, "cifar10", 3072) for net in NETS]
    [148965, 147649, 148952, 30730]
    >>> count(LARGE, "cifar10", 3072)
    8049010
    """
    if net == LARGE:
        return _dense_builder("ReLU", (24, 16) if name == "digits" else WIDTHS)
    if net == "M-layer":
        return layer_builder(6, 8) if name == "digits" else layer_builder()
    if net == "linear":
        return _dense_builder("ReLU", ())  # no hidden layer, hence no activation
    return _dense_builder(net, (_RELU if net == "ReLU" else _MAXOUT)[name])
