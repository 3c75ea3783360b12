"""The M-layer with dropout at one of three places, composed of torch's own modules.

- "inputs": components of x.
- "generators": components of z = U x + u. Since M = B + sum_a z_a T_a, this drops a generator T_a for one
  example, so that dropout of features and of generators is the same thing.
- "exponential": entries of exp(M), before the readout. The penalty on exp(M) sees the entries as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from mlayer.experiments.shared.image_training import Build
from mlayer.nn import MLayer

PLACES = ("inputs", "generators", "exponential")


class _DropsExponential(MLayer):
    """An M-layer whose readout sees exp(M) with some entries set to 0."""

    rate = 0.0

    def _read(self, exponentials: Tensor, x: Tensor) -> Tensor:
        return super()._read(dropout(exponentials, self.rate, self.training), x)


def dropout_builder(place: str, rate: float, matrix_size: int, embedding_size: int) -> Build:
    """Makes an M-layer with dropout at one of `PLACES`; it has the weights that one without it would have.

    ``rate`` is the probability that a component is set to 0.
    """

    def build(inputs: int, classes: int, init: str, generator: torch.Generator) -> nn.Module:
        kind = _DropsExponential if place == "exponential" else MLayer
        layer = kind(inputs, classes, matrix_size, embedding_size, init=init, generator=generator)
        if isinstance(layer, _DropsExponential):
            layer.rate = rate
            return layer
        if place == "inputs":
            return nn.Sequential(nn.Dropout(rate), layer)
        return nn.Sequential(*_apart(layer, rate))

    return build


def _apart(layer: MLayer, rate: float) -> tuple[nn.Linear, nn.Dropout, MLayer]:
    """The embedding z = U x + u and the layer that takes z, with dropout between them."""
    assert layer.embedding is not None
    embed = nn.Linear(layer.in_features, layer.generator_count)
    of_features = MLayer(layer.generator_count, layer.out_features, layer.matrix_size, None)
    with torch.no_grad():
        embed.weight.copy_(layer.embedding)
        assert layer.embedding_bias is not None
        embed.bias.copy_(layer.embedding_bias)
        for name, parameter in of_features.named_parameters():
            parameter.copy_(layer.get_parameter(name))
    return embed, nn.Dropout(rate), of_features
