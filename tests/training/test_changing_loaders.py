"""A counter or a cache in a loader neither has a run refuse its own checkpoint nor hides other data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import layer, product
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.changes import CHANGING, MORE, merged, same

X, Y = product(64, 0)
ONE = Settings(epochs=1, learning_rate=1e-2)
LONGER = Settings(epochs=2, learning_rate=1e-2)


class Counting(Dataset[Any]):
    """Counts, keeps a list and a cache, and fills a tensor."""

    def __init__(self, changed: float = 0.0) -> None:
        self.x, self.y = X.clone(), Y
        self.x[30] += changed
        self.calls, self.seen = 0, list[int]()
        self.cache = dict[int, Tensor]()
        self.filled = torch.zeros(64)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        self.seen.append(index)
        self.cache[index] = self.x[index]
        self.filled[index] = 1.0
        return self.x[index], self.y[index]


class Stream(IterableDataset[Any]):
    def __init__(self, changed: float = 0.0) -> None:
        self.x, self.epochs = X + changed, 0

    def __iter__(self) -> Any:
        self.epochs += 1
        return iter(zip(self.x, Y, strict=True))


class OwnLoader:
    def __init__(self, changed: float = 0.0) -> None:
        self.x, self.epochs, self.generator = X + changed, 0, torch.Generator()

    def __iter__(self) -> Any:
        self.epochs += 1
        return iter([(self.x, Y)])


class Tallies(Counting):
    """Keeps counts in tensors and arrays, which are compared as a whole, and holds another data set."""

    def __init__(self, changed: float = 0.0) -> None:
        super().__init__(changed)
        self.hits, self.total = torch.zeros(64), np.zeros(1)
        self.inside, self.whole = Counting(), self

    def __getitem__(self, index: int) -> Any:
        self.hits[index] += 1
        self.total += 1
        return self.x[index], self.inside[index][1]


def tallies(changed: float = 0.0) -> Any:
    return DataLoader(Tallies(changed), 16, shuffle=True)


def counting(changed: float = 0.0) -> Any:
    return DataLoader(Counting(changed), 16, shuffle=True)


def stream(changed: float = 0.0) -> Any:
    return DataLoader(Stream(changed), 16)


KINDS = {"counting": counting, "tallies": tallies, "stream": stream, "loader": OwnLoader}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_counts_is_resumed_and_another_is_refused(kind: str, tmp_path: Path) -> None:
    make = KINDS[kind]
    own, model = make(), layer()
    train(model, own, ONE, checkpoint=tmp_path, validation=own)
    assert train(model, own, LONGER, checkpoint=tmp_path, validation=own).resumed_at, "by the same object"
    fresh = make()
    assert train(layer(), fresh, LONGER, checkpoint=tmp_path, validation=fresh).resumed_at, "by a new one"
    other = make(1e-6)
    with pytest.raises(ArgumentError, match="the data differ, in the attribute x"):
        train(layer(), other, LONGER, checkpoint=tmp_path, validation=other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interrupted_run_that_counts_is_resumed_by_the_same_object(
    kind: str, error: type[BaseException], tmp_path: Path
) -> None:
    own = KINDS[kind]()

    def stop(record: Any) -> None:
        raise error

    with pytest.raises(error):
        train(layer(), own, LONGER, checkpoint=tmp_path, on_epoch=stop)
    train(layer(), own, LONGER, checkpoint=tmp_path)
    assert train(layer(), own, LONGER, checkpoint=tmp_path).resumed_at


def test_an_attribute_that_differs_at_every_start_is_named(tmp_path: Path) -> None:
    class Stamped(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.created = time.perf_counter()  # clock: never the same twice

    train(layer(), DataLoader(Stamped(), 16), ONE, checkpoint=tmp_path)
    words = r"in the attribute created\. .*delete this one.*must have the same value before every call"
    with pytest.raises(ArgumentError, match=words):
        train(layer(), DataLoader(Stamped(), 16), ONE, checkpoint=tmp_path)


def test_of_a_digest_that_changes_the_first_and_the_last_count() -> None:
    first, middle, last, other = ("float32 (3,) " + c * 64 for c in "abcd")
    seen = merged(merged([1, first], [2, middle]), [3, last])
    assert all(same(seen, [k, digest]) for k, digest in ((1, first), (7, last)))
    assert not same(seen, [1, other])
    assert merged([1, "a"], [1, "b"]) == [1, CHANGING]
    assert merged({"list": [1]}, {"list": [1, 2]}) == {"list": [1, MORE]}
