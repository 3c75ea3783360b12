"""Structures that users give as modules of torch."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from mlayer.checks import instance
from mlayer.errors import ArgumentError
from mlayer.nn.structures.structure import Structure


class Parametrized(Structure):
    """A user's parametrization in the sense of ``torch.nn.utils.parametrize``.

    Args:
        module: maps (..., n, n) free numbers to (..., n, n) matrices; a method ``right_inverse``, if
            there is one, maps back.
        size: n.
    """

    def __init__(self, module: nn.Module, size: int) -> None:
        super().__init__(size)
        instance("module", module, nn.Module, "a torch.nn.Module", "It maps (..., n, n) to (..., n, n).")
        self.module = module

    def dense(self, free: Tensor) -> Tensor:
        """The module's output for the parameters, checked for its shape."""
        matrices = self.module(free)
        if not isinstance(matrices, Tensor) or matrices.shape != free.shape:
            came = (
                f"shape {tuple(matrices.shape)}" if isinstance(matrices, Tensor) else type(matrices).__name__
            )
            raise ArgumentError(
                "structure",
                "a module that maps (..., n, n) to (..., n, n)",
                f"{came} for shape {tuple(free.shape)}",
                "Its forward must treat leading dimensions as a batch.",
            )
        return matrices

    def _free(self, matrices: Tensor) -> Tensor:
        inverse: Callable[[Tensor], Tensor] | None = getattr(self.module, "right_inverse", None)
        return super()._free(matrices) if inverse is None else inverse(matrices)
