"""The parts of an object: attributes, what it is stored as, and what Python can see of its C part."""

from __future__ import annotations

import copyreg
import gc
import struct
import sys
from types import GeneratorType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from mlayer.training.code_fingerprint import of_a_library

# What an object may be asked for that is to be stored.
_STORING = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    *("_load_state_dict_post_hooks",),
)
_LISTING = ("items", "__iter__")
# What Python keeps in every class that says nothing of what it does.
_OF_EVERY_CLASS = {
    *("__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__annotations__", "__slots__"),
    *("__orig_bases__", "__parameters__", "__abstractmethods__", "__firstlineno__", "__static_attributes__"),
    *("__slotnames__",),  # which copying and storing an object adds
    *("_abc_impl", "_abc_registry", "_abc_cache", "_abc_negative_cache", "_abc_negative_cache_version"),
    *("_backward_cls", "_autograd_function_id"),  # of torch.autograd.Function: a number of the process
    *("__match_args__", "__dataclass_params__", "__annotate_func__", "__annotations_cache__"),
}
_DESCRIPTORS = ("member_descriptor", "getset_descriptor", "CField")
_POINTER = struct.calcsize("P")


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, also those in slots.

    >>> attributes(type("A", (), {"__slots__": "k"})())
    {}
    """
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            inside = f"_{kind.__name__.lstrip('_')}{name}"  # of a name that is private to its class
            for each in {name, inside} - {"__dict__", "__weakref__"}:
                if each in kind.__dict__ and hasattr(value, each):
                    found[each] = getattr(value, each)
    return found


def attributes_of_content(value: Any) -> dict[str, Any]:
    """The attributes of a tensor, an array and so on, without the marks of its library."""
    if isinstance(value, np.memmap) or (isinstance(value, Tensor) and value.is_nested):
        return {}  # of a tensor of several lengths: a number that counts the tensors of the process
    return {name: held for name, held in attributes(value).items() if not name.startswith("_dynamo")}


def container_of(kind: type) -> Any:
    """The list, tuple or dict that an object of a class is, apart from what a user's class adds."""
    if not issubclass(kind, list | tuple | dict):
        return None
    given = next(one for one in kind.__mro__ if of_a_library(one))
    return given if given in (list, tuple, dict) else None


def stores_in_its_own_way(kind: type) -> bool:
    """Whether a user's class decides what of its objects is stored, and may leave something out."""
    given = next(one for one in kind.__mro__ if of_a_library(one))
    return any(getattr(kind, name, None) is not getattr(given, name, None) for name in (*_STORING, *_LISTING))


def hooks_of(module: Any) -> dict[str, Any]:
    """The functions that are called around a module, and how each of them is called.

    >>> hooks_of(object())
    {}
    """
    found: dict[str, Any] = {}
    for name in _HOOKS:
        if several := dict(getattr(module, name, None) or {}):
            ways = [getattr(module, f"{name}_{way}", {}) for way in ("with_kwargs", "always_called")]
            found[name] = [[one, *(key in way for way in ways)] for key, one in several.items()]
    if (whole := getattr(module, "_is_full_backward_hook", None)) is not None:
        found["_is_full_backward_hook"] = whole
    return found


def held_by(value: Any) -> list[Any]:
    """The parts of an object of a C type that Python's garbage collector knows, but not globals of a module.

    >>> held_by({"a": 1}.values())
    [{'a': 1}]
    """
    of_a_module = ("__spec__", "__name__")
    place: list[Any] = []
    if isinstance(value, GeneratorType):  # asked for first: it makes the frame a part
        place = [value.gi_code, value.gi_frame and value.gi_frame.f_lasti]
    parts = [
        one
        for one in gc.get_referents(value)
        if one is not type(value) and not (isinstance(one, dict) and all(name in one for name in of_a_module))
    ]
    return [*place, parts] if place else parts


def global_of(value: Any, name: str) -> ModuleType | None:
    """The module in which ``value`` is found under this name, as pickle looks for it; None if in none."""
    given = getattr(value, "__module__", None)
    first, *others = name.split(".")
    for module in [sys.modules.get(given)] if given else list(sys.modules.values()):
        found: Any = None if module is None else vars(module).get(first)
        for part in others:
            found = getattr(found, part, None)
        if found is value:
            return module
    return None


def has_state_in_c(kind: type) -> bool:
    """Whether objects of a class hold more than attributes and slots, by the rule of `__reduce_ex__`."""
    slots = len(copyreg._slotnames(kind))  # type: ignore[attr-defined]
    pointers = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0) + slots
    return bool(kind.__itemsize__ or kind.__basicsize__ > object.__basicsize__ + pointers * _POINTER)


def members_of(kind: type) -> dict[str, Any]:
    """The definitions in a class, without those that Python adds; functions with the way they are bound.

    >>> list(members_of(type("A", (), {"by": 1, "__module__": "a"})))
    ['by']
    """
    found: dict[str, Any] = {}
    for name, given in vars(kind).items():
        bound = isinstance(given, staticmethod | classmethod)
        # Descriptors of slots and of fields of C say nothing: the values are in the objects.
        if name not in _OF_EVERY_CLASS and type(given).__name__ not in _DESCRIPTORS:
            found[name] = (type(given).__name__, given.__func__) if bound else given
    return found
