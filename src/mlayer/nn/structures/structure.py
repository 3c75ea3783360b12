"""The base class of structures: a family of matrices with free parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from mlayer.checks import brief, positive_integer
from mlayer.errors import ArgumentError
from mlayer.exponential import expm

Config = dict[str, Any]


class Structure(nn.Module, ABC):
    """A family of n x n matrices with free parameters.

    Subclasses give `dense`, and `parameter_shape` if a matrix has fewer parameters than entries; also
    `_free`, the inverse of `dense`, if weights are to be set from matrices
    (:meth:`mlayer.MLayer.from_weights`, gauge transformations). Buffers that are not persistent keep their
    values where the parameters have none: they stay where they are when a layer goes to the device meta.

    Args:
        size: n, rows of a matrix.
    """

    name: ClassVar[str] = "custom"
    # What a similarity P must be to lead from the structure into itself; for error messages.
    similarities: ClassVar[str] = "one that keeps the structure"
    # Whether `dense` puts parameters or their negatives into matrices and computes nothing, so that it gives
    # the same matrices in every precision. Certificates read float32 layers in float64.
    exact: ClassVar[bool] = False
    # What the constructor takes in place of the size, in words and as an example; None if it takes the size.
    built_from: ClassVar[tuple[str, str] | None] = None

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = positive_integer("size", size)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep the buffers that no file holds where values are lost (meta, to_empty)."""
        kept = {name: self._buffers[name] for name in self._non_persistent_buffers_set}
        super()._apply(fn, recurse)
        for name, old in kept.items():
            new = self._buffers[name]
            if old is not None and new is not None:
                self._buffers[name] = old if new.is_meta or old.is_meta else old.to(new)
        return self

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """Shape of the free parameters of one matrix; (n, n) here."""
        return self.size, self.size

    @abstractmethod
    def dense(self, free: Tensor) -> Tensor:
        """Free parameters to matrices.  (..., *parameter_shape) -> (..., n, n)"""

    def forward(self, free: Tensor) -> Tensor:
        """`dense`, so that a structure can be called; what is given is checked."""
        shape = self.parameter_shape
        if not isinstance(free, Tensor) or free.dim() < len(shape) or free.shape[-len(shape) :] != shape:
            came = f"shape {tuple(free.shape)}" if isinstance(free, Tensor) else brief(free)
            must_be = f"a tensor (..., {', '.join(map(str, shape))})"
            raise ArgumentError("free", must_be, came, "`free` makes it from matrices.")
        return self.dense(free)

    def exponential(self, matrices: Tensor) -> Tensor:
        """The exponential, by a cheaper method if the structure has one.  (..., n, n) -> (..., n, n)"""
        return expm(matrices)

    def free(self, matrices: Tensor) -> Tensor:
        """Matrices of the structure to free parameters; an error if the matrices are not of it."""
        n = self.size
        if not isinstance(matrices, Tensor) or matrices.shape[-2:] != (n, n):
            came = f"shape {tuple(matrices.shape)}" if isinstance(matrices, Tensor) else brief(matrices)
            raise ArgumentError(
                "matrices", f"a tensor (..., {n}, {n})", came, "They are as large as the structure."
            )
        free = self._free(matrices)
        if matrices.is_meta:
            return free
        error = (self.dense(free) - matrices).abs().max().item()
        allowed = 64 * self.size * torch.finfo(matrices.dtype).eps * matrices.abs().max().item()
        if not error <= allowed:
            raise ArgumentError(
                "the matrices",
                f"of structure {self.name!r}",
                f"matrices that differ from it by {error:.3g}",
                f"Use structure='full', or a similarity that is {self.similarities}.",
            )
        return free

    def _free(self, matrices: Tensor) -> Tensor:
        raise ArgumentError(
            "structure",
            "one that can be inverted (a method `right_inverse` or `_free`)",
            f"{type(self).__name__} without it",
            "Add the method, or convert first with layer.with_structure('full').",
        )

    def balancing_mask(self) -> Tensor:
        """The mask of a symmetric X for which the similarity exp(X) keeps the structure.  (n, n)"""
        return torch.zeros(self.size, self.size, dtype=torch.bool)

    def config(self) -> Config:
        """The entries that a file needs to build the structure again, besides n."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: Config, size: int) -> Self:
        """The structure that :meth:`config` describes; a file may hold anything."""
        return cls(size)

    def extra_repr(self) -> str:
        """The size that repr() shows."""
        return f"{self.size}"
