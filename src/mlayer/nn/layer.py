"""`mlayer.MLayer`: equations 2 and 3 of the paper as a torch module.

    M(x) = B + sum_a T_a (U x + u)_a        p(x) = V + S : exp(M(x))

M is formed by one matrix product per factor (U, then T with B added inside the product) and read out
by one more; between them is the exponential, which keeps nothing but M for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from mlayer.checks import flag, instance, positive_integer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.arguments import HALVES
from mlayer.nn.activity import ActivityKind, activity_of
from mlayer.nn.arguments import (
    as_dtype,
    autocasts,
    changes_sizes,
    check_assigned,
    check_device,
    check_input,
    check_replaced,
    check_stored,
    check_weights,
    new_weights,
    unwrapping,
)
from mlayer.nn.initializers import Initializer, as_initializer
from mlayer.nn.ode import trajectory
from mlayer.nn.overflow import OnOverflow, check_on_overflow, report_overflow
from mlayer.nn.structures import Structure, as_structure


class MLayer(nn.Module):
    """A layer whose only nonlinearity is the exponential of one matrix that is affine in the input.

    It replaces ``Linear, ReLU, Linear`` or a whole stack of them. Inputs are
    (..., in_features), outputs (..., out_features).

    Args:
        in_features: inputs.
        out_features: outputs.
        matrix_size: n, the size of the matrix that is exponentiated.
        embedding_size: d, the features U x + u. None: no embedding, the inputs are the features.
        matrix_bias: whether M has a bias B.
        output_bias: whether the output has a bias V.
        embedding_bias: whether the embedding has a bias u.
        structure: of the generators and the matrix bias: "full", "nilpotent" (strictly upper
            triangular), "skew" (exp is orthogonal), a :class:`mlayer.nn.BlockDiagonal`, a
            :class:`mlayer.nn.BlockTriangular` (exp is a polynomial), or your own: a
            :class:`mlayer.nn.Structure` or any module that maps (..., n, n) to (..., n, n), copied.
        init: initial weights: "normal" (the paper's), "periodic", "notebook" (the authors'),
            "balanced" (ours), or a callable ``(layer, generator)``.
        on_overflow: what to do with an output that is not finite although x is: "ignore", "warn" or
            "raise". The check reads the output, which on a GPU waits for it; layers that are compiled,
            exported or under torch.func.vmap do not check.
        generator: source of the initial weights; torch's global one if None.
        device: of the parameters.
        dtype: of the parameters. float16 and bfloat16 layers compute M, its exponential and the readout
            in float32, and so do all layers under autocast.

    Attributes:
        embedding: U, (d, in_features), or None.
        embedding_bias: u, (d,), or None.
        free_generators: the parameters behind `generators`, (d, *structure.parameter_shape).
        free_matrix_bias: the parameters behind `matrix_bias`, or None.
        readout: S, (out_features, n, n).
        output_bias: V, (out_features,), or None.

    >>> import torch, mlayer
    >>> layer = mlayer.MLayer(2, 3, matrix_size=4, embedding_size=5)
    >>> layer(torch.zeros(7, 2)).shape
    torch.Size([7, 3])
    >>> layer.matrix(torch.zeros(7, 2)).shape
    torch.Size([7, 4, 4])
    """

    embedding: nn.Parameter | None
    embedding_bias: nn.Parameter | None
    free_generators: nn.Parameter
    free_matrix_bias: nn.Parameter | None
    readout: nn.Parameter
    output_bias: nn.Parameter | None
    structure: Structure
    # Sees exp(M) of every forward pass: see mlayer.nn.activity.watch_activity.
    watcher: Callable[[Tensor], None] | None = None
    # The default also serves layers pickled before there was this option.
    on_overflow: OnOverflow = "ignore"
    _replaced = False  # whether a size or a parameter of another kind was assigned: forward passes check

    def __init__(  # noqa: PLR0917 - as in the paper's order, and as torch's own modules
        self,
        in_features: int,
        out_features: int,
        matrix_size: int = 30,
        embedding_size: int | None = 35,
        matrix_bias: bool = True,
        output_bias: bool = True,
        structure: str | nn.Module = "full",
        *,
        embedding_bias: bool = True,
        init: str | Initializer = "normal",
        on_overflow: OnOverflow = "ignore",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = positive_integer("in_features", in_features)
        self.out_features = positive_integer("out_features", out_features)
        self.matrix_size = positive_integer("matrix_size", matrix_size)
        self.embedding_size = (
            None if embedding_size is None else positive_integer("embedding_size", embedding_size)
        )
        self.init = as_initializer(init)
        self.on_overflow = on_overflow
        check_device(device)
        dtype = as_dtype(dtype)

        # A copy: the caller's module is neither converted nor trained.
        self.structure = deepcopy(as_structure(structure, self.matrix_size)).to(dtype=dtype)
        wanted = {
            "embedding": embedding_size is not None,
            "embedding_bias": flag("embedding_bias", embedding_bias) and embedding_size is not None,
            "free_matrix_bias": flag("matrix_bias", matrix_bias),
            "output_bias": flag("output_bias", output_bias),
        }
        for name, shape in self._shapes().items():
            values = nn.Parameter(new_weights(shape, device, dtype)) if wanted.get(name, True) else None
            self.register_parameter(name, values)
        self.structure.to(device=self.readout.device)  # which torch.device(...) around this may have chosen
        self.reset_parameters(generator)

    # ---- Weights. --------------------------------------------------------------------------------

    @property
    def generator_count(self) -> int:
        """d, the number of generators T_a."""
        return self.in_features if self.embedding_size is None else self.embedding_size

    @property
    def generators(self) -> Tensor:
        """T, the generators as matrices.  (d, n, n)"""
        self.check_sizes()
        return self.structure.dense(self.free_generators)

    @property
    def matrix_bias(self) -> Tensor | None:
        """B as a matrix, (n, n), or None."""
        return None if self.free_matrix_bias is None else self.structure.dense(self.free_matrix_bias)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute as every module does, but refuse matrices that the structure computes."""
        if name == "on_overflow":
            value = check_on_overflow(value)
        check_assigned(name, value)
        if changes_sizes(self, name, value):
            self.__dict__["_replaced"] = True
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """The attributes of copies and pickles: without the watcher, which is there only for a while."""
        return {name: value for name, value in self.__dict__.items() if name != "watcher"}

    def check_sizes(self) -> None:
        """Raise if parameters or sizes were assigned that do not belong together."""
        if self._replaced:
            check_replaced(self._parameters, self._shapes(), self.embedding_size is not None)

    def own_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the layer without those of a user's structure."""
        return self.parameters(recurse=False)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial weights, from ``generator`` if given."""
        hint = "Use torch.Generator().manual_seed(0)."
        instance("generator", generator, torch.Generator | None, "a torch.Generator or None", hint)
        check_stored(self, "initialized again")
        self.init(self, generator)

    @classmethod
    @torch.no_grad()
    def from_weights(
        cls,
        generators: Tensor,
        readout: Tensor,
        *,
        matrix_bias: Tensor | None = None,
        output_bias: Tensor | None = None,
        embedding: Tensor | None = None,
        embedding_bias: Tensor | None = None,
        structure: str | nn.Module = "full",
    ) -> MLayer:
        """A layer with copies of the given weights; what is None is left out.

        Args:
            generators: T, (d, n, n).
            readout: S, (out_features, n, n).
            matrix_bias: B, (n, n).
            output_bias: V, (out_features,).
            embedding: U, (d, in_features).
            embedding_bias: u, (d,).
            structure: as in the constructor; the matrices must be of it.

        >>> import torch, mlayer
        >>> turn, corner = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]), torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
        >>> cosine = mlayer.MLayer.from_weights(turn, corner, structure="skew")
        >>> torch.allclose(cosine(torch.tensor([[0.5]])), torch.tensor([[0.5]]).cos())
        True
        """
        check_weights(
            generators=generators,
            readout=readout,
            matrix_bias=matrix_bias,
            output_bias=output_bias,
            embedding=embedding,
            embedding_bias=embedding_bias,
        )
        (d, n), out_features = generators.shape[:2], readout.shape[0]
        layer = cls(
            d if embedding is None else embedding.shape[1],
            out_features,
            matrix_size=n,
            embedding_size=None if embedding is None else d,
            matrix_bias=matrix_bias is not None,
            output_bias=output_bias is not None,
            embedding_bias=embedding_bias is not None,
            structure=structure,
            init=_leave,
            dtype=generators.dtype,
            device=generators.device,
        )
        layer.init = as_initializer("normal")
        layer.free_generators.copy_(layer.structure.free(generators))
        if layer.free_matrix_bias is not None and matrix_bias is not None:
            # Together with the generators, so that a rounding error is judged by the scale of all.
            together = torch.cat([generators, matrix_bias.to(generators)[None]])
            layer.free_matrix_bias.copy_(layer.structure.free(together)[-1])
        for parameter, value in (
            (layer.embedding, embedding),
            (layer.embedding_bias, embedding_bias),
            (layer.readout, readout),
            (layer.output_bias, output_bias),
        ):
            if parameter is not None and value is not None:
                parameter.copy_(value)
        return layer

    def with_structure(self, structure: str | nn.Module) -> MLayer:
        """A copy that computes the same function with its matrices stored in another structure."""
        copy = MLayer.from_weights(
            self.generators,
            self.readout,
            matrix_bias=self.matrix_bias,
            output_bias=self.output_bias,
            embedding=self.embedding,
            embedding_bias=self.embedding_bias,
            structure=structure,
        )
        copy.init, copy.on_overflow = self.init, self.on_overflow
        return copy

    def __prepare_scriptable__(self) -> MLayer:
        """For torch.jit.script, which cannot read this module and would name an annotation as the reason."""
        raise ArgumentError(
            "the exporter",
            "torch.export or torch.onnx.export(..., dynamo=True)",
            "torch.jit.script, which has no matrix exponential of this layer",
            "Export with one of the two.",
        )

    if TYPE_CHECKING:  # torch gives calls no type

        def __call__(self, x: Tensor) -> Tensor:
            """p(x)."""
            return self.forward(x)

    # ---- The function. ---------------------------------------------------------------------------

    def matrix(self, x: Tensor) -> Tensor:
        """M(x).  (..., in_features) -> (..., n, n)"""
        self.check_sizes()
        check_input(x, self.in_features, self.readout)
        n = self.matrix_size
        features = x if self.embedding is None else linear(x, self.embedding, self.embedding_bias)
        with self._full_precision(x):
            T, B = self._widen(self.generators), self.matrix_bias
            flat = features.reshape(-1, T.shape[0]).to(T.dtype)  # (b, d)
            T = T.reshape(-1, n * n)
            M = flat @ T if B is None else torch.addmm(self._widen(B).reshape(-1), flat, T)  # (b, n n)
        return M.view(*x.shape[:-1], n, n)

    def exponential(self, x: Tensor) -> Tensor:
        """exp(M(x)).  (..., in_features) -> (..., n, n)"""
        return self.structure.exponential(self.matrix(x))

    def forward(self, x: Tensor) -> Tensor:
        """p(x).  (..., in_features) -> (..., out_features)"""
        exponentials = self.exponential(x)
        if self.watcher is not None:
            self.watcher(exponentials)
        return self._read(exponentials, x)

    def forward_with_activity(self, x: Tensor, kind: ActivityKind = "frobenius") -> tuple[Tensor, Tensor]:
        """The output and the penalty :meth:`activity` from one exponential.

        >>> import torch, mlayer
        >>> layer = mlayer.MLayer(2, 3, matrix_size=4, embedding_size=5)
        >>> output, penalty = layer.forward_with_activity(torch.ones(7, 2))
        >>> loss = output.square().mean() + 1e-4 * penalty
        """
        exponentials = self.exponential(x)
        return self._read(exponentials, x), activity_of(exponentials, kind)

    def activity(self, x: Tensor, kind: ActivityKind = "frobenius") -> Tensor:
        """The penalty: mean over the batch of ||exp(M)||_F^2, or with "l1" of the sum of |exp(M)_jk|."""
        return activity_of(self.exponential(x), kind)

    def trajectory(self, x: Tensor, t: Tensor | float) -> Tensor:
        """exp(t M(x)), the solution of dY/dt = M Y from Y(0) = I.

        Args:
            x: (..., in_features).
            t: times, any shape.

        Returns:
            (..., *t.shape, n, n).

        >>> import torch, mlayer
        >>> layer = mlayer.MLayer(2, 3, matrix_size=4)
        >>> layer.trajectory(torch.ones(7, 2), torch.linspace(0, 1, 11)).shape
        torch.Size([7, 11, 4, 4])
        """
        return trajectory(self.matrix(x), t)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all parameters."""
        n, d, free = self.matrix_size, self.generator_count, self.structure.parameter_shape
        return {
            "embedding": (d, self.in_features),
            "embedding_bias": (d,),
            "free_generators": (d, *free),
            "free_matrix_bias": free,
            "readout": (self.out_features, n, n),
            "output_bias": (self.out_features,),
        }

    def _read(self, exponentials: Tensor, x: Tensor) -> Tensor:
        with self._full_precision(x):
            S = self._widen(self.readout).flatten(1)
            V = None if self.output_bias is None else self._widen(self.output_bias)
            output = linear(exponentials.flatten(-2), S, V)
        if self.readout.dtype in HALVES:
            output = output.to(x.dtype)
        if self.on_overflow != "ignore":
            report_overflow(self, x, output)
        return output

    def _full_precision(self, x: Tensor) -> AbstractContextManager[object]:
        # An error in M is a relative error in exp(M), and exp(M) may be too large for float16.
        device = x.device.type
        if autocasts(device):
            return cast(AbstractContextManager[object], torch.autocast(device, enabled=False))
        return nullcontext()

    def _widen(self, tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.dtype in HALVES else tensor

    def extra_repr(self) -> str:
        """The sizes and flags that repr() shows."""
        parts = [str(self.in_features), str(self.out_features)]
        parts += [f"matrix_size={self.matrix_size}", f"embedding_size={self.embedding_size}"]
        missing = {"matrix_bias": self.free_matrix_bias, "output_bias": self.output_bias}
        if self.embedding is not None:
            missing["embedding_bias"] = self.embedding_bias
        parts += [f"{name}=False" for name, parameter in missing.items() if parameter is None]
        if self.on_overflow != "ignore":
            parts.append(f"on_overflow={self.on_overflow!r}")
        return ", ".join(parts)


def _leave(layer: MLayer, generator: torch.Generator | None) -> None:
    """An initializer for layers whose weights are about to be set."""


def check_layer(layer: object, hint: str = "Give the layer itself.") -> None:
    """Raise if this is not an M-layer."""
    if not isinstance(layer, MLayer):
        raise ArgumentTypeError("layer", "an MLayer", type(layer).__name__, unwrapping(layer) or hint)
