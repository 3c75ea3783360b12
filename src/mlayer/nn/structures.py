"""Structures: which matrices the generators and the matrix bias may be.

A structure maps free parameters to matrices, `dense`, and back, `free`. The layer stores the free
parameters; everything else in mlayer reads the matrices. A new structure is a subclass of `Structure`
and, if files should know its name, a row in `STRUCTURES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from numbers import Integral
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mlayer.checks import brief, did_you_mean, is_several, positive_integer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential import expm

Config = dict[str, Any]

# Smaller matrices are exponentiated whole: taking them apart would cost more than it saves.
_WORTH_BLOCKS = 16


class Structure(nn.Module, ABC):
    """A family of n x n matrices with free parameters.

    Subclasses give `parameter_shape` and `dense`; also `_free`, the inverse of `dense`, if weights are
    to be set from matrices (:meth:`mlayer.MLayer.from_weights`, gauge transformations).

    Args:
        size: n, rows of a matrix.
    """

    name: ClassVar[str] = "custom"
    # What a similarity P must be to lead from the structure into itself; for error messages.
    similarities: ClassVar[str] = "one that keeps the structure"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = positive_integer("size", size)

    @property
    @abstractmethod
    def parameter_shape(self) -> tuple[int, ...]:
        """Shape of the free parameters of one matrix."""

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
        """Where a symmetric X may be nonzero for the similarity exp(X) to keep the structure.  (n, n)"""
        return torch.zeros(self.size, self.size, dtype=torch.bool)

    def config(self) -> Config:
        """What a file needs to build the structure again, besides n."""
        return {"name": self.name}

    def extra_repr(self) -> str:
        """For repr()."""
        return f"{self.size}"


class Full(Structure):
    """Every matrix."""

    name = "full"
    similarities = "any invertible matrix"

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """(n, n)"""
        return self.size, self.size

    def dense(self, free: Tensor) -> Tensor:
        """The parameters are the matrices."""
        return free

    def free(self, matrices: Tensor) -> Tensor:
        """The matrices themselves, whatever they are."""
        return matrices

    def balancing_mask(self) -> Tensor:
        """Every entry."""
        return torch.ones(self.size, self.size, dtype=torch.bool)


class _Scattered(Structure):
    """Free parameters at fixed positions of an n x n matrix, zeros elsewhere."""

    places: Tensor  # (k,): positions in the flattened matrix

    def __init__(self, size: int, mask: Tensor) -> None:
        super().__init__(size)
        self.register_buffer("places", mask.flatten().nonzero().squeeze(1), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As in every module, but the places are kept where values are lost (meta, to_empty)."""
        places = self.places
        super()._apply(fn, recurse)
        self.places = places if self.places.is_meta else places.to(self.places.device)
        return self

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """(k,), k the number of places."""
        return (len(self.places),)

    def dense(self, free: Tensor) -> Tensor:
        """Scatter.  (..., k) -> (..., n, n)"""
        n = self.size
        places = self.places.to(free.device)  # they stay on the CPU where the parameters are on meta
        flat = free.new_zeros(*free.shape[:-1], n * n).index_copy(-1, places, free)
        return flat.reshape(*free.shape[:-1], n, n)

    def _free(self, matrices: Tensor) -> Tensor:
        return matrices.flatten(-2).index_select(-1, self.places.to(matrices.device))


def _upper(size: int) -> Tensor:
    return torch.ones(positive_integer("size", size), size, device="cpu").triu(1)


class Nilpotent(_Scattered):
    """Strictly upper triangular: exp is a polynomial of degree n - 1. n (n - 1) / 2 parameters per matrix."""

    name = "nilpotent"
    similarities = "an upper triangular matrix"

    def __init__(self, size: int) -> None:
        super().__init__(size, _upper(size))

    def balancing_mask(self) -> Tensor:
        """The diagonal."""
        return torch.eye(self.size, dtype=torch.bool)


class Skew(_Scattered):
    """Skew-symmetric: exp is orthogonal. n (n - 1) / 2 parameters per matrix."""

    name = "skew"
    similarities = "an orthogonal matrix"

    def __init__(self, size: int) -> None:
        super().__init__(size, _upper(size))

    def dense(self, free: Tensor) -> Tensor:
        """The upper triangle less its transpose."""
        upper = super().dense(free)
        return upper - upper.mT


def _is_size(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) > 0


class _Blocks(_Scattered):
    """Structures that are defined by the sizes of blocks along the diagonal."""

    def __init__(self, blocks: Sequence[int]) -> None:
        if not is_several(blocks):
            raise ArgumentTypeError(
                "blocks", "positive integers", brief(blocks), "Give the sizes of the blocks, as [4, 4, 2]."
            )
        given: tuple[Any, ...] = tuple(blocks)  # entries of any type
        if not given or not all(_is_size(b) for b in given):
            raise ArgumentError(
                "blocks",
                "positive integers",
                repr(given),
                "Give the sizes of the blocks, for example [4, 4, 2].",
            )
        self.blocks = tuple(map(int, given))
        super().__init__(sum(self.blocks), self._mask(self.blocks))

    @staticmethod
    @abstractmethod
    def _mask(blocks: tuple[int, ...]) -> Tensor:
        """Where a matrix may be nonzero.  (n, n)"""

    def balancing_mask(self) -> Tensor:
        """The blocks on the diagonal."""
        owner = _owner(self.blocks)
        return owner[:, None] == owner

    def config(self) -> Config:
        """With the sizes of the blocks."""
        return {"name": self.name, "blocks": list(self.blocks)}

    def extra_repr(self) -> str:
        """For repr()."""
        return f"{list(self.blocks)}"


