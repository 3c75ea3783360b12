"""`bounds`: intervals and affine bounds of outputs over boxes of inputs, of a layer or of a network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mlayer.certificates.arguments import as_combinations, as_ends, check_count, of_known_function
from mlayer.certificates.boxes.output_bounds import BoundsOfBoxes, BoxBounds, OutputBounds, refine
from mlayer.certificates.networks.network import as_network_and_ends
from mlayer.certificates.networks.network_bounds import NetworkBounds
from mlayer.certificates.problem.weights import float64_copy
from mlayer.certificates.torch_state import own_conditions

_MOST_SPLITS = 10_000  # parts more per box: a limit on the time of one call


@own_conditions()
def bounds(
    layer: Any, low: Tensor, high: Tensor, C: Tensor | None = None, *, splits: int = 0
) -> OutputBounds:
    """Bounds of the outputs, or of combinations C p(x) of them, for all inputs of boxes.

    They hold for the exact real function of the stored weights: rounding is charged. They come from
    expansions of first and second order at the centers of the boxes (docs/theory/certificates-boxes.md),
    carried back through the modules in front of the layer (docs/theory/certificates-networks.md).

    Args:
        layer: an MLayer, an estimator with ``to_mlayer()``, or a Sequential that ends in an MLayer, made of
            the modules that `certify` knows, in evaluation mode.
        low: lower ends, (rows, in_features), or (rows, ...) as the Sequential takes them; one box for each
            row.
        high: upper ends, likewise.
        C: (k, out_features), or (rows, k, out_features) with one for each row; None for the outputs.
        splits: cut each box into up to this many parts more for tighter numbers, at up to that many times the
            cost, until they are within a thousandth of the interval's width of the extremes. The affine
            functions stay those of the whole box.

    Slopes have the shape (rows, k, m), m the number of entries of one input: those of images are in the order
    of ``x.flatten(1)``.

    >>> import torch, mlayer
    >>> layer = mlayer.MLayer(3, 2, matrix_size=3, embedding_size=None).double()
    >>> x = torch.rand(5, 3).double()
    >>> found = mlayer.bounds(layer, x - 0.01, x + 0.01)
    >>> bool(((found.lower <= layer(x)) & (layer(x) <= found.upper)).all())
    True
    """
    of_model: BoundsOfBoxes
    check_count("splits", splits, 0, _MOST_SPLITS, "A few dozen are enough for a few inputs.")
    if isinstance(layer, nn.Sequential):
        network, low, high = as_network_and_ends(layer, low, high)
        outputs, of_network = network.out_features, NetworkBounds(network)
        C = None if C is None else as_combinations(network, C, len(low))
        center = low + (high - low) / 2
        with torch.no_grad():
            features = network.features(center)
            of_network.check_agreement(center, features, network.layer(features))
        of_model, found = of_network, of_network(low, high, C)
    else:
        layer = of_known_function(layer)
        low, high = as_ends(layer, low, high)
        C = None if C is None else as_combinations(layer, C, len(low))
        outputs, of_layer = layer.out_features, BoxBounds(float64_copy(layer))
        of_model, found = of_layer, of_layer(low, high, C)
        of_layer.check_agreement(found, low + (high - low) / 2, C)
    if not splits:
        return found
    return refine(of_model, found, low, high, torch.eye(outputs).double() if C is None else C, splits)
