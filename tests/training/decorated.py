"""Pairs of functions that a library has wrapped, and of other things whose difference lies deep."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


def constant(value: float) -> Callable[[], float]:
    return lambda: value


def traced(value: float) -> Any:
    """Known to torch's own interpreter alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions advise another interpreter
        return torch.jit.trace(lambda x: x + torch.tensor([value, value]), torch.ones(2))


def managed(value: float) -> Any:
    @contextlib.contextmanager
    def manager() -> Iterator[float]:
        yield value

    return manager


def entered(manager: Any) -> float:
    with manager() as value:
        return float(value)


def with_a_partial_method(value: float) -> Any:
    return type("Partial", (), {"__call__": functools.partialmethod(lambda self, k: k, value)})()


def with_a_callable_object(value: float) -> Any:
    return type("Holder", (), {"__neg__": functools.partial(float, value)})()


def of_a_metaclass(value: float) -> Any:
    meta: Any = type("Meta", (type,), {"__call__": lambda cls: value})
    return meta("Made", (), {})


def written_out(literal: str) -> Any:
    space: dict[str, Any] = {}
    exec(f"def f(): return {literal}", space)
    return space["f"]


def pair(make: Callable[[float], Any], number: Callable[[Any], float] = lambda v: v()) -> Any:
    return make(0.1), make(0.2), number


def at_one(function: Any) -> float:
    return float(function(torch.ones(2))[0])


def shifted(value: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x + value


# What is held, by either run, and how a number is made of it.
DECORATED: dict[str, tuple[Any, Any, Callable[[Any], float]]] = {
    "under no_grad": pair(lambda value: torch.no_grad()(constant(value))),
    "under inference_mode": pair(lambda value: torch.inference_mode()(constant(value))),
    "under autocast": pair(lambda value: torch.autocast("cpu")(constant(value))),
    "vmap": pair(lambda value: torch.vmap(shifted(value)), at_one),
    "single dispatch": pair(
        lambda value: functools.singledispatch(lambda x: x + value), lambda v: float(v(1.0))
    ),
    "context manager": pair(managed, entered),
    "traced": pair(traced, at_one),
    "partial method": pair(with_a_partial_method),
    "callable as an operator": pair(with_a_callable_object, lambda v: type(v).__neg__()),
    "metaclass": pair(of_a_metaclass),
    "code of a generator": (
        (0.1 for _ in iter(int, 1)),
        (0.2 for _ in iter(int, 1)),
        lambda v: float(next(v)),
    ),
    "large integer": (1 << 20_000, 1 << 20_001, lambda v: float(v % 3)),
    "list of large integers": ([1 << 20_000], [1 << 20_001], lambda v: float(v[0] % 3)),
    "large constant": (
        written_out("0x" + "f" * 5000),
        written_out("0x" + "f" * 4999 + "e"),
        lambda v: float(v() & 1),
    ),
}
