"""The optimizer of a run, and that it is the right one for odd weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mlayer.training import Settings, train


class Scaled(nn.Module):
    """x -> x w, with the weights as they are given."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weights


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "adagrad", "rmsprop"])
def test_weights_with_gaps_in_memory_learn_like_others(optimizer: str) -> None:
    g = torch.Generator().manual_seed(0)
    x, wide = torch.randn(64, 4, generator=g), torch.randn(4, 6, generator=g)
    y = torch.randn(64, 3, generator=g)
    start = wide[:, ::2].clone()
    gaps, none = Scaled(wide[:, ::2]), Scaled(start.clone())
    assert not gaps.weights.is_contiguous()
    for model in (gaps, none):
        train(
            model, (x, y), Settings(epochs=3, optimizer=optimizer, loss="squared_error", learning_rate=0.01)
        )
    torch.testing.assert_close(gaps.weights, none.weights, rtol=1e-5, atol=1e-6)
    assert (gaps.weights - start).abs().min() > 1e-4, "each of them has learned"
