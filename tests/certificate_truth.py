"""The truth about a margin: stored weights as exact numbers, the exponential in Arb balls.

Nothing of `mlayer.certificates` is used here. Points are exact: a float64 input plus a step that is a product
of floats, evaluated in balls of so many bits that it is not rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import torch
from torch import Tensor

from mlayer import MLayer

BITS = 640


@dataclass(frozen=True)
class Stored:
    """The weights of a layer as nested lists of floats (float32 weights convert without change)."""

    B: list[list[float]]
    T: list[list[list[float]]]
    U: list[list[float]]  # (m, d)
    u: list[float]
    S: list[list[list[float]]]
    V: list[float]


def stored(layer: MLayer) -> Stored:
    """Read a layer."""

    def numbers(tensor: Tensor | None, *shape: int) -> Any:
        return (torch.zeros(shape) if tensor is None else tensor).detach().double().tolist()

    n, m, d = layer.matrix_size, layer.in_features, len(layer.generators)
    U = torch.eye(m) if layer.embedding is None else layer.embedding.mT
    return Stored(
        numbers(layer.matrix_bias, n, n),
        numbers(layer.generators),
        numbers(U),
        numbers(layer.embedding_bias, d),
        numbers(layer.readout),
        numbers(layer.output_bias, layer.out_features),
    )


def outputs(layer: Stored, x: Sequence[Any]) -> list[Any]:
    """All outputs at one point as balls; entries of ``x`` are floats or balls."""
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        mat, n = flint.arb_mat, len(layer.B)
        features = mat([[flint.arb(v) for v in x]]) * mat(layer.U)
        M = mat(layer.B)
        for a, T in enumerate(layer.T):
            M = M + mat(T) * (features[0, a] + layer.u[a])
        E = M.exp()
        result = []
        for S, V in zip(layer.S, layer.V, strict=True):
            total = flint.arb(V)
            for r in range(n):
                for c in range(n):
                    if S[r][c]:
                        total += E[r, c] * S[r][c]
            result.append(total)
        return result
    finally:
        flint.ctx.prec = before


def changes_class(layer: Stored, x: Sequence[Any], label: int) -> bool:
    """Is another output certainly larger than the label's?"""
    values = outputs(layer, x)
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        return any(bool(values[label] - other < 0) for j, other in enumerate(values) if j != label)
    finally:
        flint.ctx.prec = before


def step_to(
    x: Sequence[float],
    direction: Sequence[float],
    size: float,
    scale: Sequence[float],
    box: Sequence[Sequence[float]] | None = None,
) -> list[Any]:
    """The point x + size direction_i scale_i, exactly, cut to the box."""
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        arb = flint.arb
        point = [
            arb(a) + arb(size) * arb(s) * arb(unit) for a, s, unit in zip(x, direction, scale, strict=True)
        ]
        if box is not None:
            ends = [(arb(low), arb(high)) for low, high in zip(*box, strict=True)]
            point = [
                low if p < low else high if p > high else p
                for p, (low, high) in zip(point, ends, strict=True)
            ]
        return point
    finally:
        flint.ctx.prec = before
