"""The identity of a run: settings, callables with their code, the model, every byte of data.

A checkpoint is resumed only by the run that wrote it. What is compared goes into the checkpoint as plain
data: numbers and texts as they are, tensors and code as digests.

An object is compared whole if it is of a kind that is read here, or says what it is to be stored as, or has
nothing but attributes. Any other object stands there with the mark `NOT_COMPARED` and its class, besides what
can be seen of it, and `train` names it when it resumes.

A function counts by its code, its defaults, what it holds, and the globals that it names, functions among
them with their own code. Libraries (the standard one, and what is installed) count by names: their code is
not that of the run. What their functions hold counts, though: decorators such as ``torch.no_grad()`` and
``torch.compile`` put a function of the library around one of the run.
"""

from __future__ import annotations

import copyreg
import ctypes
import hashlib
import io
import json
import sys
from _thread import RLock, allocate_lock
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cache, partial, partialmethod
from threading import local
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any
from weakref import ProxyTypes, WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn

from mlayer.training.bulk_digest import array_digest, examples_digest
from mlayer.training.changes import NOT_COMPARED, marks_in
from mlayer.training.code_fingerprint import (
    LONGEST_INTEGER,
    code_digest,
    filled,
    is_library_file,
    named_by,
    of_a_library,
)
from mlayer.training.compiled_fingerprint import (
    extension_digest,
    script_parts,
    shared_library,
)
from mlayer.training.generator_fingerprint import generator_parts
from mlayer.training.numbers_fingerprint import (
    numbers_of_c,
    numbers_of_storage,
    numbers_of_tensor,
    place_in_a_file,
)
from mlayer.training.object_parts import (
    attributes,
    attributes_of_content,
    container_of,
    global_of,
    has_state_in_c,
    held_by,
    hooks_of,
    members_of,
    stores_in_its_own_way,
)

_DEEPEST = 100
_LONGEST = 2000  # characters of a part; longer ones go into the checkpoint as a digest
# What torch keeps in every module: weights and parts have their own place here, the rest is bookkeeping.
_BOOKKEEPING = set(vars(nn.Module()))
_SCALARS = (bool, int, float, str, type(None), torch.dtype)
# What a decorator of a library may have been given; the library's own objects often are caches.
_GIVEN = (
    *(*_SCALARS, dict, list, tuple, set, frozenset, MappingProxyType, Tensor, np.ndarray),
    *(FunctionType, BuiltinFunctionType, partial, partialmethod, type, nn.Module),
    *(torch.jit.ScriptFunction, torch.ScriptMethod, np.vectorize, np.ufunc),
)
# What is read by its content, to which the attributes of a subclass come.
_CONTENT = (Tensor, nn.Parameter, np.ndarray, bytes, bytearray, set, frozenset, partial, list, tuple, dict)
# What the garbage collector knows all parts of.
_KNOWN_WHOLE = (CellType, *map(type, ({}.keys(), {}.values(), {}.items())))
_LOCKS = (type(allocate_lock()), type(RLock()))


def plain(value: Any) -> Any:
    """A value as JSON has it, the same in every process.

    >>> plain(lambda x: x + 1) == plain(lambda x: x + 2)
    False
    """
    return _walked(lambda walk: walk.read(value))


def model_fingerprint(model: nn.Module) -> Any:
    """The identity of the model's function apart from its weights: classes, attributes, what is trained."""
    return _walked(lambda walk: walk.model(model))


def tensors_fingerprint(tensors: Sequence[Tensor]) -> list[Any]:
    """Shapes and a digest of every byte."""
    return [[list(t.shape), str(t.dtype), numbers_of_tensor(t)] for t in tensors]


def _walked(walk: Callable[[_ObjectWalk], Any]) -> Any:
    """The result of a walk, however many calls deep the caller is: Python limits their number by thread."""
    try:
        return walk(_ObjectWalk(deep=False))
    except RecursionError:
        with ThreadPoolExecutor(1) as fresh:
            return fresh.submit(walk, _ObjectWalk(deep=True)).result()


