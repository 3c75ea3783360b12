"""The table of structures, and what the argument ``structure`` of a layer may be."""

from __future__ import annotations

from torch import nn

from mlayer.checks import brief, did_you_mean
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn.structures.blocks import BlockDiagonal, BlockTriangular
from mlayer.nn.structures.entries import Full, Nilpotent, Skew
from mlayer.nn.structures.parametrized import Parametrized
from mlayer.nn.structures.structure import Config, Structure

STRUCTURES: dict[str, type[Structure]] = {
    structure.name: structure for structure in (Full, Nilpotent, Skew, BlockDiagonal, BlockTriangular)
}


def as_structure(structure: str | nn.Module, size: int) -> Structure:
    """The argument ``structure`` of the layer as a `Structure` for n x n matrices."""
    if isinstance(structure, str):
        known = STRUCTURES.get(structure)
        if known is None:
            raise ArgumentError(
                "structure",
                f"one of {', '.join(map(repr, STRUCTURES))}, a Structure or a module",
                brief(structure),
                did_you_mean(
                    structure,
                    STRUCTURES,
                    "Write your own as a torch.nn.Module that maps (..., n, n) to (..., n, n).",
                ),
            )
        if known.built_from is not None:
            words, example = known.built_from
            use = f"Use structure={known.__name__}({example})."
            raise ArgumentError("structure", f"given with {words}", repr(structure), use)
        return known(size)
    if isinstance(structure, Structure):
        if structure.size != size:
            raise ArgumentError(
                "structure",
                f"for matrices of matrix_size = {size}",
                f"one for size {structure.size}",
                "Give both the same size.",
            )
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
    return as_structure(config["name"], size) if known is None else known.from_config(config, size)
