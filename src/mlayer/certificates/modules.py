"""Whether a module computes the function of its class: only for that are there bounds.

A subclass with its own forward, a hook, a parametrization, a weight that is not a parameter, or the training
mode make another function of the same weights. Bounds of the weights would be false for it. So do methods and
functions that were replaced in the libraries themselves (`replaced_functions`); what else there may be can
show in the outputs (`check_agreement`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from mlayer.certificates.replaced_functions import replaced
from mlayer.certificates.torch_state import keeps_zeros
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn.layer import MLayer
from mlayer.nn.structures import STRUCTURES, Structure

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

# What modules do not have of themselves, and what decides about the copy that is certified.
_COPYING = frozenset({"__deepcopy__", "__copy__"})

_NORMALIZED = ("weight", "bias", "running_mean", "running_var")
# The tensors that the classes read, by name. They must be the registered ones: others are neither checked nor
# converted.
_TENSORS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("weight", "bias"),
    nn.Conv2d: ("weight", "bias"),
    nn.BatchNorm1d: _NORMALIZED,
    nn.BatchNorm2d: _NORMALIZED,
    MLayer: ("embedding", "embedding_bias", "free_generators", "free_matrix_bias", "readout", "output_bias"),
}
PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
# Outputs that differ by more than this part of the terms of their sums, both in float64, are of
# different functions.
_AGREEMENT = 1e-6


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
    for tensor in _TENSORS.get(kind, ()):
        registered = module._parameters.get(tensor, module._buffers.get(tensor))
        number = registered is None or registered.is_floating_point() or registered.is_complex()
        proper = tensor not in module._parameters or isinstance(registered, nn.Parameter | None)
        if getattr(module, tensor, None) is not registered or not number or not proper:
            raise ArgumentError(
                argument, "of registered floating point parameters", f"a {name} whose {tensor} is none",
                f"Assign a torch.nn.Parameter to {tensor}.",
            )  # fmt: skip


def check_surroundings(argument: str) -> None:
    """Raise where torch itself computes something else: hooks for all modules, active modes, patches."""
    other = replaced()
    if other is not None:
        raise ArgumentError(
            argument, "certified with the functions of torch and mlayer as they were defined",
            f"{other}, which was replaced", "Undo it, or restart Python without what replaces it.",
        )  # fmt: skip
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        raise ArgumentError(
            argument, "without forward hooks, which may change what it computes",
            "one for all modules (register_module_forward_hook)",
            "Remove it: the handle that registered it has remove().",
        )  # fmt: skip
    modes: list[Any] = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    for mode in modes:
        if not isinstance(mode, DeviceContext):
            raise ArgumentError(
                argument, "certified outside of modes that change what torch computes",
                f"{type(mode).__name__}, which is active", "Leave its with block first.",
            )  # fmt: skip


def check_mlayer(argument: str, layer: MLayer, hooks: bool) -> None:
    """Raise if an M-layer computes anything but V + S : exp(B + sum_a T_a (U x + u)_a)."""
    check_function(argument, layer, (MLayer,), hooks)
    if layer.watcher is not None and not hooks:
        raise ArgumentError(
            argument, "without a watcher, which may change what it computes", "one that is watched",
            "Leave the block of watch_activity, or set layer.watcher = None.",
        )  # fmt: skip
    structure = layer.structure
    if not is_plain(layer):
        own = type(structure).exponential is not Structure.exponential or "exponential" in vars(structure)
        if own:
            raise ArgumentTypeError(
                argument, "one whose structure has the matrix exponential",
                f"{type(structure).__name__} with its own exponential",
                'Certify layer.with_structure("full"), if it is the same function.',
            )  # fmt: skip
    else:
        check_function(argument, structure, tuple(STRUCTURES.values()), hooks)
    for module in structure.modules():
        check_mode(argument, module)
    n, d, m, c = layer.matrix_size, layer.generator_count, layer.in_features, layer.out_features
    free = structure.parameter_shape
    shapes = ((d, m), (d,), (d, *free), free, (c, n, n), (c,))
    for name, shape in zip(_TENSORS[MLayer], shapes, strict=True):
        tensor = getattr(layer, name)
        if tensor is not None and tensor.shape != shape:
            raise ArgumentError(
                argument, f"a layer with {name} of shape {shape}, as its sizes say",
                f"shape {tuple(tensor.shape)}",
                "Build a layer of the right sizes: MLayer.from_weights.",
            )  # fmt: skip


def is_plain(layer: MLayer) -> bool:
    """Whether the structure is one of ours that puts parameters into matrices without arithmetic."""
    return type(layer.structure) in STRUCTURES.values() and layer.structure.exact


def with_plain_structure(argument: str, layer: MLayer) -> MLayer:
    """The layer with the matrices that a user's structure gives, in the precision of the layer."""
    if is_plain(layer):
        return layer
    plain = layer.with_structure("full")
    again = layer.with_structure("full").state_dict()
    if not all(torch.equal(tensor, again[name]) for name, tensor in plain.state_dict().items()):
        raise ArgumentError(
            argument, "one whose structure gives the same matrices each time",
            f"{type(layer.structure).__name__}, which gives others (or NaN)",
            'Certify layer.with_structure("full").',
        )  # fmt: skip
    return plain


