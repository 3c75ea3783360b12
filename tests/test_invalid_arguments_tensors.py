"""Tensors without one shape or without numbers, and numbers beyond floats: no raw error of torch."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import mlayer
from invalid_arguments import Call
from mlayer.errors import MLayerError
from mlayer.training import Settings, train

LAYER = mlayer.MLayer(3, 2, matrix_size=4, embedding_size=5)
ROWS, EYE = torch.ones(2, 3), torch.eye(2)
LABELS = torch.zeros(2, dtype=torch.long)
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.fixture
def nested() -> Tensor:
    return torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=torch.strided)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch: nested tensors are in prototype stage
@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("x", LAYER),
        ("x", LAYER.matrix),
        ("x", lambda v: mlayer.certify(LAYER, v, LABELS)),
        ("low", lambda v: mlayer.bounds(LAYER, v, ROWS)),
        ("high", lambda v: mlayer.bounds(LAYER, ROWS, v)),
        ("low", lambda v: mlayer.bounds(torch.nn.Sequential(LAYER), v, ROWS)),
        ("x", lambda v: mlayer.certify(torch.nn.Sequential(LAYER), v, LABELS)),
        ("C", lambda v: mlayer.bounds(LAYER, ROWS, ROWS, v)),
        ("scale", lambda v: mlayer.certify(LAYER, ROWS, LABELS, scale=v)),
        ("scale", lambda v: mlayer.attack(LAYER, ROWS, LABELS, 0.1, scale=v)),
        ("t", lambda v: mlayer.expm_action(EYE, EYE, v)),
        ("data", lambda v: train(mlayer.MLayer(3, 2, 3), (v, ROWS), Settings(epochs=1))),
        ("validation", lambda v: train(mlayer.MLayer(3, 3, 3), (ROWS, ROWS), validation=(v, ROWS))),
        ("A", mlayer.expm),
        ("box", lambda v: mlayer.from_function(lambda x: x, v, 0.1)),
    ],
)
def test_nested_tensors(argument: str, call: Any, nested: Tensor) -> None:
    with pytest.raises(MLayerError, match=rf"^{argument} must be"):
        call(nested)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("t must be finite", lambda: mlayer.expm_action(EYE, EYE, 10**400)),
        ("t must be finite", lambda: mlayer.expm_action(EYE, EYE, cast(Any, Fraction(10**400, 3)))),
        (
            "t must be real times",
            lambda: mlayer.expm_action(EYE, EYE, torch.quantize_per_tensor(EYE[0], 0.1, 0, torch.qint8)),
        ),
        ("scale must be", lambda: mlayer.attack(LAYER, ROWS, LABELS, 0.1, scale=10**5000)),
        ("splits must be", lambda: mlayer.bounds(LAYER, ROWS, ROWS, splits=10**5000)),
        ("splits must be", lambda: mlayer.bounds(LAYER, ROWS, ROWS, splits=cast(Any, DEEP))),
        ("box must be", lambda: mlayer.from_function(lambda x: x, torch.ones(1, 2, device="meta"), 0.1)),
        ("box must be", lambda: mlayer.from_function(lambda x: x, EYE.to_sparse(), 0.1)),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_numbers_that_are_none(words: str, call: Call) -> None:
    with pytest.raises(MLayerError, match=words):
        call()
