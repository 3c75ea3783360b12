"""`watch_activity` under torch.utils.checkpoint and torch.func: the penalty acts once, or is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import mlayer
from mlayer.nn import DetachedPenaltyError, watch_activity


def model() -> torch.nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    return torch.nn.Sequential(
        mlayer.MLayer(3, 4, matrix_size=3, embedding_size=2, generator=generator, dtype=torch.float64),
        torch.nn.Tanh(),
        mlayer.MLayer(4, 2, matrix_size=2, generator=generator, dtype=torch.float64),
    )


def inputs() -> torch.Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(net: torch.nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(net.parameters())))


def plain() -> tuple[torch.Tensor, list[torch.Tensor]]:
    net = model()
    with watch_activity(net) as penalties:
        loss = net(inputs()).square().sum()
    loss = loss + 0.1 * torch.stack(penalties).sum()
    return loss, gradients(net, loss)


@pytest.mark.parametrize("backward_inside", [False, True])
@pytest.mark.parametrize("early_stop", [False, True])
def test_a_checkpoint_without_reentry_gives_the_gradients_of_none(
    backward_inside: bool, early_stop: bool
) -> None:
    expected, wanted = plain()
    net = model()
    with torch.utils.checkpoint.set_checkpoint_early_stop(early_stop):
        with watch_activity(net) as penalties:
            loss = checkpoint(net, inputs(), use_reentrant=False).square().sum()
            loss = loss + 0.1 * torch.stack(penalties).sum()
            came = gradients(net, loss) if backward_inside else []
        if not backward_inside:
            came = gradients(net, loss)
    assert len(penalties) == 2
    torch.testing.assert_close(loss, expected)
    for one, other in zip(came, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_checkpoint_with_reentry_is_refused() -> None:
    net = model()
    with (
        watch_activity(net),
        pytest.raises(DetachedPenaltyError, match="use_reentrant=False"),
    ):
        checkpoint(net, inputs().requires_grad_(), use_reentrant=True)
    assert all(layer.watcher is None for layer in net if isinstance(layer, mlayer.MLayer))


def test_watching_without_gradients_stays_possible() -> None:
    net = model()
    with torch.no_grad(), watch_activity(net) as inside:
        net(inputs())
    net.eval()
    with watch_activity(net) as evaluated, torch.no_grad():
        net(inputs())
    net.train().requires_grad_(False)
    with watch_activity(net) as frozen, torch.no_grad():
        net(inputs())
    assert len(inside) == len(evaluated) == len(frozen) == 2


def test_a_backward_pass_does_not_count_layers_of_a_function_that_runs_them() -> None:
    """Two passes count twice; their backward pass adds none."""
    net = model()
    with watch_activity(net) as penalties:
        loss = net(inputs()).sum() + checkpoint(net, inputs(), use_reentrant=False).sum()
        gradients(net, loss + torch.stack(penalties).sum())
    assert len(penalties) == 4


def test_one_inside_another_leaves_the_outer_one_watching() -> None:
    net = model()
    with watch_activity(net) as outer:
        with watch_activity(net) as inner:
            net(inputs())
        net(inputs())
    net(inputs())
    assert len(inner) == 2
    assert len(outer) == 4


def test_transforms_around_and_inside() -> None:
    layer = mlayer.MLayer(4, 2, matrix_size=3)
    x = torch.rand(5, 4)
    weights: dict[str, Tensor] = dict(layer.named_parameters())

    def penalty(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        with watch_activity(layer) as penalties:
            torch.func.functional_call(layer, weights, (x,))
        return sum(penalties, torch.zeros(()))

    each = torch.func.vmap(penalty, in_dims=(None, 0))(weights, x)
    torch.testing.assert_close(each.mean(), layer.activity(x))
    gradients = torch.func.grad(penalty)(weights, x)
    layer.activity(x).backward()
    torch.testing.assert_close(gradients["free_generators"], layer.free_generators.grad)
    for transform in (torch.func.vmap, torch.func.jacrev):
        with watch_activity(layer), pytest.raises(DetachedPenaltyError, match="inside the function"):
            transform(layer)(x)