def check_agreement(argument: str, outputs: Tensor, expected: Tensor, size: Tensor, rounding: Tensor) -> None:
    """Raise where the outputs of a model, in float64, are not those of the function that is certified.

    Args:
        argument: the user's argument that the model came with.
        outputs: what the model's own modules compute.
        expected: what the certified function gives at the same inputs.
        size: bounds of the sums of absolute values that it is computed from.
        rounding: bounds of rounding beyond that, where terms cancel.
    """
    off = (outputs - expected).abs() - (_AGREEMENT * size + 4 * rounding)
    if bool((off > 0).any()):
        raise ArgumentError(
            argument, "one that computes what its weights say",
            f"outputs that differ by {float((outputs - expected).abs()[off > 0].max()):.3g}",
            "Something replaces a method of its classes or a function of torch: undo it.",
        )  # fmt: skip


def _defined_again(module: nn.Module, kind: type[nn.Module]) -> str | None:
    """The first attribute of a kind that the module, or a class between, redefines."""
    own = next((n for n in vars(module) if n in _COPYING or callable(getattr(kind, n, None))), None)
    if own is not None:
        return own
    for cls in type(module).__mro__:
        if cls is kind:
            return None
        for name in vars(cls):
            if name in _COPYING or (name not in _HARMLESS and hasattr(kind, name)):
                return name
    return None


def check_copy(argument: str, module: nn.Module, copy: nn.Module) -> None:
    """Raise unless a copy in float64 has the weights of the module."""
    tensors, copied = _named_tensors(module), dict(_named_tensors(copy))
    same = len(tensors) == len(copied) and all(
        name in copied and tensor.shape == copied[name].shape and _equal(tensor, copied[name])
        for name, tensor in tensors
    )
    if not same:
        raise ArgumentError(
            argument, "one whose copies have its weights", "another one from copy.deepcopy",
            "Undo what changes how its modules or tensors are copied, or torch.set_flush_denormal(True).",
        )  # fmt: skip


def _equal(tensor: Tensor, copy: Tensor) -> bool:
    same = torch.equal(tensor.detach().to(device="cpu", dtype=copy.dtype), copy.detach())
    return same and keeps_zeros(tensor, copy)


def check_weights(argument: str, module: nn.Module) -> None:
    """Raise unless all weights are real numbers that are there and finite."""
    for name, tensor in _named_tensors(module):
        if nn.parameter.is_lazy(tensor):
            raise ArgumentError(
                argument, "a module with weights", f"a lazy {name}", "Call the model once before."
            )
        if type(tensor) not in PLAIN_TENSORS:
            raise ArgumentTypeError(
                argument, "of plain tensors", f"{type(tensor).__name__} in {name}",
                "Convert it with .as_subclass(torch.Tensor), if its numbers are the weights.",
            )  # fmt: skip
        if tensor.is_quantized or tensor.layout != torch.strided:
            came = "quantized" if tensor.is_quantized else str(tensor.layout)
            raise ArgumentTypeError(
                argument, "of dense weights", f"{came} {name}", "Use .to_dense() or .dequantize()."
            )
        if tensor.is_inference():
            raise ArgumentError(
                argument,
                "made outside torch.inference_mode, as derivatives are needed",
                f"{name} made under it",
                "Use copy.deepcopy(layer) outside.",
            )
        if tensor.is_meta:
            raise ArgumentError(
                argument, "a module with weights", f"{name} without data (meta)", "Load its weights."
            )
        if tensor.is_complex():
            raise ArgumentTypeError(argument, "of real weights", f"{tensor.dtype} in {name}", "Use float64.")
        if tensor.is_floating_point() and not bool(_readable(tensor).isfinite().all()):
            raise ArgumentError(
                argument,
                "of finite weights",
                f"NaN or infinity in {name}",
                "Training may have diverged: train it again with a smaller learning rate.",
            )


def _readable(tensor: Tensor) -> Tensor:
    """The tensor in a precision for which torch has isfinite."""
    return tensor.float() if tensor.dtype.itemsize == 1 else tensor


def _named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """All parameters and buffers, also where a plain tensor was put among the parameters."""
    found = []
    for place, inner in module.named_modules():
        for name, tensor in [*inner._parameters.items(), *inner._buffers.items()]:
            if tensor is not None:
                found.append((f"{place}.{name}" if place else name, tensor))
    return found


def check_mode(argument: str, module: nn.Module) -> None:
    """Raise where the training mode computes something different from evaluation."""
    random = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    normalizes = isinstance(module, nn.modules.batchnorm._BatchNorm)
    # Without running statistics there is no evaluation mode: another check refuses that.
    if module.training and (random or (normalizes and module.running_mean is not None)):
        raise ArgumentError(
            argument, "in evaluation mode", f"{type(module).__name__} in training mode", "Call .eval()."
        )
