"""Layers for certificates as plain arrays, which a family changes before they become a `Case`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from mlayer import MLayer

Random = np.random.Generator
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Case:
    """A layer with inputs, and the arguments of the Certifier."""

    layer: MLayer
    x: Array
    options: dict[str, Any] = field(default_factory=dict)
    gauge: Array | None = None  # used instead of the fitted one

    @property
    def labels(self) -> torch.Tensor:
        """The classes of the largest outputs, in float64."""
        with torch.no_grad():
            outputs: torch.Tensor = self.layer.double()(torch.from_numpy(self.x))
        return outputs.nan_to_num(nan=0.0).argmax(1)


@dataclass
class Draft:
    """The weights of a layer in the making; U is (m, d)."""

    B: Array
    T: Array
    U: Array
    u: Array
    S: Array
    V: Array
    structure: str | nn.Module = "full"

    def layer(self, dtype: torch.dtype = torch.float64) -> MLayer:
        """The layer."""

        def tensor(values: Array) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(dtype)

        return MLayer.from_weights(
            tensor(self.T),
            tensor(self.S),
            matrix_bias=tensor(self.B),
            output_bias=tensor(self.V),
            embedding=tensor(self.U.T),
            embedding_bias=tensor(self.u),
            structure=self.structure,
        )


def draft(random: Random, size: float = 0.5, n: int | None = None, m: int | None = None) -> Draft:
    """A layer of random weights."""
    n = int(random.integers(1, 5)) if n is None else n
    m = int(random.integers(1, 4)) if m is None else m
    d, classes = int(random.integers(1, 5)), int(random.integers(2, 4))
    normal = random.standard_normal
    return Draft(
        normal((n, n)) * size,
        normal((d, n, n)) * size,
        normal((m, d)) * size,
        normal(d) * size,
        normal((classes, n, n)),
        normal(classes) * 0.3,
    )


def inputs(random: Random, weights: Draft, size: float = 1.0) -> Array:
    """Two rows, one of them at 0."""
    x = random.standard_normal((2, len(weights.U))) * size
    x[0] = 0
    return x
