"""Fits and predictions do not depend on where NumPy put the rows: the layer sees memory of torch only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mlayer import MLayer
from mlayer.estimators import MLayerClassifier, MLayerRegressor
from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory

LINE = 64


def at_offset(array: Array, offset: int) -> Array:
    """The same numbers, starting so many bytes after a full cache line."""
    memory = np.empty(array.nbytes + 2 * LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE + offset
    moved = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def test_the_copy_starts_at_a_full_cache_line() -> None:
    numbers = np.arange(12.0).reshape(4, 3)
    for offset in (0, 8, 16, 40, 48):
        moved = at_offset(numbers, offset)
        assert moved.ctypes.data % LINE == offset
        copy = in_torch_memory(moved)
        assert copy.data_ptr() % LINE == 0
        assert copy.tolist() == numbers.tolist()


@pytest.mark.parametrize("kind", [MLayerRegressor, MLayerClassifier])
def test_what_the_layer_sees(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = MLayer.forward

    def watched(self: MLayer, x: Tensor) -> Tensor:
        if x.storage_offset() == 0:  # the rows themselves, no batch of them
            seen.append(x.data_ptr() % LINE)
        return forward(self, x)

    monkeypatch.setattr(MLayer, "forward", watched)
    # What NumPy gives starts anywhere: here at 16 bytes, whatever this machine's allocator does.
    monkeypatch.setattr("mlayer.estimators.scaling.Scale.apply", _at_sixteen)
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X[:, 0] > 0 if kind is MLayerClassifier else X[:, 0]
    model = kind(max_iter=2, random_state=0).fit(X, y)
    model.predict(X)
    assert seen
    assert set(seen) == {0}


def _at_sixteen(self: Any, values: Array) -> Array:
    return at_offset((np.asarray(values, dtype=np.float64) - self.mean) / self.deviation, 16)


def test_tensors_of_torch_start_there_too() -> None:
    """The copy relies on it."""
    assert all(torch.empty(size).data_ptr() % LINE == 0 for size in (1, 3, 7, 100, 1001))
