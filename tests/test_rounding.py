"""`agree` notices a difference just beyond rounding, in one matrix of many, and anything about NaN."""

from __future__ import annotations

import pytest
import torch

import mlayer
from cases import random_matrix
from rounding import MULTIPLES, agree


@pytest.mark.parametrize("norm", [0.1, 1.0, 20.0])
def test_agree_accepts_rounding_and_nothing_beyond(norm: float, dtype: torch.dtype) -> None:
    a = torch.stack([random_matrix(5, norm, seed=k, dtype=dtype) for k in range(4)])
    value = mlayer.expm(a)
    allowed = 2 * MULTIPLES[dtype] * torch.finfo(dtype).eps * max(1.0, norm)
    for part, passes in ((0.5, True), (1.5, False)):
        other = value.clone()
        other[2, 1, 3] += part * allowed * torch.linalg.matrix_norm(value[2])
        if passes:
            agree(other, value, a)
        else:
            with pytest.raises(AssertionError, match="beyond rounding"):
                agree(other, value, a)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_agree_compares_what_is_not_finite_exactly(bad: float) -> None:
    a = random_matrix(3, 1.0)
    value = mlayer.expm(a)
    spoiled = value.clone()
    spoiled[0, 0] = bad
    agree(spoiled, spoiled.clone(), a)
    for pair in ((spoiled, value), (value, spoiled), (-spoiled, spoiled)):
        with pytest.raises(AssertionError):
            agree(*pair, a)
