"""Optimizers by name, in their fastest form on a CPU."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mlayer.checks import brief, did_you_mean, instance
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.numerics.light_optimizers import light
from mlayer.training.muon import Muon
from mlayer.training.rmsprop import RMSprop, fits_one_call
from mlayer.training.settings import Settings

_CLASSES = {
    name.lower(): value
    for name, value in vars(torch.optim).items()
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name != "Optimizer"
}
_CLASSES["muon"] = Muon  # torch's takes matrices only
SPARSE = torch.optim.SparseAdam
_KERNELS = ("fused", "foreach", "capturable", "differentiable", "amsgrad")
OPTIMIZERS = tuple(sorted(set(_CLASSES) - {SPARSE.__name__.lower()}))


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of torch.optim with this name, in any case."""
    instance("optimizer", name, str, "a name or a callable", "For example 'adam', or torch.optim.Adam.")
    found = _CLASSES.get(name.lower())
    if found is None:
        hint = did_you_mean(name, OPTIMIZERS, "Or give a callable: parameters -> optimizer.")
        raise ArgumentError("optimizer", f"one of {', '.join(OPTIMIZERS)}", brief(name), hint)
    _refuse_sparse(found)
    return found


def _refuse_sparse(kind: type) -> None:
    """M-layers have dense gradients; torch would say so at the first step only."""
    if issubclass(kind, SPARSE):
        raise ArgumentError(
            "optimizer",
            "one for dense gradients",
            kind.__name__,
            "Use 'adam': gradients here are dense.",
        )


def build_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer of ``settings`` for the trainable parameters of ``model``."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ArgumentError(
            "model", "a module with trainable parameters", "none", "Set requires_grad on what should learn."
        )
    if not isinstance(settings.optimizer, str):
        optimizer = settings.optimizer(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ArgumentTypeError(
                "optimizer",
                "a callable that returns a torch.optim.Optimizer",
                f"one that returned {type(optimizer).__name__}",
                "For example functools.partial(torch.optim.SGD, lr=0.1).",
            )
        _refuse_sparse(type(optimizer))
        return optimizer
    kind = optimizer_class(settings.optimizer)
    known = inspect.signature(kind).parameters
    options: dict[str, Any] = {"lr": settings.learning_rate}
    if settings.weight_decay:
        if "weight_decay" not in known:
            raise ArgumentError(
                "weight_decay",
                f"0 for {kind.__name__}, which has none",
                str(settings.weight_decay),
                "Drop it.",
            )
        options["weight_decay"] = settings.weight_decay
    # One call for all parameters: at batch 32 the separate calls cost as much as the exponential.
    if "fused" in known and all(_fuses(p) for p in parameters):
        options["fused"] = True
    unknown = [name for name in settings.optimizer_options if name not in known]
    if unknown:
        raise ArgumentError(
            "optimizer_options",
            f"arguments of {kind.__name__}",
            repr(unknown[0]),
            did_you_mean(str(unknown[0]), known, f"It knows {', '.join(known)}."),
        )
    options |= settings.optimizer_options
    try:
        if kind is torch.optim.RMSprop and fits_one_call(parameters, options):
            kind = RMSprop
        return (kind if options.get("differentiable") else light(kind))(parameters, **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "optimizer",
            "one that can be built for this model with these options",
            f"{kind.__name__} with {options}",
            f"torch says: {in_one_line(error)}.",
        ) from None


def _fuses(weight: nn.Parameter) -> bool:
    """Whether torch's fused CPU kernel takes it; it would silently train one with gaps in memory wrongly."""
    return weight.is_floating_point() and weight.device.type == "cpu" and weight.is_contiguous()


def same_kernels(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two groups of an optimizer have the same options that decide which of torch's kernels run."""
    return all(old.get(name) is new.get(name) for name in _KERNELS)


def alike(old: Any, new: Any) -> bool:
    """Whether two trees have the same shape and hold the same kinds of values."""
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and old.shape == new.shape
    if isinstance(old, dict):
        return isinstance(new, dict) and old.keys() == new.keys() and all(alike(old[k], new[k]) for k in old)
    if isinstance(old, list | tuple):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(alike, old, new))
    if old is None or new is None:
        return True
    if isinstance(old, int | float) and isinstance(new, int | float):
        return isinstance(old, bool) == isinstance(new, bool)
    return type(old) is type(new)


def check_state(optimizer: torch.optim.Optimizer) -> None:
    """Raise a ValueError unless what was loaded has the shapes of the weights where kernels rely on that.

    Torch's fused kernels walk through memory from the first number of a weight to its last, whatever the
    length of the other tensors: a shorter one from a file would have them read and write beyond its end.
    """
    for group in optimizer.param_groups:
        if not (group.get("fused") or isinstance(optimizer, RMSprop)):
            continue
        for weight in group["params"]:
            for name, value in optimizer.state.get(weight, {}).items():
                alike = isinstance(value, torch.Tensor) and (
                    value.dim() == 0
                    if name == "step"
                    else (value.shape, value.dtype, value.layout, value.device, value.is_contiguous())
                    == (weight.shape, weight.dtype, weight.layout, weight.device, True)
                )
                if not alike and value is not None:
                    raise ValueError(f"{name} of an optimizer that does not fit its weights")


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``step`` must evaluate the loss itself (L-BFGS)."""
    parameter = inspect.signature(optimizer.step).parameters.get("closure")
    return parameter is not None and parameter.default is inspect.Parameter.empty