class _ObjectWalk:
    """One walk through an object; each part of it is read once."""

    def __init__(self, deep: bool) -> None:
        self.deep = deep  # is there no way to more depth?
        self.found: dict[int, tuple[Any, Any]] = {}  # with the object itself, so that its id stays its own
        self.above: list[int] = []  # what the walk is in

    def read(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return _scalar(value)
        if id(value) in self.found:
            return self.found[id(value)][1]
        if id(value) in self.above:
            return ["above", len(self.above) - self.above.index(id(value))]
        if len(self.above) > _DEEPEST:
            return f"{NOT_COMPARED} {_name(type(value))} in {_DEEPEST} containers"
        self.above.append(id(value))
        depth = len(self.above)
        try:
            found = self._parts(value)
            kind = type(value)
            if _read_by_content(kind) and (kind not in _CONTENT or attributes_of_content(value)):
                found = [found, self.read(kind), self.read(attributes_of_content(value))]
        except Exception as error:  # of a weak proxy that leads nowhere, of properties of a foreign class
            self._unless_too_deep(error)
            found = _mark(value)
        del self.above[depth - 1 :]
        text = json.dumps(found)
        if len(text) > _LONGEST:
            found = ["long", _name(type(value)), _digest(text), *marks_in(found)]
        self.found[id(value)] = value, found
        return found

    def _unless_too_deep(self, error: Exception) -> None:
        if isinstance(error, RecursionError) and not self.deep:
            raise error

    def _parts(self, value: Any) -> Any:
        # Not what the object says of itself, but for weak proxies, which speak for what they lead to.
        kind = value.__class__ if isinstance(value, ProxyTypes) else type(value)
        if issubclass(kind, Tensor) and value.is_nested:
            return ["tensor", value.requires_grad, self.read(list(value.detach().unbind()))]
        if issubclass(kind, Tensor):
            return ["tensor", value.requires_grad, numbers_of_tensor(value), *self._hooks_of(value)]
        if issubclass(kind, np.memmap) and (place := place_in_a_file(value)) is not None:
            return ["memmap", str(value.dtype), list(value.shape), *place]  # may be larger than the memory
        if issubclass(kind, np.ndarray | np.generic):
            name, value = "number" if issubclass(kind, np.generic) else "array", np.asarray(value)
            cells = self.read(value.tolist()) if value.dtype.hasobject else array_digest(value)
            return [name, str(value.dtype), list(value.shape), cells]
        if issubclass(kind, bytes | bytearray | memoryview):
            view = memoryview(value)
            return ["bytes", view.format, list(view.shape or ()), hashlib.sha256(view.tobytes()).hexdigest()]
        if issubclass(kind, ref):
            return ["reference", self.read(value())]
        base = container_of(type(value))
        if base in (tuple, list):
            value = value if type(value) is base else list(base.__iter__(value))
            if all(type(one) in (bool, int, float, str) for one in value):
                items: Any = list(map(_scalar, value))
            else:
                items = examples_digest(value) or [self.read(one) for one in value]
            return {"tuple": items} if base is tuple else items  # which index a tensor in two ways
        if base is dict or issubclass(kind, MappingProxyType):
            value = dict(value if base is None else dict.items(value))
            values = list(value.values())
            together = None if values and isinstance(values[0], _SCALARS) else examples_digest(values)
            if together is not None:
                return {"examples": [self.read(list(value)), together]}
            return {"dict": [[self.read(k), self.read(v)] for k, v in value.items()]}
        if issubclass(kind, set | frozenset):
            inside = (set if issubclass(kind, set) else frozenset).__iter__(value)
            return {"set": sorted(json.dumps(self.read(one)) for one in inside)}
        if issubclass(kind, property):
            return ["property", self.read([value.fget, value.fset, value.fdel])]
        if issubclass(kind, partial):
            return ["partial", self.read(value.func), self.read(value.args), self.read(value.keywords)]
        if issubclass(kind, MethodType):
            return ["method", self.read(value.__func__), self.read(value.__self__)]
        if issubclass(kind, FunctionType):
            inner = getattr(value, "_torchdynamo_orig_callable", None)
            if callable(inner):  # compiled: computes the same
                return self.read(inner)
            return ["function", value.__qualname__, *self._function(value)]
        if issubclass(kind, torch.jit.ScriptFunction | torch.ScriptMethod):
            return ["script", self.read(script_parts(value))]
        if issubclass(kind, torch.fx.Graph):  # besides its code it keeps addresses of what it was made from
            return ["graph", value.python_code("self").src]
        if issubclass(kind, CodeType):
            return ["code", code_digest(value)]
        if issubclass(kind, FrameType | TracebackType):  # of the call, not of the run
            return [_name(type(value))]
        if (numbers := numbers_of_c(value)) is not None:
            return ["memory", self.read(kind), *numbers]
        if issubclass(kind, ctypes.CDLL):
            return ["shared library", *shared_library(value)]
        if issubclass(kind, type):
            return ["class", _name(value), *self._class(value)]
        if issubclass(kind, nn.Module):
            return self.module(value, weights=True)
        if issubclass(kind, ModuleType):
            return ["module", value.__name__, *self._module_of_the_run(value)]
        generator = generator_parts(value)
        if generator is not None:
            return ["generator", *generator]
        if issubclass(kind, torch.UntypedStorage | torch.TypedStorage):
            return ["storage", str(getattr(value, "dtype", None)), numbers_of_storage(value)]
        if issubclass(kind, BuiltinFunctionType):
            owner = value.__self__
            about = extension_digest(owner) if isinstance(owner, ModuleType) else self.read(owner)
            return ["built in", _name(value), about]
        if issubclass(kind, Enum | local):  # of the latter, what it has in this thread
            return [self.read(kind), self._members(vars(value))]
        if issubclass(kind, type(cache(len))):
            return [_name(kind), self.read(value.__wrapped__)]
        if issubclass(kind, _LOCKS) or value is sys.stdout or value is sys.stderr:
            return [_name(kind)]
        if issubclass(kind, io.IOBase) and not value.readable():
            return [_name(kind)]  # as these: nothing can be read from it
        return [_name(type(value)), *self._state(value)]

    def _function(self, function: FunctionType) -> list[Any]:
        if is_library_file(function.__code__.co_filename):
            return [function.__module__, *self._held_by_a_library(function)]
        attributes = {k: v for k, v in vars(function).items() if k != "__wrapped__"}
        held = [
            self.read(cell.cell_contents) if filled(cell) else None for cell in function.__closure__ or ()
        ]
        return [
            code_digest(function.__code__),
            self.read(function.__defaults__),
            self.read(function.__kwdefaults__),
            held,
            self._members(named_by(function)),
            self._members(attributes),
        ]

    def _held_by_a_library(self, function: FunctionType) -> list[Any]:
        """The objects given to a function of a library when it was made; its own by their scalars."""
        held = [cell.cell_contents for cell in function.__closure__ or () if filled(cell)]
        return [*map(self._given, held), {k: self._given(v) for k, v in sorted(vars(function).items())}]

    def _given(self, value: Any) -> Any:
        """An object that a function of a library was given, or that it keeps."""
        owner = value.__self__ if isinstance(value, MethodType) else value
        if isinstance(owner, ModuleType | WeakKeyDictionary):  # by its name; a cache
            return [_name(type(owner))]
        if isinstance(owner, _GIVEN) or not of_a_library(type(owner)):
            return self.read(value)
        about = getattr(owner, "__dict__", {})
        scalars = {name: one for name, one in about.items() if isinstance(one, _SCALARS)}
        whole = len(scalars) == len(about) and not has_state_in_c(type(owner))
        return [_name(type(owner)), self._members(scalars), *([] if whole else [_mark(owner)])]

    def _members(self, members: dict[str, Any]) -> dict[str, Any]:
        """Parts that have names: what appears during a run leaves the comparison of the others alone."""
        named = sorted(members.items(), key=lambda member: str(member[0]))
        return {"members": {str(name): self.read(value) for name, value in named}}

    def _class(self, kind: type) -> list[Any]:
        """The code of its methods, its own constants and its bases; those of libraries by name."""
        if of_a_library(kind):
            return []
        return [self._members(members_of(kind)), [self.read(base) for base in (*kind.__bases__, type(kind))]]

    def _module_of_the_run(self, module: ModuleType) -> list[Any]:
        """The contents of a module that is no library, without other modules than those inside it."""
        file = getattr(module, "__file__", None)
        if module.__name__.partition(".")[0] in sys.stdlib_module_names or (file and is_library_file(file)):
            return []
        inside = f"{module.__name__}."
        own = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("__")
            and (not isinstance(value, ModuleType) or value.__name__.startswith(inside))
        }
        return [self._members(own)]

    def _hooks_of(self, tensor: Tensor) -> list[Any]:
        """Functions that change the gradient of a tensor on its way."""
        hooks = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
        return [self.read(list(several.values())) for several in hooks if several]

    def _state(self, value: Any) -> list[Any]:
        """The class of an object and what it would be stored as, or where that is not all, its attributes."""
        kind, stored, module = type(value), None, None
        try:
            reduce = copyreg.dispatch_table.get(kind)
            stored = value.__reduce_ex__(4) if reduce is None else reduce(value)
            module = global_of(value, stored) if isinstance(stored, str) else None
        except Exception as error:  # locks, files, what not: any error, for any code may be called here
            self._unless_too_deep(error)
            stored = ""
        own = []
        if not of_a_library(kind) and stores_in_its_own_way(kind):
            own = [self._members(attributes(value))]
            own += self._in_c(value) if has_state_in_c(kind) and module is None else []
        if isinstance(stored, str):
            named = [stored, extension_digest(module)] if module else [self.read(kind)]
            return [*named, *own, *([] if own or module else self._in_c(value))]
        make, arguments, state, several, pairs = (*stored, *[None] * 5)[:5]
        items = [None if iterator is None else list(iterator) for iterator in (several, pairs)]
        whole = isinstance(state, dict) and all(type(name) is str for name in state)
        held = self._members(state) if whole else self.read(state)
        return [*map(self.read, (make, arguments, kind)), held, *map(self.read, items), *own]

    def _in_c(self, value: Any) -> list[Any]:
        """The parts that Python knows of an object of a C type, which may hold more."""
        return [self.read(held_by(value)), *([] if isinstance(value, _KNOWN_WHOLE) else [_mark(value)])]

    def model(self, model: nn.Module) -> Any:
        """The tree of the model that is trained; its parts may hold it and each other as attributes."""
        self.found |= {id(one): (one, ["part of the model", name]) for name, one in model.named_modules()}
        return self.module(model, weights=False)

    def module(self, module: nn.Module, *, weights: bool) -> Any:
        """A module's tree; ``weights``: with the numbers of parameters and persistent buffers."""
        inner = getattr(module, "_orig_mod", None)
        if isinstance(inner, nn.Module):  # compiled: computes the same
            return self.module(inner, weights=weights)
        names: dict[int, list[str]] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        trained = [
            [names[id(p)], p.requires_grad, self.read(attributes_of_content(p)), *self._hooks_of(p)]
            for p in module.parameters()
        ]
        parts = [[name, *self._one_module(one, weights)] for name, one in module.named_modules()]
        return {"parts": parts, "parameters": trained}

    def _one_module(self, module: nn.Module, weights: bool) -> list[Any]:
        held = dict(module._buffers.items())  # by items: those of torch.jit cannot be looped over
        kept = set() if weights else set(held) - module._non_persistent_buffers_set
        buffers = {k: v for k, v in held.items() if k not in kept}
        numbers = dict(module._parameters.items()) if weights else {}
        own: Any = script_parts(module) or {
            name: value for name, value in vars(module).items() if name not in _BOOKKEEPING
        }
        mode = getattr(module, "training", None)  # torch.jit.freeze removes it
        held = self._members(own) if isinstance(own, dict) else self.read(own)
        return [
            *(held, self._members(hooks_of(module))),
            *map(self.read, (type(module), mode, buffers, numbers)),
        ]


def _read_by_content(kind: type) -> bool:
    if issubclass(kind, list | tuple | dict):
        return container_of(kind) is not None
    return issubclass(kind, _CONTENT)


def _mark(value: Any) -> str:
    return f"{NOT_COMPARED} {_name(type(value))}"


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _scalar(value: Any) -> Any:
    """A number or text as JSON has it; long ones as a digest."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return _digest(value)
    if type(value) is int and value.bit_length() > LONGEST_INTEGER:
        return ["integer", _digest(hex(value))]
    return value
