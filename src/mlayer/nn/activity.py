"""The penalty on exp(M) that keeps training stable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from mlayer.checks import instance, one_of
from mlayer.errors import MLayerError
from mlayer.exponential.arguments import HALVES, check_matrices

ActivityKind = Literal["frobenius", "l1"]
_KINDS = ("frobenius", "l1")
# Terms that BLAS adds in float32 at once; with many more it would lose digits.
_PIECE = 2**18


def activity_of(exponentials: Tensor, kind: ActivityKind = "frobenius") -> Tensor:
    """Mean over the batch of ||E||_F^2 (the paper's text) or of the sum of |E| (the authors' notebooks).

    Args:
        exponentials: (..., n, n), from :meth:`mlayer.MLayer.exponential`.
        kind: "frobenius" or "l1".

    Returns:
        A scalar; 0 for an empty batch.

    >>> import torch
    >>> round(activity_of(torch.tensor([[[1.0, -2.0], [0.0, 3.0]]])).item(), 4)
    14.0
    >>> activity_of(torch.tensor([[[1.0, -2.0], [0.0, 3.0]]]), "l1").item()
    6.0
    """
    _check_kind(kind)
    check_matrices(exponentials, "exponentials")
    if exponentials.dtype in HALVES:  # a sum of squares soon has no place in float16
        exponentials = exponentials.float()
    if torch.compiler.is_compiling():  # A comparison with the size of the batch would fix it in the program.
        entries = exponentials.abs() if kind == "l1" else (exponentials * exponentials.conj()).real
        sums = entries.sum((-2, -1))
        return sums.sum() / torch.ones_like(sums).sum().clamp(min=1)
    batch = max(1, exponentials.shape[:-2].numel())
    # Not torch.linalg.vector_norm: in float32 it loses digits of a sum over many matrices, and its backward
    # pass takes more operations.
    if kind == "l1":
        return exponentials.abs().sum() / batch
    if exponentials.is_complex():
        exponentials = torch.view_as_real(exponentials)
    entries = exponentials.flatten()
    if len(entries) <= _PIECE:
        return torch.dot(entries, entries) / batch
    return torch.stack([torch.dot(piece, piece) for piece in entries.split(_PIECE)]).sum() / batch


class DetachedPenaltyError(MLayerError, RuntimeError):
    """The penalty would be collected without a gradient, so that it would not act on training."""


@contextmanager
def watch_activity(model: nn.Module, kind: ActivityKind = "frobenius") -> Iterator[list[Tensor]]:
    """Collect the penalties of all M-layers inside ``model``, one for each of their forward passes.

    Under ``torch.utils.checkpoint`` with ``use_reentrant=False`` each forward pass counts once, however
    often it is recomputed; exp(M) of the watched layers is kept for the penalty. With
    ``use_reentrant=True`` the forward pass has no gradient, and a :class:`DetachedPenaltyError` says so.
    A model without M-layers gives no penalties, so that one loop trains it and an M-layer.
    Contexts may be nested: each holds the penalties of the forward passes inside it. Copies made inside are
    not watched. Under ``torch.func`` (vmap, grad) it must stand inside the transformed function: what a
    transform computes cannot be used outside of it.

    >>> import torch, mlayer
    >>> model = torch.nn.Sequential(mlayer.MLayer(3, 4, matrix_size=2), mlayer.MLayer(4, 2, matrix_size=2))
    >>> with watch_activity(model) as penalties:
    ...     output = model(torch.ones(7, 3))
    >>> len(penalties)
    2
    """
    instance("model", model, nn.Module, "a torch.nn.Module", "For example an MLayer.")
    _check_kind(kind)
    penalties: list[Tensor] = []
    watching = [True]  # a copy made inside may keep the watcher
    gradients_wanted = torch.is_grad_enabled()
    depth = _transforms()
    layers: list[Any] = [module for module in model.modules() if hasattr(module, "watcher")]

    def watch(layer: Any, outer: Callable[[Tensor], None] | None, exponentials: Tensor) -> None:
        if outer is not None:  # one that watches around this one continues
            outer(exponentials)
        if not watching or _recomputes():
            return
        if gradients_wanted and not torch.is_grad_enabled() and layer.training and _trains(layer):
            raise DetachedPenaltyError(
                "watch_activity was entered with gradients enabled, but this forward pass of an MLayer in "
                "training mode runs without them, so its penalty would have no effect. With "
                "torch.utils.checkpoint, pass use_reentrant=False; to evaluate, call model.eval() or enter "
                "watch_activity inside torch.no_grad()."
            )
        if _transforms() != depth:
            raise DetachedPenaltyError(
                "this forward pass of an MLayer runs under a transform of torch.func (vmap, grad, jvp) that "
                "begins inside watch_activity, so its penalty could not be used outside of that transform. "
                "Enter watch_activity inside the function that is transformed and return the penalty from it."
            )
        with _outside_checkpoint():
            penalties.append(activity_of(exponentials, kind))

    before = [layer.watcher for layer in layers]
    for layer, outer in zip(layers, before, strict=True):
        layer.watcher = partial(watch, layer, outer)
    try:
        yield penalties
    finally:
        watching.clear()
        for layer, outer in zip(layers, before, strict=True):
            layer.watcher = outer


def _trains(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in layer.parameters())


def _recomputes() -> bool:
    """Whether this forward pass runs inside a backward pass: the recomputation of a checkpoint."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _transforms() -> int:
    """The number of active transforms of torch.func; 0 under a compiler, which traces them by itself."""
    current = getattr(torch._C._functorch, "maybe_current_level", None)
    if current is None or torch.compiler.is_compiling():
        return 0
    return current() or 0


def _outside_checkpoint() -> AbstractContextManager[object]:
    """A context whose saved tensors do not count for the checkpoint around it, if there is one.

    A checkpoint compares what the forward pass saved with what the recomputation saves. The penalty is not
    recomputed, so what it saves must not be counted.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if top_hooks is None or top_hooks(False) is None:
        return nullcontext()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    return cast(AbstractContextManager[object], hooks)


def _check_kind(kind: object) -> None:
    one_of("kind", kind, _KINDS, "The paper's text uses 'frobenius'.")
