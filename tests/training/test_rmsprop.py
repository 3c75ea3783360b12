"""RMSprop in one call against torch's own, step by step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mlayer.training import Settings
from mlayer.training.optimizers import build_optimizer
from mlayer.training.rmsprop import RMSprop, fits_one_call

SHAPES = [(5, 7), (3,), (), (2, 3, 4), (130,)]


def twins(dtype: torch.dtype, seed: int, **options: Any) -> tuple[RMSprop, torch.optim.RMSprop]:
    """Ours and torch's, for the same weights."""
    g = torch.Generator().manual_seed(seed)
    weights = [nn.Parameter(torch.randn(shape, generator=g, dtype=dtype)) for shape in SHAPES]
    return RMSprop(weights, **options), torch.optim.RMSprop(copy.deepcopy(weights), **options)


def weights_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return list(optimizer.param_groups[0]["params"])


def same_gradients(g: torch.Generator, scale: float, *optimizers: torch.optim.Optimizer) -> None:
    for weights in zip(*map(weights_of, optimizers), strict=True):
        gradient = scale * torch.randn(weights[0].shape, generator=g, dtype=weights[0].dtype)
        for weight in weights:
            weight.grad = gradient.clone()


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31),
    options=st.fixed_dictionaries(
        {
            "lr": st.floats(1e-5, 1e-1),
            "alpha": st.floats(0.0, 0.999),
            "eps": st.sampled_from([1e-10, 1e-7, 1e-3]),
        }
    ),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_steps_are_those_of_torch(
    dtype: torch.dtype, seed: int, options: dict[str, float], scale: float
) -> None:
    ours, theirs = twins(dtype, seed, **options)
    rate = options["lr"]
    g = torch.Generator().manual_seed(seed + 1)
    for k in range(30):
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = rate / (1 + 0.1 * k)
        same_gradients(g, scale, ours, theirs)
        ours.step()
        theirs.step()
    rounding = 30 * torch.finfo(dtype).eps
    for a, b in zip(weights_of(ours), weights_of(theirs), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad), "gradients are the caller's"
        # Each step moves a weight by at most lr / sqrt(1 - alpha).
        moved = 30 * rate / math.sqrt(1 - options["alpha"])
        assert (a - b).abs().max() <= rounding * (b.abs().max() + moved)
        v, w = ours.state[a]["square_avg"], theirs.state[b]["square_avg"]
        assert ((v - w).abs() <= rounding * w).all()


