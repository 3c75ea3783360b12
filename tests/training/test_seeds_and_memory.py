"""Generators count by their seed, memory by its numbers: between runs, and in one that is resumed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import layer, product
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.fingerprint import plain


def records(number: float, between: int) -> np.ndarray:
    """An array with bytes between its fields that mean nothing."""
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    made = np.frombuffer(bytearray([between] * (kind.itemsize * 600)), kind)
    made["a"], made["b"] = 1, number
    return made


def long_doubles(number: float, behind: int) -> np.ndarray:
    size = np.dtype(np.longdouble).itemsize
    made = bytearray([behind] * size * 600)
    numbers = np.full(600, number, np.longdouble).tobytes()
    used = 10 if size > 8 else size  # the rest of 12 or 16 bytes means nothing
    for start in range(0, len(made), size):
        made[start : start + used] = numbers[start : start + used]
    return np.frombuffer(made, np.longdouble)


# What a callable may hold, made of a number.
KINDS: dict[str, Callable[[int], Any]] = {
    "random.Random": random.Random,
    "method of a Random": lambda seed: random.Random(seed).gauss,
    "RandomState": np.random.RandomState,
    "method of a RandomState": lambda seed: np.random.RandomState(seed).rand,
    "generator of several seeds": lambda seed: np.random.default_rng([seed, 1]),
    "spawned generator": lambda place: np.random.default_rng(5).spawn(3)[place],
    "bit generator": np.random.PCG64,
    "generator of a key": lambda key: np.random.Generator(np.random.Philox(key=key)),
    "typed storage": lambda by: torch.full((3,), float(by)).storage(),
    "storage": lambda by: torch.full((3,), float(by)).untyped_storage(),
    "long double": np.longdouble,
    "last bit of a long double": lambda by: np.longdouble(1) + by * np.finfo(np.longdouble).eps,
    "records": lambda by: records(by, 0),
    "long doubles": lambda by: long_doubles(by, 0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_number_inside_counts(kind: str) -> None:
    make = KINDS[kind]
    own = [plain(make(1)) for _ in range(3)]
    assert own[0] == own[1] == own[2]
    assert own[0] != plain(make(2))


@pytest.mark.parametrize("make", [records, long_doubles])
def test_bytes_that_are_part_of_no_number_do_not_count(make: Callable[[float, int], np.ndarray]) -> None:
    one, other = make(1.5, 0), make(1.5, 255)
    assert (one == other).all()
    assert plain(one) == plain(other)
    assert plain(one) != plain(make(2.5, 0))


def test_generators_of_the_whole_process_stand_anywhere() -> None:
    """So do those without a seed that know it."""

    def drawn(made: Any, draw: Callable[[], object]) -> list[Any]:
        before = plain(made)
        draw()
        return [before, plain(made)]

    kept, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        for own in (random.random, random.gauss, random.SystemRandom()):
            before, after = drawn(own, random.random)
            assert before == after
        before, after = drawn(np.random.rand, np.random.rand)
        assert before == after
    finally:
        random.setstate(kept)
        np.random.set_state(legacy)  # noqa: NPY002
    assert plain(np.random.default_rng()) == plain(np.random.default_rng())
    generator = np.random.default_rng(3)
    before, after = drawn(generator, generator.random)
    assert before == after


def test_a_run_with_its_own_generator(tmp_path: Path) -> None:
    """It is resumed by the same object, which was drawn from, and by a fresh one; not by another seed."""

    def noise(seed: int) -> Any:
        chance = random.Random(seed)

        def augment(x: Tensor, generator: torch.Generator) -> Tensor:
            return x + 1e-3 * chance.random()

        return augment

    own = noise(0)

    def run(epochs: int, augment: Any) -> Any:
        settings = Settings(epochs=epochs, learning_rate=1e-2)
        return train(layer(), product(), settings, augment=augment, checkpoint=tmp_path)

    run(1, own)
    assert run(2, own).resumed_at
    assert run(3, own).resumed_at
    assert run(4, noise(0)).resumed_at
    with pytest.raises(ArgumentError, match=r"augment .*holds other values.*seed it"):
        run(4, noise(1))
