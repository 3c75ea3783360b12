"""The parts of an object: attributes, what it is stored as, and what Python can see of its C part."""

from __future__ import annotations

import copyreg
import gc
import struct
import sys
from types import GeneratorType, ModuleType
from typing import Any

from mlayer.training.code_fingerprint import of_a_library

# What an object may be asked for that is to be stored.
_STORING = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
_LISTING = ("items", "__iter__")
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