@pytest.mark.parametrize("ours_first", [True, False])
def test_either_goes_on_from_the_state_of_the_other(ours_first: bool) -> None:
    ours, theirs = twins(torch.float64, 0, lr=1e-2, alpha=0.9)
    g = torch.Generator().manual_seed(1)
    for _ in range(5):
        same_gradients(g, 1.0, ours, theirs)
        ours.step()
        theirs.step()
    first, second = (ours, theirs) if ours_first else (theirs, ours)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    same_gradients(g, 1.0, ours, theirs)
    first.step()
    second.step()
    for a, b in zip(weights_of(ours), weights_of(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-14)
        assert ours.state[a]["step"] == theirs.state[b]["step"] == 6


def transposed(x: Tensor) -> Tensor:
    """The same numbers in another order in memory."""
    return x.t().contiguous().t()


def every_second(x: Tensor) -> Tensor:
    """The same numbers with gaps between them."""
    return x.repeat_interleave(2, 1)[:, ::2]


@pytest.mark.parametrize("weight_order", [torch.clone, transposed, every_second])
@pytest.mark.parametrize("gradient_order", [torch.clone, transposed, every_second])
def test_numbers_in_any_order_in_memory(
    weight_order: Callable[[Tensor], Tensor], gradient_order: Callable[[Tensor], Tensor]
) -> None:
    g = torch.Generator().manual_seed(0)
    start = torch.randn(4, 6, generator=g, dtype=torch.float64)
    ours, theirs = nn.Parameter(weight_order(start)), nn.Parameter(start.clone())
    made = RMSprop([ours], lr=0.1), torch.optim.RMSprop([theirs], lr=0.1)
    for _ in range(3):
        gradient = torch.randn(4, 6, generator=g, dtype=torch.float64)
        ours.grad, theirs.grad = gradient_order(gradient), gradient.clone()
        for optimizer in made:
            optimizer.step()
        assert torch.equal(ours.grad, gradient)
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dead_weights_leave_no_subnormal_numbers(dtype: torch.dtype) -> None:
    ours, theirs = twins(dtype, 0, lr=1e-2, alpha=0.6, eps=1e-7)
    g = torch.Generator().manual_seed(1)
    same_gradients(g, 1.0, ours, theirs)
    for _ in range(1536):
        ours.step()
        theirs.step()
        same_gradients(g, 0.0, ours, theirs)
    tiny = torch.finfo(dtype).tiny

    def squares(optimizer: torch.optim.Optimizer) -> Tensor:
        return torch.cat([optimizer.state[w]["square_avg"].flatten() for w in weights_of(optimizer)])

    assert ((squares(theirs) > 0) & (squares(theirs) < tiny)).all(), "rounding holds them there"
    assert (squares(ours) == 0).all()
    same_gradients(g, 1.0, ours, theirs)
    ours.step()
    theirs.step()
    for a, b in zip(weights_of(ours), weights_of(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=4 * torch.finfo(dtype).eps, atol=1e-7 * 1e-2)


def test_where_eps_is_so_small_that_they_count_subnormal_numbers_stay() -> None:
    weight = nn.Parameter(torch.zeros(4))
    optimizer = RMSprop([weight], alpha=0.5, eps=1e-30)
    weight.grad = torch.ones(4)
    for _ in range(128):
        optimizer.step()
        weight.grad = torch.zeros(4)
    assert (optimizer.state[weight]["square_avg"] > 0).all()


def test_weights_without_a_gradient_stay_and_a_closure_gives_its_loss() -> None:
    moved, still = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = RMSprop([moved, still], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = moved.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 3.0
    assert torch.equal(still.detach(), torch.ones(3))
    assert still not in optimizer.state
    assert (moved < 1).all()
    optimizer.zero_grad()
    assert optimizer.step() is None


@pytest.mark.parametrize(
    ("options", "dtype", "one_call"),
    [
        ({}, torch.float32, True),
        ({"alpha": 0.9, "eps": 1e-7}, torch.float64, True),
        ({"momentum": 0.9}, torch.float32, False),
        ({"centered": True}, torch.float32, False),
        ({"maximize": True}, torch.float32, False),
        ({"foreach": True}, torch.float32, False),
        ({"weight_decay": 0.1}, torch.float32, False),
        ({"alpha": 1.0}, torch.float32, False),
        ({}, torch.bfloat16, False),
    ],
)
def test_other_options_and_dtypes_get_torchs_own(
    options: dict[str, Any], dtype: torch.dtype, one_call: bool
) -> None:
    model = nn.Linear(3, 2, dtype=dtype)
    assert fits_one_call(list(model.parameters()), options) is one_call
    made = build_optimizer(model, Settings(optimizer="rmsprop", optimizer_options=options))
    assert isinstance(made, torch.optim.RMSprop)
    assert isinstance(made, RMSprop) is one_call


def test_weight_decay_of_the_settings_counts() -> None:
    model = nn.Linear(3, 2)
    made = build_optimizer(model, Settings(optimizer="rmsprop", weight_decay=0.1))
    assert not isinstance(made, RMSprop)
    assert made.param_groups[0]["weight_decay"] == 0.1


def test_an_option_that_torch_may_add_is_not_ignored() -> None:
    """The one call follows a list of options; one that it does not know is left to torch's own step."""
    weights = [torch.zeros(3)]
    assert fits_one_call(weights, {"lr": 0.1, "alpha": 0.9, "eps": 1e-7, "momentum": 0, "foreach": None})
    assert not fits_one_call(weights, {"lr": 0.1, "decoupled_weight_decay": True})
