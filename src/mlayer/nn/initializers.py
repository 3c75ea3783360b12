"""Initial weights. An initializer fills a layer in place, from the generator it is given.

Structured layers are filled in their free parameters, so that the words below are about those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor, nn

from mlayer.checks import brief, did_you_mean, number, takes
from mlayer.errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from mlayer.nn.layer import MLayer


class Initializer(Protocol):
    """Anything that can be called like this."""

    def __call__(self, layer: MLayer, generator: torch.Generator | None) -> None:
        """Fill the parameters of ``layer`` in place."""


@dataclass(frozen=True)
class Normal:
    """The paper's: every weight and bias from N(0, std^2)."""

    name: ClassVar[str] = "normal"
    std: float = 0.05

    def __post_init__(self) -> None:
        number("std", self.std, least=0)

    def __call__(self, layer: MLayer, generator: torch.Generator | None) -> None:
        """Fill ``layer``."""
        _normal(generator, 0.0, self.std, *layer.own_parameters())


@dataclass(frozen=True)
class Periodic:
    """The paper's for periodic functions: eigenvalues of M start near -10 (1 + features), outputs small.

    Generators and matrix bias have ``diagonal`` on the diagonal and 0 elsewhere, all with deviation
    ``std``. The embedding has the given mean and deviation, its bias the deviation only. Readout and
    output bias are as in `Normal`.
    """

    name: ClassVar[str] = "periodic"
    diagonal: float = -10.0
    std: float = 0.01
    embedding_mean: float = 0.1
    embedding_std: float = 0.05
    readout_std: float = 0.05

    def __post_init__(self) -> None:
        for name in ("diagonal", "embedding_mean"):
            number(name, getattr(self, name))
        for name in ("std", "embedding_std", "readout_std"):
            number(name, getattr(self, name), least=0)

    def __call__(self, layer: MLayer, generator: torch.Generator | None) -> None:
        """Fill ``layer``."""
        structure = layer.structure
        free = layer.free_generators
        mean = self.diagonal * torch.eye(layer.matrix_size, dtype=free.dtype, device=free.device)
        try:
            start = structure.free(mean)
        except ArgumentError:
            raise ArgumentError(
                "init",
                "one that the structure allows",
                f"'periodic', which needs a diagonal, with structure {structure.name!r}",
                "Use structure='full', one with a diagonal, such as BlockDiagonal, or another initializer.",
            ) from None
        _normal(generator, 0.0, self.std, layer.free_generators, layer.free_matrix_bias)
        layer.free_generators.add_(start)
        if layer.free_matrix_bias is not None:
            layer.free_matrix_bias.add_(start)
        _normal(generator, self.embedding_mean, self.embedding_std, layer.embedding)
        _normal(generator, 0.0, self.embedding_std, layer.embedding_bias)
        _normal(generator, 0.0, self.readout_std, layer.readout, layer.output_bias)


@dataclass(frozen=True)
class Notebook:
    """The authors' notebooks': Glorot uniform U and S, zero u and V, T and B uniform in +-limit."""

    name: ClassVar[str] = "notebook"
    limit: float = 0.05

    def __post_init__(self) -> None:
        number("limit", self.limit, least=0)

    def __call__(self, layer: MLayer, generator: torch.Generator | None) -> None:
        """Fill ``layer``."""
        for parameter in (layer.free_generators, layer.free_matrix_bias):
            if parameter is not None:
                nn.init.uniform_(parameter, -self.limit, self.limit, generator=generator)
        if layer.embedding is not None:
            nn.init.xavier_uniform_(layer.embedding, generator=generator)
        nn.init.xavier_uniform_(layer.readout.flatten(1), generator=generator)
        _zero(layer.embedding_bias, layer.output_bias)


@dataclass(frozen=True)
class Balanced:
    """Ours: the spectral norm of M starts near ``norm`` for inputs of unit variance, whatever the sizes.

    Embedding N(0, 1 / in_features), so that features have unit variance; generators N(0, s^2) with
    s = norm / (2 sqrt(d n)), because a Gaussian n x n matrix of deviation s has norm 2 s sqrt(n); matrix
    bias likewise, as one more feature; readout N(0, 1 / n^2); other biases 0. docs/layer.md has the
    measurements behind it.
    """

    name: ClassVar[str] = "balanced"
    norm: float = 1.0

    def __post_init__(self) -> None:
        number("norm", self.norm, least=0)

    def __call__(self, layer: MLayer, generator: torch.Generator | None) -> None:
        """Fill ``layer``."""
        n = layer.matrix_size
        terms = layer.generator_count if layer.embedding is not None else layer.in_features
        std = self.norm / (2 * math.sqrt(terms * n))
        _normal(generator, 0.0, std, layer.free_generators, layer.free_matrix_bias)
        _normal(generator, 0.0, 1 / math.sqrt(layer.in_features), layer.embedding)
        _normal(generator, 0.0, 1 / n, layer.readout)
        _zero(layer.embedding_bias, layer.output_bias)


def _normal(generator: torch.Generator | None, mean: float, std: float, *parameters: Tensor | None) -> None:
    for parameter in parameters:
        if parameter is not None:
            nn.init.normal_(parameter, mean, std, generator=generator)


def _zero(*parameters: Tensor | None) -> None:
    for parameter in parameters:
        if parameter is not None:
            nn.init.zeros_(parameter)


INITIALIZERS: dict[str, Callable[[], Initializer]] = {
    kind.name: kind for kind in (Normal, Periodic, Notebook, Balanced)
}


def as_initializer(init: str | Initializer) -> Initializer:
    """The argument ``init`` of the layer as an initializer."""
    if isinstance(init, str):
        if init not in INITIALIZERS:
            raise ArgumentError(
                "init",
                f"one of {', '.join(map(repr, INITIALIZERS))}, or a callable",
                brief(init),
                did_you_mean(init, INITIALIZERS, "The paper's is 'normal'."),
            )
        return INITIALIZERS[init]()
    if isinstance(init, type):
        raise ArgumentTypeError(
            "init", "a name or a callable (layer, generator)", brief(init), f"Make one: {init.__name__}()."
        )
    if getattr(init, "__module__", "") == nn.init.__name__:  # it takes a tensor and a number
        raise ArgumentTypeError(
            "init",
            "a name or a callable (layer, generator)",
            f"torch.nn.init.{getattr(init, '__name__', '')}, which fills one tensor",
            "Call it on the parameters in a function of the layer, or on those of a finished layer.",
        )
    if not callable(init) or isinstance(init, nn.Module) or not takes(init, 2):
        raise ArgumentTypeError(
            "init", "a name or a callable (layer, generator)", type(init).__name__, "For example 'normal'."
        )
    return init