def _owner(blocks: tuple[int, ...]) -> Tensor:
    """The block of each row.  (n,)"""
    owners = torch.arange(len(blocks), device="cpu")  # also inside of torch.device("meta")
    return torch.repeat_interleave(owners, torch.tensor(blocks, device="cpu"))


class BlockDiagonal(_Blocks):
    """Square blocks on the diagonal: exp is block diagonal too. The sum of b^2 parameters per matrix.

    Args:
        blocks: sizes of the blocks; their sum is n.
    """

    name = "block_diagonal"
    similarities = "a block diagonal matrix of the same blocks"

    @staticmethod
    def _mask(blocks: tuple[int, ...]) -> Tensor:
        owner = _owner(blocks)
        return owner[:, None] == owner

    def exponential(self, matrices: Tensor) -> Tensor:
        """Block by block where that is less work, blocks of one size together."""
        n = self.size
        if n < _WORTH_BLOCKS or 2 * max(self.blocks) > n:
            return super().exponential(matrices)
        ends = list(accumulate(self.blocks))
        cuts = [(end - b, end) for b, end in zip(self.blocks, ends, strict=True)]
        rows: dict[int, Tensor] = {}
        for size in dict.fromkeys(self.blocks):
            alike = [cut for cut in cuts if cut[1] - cut[0] == size]
            blocks = expm(torch.stack([matrices[..., a:b, a:b] for a, b in alike], dim=-3))
            for k, (a, b) in enumerate(alike):
                rows[a] = pad(blocks[..., k, :, :], (a, n - b))
        return torch.cat([rows[a] for a, _ in cuts], dim=-2)


class BlockTriangular(_Blocks):
    """Strictly block upper triangular: exp is a polynomial of degree len(blocks) - 1 in the features.

    With k blocks M^k = 0, so exp(M) = 1 + M + ... + M^(k - 1) / (k - 1)!. The expansion ends, and with it the
    remainders of the certificates (docs/theory/certificates.md, theorem 10).

    Args:
        blocks: sizes of the blocks; their sum is n. With blocks of size 1 it is "nilpotent".

    >>> import torch, mlayer
    >>> layer = mlayer.MLayer(4, 3, matrix_size=6, embedding_size=5, structure=BlockTriangular([2, 2, 2]))
    >>> M = layer.matrix(torch.ones(4))
    >>> bool((M @ M @ M == 0).all())
    True
    """

    name = "block_triangular"
    similarities = "a block upper triangular matrix of the same blocks"

    @staticmethod
    def _mask(blocks: tuple[int, ...]) -> Tensor:
        owner = _owner(blocks)
        return owner[:, None] < owner


class Parametrized(Structure):
    """A user's parametrization in the sense of ``torch.nn.utils.parametrize``.

    Args:
        module: maps (..., n, n) free numbers to (..., n, n) matrices; a method ``right_inverse``, if
            there is one, maps back.
        size: n.
    """

    def __init__(self, module: nn.Module, size: int) -> None:
        super().__init__(size)
        if not isinstance(module, nn.Module):
            raise ArgumentTypeError(
                "module", "a torch.nn.Module", brief(module), "It maps (..., n, n) to (..., n, n)."
            )
        self.module = module

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """(n, n)"""
        return self.size, self.size

    def dense(self, free: Tensor) -> Tensor:
        """What the module makes of the parameters, checked for its shape."""
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


STRUCTURES: dict[str, type[Structure]] = {
    structure.name: structure for structure in (Full, Nilpotent, Skew, BlockDiagonal, BlockTriangular)
}


def as_structure(structure: str | nn.Module, size: int) -> Structure:
    """The argument ``structure`` of the layer as a `Structure` for n x n matrices."""
    if isinstance(structure, str):
        known = STRUCTURES.get(structure)
        if known is not None and issubclass(known, _Blocks):
            hint = f"Use structure={known.__name__}([4, 4, 2])."
            raise ArgumentError("structure", "given with its block sizes", repr(structure), hint)
        if structure not in STRUCTURES:
            raise ArgumentError(
                "structure",
                f"one of {', '.join(map(repr, STRUCTURES))}, a Structure or a module",
                repr(structure),
                did_you_mean(
                    structure,
                    STRUCTURES,
                    "Write your own as a torch.nn.Module that maps (..., n, n) to (..., n, n).",
                ),
            )
        return STRUCTURES[structure](size)
    if isinstance(structure, Structure):
        if structure.size != size:
            must_be, came = f"for matrices of matrix_size = {size}", f"one for size {structure.size}"
            raise ArgumentError("structure", must_be, came, "Give both the same size.")
        return structure
    if isinstance(structure, nn.Module):
        return Parametrized(structure, size)
    raise ArgumentTypeError(
        "structure",
        "a name, a Structure or a torch.nn.Module",
        brief(structure) if isinstance(structure, type) else type(structure).__name__,
        f"Make one: {structure.__name__}(...)." if isinstance(structure, type) else "For example 'full'.",
    )


def structure_from_config(config: Config, size: int) -> Structure:
    """The built-in structure that :meth:`Structure.config` describes."""
    known = STRUCTURES.get(config["name"])
    if known is not None and issubclass(known, _Blocks):
        blocks = config["blocks"]
        if sum(blocks) != size:  # before memory is taken for a false number
            raise ArgumentError(
                "blocks", f"of sum {size}", f"sum {sum(blocks)}", "They must fill the matrix."
            )
        return known(blocks)
    return as_structure(config["name"], size)
