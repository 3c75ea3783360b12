"""Whether a module computes the function of its class: only for that are there bounds.

A subclass that defines forward anew, a hook, a parametrization or the training mode make another function of
the same weights. Bounds of the weights would be false for it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize

from mlayer.errors import ArgumentError, ArgumentTypeError

# What a subclass may define without computing something else.
_HARMLESS = frozenset(
    {
        "__init__",
        "__doc__",
        "__module__",
        "__qualname__",
        "__annotations__",
        "__dict__",
        "__weakref__",
        "__constants__",
        "__firstlineno__",
        "__static_attributes__",
        "__repr__",
        "extra_repr",
        "reset_parameters",
    }
)


def check_function(argument: str, module: nn.Module, kinds: tuple[type[nn.Module], ...], hooks: bool) -> None:
    """Raise if a module of one of these kinds computes something other than its kind does.

    Args:
        argument: the user's argument that the module came with.
        module: the module; one of no kind is let through.
        kinds: the classes whose function is known.
        hooks: whether forward hooks are let through.
    """
    name = type(module).__name__
    kind = next((cls for cls in type(module).__mro__ if cls in kinds), None)
    if kind is None:
        return
    if parametrize.is_parametrized(module):
        raise ArgumentError(
            argument, "of stored weights", f"a parametrized {name}",
            "Fix them with torch.nn.utils.parametrize.remove_parametrizations.",
        )  # fmt: skip
    own = _defined_again(module, kind)
    if own is not None:
        raise ArgumentTypeError(
            argument, f"made of modules that compute what {kind.__name__} does", f"{name} with its own {own}",
            f"Certify a plain {kind.__name__} with the same weights, if it is the same function.",
        )  # fmt: skip
    if not hooks and (module._forward_hooks or module._forward_pre_hooks):
        raise ArgumentError(
            argument, "without forward hooks, which may change what it computes", f"a {name} with one",
            "Remove it: the handle that registered it has remove().",
        )  # fmt: skip


def _defined_again(module: nn.Module, kind: type[nn.Module]) -> str | None:
    """The first attribute of a kind that the module, or a class between, redefines."""
    own = next((name for name in vars(module) if callable(getattr(kind, name, None))), None)
    if own is not None:
        return own
    for cls in type(module).__mro__:
        if cls is kind:
            return None
        for name in vars(cls):
            if name not in _HARMLESS and hasattr(kind, name):
                return name
    return None


def check_weights(argument: str, module: nn.Module) -> None:
    """Raise unless all weights are real numbers that are there and finite."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if nn.parameter.is_lazy(tensor):
            raise ArgumentError(
                argument, "a module with weights", f"a lazy {name}", "Call the model once before."
            )
        if tensor.is_meta:
            raise ArgumentError(
                argument, "a module with weights", f"{name} without data (meta)", "Load its weights."
            )
        if tensor.is_complex():
            raise ArgumentTypeError(argument, "of real weights", f"{tensor.dtype} in {name}", "Use float64.")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ArgumentError(
                argument,
                "of finite weights",
                f"NaN or infinity in {name}",
                "Training may have diverged: train it again with a smaller learning rate.",
            )


def check_mode(argument: str, module: nn.Module) -> None:
    """Raise where the training mode computes something different from evaluation."""
    random = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    normalizes = isinstance(module, nn.modules.batchnorm._BatchNorm)
    # Without running statistics there is no evaluation to speak of: that is said elsewhere.
    if module.training and (random or (normalizes and module.running_mean is not None)):
        raise ArgumentError(
            argument, "in evaluation mode", f"{type(module).__name__} in training mode", "Call .eval()."
        )
