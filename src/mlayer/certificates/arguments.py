"""User input is checked once, here, at the entry of certify, attack and bounds."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from mlayer.certificates.modules import (
    PLAIN_TENSORS,
    check_mlayer,
    check_surroundings,
    check_weights,
    with_plain_structure,
)
from mlayer.certificates.torch_state import keeps_zeros
from mlayer.checks import brief, is_finite
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.arguments import check_not_nested
from mlayer.nn.arguments import check_tensor, unwrapping
from mlayer.nn.layer import MLayer


class HasOutputs(Protocol):
    """A model with one output for each class."""

    out_features: int


def as_layer(layer: Any, hooks: bool = False) -> MLayer:
    """An MLayer, or the one that an estimator gives by ``to_mlayer()``; a classifier."""
    layer = of_known_function(layer, hooks)
    if layer.out_features < 2:
        raise ArgumentError(
            "layer", "a classifier with at least 2 outputs", "one with 1 output", "Use one output per class."
        )
    return layer


def of_known_function(layer: Any, hooks: bool = False) -> MLayer:
    """The same for any number of outputs; hooks are accepted on request."""
    if not isinstance(layer, MLayer) and callable(getattr(layer, "to_mlayer", None)):
        layer = layer.to_mlayer()
    if not isinstance(layer, MLayer):
        raise ArgumentTypeError(
            "layer",
            "an MLayer or an estimator with to_mlayer()",
            type(layer).__name__,
            unwrapping(layer) or "For a network: a torch.nn.Sequential that ends in an MLayer.",
        )
    if not hooks:
        check_surroundings("layer")
    check_mlayer("layer", layer, hooks)
    check_weights("layer", layer)
    if hooks:
        return layer
    layer = with_plain_structure("layer", layer)
    check_weights("layer", layer)
    return layer


def as_inputs(layer: MLayer, x: Any, argument: str = "x") -> Tensor:
    """Inputs as float64 on the CPU, (rows, m); a conversion that changes no value."""
    check_inputs(layer, x, argument)
    return as_float64(argument, x)


def as_float64(argument: str, x: Tensor) -> Tensor:
    """A copy as float64 on the CPU, without gradients; a conversion that changes no value.

    A copy, because a callback may write into the caller's tensor while rows are certified.
    """
    x = x.detach().resolve_neg()
    copy = x.to(device="cpu", dtype=torch.float64).clone()
    if not keeps_zeros(x, copy):
        raise ArgumentError(
            argument,
            "of numbers that float64 keeps",
            "denormal ones that a thread of torch takes as 0",
            "Restart Python without torch.set_flush_denormal(True).",
        )
    return copy


def check_inputs(layer: MLayer, x: Any, argument: str = "x") -> None:
    """Raise unless ``x`` is a finite floating point tensor of shape (rows, m)."""
    check_tensor(argument, x)
    check_plain(argument, x)
    if not x.is_floating_point():
        raise ArgumentTypeError(
            argument, "of a floating point dtype", str(x.dtype), "Convert it with .float()."
        )
    if x.is_meta or x.layout != torch.strided:
        came = "a tensor without data (meta)" if x.is_meta else f"layout {x.layout}"
        raise ArgumentTypeError(argument, "a dense tensor with data", came, "Convert it with .to_dense().")
    if x.dim() != 2 or x.shape[1] != layer.in_features:
        raise ArgumentError(
            argument,
            f"of shape (rows, {layer.in_features})",
            f"shape {tuple(x.shape)}",
            "One row alone: x[None]." if x.dim() == 1 else "Flatten images first: x.flatten(1).",
        )
    if not bool(x.isfinite().all()):
        raise ArgumentError(argument, "finite", "NaN or infinity", "Remove such rows.")


def check_plain(argument: str, tensor: Tensor) -> None:
    """Raise for subclasses of tensors, whose numbers may mean something else to the model."""
    if type(tensor) not in PLAIN_TENSORS:
        raise ArgumentTypeError(
            argument,
            "a plain torch.Tensor",
            type(tensor).__name__,
            "Give its numbers: .as_subclass(torch.Tensor).",
        )


def as_ends(layer: MLayer, low: Any, high: Any) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of boxes as float64 on the CPU, (rows, m)."""
    low, high = as_inputs(layer, low, "low"), as_inputs(layer, high, "high")
    check_ends(low, high)
    return low, high


def check_ends(low: Tensor, high: Tensor) -> None:
    """Raise unless these are the ends of boxes."""
    if low.shape != high.shape:
        raise ArgumentError(
            "high", f"of shape {tuple(low.shape)}, as low", f"{tuple(high.shape)}", "One box per row."
        )
    if not bool((low <= high).all()):
        raise ArgumentError("low", "at most high", "larger in places", "Swap low and high.")


def as_combinations(layer: HasOutputs, C: Any, rows: int) -> Tensor:
    """Coefficients of outputs as float64 on the CPU, (k, c) or (rows, k, c)."""
    if isinstance(C, Tensor):
        check_not_nested(C, "C")
        check_plain("C", C)
    if not isinstance(C, Tensor) or not C.is_floating_point():
        got = str(C.dtype) if isinstance(C, Tensor) else type(C).__name__
        raise ArgumentTypeError("C", "a floating point tensor", got, "Leave it out for the outputs.")
    outputs = layer.out_features
    if C.dim() not in (2, 3) or C.shape[-1] != outputs or (C.dim() == 3 and len(C) != rows):
        raise ArgumentError(
            "C",
            f"of shape (k, {outputs}) or ({rows}, k, {outputs})",
            f"{tuple(C.shape)}",
            "One column for each output.",
        )
    if not bool(C.isfinite().all()):
        raise ArgumentError("C", "finite", "NaN or infinity", "Replace such entries.")
    return as_float64("C", C)


def as_labels(layer: HasOutputs, labels: Any, rows: int) -> Tensor:
    """Labels as a copy in int64 on the CPU, (rows,)."""
    check_tensor("labels", labels)
    check_plain("labels", labels)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ArgumentTypeError("labels", "of an integer dtype", str(labels.dtype), "One class per row.")
    if labels.shape != (rows,):
        raise ArgumentError(
            "labels", f"of shape ({rows},)", f"shape {tuple(labels.shape)}", "One class per row."
        )
    labels = labels.detach().to(device="cpu", dtype=torch.int64).clone()
    if rows and not bool(((labels >= 0) & (labels < layer.out_features)).all()):
        raise ArgumentError(
            "labels",
            f"between 0 and {layer.out_features - 1}",
            f"values from {int(labels.min())} to {int(labels.max())}",
            "They are numbers of outputs.",
        )
    return labels


def inside_box(x: Tensor, low: Tensor | None, high: Tensor | None) -> None:
    """Inputs must lie in the data's box."""
    if low is not None and high is not None and not bool(((x >= low) & (x <= high)).all()):
        raise ArgumentError("x", "inside the box", "rows outside of it", "Widen box=, or leave it out.")


def as_radius(eps: Any) -> float:
    """A finite eps >= 0."""
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise ArgumentTypeError("eps", "a number", type(eps).__name__, "For example 2 / 255.")
    if not is_finite(eps) or eps < 0:
        raise ArgumentError("eps", "finite and not negative", brief(eps), "For example 2 / 255.")
    return float(eps)


def check_count(name: str, value: object, least: int, most: int, hint: str) -> None:
    """Raise unless it is an integer from ``least`` to ``most``, a limit on the time of a call."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentError(name, f"an integer from {least} to {most:,}", brief(value), hint)
