"""What makes two runs the same run: settings, callables with their code, every byte of data and weights.

A checkpoint is resumed only by the run that wrote it. What is compared goes into the checkpoint as plain
data: numbers and texts as they are, tensors and code as SHA-256.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlayer.tensorfile import digest_of

_DEEPEST = 8  # levels of nesting that are compared
_SAMPLES = 8  # examples of a data set that is not in memory


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it. Functions count by their code and what they hold, not by what they call.

    >>> plain(lambda x: x + 1)[1] == plain(lambda x: x + 2)[1]
    False
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if depth > _DEEPEST:
        return type(value).__qualname__

    def deeper(inner: Any) -> Any:
        return plain(inner, depth + 1)

    if isinstance(value, Tensor):
        return ["tensor", digest_of({"": value})]
    if isinstance(value, np.ndarray):
        return ["array", str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        return {str(k): deeper(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [deeper(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(deeper(v)) for v in value)
    if isinstance(value, partial):
        return [deeper(value.func), deeper(value.args), deeper(value.keywords)]
    if isinstance(value, FunctionType):
        held = [_held(cell.cell_contents, deeper) for cell in value.__closure__ or () if _filled(cell)]
        defaults = [deeper(value.__defaults__), deeper(value.__kwdefaults__)]
        return [value.__qualname__, _code_digest(value.__code__), defaults, held]
    if isinstance(value, MethodType):
        return [deeper(value.__func__), deeper(value.__self__)]
    if isinstance(value, type):
        return [f"{value.__module__}.{value.__qualname__}", _class_digest(value)]
    if callable(value) or is_dataclass(value):
        name = getattr(value, "__qualname__", None)
        if name is not None:  # built in
            return name
        return [deeper(type(value)), deeper(getattr(value, "__dict__", {}))]
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text


def _held(value: Any, deeper: Callable[[Any], Any]) -> Any:
    """What a closure holds; of lists, dicts and sets the kind alone, for counters fill during a run."""
    return type(value).__qualname__ if isinstance(value, list | dict | set) else deeper(value)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asked for whether it raises
    except ValueError:
        return False
    return True


def _class_digest(kind: type) -> str:
    """Of the code of a class; torch's own are known by their names."""
    if kind.__module__.split(".")[0] in ("torch", "builtins"):
        return ""
    parts = [
        f"{name} {_code_digest(member.__code__)}"
        for name, member in sorted(vars(kind).items())
        if isinstance(member, FunctionType)
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _code_digest(code: CodeType) -> str:
    """What the code does: neither where it stands nor what it is called."""
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            digest.update(_code_digest(constant).encode())
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(f"{type(constant).__name__} {constant!r}".encode())
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_kwonlyargcount)
    digest.update(repr(names).encode())
    return digest.hexdigest()


def tensors_fingerprint(tensors: Sequence[Tensor]) -> list[Any]:
    """Shapes and a digest of every byte."""
    return [[list(t.shape), str(t.dtype), digest_of({"": t})] for t in tensors]


def loader_fingerprint(loader: Any) -> list[Any]:
    """All that is known of a loader without reading it through.

    Tensors in memory behind it (a TensorDataset, a list of batches) count with every byte. Of another data
    set that can be indexed some examples do, if they are the same when they are asked for twice; random ones
    cannot be compared.
    """
    if isinstance(loader, list | tuple):
        batches = [tensors_fingerprint([t for t in batch if isinstance(t, Tensor)]) for batch in loader]
        return ["batches", batches]
    dataset = getattr(loader, "dataset", None)
    known = [_length(loader), type(loader).__qualname__, getattr(loader, "batch_size", None)]
    return [*known, _dataset_fingerprint(loader if dataset is None else dataset)]


def _dataset_fingerprint(dataset: Any) -> list[Any]:
    name, count = type(dataset).__qualname__, _length(dataset)
    if type(dataset) is torch.utils.data.TensorDataset:
        return [name, count, tensors_fingerprint(dataset.tensors)]
    if type(dataset) is torch.utils.data.Subset:
        indices = hashlib.sha256(repr(list(dataset.indices)).encode()).hexdigest()
        return [name, count, indices, _dataset_fingerprint(dataset.dataset)]
    if not count or not hasattr(dataset, "__getitem__") or not isinstance(dataset, torch.utils.data.Dataset):
        return [name, count]
    with _generators_left_as_they_are():
        places = sorted({round(k * (count - 1) / (_SAMPLES - 1)) for k in range(_SAMPLES)})
        once, again = ([plain(_example(dataset, k)) for k in places] for _ in range(2))
    return [name, count, once if once == again else "random"]


def _example(dataset: Any, place: int) -> Any:
    try:
        return dataset[place]
    except Exception as error:  # training will meet it and say more
        return type(error).__name__


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except TypeError:
        return None


@contextmanager
def _generators_left_as_they_are() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that transforms draw from
    with torch.random.fork_rng([]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
