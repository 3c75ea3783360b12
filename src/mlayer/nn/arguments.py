"""Checks of devices, dtypes, weights and inputs of a layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.arguments import HALVES, check_not_nested, conversion
from mlayer.exponential.sharding import is_sharded

# torch's other types of floating point store numbers, but nothing is computed in them.
_REAL = frozenset((*HALVES, torch.float32, torch.float64))
_PARAMETERS = ("embedding", "embedding_bias", "free_generators", "free_matrix_bias", "readout", "output_bias")
# Attributes of a layer that set the shapes of its parameters.
_SIZES = ("in_features", "out_features", "matrix_size", "embedding_size", "structure")


def as_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a layer's weights: torch's default if None; an error if they cannot have it."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype) or dtype not in _REAL:
        raise ArgumentTypeError(
            "dtype",
            "a real floating point torch.dtype of 16, 32 or 64 bits",
            str(dtype) if isinstance(dtype, torch.dtype) else brief(dtype),
            "Use torch.float32.",
        )
    return dtype


def check_device(device: torch.device | str | None) -> None:
    """Raise if torch has no such device here."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError, TypeError, ValueError):
        raise ArgumentError(
            "device",
            "a torch.device of this machine, or its name",
            brief(device),
            "For example 'cpu'; 'cuda' needs a GPU and a torch built for it.",
        ) from None


def new_weights(
    shape: tuple[int, ...], device: torch.device | str | None, dtype: torch.dtype
) -> torch.Tensor:
    """Weights not yet filled; an error that says what to do where memory does not suffice."""
    try:
        return torch.empty(shape, device=device, dtype=dtype)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            "matrix_size, embedding_size, in_features and out_features",
            "sizes whose weights fit into memory",
            f"weights of shape {shape}",
            "A matrix_size of 6 to 30 is usual; the weights grow with its square.",
        ) from error


def check_weights(
    *,
    generators: Tensor,
    readout: Tensor,
    matrix_bias: Tensor | None,
    output_bias: Tensor | None,
    embedding: Tensor | None,
    embedding_bias: Tensor | None,
) -> None:
    """Raise unless these can be the weights of one layer."""
    if not isinstance(generators, Tensor) or generators.dim() != 3:
        raise ArgumentError(
            "generators", "a tensor (d, n, n)", shape_of(generators), "Give one matrix per feature."
        )
    d, n = generators.shape[:2]
    if not isinstance(readout, Tensor) or readout.dim() != 3:
        raise ArgumentError(
            "readout", "a tensor (out_features, n, n)", shape_of(readout), "Give one matrix per output."
        )
    out_features = readout.shape[0]
    if embedding is not None and (not isinstance(embedding, Tensor) or embedding.dim() != 2):
        raise ArgumentError(
            "embedding", "a tensor (d, in_features)", shape_of(embedding), "Give one row per feature."
        )
    if embedding is None and embedding_bias is not None:
        raise ArgumentError(
            "embedding_bias", "None without an embedding", shape_of(embedding_bias), "Add it to matrix_bias."
        )
    for name, tensor, shape in (
        ("generators", generators, (d, n, n)),
        ("readout", readout, (out_features, n, n)),
        ("matrix_bias", matrix_bias, (n, n)),
        ("output_bias", output_bias, (out_features,)),
        ("embedding", embedding, (d, embedding.shape[1] if embedding is not None else 0)),
        ("embedding_bias", embedding_bias, (d,)),
    ):
        if tensor is not None and (not isinstance(tensor, Tensor) or tensor.shape != shape):
            raise ArgumentError(
                name, f"of shape {shape}", shape_of(tensor), "d and n are those of generators."
            )


def check_tensor(argument: str, value: object, hint: str = "") -> None:
    """Raise unless ``value`` is a tensor; without a hint the error says how to convert it."""
    if not isinstance(value, Tensor):
        hint = hint or _to_a_tensor(argument, value)
        raise ArgumentTypeError(argument, "a torch.Tensor", type(value).__name__, hint)
    check_not_nested(value, argument)


def check_input(x: Tensor, in_features: int, weights: Tensor) -> None:
    """Raise unless a layer with such weights can be applied to ``x``."""
    check_tensor("x", x)
    if x.dim() == 0 or x.shape[-1] != in_features:
        shape = tuple(x.shape)
        raise ArgumentError(
            "x", f"of shape (..., {in_features})", f"shape {shape}", _reshape(shape, in_features)
        )
    if weights.dtype not in _REAL and not weights.is_complex():
        raise ArgumentTypeError(
            "the layer",
            "of 16, 32 or 64 bits",
            str(weights.dtype),
            "Convert it with layer.to(torch.bfloat16): torch computes nothing in smaller types.",
        )
    if x.device != weights.device:
        raise ArgumentError(
            "x",
            f"on the device of the layer, {weights.device}",
            str(x.device),
            "Move it with x.to(device), or the layer with layer.to(device).",
        )
    if x.dtype != weights.dtype and not (_castable(x.dtype, weights.dtype) and autocasts(x.device.type)):
        raise ArgumentTypeError(
            "x",
            f"of the dtype of the layer, {weights.dtype}",
            str(x.dtype),
            f"Convert it with x.to({weights.dtype}), or the layer with layer.to(dtype).",
        )


def check_assigned(name: str, value: object) -> None:
    """Raise if an attribute of the layer may not have this value."""
    if name in ("generators", "matrix_bias"):
        raise AttributeError(
            f"{name} is computed from the parameter free_{name} by the structure and cannot be assigned. "
            f"To tie it to another layer: layer.free_{name} = other.free_{name}. To set its values: "
            f"layer.free_{name}.data.copy_(layer.structure.free(matrices)). To learn it in another form: "
            "MLayer(..., structure=...)."
        )
    if name == "structure" and not hasattr(value, "parameter_shape"):
        raise ArgumentTypeError(
            "structure",
            "an mlayer.nn.Structure, to be assigned",
            brief(value) if isinstance(value, str) else type(value).__name__,
            "A layer in another structure is layer.with_structure(...).",
        )


