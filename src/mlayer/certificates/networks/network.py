"""A `Sequential` that ends in an M-layer: its front as steps, and as a function that the attack can call."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.certificates.arguments import as_float64, check_ends, check_plain
from mlayer.certificates.modules import (
    check_copy,
    check_function,
    check_mlayer,
    check_mode,
    check_surroundings,
    check_weights,
    with_plain_structure,
)
from mlayer.certificates.networks.steps import KNOWN, Step, check_known, read_front
from mlayer.certificates.problem.weights import float64_copy
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.arguments import check_not_nested
from mlayer.nn.layer import MLayer

# Modules whose outputs are sums: each adds a rounding error.
_SUMS = (nn.Linear, nn.Conv2d, nn.AvgPool2d, nn.BatchNorm1d, nn.BatchNorm2d)


class Network(nn.Module):
    """A front and the M-layer behind it, in float64 on the CPU and in evaluation mode; inputs are flat.

    Args:
        model: a `torch.nn.Sequential` that ends in an MLayer.
        shape: of one input, without the batch.
        classes: whether the outputs are those of classes, at least 2.
    """

    def __init__(self, model: nn.Sequential, shape: tuple[int, ...], classes: bool = True) -> None:
        super().__init__()
        check_surroundings("model")
        check_weights("model", model)
        for module in model.modules():
            check_function("model", module, (*KNOWN, nn.Sequential, MLayer), hooks=False)
            check_mode("model", module)
        *front, layer = flat_modules(model) or [model]
        if not isinstance(layer, MLayer):
            raise ArgumentTypeError(
                "model",
                "a Sequential that ends in an MLayer",
                f"one that ends in {type(layer).__name__}",
                "Leave it out: the largest output stays the largest."
                if isinstance(layer, nn.Softmax | nn.LogSoftmax)
                else "Put an MLayer last.",
            )
        if classes and layer.out_features < 2:
            raise ArgumentError(
                "model", "a classifier with at least 2 outputs", "one with 1 output", "Use one per class."
            )
        for module in front:
            check_known(module)
        check_mlayer("model", layer, hooks=False)
        self.shape, self.stored_in = shape, layer.readout.dtype
        self.layer = float64_copy(with_plain_structure("model", layer))
        check_weights("model", self.layer)
        # A copy of all at once: what is used twice stays one module.
        self.front = deepcopy(nn.Sequential(*front)).to(device="cpu", dtype=torch.float64).eval()
        check_copy("model", nn.Sequential(*front), self.front)
        self.front.requires_grad_(False)
        for module in self.front.modules():
            if getattr(module, "inplace", False):  # would change the caller's x, and block gradients
                module.inplace = False  # type: ignore[assignment]
        self.in_features, self.out_features = int(torch.Size(shape).numel()), layer.out_features
        self.steps: list[Step] = read_front(list(self.front), shape, layer.in_features)

    def features(self, x: Tensor) -> Tensor:
        """The inputs of the M-layer.  (rows, in_features) -> (rows, features)"""
        found: Tensor = self.front(x.reshape(-1, *self.shape))
        return found

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        outputs: Tensor = self.layer(self.features(x))
        return outputs

    def feature_terms(self, x: Tensor) -> Tensor:
        """The features with the absolute values of all terms that they are computed from.  (rows, features)

        Times a precision this is about the rounding error of the features, which may cancel: of each module
        the error of its inputs, and the terms of its sums.
        """
        h = x.reshape(-1, *self.shape)
        terms = h.abs()
        for module, absolute in zip(self.front, self._absolute_front, strict=True):
            terms = absolute(terms + h.abs() if isinstance(module, _SUMS) else terms)
            h = module(h)
        return terms + h.abs()

    @cached_property
    def _absolute_front(self) -> nn.Sequential:
        """The front with the absolute values of its weights: of numbers >= 0 it gives the sums of terms."""
        front = deepcopy(self.front)
        with torch.no_grad():
            for parameter in front.parameters():
                parameter.abs_()
            for module in front.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_mean is not None:
                    module.running_mean.copy_(-module.running_mean.abs())
        return front


def as_network(model: nn.Sequential, x: object) -> tuple[Network, Tensor]:
    """The network for inputs like x, and x as rows of float64 numbers."""
    rows = _as_batch("x", x)
    return Network(model, tuple(rows.shape[1:])), rows.flatten(1)


def as_network_and_ends(model: nn.Sequential, low: object, high: object) -> tuple[Network, Tensor, Tensor]:
    """The network for inputs in boxes, with any number of outputs, and the ends as rows of float64."""
    lows, highs = _as_batch("low", low), _as_batch("high", high)
    check_ends(lows, highs)
    network = Network(model, tuple(lows.shape[1:]), classes=False)
    return network, lows.flatten(1), highs.flatten(1)


def _as_batch(argument: str, x: object) -> Tensor:
    """Inputs of a network as float64 on the CPU, (rows, ...)."""
    if isinstance(x, Tensor):
        check_not_nested(x, argument)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        came = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise ArgumentTypeError(argument, "a floating point tensor", came, "Convert it with torch.as_tensor.")
    check_plain(argument, x)
    if x.dim() < 2:
        raise ArgumentError(
            argument,
            "a batch of inputs of the model",
            f"shape {tuple(x.shape)}",
            f"One input alone: {argument}[None].",
        )
    if x.is_meta or x.layout != torch.strided:
        came = "a tensor without data (meta)" if x.is_meta else f"layout {x.layout}"
        raise ArgumentTypeError(argument, "a dense tensor with data", came, "Convert it with .to_dense().")
    if not bool(x.isfinite().all()):
        raise ArgumentError(argument, "finite", "NaN or infinity", "Remove such rows.")
    return as_float64(argument, x)


def flat_modules(model: nn.Module) -> list[nn.Module]:
    """The modules of nested Sequentials, in order."""
    if isinstance(model, nn.Sequential):
        return [inner for module in model for inner in flat_modules(module)]
    return [model]


def flat_ends(value: Any) -> Any:
    """A tensor, or a pair of them, in the order of flat inputs; numbers as they are."""
    if isinstance(value, tuple | list):
        return tuple(map(flat_ends, value))
    return value.flatten() if isinstance(value, Tensor) else value
