"""Detects functions of torch and of this package that were replaced by others.

Those replaced before this module was loaded are recognized by where a function was defined, those replaced
later by comparison with the functions found then. Values at some inputs cannot tell: a replacement may differ
elsewhere only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mlayer.exponential import expm, expm_function
from mlayer.nn import layer as layer_module
from mlayer.nn.layer import MLayer
from mlayer.nn.structures import STRUCTURES, Parametrized, named

_PACKAGES = ("torch", "mlayer")
# torch.compile puts functions around methods of nn.Module that take note of changes and compute nothing else.
_COMPILER = "torch._dynamo."
# Methods that compute or copy, of the classes whose functions are known; in our classes all of them count.
_RUN = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__", "__getattribute__", "forward")
_READ = (
    "__deepcopy__",
    "__copy__",
    "__reduce_ex__",
    "__setstate__",
    "_apply",
    "to",
    "double",
    "eval",
    "train",
)
_OF_KINDS = ("_conv_forward", "_check_input_dim", "__iter__", "__len__")
_TORCH_KINDS: tuple[type, ...] = (
    nn.Module,
    nn.Sequential,
    nn.Identity,
    nn.modules.dropout._DropoutNd,
    nn.Dropout,
    nn.Dropout2d,
    nn.Flatten,
    nn.Unflatten,
    nn.ReLU,
    nn.Linear,
    nn.modules.conv._ConvNd,
    nn.Conv2d,
    nn.modules.pooling._AvgPoolNd,
    nn.AvgPool2d,
    nn.modules.pooling._MaxPoolNd,
    nn.MaxPool2d,
    nn.modules.batchnorm._NormBase,
    nn.modules.batchnorm._BatchNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
)
# The layer, every structure of the table, and the classes of this package that they inherit from.
_OWN_KINDS: tuple[type, ...] = tuple(
    dict.fromkeys(
        cls
        for kind in (MLayer, Parametrized, *STRUCTURES.values())
        for cls in kind.__mro__
        if cls.__module__.startswith("mlayer.")
    )
)
# Functions that the forward methods of torch's modules call.
_FUNCTIONAL = ("linear", "conv2d", "relu", "batch_norm", "avg_pool2d", "max_pool2d", "dropout", "dropout2d")
_TORCH = (
    "relu", "relu_", "conv2d", "batch_norm", "max_pool2d", "addmm", "matmul", "mm", "dropout",
    "feature_dropout",
)  # fmt: skip
_OF_TENSORS = (
    "flatten", "unflatten", "view", "reshape", "to", "float", "double", "clone", "__matmul__", "__deepcopy__",
)  # fmt: skip
_OWN_MODULES: tuple[ModuleType, ...] = tuple(
    dict.fromkeys([*(sys.modules[cls.__module__] for cls in _OWN_KINDS), named, expm_function])
)
# Operators that torch.library can give another kernel. Products are not among them: they may well come from
# another BLAS, and their values are compared at the rows.
_OPERATORS = (
    "relu", "relu_", "clamp_min", "clamp_min.Tensor", "conv2d", "convolution", "batch_norm",
    "native_batch_norm", "avg_pool2d", "max_pool2d", "max_pool2d_with_indices",
)  # fmt: skip
_ON_CPU = ("CPU", "AutogradCPU", "Autograd", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
_KERNELS = frozenset(f"aten/{operator}/{key}" for operator in _OPERATORS for key in _ON_CPU)

Place = tuple[Any, str]


def _places() -> Iterator[Place]:
    """Everything that is compared: an owner and a name."""
    for cls in _TORCH_KINDS:
        for name in (*_RUN, *_READ, *_OF_KINDS):
            yield cls, name
    yield from ((nn.Parameter, name) for name in ("__deepcopy__", "__torch_function__"))
    for cls in _OWN_KINDS:
        for name in vars(cls):
            yield cls, name
        yield from ((cls, name) for name in (*_RUN, *_READ))
    yield from ((functional, name) for name in _FUNCTIONAL)
    yield from ((torch, name) for name in _TORCH)
    yield from ((Tensor, name) for name in _OF_TENSORS)
    for module in _OWN_MODULES:
        for name, value in vars(module).items():
            if isinstance(value, FunctionType):
                yield module, name


def _found(place: Place) -> tuple[Any, Any]:
    """The attribute of the owner itself, not an inherited one, and its code."""
    owner, name = place
    value = vars(owner).get(name)
    return value, getattr(value, "__code__", None)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions in Python behind an attribute, those that decorators stand around too."""
    for part in (value, *(getattr(value, name, None) for name in ("fget", "__func__", "__wrapped__"))):
        if isinstance(part, FunctionType):
            yield part
            inner = getattr(part, "__wrapped__", None)
            if inner is not None:
                yield from _functions(inner)


def _is_foreign(value: Any) -> bool:
    """Whether a function in Python was defined outside of torch and this package."""
    for function in _functions(value):
        home = str(function.__globals__.get("__name__", ""))
        module = sys.modules.get(home)
        ours = home.split(".", maxsplit=1)[0] in _PACKAGES
        if not ours or module is None or vars(module) is not function.__globals__:
            return True
    return False


def _is_compilers(value: Any) -> bool:
    home = getattr(value, "__globals__", {}).get("__name__", "")
    return home.startswith(_COMPILER) and not _is_foreign(value)


def _name(place: Place) -> str:
    owner, name = place
    return f"{getattr(owner, '__qualname__', None) or getattr(owner, '__name__', owner)}.{name}"


_SEEN: dict[Place, tuple[Any, Any]] = {place: _found(place) for place in _places()}
# Our own modules also name functions of the standard library.
_FOREIGN: tuple[str, ...] = tuple(
    _name(place) for place, (value, _) in _SEEN.items() if place[0] not in _OWN_MODULES and _is_foreign(value)
)


def replaced() -> str | None:
    """The name of a function that was replaced, or None."""
    if _FOREIGN:
        return _FOREIGN[0]
    for place, (value, code) in _SEEN.items():
        now, its_code = _found(place)
        if (now is not value or its_code is not code) and not _is_compilers(now):
            return _name(place)
    exponentials = [vars(module)["expm"] for module in _OWN_MODULES if "expm" in vars(module)]
    if vars(layer_module)["linear"] is not functional.linear or any(own is not expm for own in exponentials):
        return "the product or the exponential of mlayer.nn"
    kernels = _KERNELS.intersection(getattr(torch.library, "_impls", ()))
    return f"the kernel of aten::{min(kernels).removeprefix('aten/')}" if kernels else None
