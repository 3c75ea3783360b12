"""Generators that a loader brings: seeded by the run, so that it can be repeated and resumed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import layer, product, same_weights
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train

X, Y = product(64, 0)


class Noisy(Dataset[Any]):
    def __init__(self, seed: int) -> None:
        self.chance = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return X[index] + 0.1 * torch.rand(2, generator=self.chance), Y[index]


class OwnLoader:
    def __init__(self, seed: int) -> None:
        self.chance = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Any:
        order = torch.randperm(64, generator=self.chance)
        return iter(zip(X[order].split(16), Y[order].split(16), strict=True))


def in_batches(seed: int) -> DataLoader[Any]:
    sampler = RandomSampler(range(64), generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(X, Y), batch_sampler=BatchSampler(sampler, 16, False))


KINDS: dict[str, Callable[[int], Any]] = {
    "data set": lambda seed: DataLoader(Noisy(seed), 16),
    "loader": OwnLoader,
    "sampler of batches": in_batches,
}


def settings(epochs: int) -> Settings:
    return Settings(epochs=epochs, learning_rate=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("same_object", [True, False])
def test_a_resumed_run_ends_with_the_same_weights(kind: str, same_object: bool, tmp_path: Path) -> None:
    make = KINDS[kind]
    whole, again, part, rest = (layer() for _ in range(4))
    loader = make(3)
    train(whole, loader, settings(4))
    train(again, loader, settings(4))
    assert same_weights(whole, again), "by the same object"
    train(part, loader if same_object else make(3), settings(2), checkpoint=tmp_path)
    assert train(rest, loader if same_object else make(3), settings(4), checkpoint=tmp_path).resumed_at
    assert same_weights(whole, rest)


@pytest.mark.parametrize("kind", ["data set", "loader"])
def test_another_seed_is_another_run(kind: str, tmp_path: Path) -> None:
    one, other = layer(), layer()
    train(one, KINDS[kind](1), settings(1), checkpoint=tmp_path)
    train(other, KINDS[kind](2), settings(1))
    assert not same_weights(one, other)
    with pytest.raises(ArgumentError, match="the data differ, in the attribute chance"):
        train(layer(), KINDS[kind](2), settings(1), checkpoint=tmp_path)


def test_a_generator_that_gives_the_order_may_have_any_seed(tmp_path: Path) -> None:
    train(layer(), in_batches(1), settings(1), checkpoint=tmp_path)
    assert train(layer(), in_batches(2), settings(2), checkpoint=tmp_path).resumed_at


class Shuffled(list[Any]):
    """A list of batches in another order each time."""

    def __iter__(self) -> Any:
        batches = list(super().__iter__())
        random.shuffle(batches)
        return iter(batches)


def test_a_kind_of_list_is_compared_by_what_it_holds_and_does(tmp_path: Path) -> None:
    """It was asked for its batches, which were others each time, so that a run refused its own checkpoint."""

    def batches(by: float) -> Any:
        return zip((X + by).split(4), Y.split(4), strict=True)

    train(layer(), Shuffled(batches(0.0)), settings(1), checkpoint=tmp_path)
    assert train(layer(), Shuffled(batches(0.0)), settings(2), checkpoint=tmp_path).resumed_at
    for other in (Shuffled(batches(0.1)), list(batches(0.0))):
        with pytest.raises(ArgumentError, match="the data differ"):
            train(layer(), other, settings(3), checkpoint=tmp_path)
