"""Pairs of objects whose difference a walk over the usual attributes does not meet."""

from __future__ import annotations

import functools
import types
import weakref
from array import array
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from problems import product
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

X, Y = product(64, 0)
ROWS = TensorDataset(X, Y)


class Wrapper:
    """A decorator that is a class: it has what it wraps, and more."""

    def __init__(self, function: Callable[..., float], by: float) -> None:
        functools.update_wrapper(self, function)
        self.by = by

    def __call__(self) -> float:
        return self.by


def zero() -> float:
    return 0.0


def subclass(kind: type, *arguments: Any) -> Callable[[float], Any]:
    def make(by: float) -> Any:
        made = type("Sub", (kind,), {})(*arguments)
        made.by = by
        return made

    return make


class Secret:
    """Says nothing of what it holds when it is stored."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __getstate__(self) -> dict[str, Any]:
        return {}


class NeverStored(Secret):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("not stored")


def module(by: float) -> types.ModuleType:
    made = types.ModuleType("configuration")
    made.by = by  # type: ignore[attr-defined]
    return made


def tensor_with_a_hook(by: float) -> Tensor:
    made = torch.ones((), requires_grad=True)
    made.register_hook(lambda gradient: gradient * by)
    return made


def numbers(by: float) -> Iterator[float]:
    while True:
        yield by


def of(make: Callable[[float], Any], number: Callable[[Any], float] = lambda v: float(v.by)) -> Any:
    return make(0.1), make(0.2), number


KEPT = [Secret(0.1), Secret(0.2)]
# What is held, by either run, and how a number is made of it.
HIDDEN: dict[str, tuple[Any, Any, Callable[[Any], float]]] = {
    "wrapper with its own number": of(lambda by: Wrapper(zero, by), lambda v: v()),
    "attribute of a tensor": of(subclass(Tensor)),
    "attribute of a set": of(subclass(set)),
    "attribute of bytes": of(subclass(bytes)),
    "attribute of a partial": of(subclass(functools.partial, float)),
    "mask of an array": (
        np.ma.MaskedArray([0.1, 0.2], [False, True]),
        np.ma.MaskedArray([0.1, 0.2], [True, False]),
        lambda v: float(v.mean()),
    ),
    "left out when stored": of(Secret),
    "cannot be stored": of(NeverStored),
    "view of memory": of(lambda by: memoryview(array("d", [by])), lambda v: float(v[0])),
    "weak reference": (weakref.ref(KEPT[0]), weakref.ref(KEPT[1]), lambda v: float(v().by)),
    "module": of(module),
    "values of a generator": of(numbers, lambda v: float(next(v))),
    "ufunc of a function": of(
        lambda by: np.frompyfunc(lambda x: x + by, 1, 1), lambda v: float(cast(Any, v)(0.0))
    ),
    "hook of a tensor": of(tensor_with_a_hook, lambda v: float(v.detach())),
}


class ScaledLoader(DataLoader[Any]):
    factor = 1.0

    def __iter__(self) -> Any:
        return ((self.factor * x, y) for x, y in super().__iter__())


def scaled_loader(factor: float) -> DataLoader[Any]:
    made = ScaledLoader(ROWS, 16)
    made.factor = factor
    return made


def other_code(factor: float) -> DataLoader[Any]:
    rows: Any = lambda self: ((factor * x, y) for x, y in DataLoader.__iter__(self))  # noqa: E731
    made: DataLoader[Any] = type("Own", (DataLoader,), {"__iter__": rows})(ROWS, 16)
    return made


class AroundRows:
    """A user's loader, with a data set that says nothing of it."""

    def __init__(self, factor: float) -> None:
        self.dataset, self.factor = ROWS, factor

    def __iter__(self) -> Any:
        return iter([(self.factor * X, Y)])


class SlotStream(IterableDataset[Any]):
    __slots__ = ("x",)

    def __init__(self, factor: float) -> None:
        self.x = factor * X

    def __iter__(self) -> Any:
        return iter(zip(self.x, Y, strict=True))


class SlotLoader:
    __slots__ = ("__x",)

    def __init__(self, factor: float) -> None:
        self.__x = factor * X

    def __iter__(self) -> Any:
        return iter([(self.__x, Y)])


class SlotSampler(Sampler[int]):
    __slots__ = ("step",)

    def __init__(self, step: int) -> None:
        self.step = step

    def __iter__(self) -> Any:
        return iter(range(64)[:: self.step])

    def __len__(self) -> int:
        return 64


class Entries(Dataset[Any]):
    """Examples that stand in a dictionary; the eight that are compared by asking for them are the same."""

    def __init__(self, changed: float) -> None:
        self.rows = {k: {"x": X[k].clone(), "y": Y[k]} for k in range(64)}
        self.rows[30]["x"] += changed

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]["x"], self.rows[index]["y"]


def pairs(changed: float) -> list[Any]:
    rows = list(zip(X.clone(), Y, strict=True))
    rows[30][0].add_(changed)
    return rows


HIDDEN_LOADERS: dict[str, tuple[str, Any, Any]] = {
    name: ("data", *pair)
    for name, pair in {
        "attribute of a kind of loader": (scaled_loader(1.0), scaled_loader(2.0)),
        "code of a kind of loader": (other_code(1.0), other_code(2.0)),
        "loader around a data set": (AroundRows(1.0), AroundRows(2.0)),
        "slot of a stream": (DataLoader(SlotStream(1.0), 16), DataLoader(SlotStream(2.0), 16)),
        "slot of a loader": (SlotLoader(1.0), SlotLoader(2.0)),
        "slot of a sampler": (
            DataLoader(ROWS, 16, sampler=SlotSampler(1)),
            DataLoader(ROWS, 16, sampler=SlotSampler(-1)),
        ),
        "dictionary of a data set": (DataLoader(Entries(0.0), 16), DataLoader(Entries(1e-6), 16)),
        "list of examples": (
            DataLoader(cast(Any, pairs(0.0)), 16),
            DataLoader(cast(Any, pairs(1e-6)), 16),
        ),
        "dictionary of examples": (
            DataLoader(cast(Any, dict(enumerate(pairs(0.0)))), 16),
            DataLoader(cast(Any, dict(enumerate(pairs(1e-6)))), 16),
        ),
        "list of batches' rows": (
            DataLoader(ROWS, batch_sampler=[[0, 1], [2, 3]]),
            DataLoader(ROWS, batch_sampler=[[0, 1], [2, 4]]),
        ),
    }.items()
}


def linear(change: Callable[[Any], Any]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    change(model.weight)
    return model


# Copies have no hooks: each run makes its model.
HOOKED: dict[str, Callable[[float], nn.Module]] = {
    "hook": lambda by: linear(lambda weight: weight.register_hook(lambda gradient: gradient * by)),
    "hook after the gradient": lambda by: linear(
        lambda weight: weight.register_post_accumulate_grad_hook(lambda p: p.mul_(by))
    ),
    "attribute": lambda by: linear(lambda weight: setattr(weight, "by", by)),
}