def changes_sizes(layer: nn.Module, name: str, value: object) -> bool:
    """Whether setting this attribute may leave parameters that do not belong together."""
    parameters = layer.__dict__.get("_parameters", {})
    if name not in parameters:
        return name in _SIZES and hasattr(layer, name)
    return any(getattr(parameters[name], a, None) != getattr(value, a, None) for a in ("shape", "dtype"))


def check_replaced(
    parameters: Mapping[str, Tensor | None], shapes: Mapping[str, tuple[int, ...]], embedded: bool
) -> None:
    """Raise if the parameters are not those of one layer after some, or its sizes, were assigned.

    Args:
        parameters: of the layer, without those that are computed from others, as by a parametrization.
        shapes: by the sizes of the layer.
        embedded: whether there must be an embedding.
    """
    needed = ("free_generators", "readout", "embedding")[: 3 if embedded else 2]
    readout = parameters.get("readout")
    for name, shape in shapes.items():
        parameter = parameters.get(name)
        if parameter is None:
            if name in needed and name in parameters:
                raise ArgumentTypeError(
                    name, "a parameter of the layer", "None", f"Assign a parameter of shape {shape}."
                )
            continue
        if parameter.shape != shape:
            raise ArgumentError(
                name,
                f"of shape {shape}, by the sizes of the layer",
                f"shape {tuple(parameter.shape)}",
                "Make an MLayer of other sizes, or assign a parameter of this shape.",
            )
        if readout is None or parameter.dtype == readout.dtype:
            continue
        # What the exponential and the readout take is widened to float32, all by autocast.
        if _castable(parameter.dtype, readout.dtype) and (
            not name.startswith("embedding") or autocasts(parameter.device.type)
        ):
            continue
        raise ArgumentTypeError(
            name,
            f"of the dtype of readout, {readout.dtype}",
            str(parameter.dtype),
            f"Convert all weights: layer.to({readout.dtype}).",
        )


def _castable(*dtypes: torch.dtype) -> bool:
    """Whether autocast takes each of these types for another."""
    return all(dtype == torch.float32 or dtype in HALVES for dtype in dtypes)


def _reshape(shape: tuple[int, ...], in_features: int) -> str:
    """The advice for inputs of this shape."""
    if len(shape) > 2 and math.prod(shape[1:]) == in_features:
        return "Flatten images first, for example with torch.nn.Flatten()."
    if in_features in shape[1:-1]:
        return f"Features come last: x.movedim({shape.index(in_features, 1)}, -1)."
    if not shape:
        return "Give a row of features."
    if in_features == 1 and len(shape) == 1:
        return "One input per row: x[:, None]."
    return f"For inputs of {shape[-1]} features: MLayer({shape[-1]}, ...)."


def _to_a_tensor(argument: str, value: object) -> str:
    if isinstance(value, torch.fx.Proxy):
        return (
            "torch.fx.symbolic_trace cannot follow the exponential: use torch.export, or a torch.fx.Tracer "
            "whose is_leaf_module(module, name) is True for an MLayer."
        )
    return conversion(argument, value)


def check_stored(layer: nn.Module, purpose: str) -> None:
    """Raise if a weight is computed from other parameters, as under a parametrization or pruning.

    Writing to such a weight has no effect, and its values are not in the ``state_dict``.
    """
    for name in _PARAMETERS:
        if name not in layer._parameters:
            raise ArgumentError(
                "layer",
                f"one whose weights are parameters, to be {purpose}",
                f"{name} computed from others, as by a parametrization, weight norm or pruning",
                "Store its values first: torch.nn.utils.parametrize.remove_parametrizations(layer, "
                f"{name!r}), or torch.nn.utils.prune.remove(layer, {name!r}).",
            )


def check_values(layer: nn.Module) -> None:
    """Raise if a weight is on the device meta, which has shapes but no values, or sharded over processes."""
    for name, parameter in layer.named_parameters():
        if is_sharded(parameter):
            raise ArgumentError(
                "layer",
                "one whose weights are ordinary tensors, to be saved",
                f"{name} as a DTensor, as under fully_shard",
                "Gather them with get_model_state_dict(..., options=StateDictOptions(full_state_dict=True)) "
                "of torch.distributed.checkpoint.state_dict and load them into a layer that is not sharded.",
            )
        if parameter.is_meta:
            raise ArgumentError(
                "layer",
                "one with values, to be saved",
                f"{name} on the device meta",
                "Fill it first: load_state_dict(..., assign=True), or to_empty and reset_parameters.",
            )


def unwrapping(model: object) -> str:
    """The advice for a module that wraps another one, as a compiled model does; "" for others.

    >>> unwrapping(torch.optim.swa_utils.AveragedModel(nn.Linear(2, 1)))
    'It wraps Linear: give model.module.'
    >>> unwrapping(nn.Linear(2, 1))
    ''
    """
    for name in ("_orig_mod", "module"):  # torch.compile; DistributedDataParallel, AveragedModel
        inner = getattr(model, name, None) if isinstance(model, nn.Module) else None
        if isinstance(inner, nn.Module):
            return f"It wraps {type(inner).__name__}: give model.{name}."
    return ""


def autocasts(device: str) -> bool:
    """Whether autocast is on for this kind of device."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def shape_of(tensor: object) -> str:
    """The shape of a tensor in words, for errors; the type of what is none."""
    return f"shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
