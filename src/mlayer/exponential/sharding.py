"""The functions of matrices of a DTensor: each process computes the matrices that it has."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from mlayer.errors import ArgumentTypeError

_PACKAGE = "torch.distributed.tensor"
# Operators whose tensors all have the shape (..., n, n) of the result, and how many they take.
_waiting: list[tuple[Any, int]] = []


def computes_matrix_by_matrix(operator: Any, tensors: int) -> None:
    """Remember an operator until somebody uses DTensors, whose package takes seconds to import."""
    _waiting.append((operator, tensors))


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a DTensor."""
    package = sys.modules.get(_PACKAGE)
    return package is not None and isinstance(tensor, package.DTensor)


def refuse_sharded(**tensors: Tensor) -> None:
    """Raise if one of these is a DTensor."""
    for name, tensor in tensors.items():
        if is_sharded(tensor):
            hint = f"Compute with {name}.to_local() or {name}.full_tensor()."
            raise ArgumentTypeError(name, "an ordinary tensor", "a DTensor", hint)


def allow_sharding(tensor: Tensor) -> None:
    """Tell torch how the operators are distributed, at the first DTensor."""
    if torch.compiler.is_compiling() or not _waiting or not is_sharded(tensor):
        return
    package = sys.modules[_PACKAGE]
    from torch.distributed.tensor.experimental import register_sharding

    def rule(tensors: int) -> Any:
        def placements(*arguments: Any) -> Any:
            by_batch = [package.Shard(dim) for dim in range(arguments[0].ndim - 2)]
            return [([place], [place] * tensors) for place in (package.Replicate(), *by_batch)]

        return placements

    while _waiting:
        operator, tensors = _waiting.pop()
        register_sharding(operator)(rule(tensors))
