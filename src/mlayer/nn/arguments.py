"""Where and in which precision weights may be."""

from __future__ import annotations

import torch

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError


def as_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a layer's weights: torch's default if None; an error if they cannot have it."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ArgumentTypeError(
            "dtype", "a real floating point torch.dtype", str(dtype), "Use torch.float32."
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
    """Weights not yet filled; an error that says what to do where there is no room for them."""
    try:
        return torch.empty(shape, device=device, dtype=dtype)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            "matrix_size, embedding_size, in_features and out_features",
            "sizes whose weights fit into memory",
            f"weights of shape {shape}",
            "A matrix_size of 6 to 30 is usual; the weights grow with its square.",
        ) from error
