"""Additions of a run to its arguments (an attribute, a global, an entry) hide none of their neighbors.

After a counter that appeared at the first call a run with other values was taken for the own one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import layer, product
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.changes import CHANGING, MORE, merged, same

X, Y = product(64, 0)


class Counting:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        self.count = getattr(self, "count", 0) + 1
        return x + self.by


class Caching:
    def __init__(self, by: float) -> None:
        self.by = by

    @functools.cached_property
    def twice(self) -> float:
        return 2 * self.by

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.twice


def counting_in_a_global(by: float) -> Any:
    space: dict[str, Any] = {"BY": by}
    code = "global C\n try: C += 1\n except NameError: C = 1\n return x + BY"
    exec(f"def f(x, generator):\n {code}", space)
    return space["f"]


def counting_in_its_class(by: float) -> Any:
    class Kind:
        def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
            kind: Any = type(self)
            kind.count = getattr(kind, "count", 0) + 1
            return x + by

    return Kind()


def counting_in_a_dictionary(by: float) -> Any:
    held = {"by": by}

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        held["steps"] = held.get("steps", 0) + 1
        return x + held["by"]

    return augment


def appending(by: float) -> Any:
    held = [by]

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        held.append(0.0)
        return x + held[0]

    return augment


def counting_in_the_function(by: float) -> Any:
    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        held: Any = augment
        held.count = getattr(held, "count", 0) + 1
        return x + held.by

    augment.by = by  # type: ignore[attr-defined]
    return augment


def logging_much(by: float) -> Any:
    """Two lists that make an object large, of which only a digest is kept."""
    made = Counting(by)
    log: Any = made
    log.one, log.two = [], []

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        log.one += [1000000] * 90
        log.two += [1000000] * 90
        return x + made.by

    return augment


class Model(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.scale = nn.Linear(2, 1), scale

    def forward(self, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        outputs: Tensor = self.linear(x) * self.scale
        return outputs


class Rows(Dataset[Any]):
    """Opens what it reads from when it is asked for the first time; its examples are random."""

    def __init__(self, by: float) -> None:
        self.x = X + by

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if not hasattr(self, "opened"):
            self.opened = True
        return self.x[index] + 1e-3 * torch.rand(2), Y[index]


KINDS: dict[str, tuple[str, Callable[[float], Any]]] = {
    "attribute": ("augment", Counting),
    "cached property": ("augment", Caching),
    "global": ("augment", counting_in_a_global),
    "attribute of a class": ("augment", counting_in_its_class),
    "entry": ("augment", counting_in_a_dictionary),
    "item": ("augment", appending),
    "attribute of a function": ("augment", counting_in_the_function),
    "object that grows": ("augment", logging_much),
    "attribute of a model": ("model", Model),
    "attribute of a data set": ("data", lambda by: DataLoader(Rows(by), 16)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_are_compared(kind: str, tmp_path: Path) -> None:
    name, make = KINDS[kind]

    def run(value: Any, epochs: int) -> Any:
        arguments: dict[str, Any] = {"model": layer(), "data": (X, Y)} | {name: value}
        longer = Settings(epochs=epochs, learning_rate=1e-2)
        return train(**arguments, settings=longer, checkpoint=tmp_path)

    own = make(0.1)
    run(own, 1)
    assert run(own, 2).resumed_at, "by the same object"
    assert run(make(0.1), 3).resumed_at, "by a new one"
    with pytest.raises(ArgumentError, match="of this run"):
        run(make(0.2), 4)


def test_a_list_whose_first_item_counts_is_known_again() -> None:
    """Three items of which the first has changed looked like the mark of a digest with two values."""
    once = merged([0, 0.1, 0.2], [1, 0.1, 0.2])
    for found in (once, merged(once, [2, 0.1, 0.2])):
        assert same(found, [0, 0.1, 0.2])
        assert not same(found, [0, 0.3, 0.2])


SCALARS = st.sampled_from([None, True, 0, 1.5, "a", "0" * 64, "1" * 64])
FOUND: Any = st.recursive(
    SCALARS | st.builds(lambda digest: ["long", "a.A", digest * 64], st.sampled_from("01")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner).map(lambda held: {"members": held})
        | st.dictionaries(st.sampled_from("abc"), inner).map(
            lambda held: {"dict": [*map(list, held.items())]}
        )
        | st.lists(inner, max_size=2).map(lambda held: {"tuple": held})
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FOUND, min_size=2, max_size=4))
def test_the_first_and_the_last_state_are_always_known_and_a_neighbor_is_compared(states: list[Any]) -> None:
    whole: Any = {"members": {"by": 1, "x": states[0]}}
    for place, state in enumerate(states[1:]):
        whole = json.loads(json.dumps(merged(whole, {"members": {"by": 1, "x": state, f"new {place}": 1}})))
    last = {"members": {"by": 1, "x": states[-1], f"new {len(states) - 2}": 1}}
    assert same(whole, {"members": {"by": 1, "x": states[0]}})
    assert same(whole, last)
    assert not same(whole, {"members": {"by": 2, "x": states[0]}})
    assert not same(whole, {"members": {"x": states[0]}})


def test_lists_and_dictionaries_that_grow() -> None:
    grown = merged([0.1], [0.1, 3, 4])
    assert grown == [0.1, MORE]
    assert same(grown, [0.1, 7])
    assert not same(grown, [0.2])
    assert not same(grown, [])
    held = merged({"dict": [["a", 1], ["b", 2]]}, {"dict": [["c", 5], ["a", 1]]})
    assert held == {"dict": [["a", 1], ["b", CHANGING], MORE]}
    assert same(held, {"dict": [["a", 1]]})
    assert not same(held, {"dict": [["a", 2], ["b", 2]]})
