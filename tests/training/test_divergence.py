from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from problems import layer, product, same_weights
from torch import Tensor, nn

from mlayer.errors import MLayerError
from mlayer.training import DivergenceError, Settings, train


def test_a_rate_that_is_too_large_says_when_why_and_what_to_do() -> None:
    model, data = layer(), product()
    settings = Settings(epochs=200, optimizer="sgd", learning_rate=50.0)
    with pytest.raises(DivergenceError) as caught:
        train(model, data, settings)
    message, result = str(caught.value), caught.value.result
    assert isinstance(caught.value, MLayerError)
    assert "training diverged at step" in message
    assert "Learning rate 50" in message
    assert "smaller learning_rate" in message
    assert "norm of M" in message or "no longer finite" in message
    assert result.stopped == "diverged"
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert all(math.isfinite(r["loss"]) for r in result.history)


def test_the_norm_of_m_is_that_of_the_batch() -> None:
    model, (x, y) = layer(), product()
    with torch.no_grad():
        model.free_matrix_bias.copy_(200 * torch.eye(4))  # type: ignore[union-attr]
    norm = torch.linalg.matrix_norm(model.matrix(x)).max().item()
    with pytest.raises(DivergenceError, match=r"at step 1 \(epoch 1\)") as caught:
        train(model, (x, y), Settings(epochs=1, batch_size=96))
    assert f"norm of M in this batch is {norm:.4g}" in str(caught.value)
    assert "The weights of the start are kept" in str(caught.value)


def test_the_best_weights_are_kept_and_no_later_step_is_taken(tmp_path: Path) -> None:
    model, (x, y) = layer(), product()
    steps: list[int] = []
    after: list[dict[str, Tensor]] = []

    def breaks(m: nn.Module, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        outputs = m(a)
        steps.append(1)
        losses = (outputs - b).square()[:, 0]
        return outputs, losses * (math.nan if len(steps) == 8 else 1)

    def keep(record: dict[str, object]) -> None:
        after.append({k: v.clone() for k, v in model.state_dict().items()})

    settings = Settings(epochs=9, loss=breaks, learning_rate=1e-2, on_divergence="stop")
    result = train(model, (x, y), settings, on_epoch=keep, checkpoint=tmp_path)
    assert len(steps) == 8
    # The training loss of the second epoch, the smaller one, is that of the weights after the first.
    assert (result.stopped, result.best_epoch, len(result.history)) == ("diverged", 1, 2)
    assert all(torch.equal(v, after[0][k]) for k, v in model.state_dict().items())
    # Taking up the run gives the same answer, not another attempt.
    again = layer()
    second = train(again, (x, y), settings, checkpoint=tmp_path)
    assert second.message == result.message
    assert same_weights(model, again)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_gradient_that_overflows_in_the_last_step_is_noticed(clip: float | None) -> None:
    class Infinite(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, z: Tensor) -> Tensor:
            return z.clone()

        @staticmethod
        def backward(ctx: object, g: Tensor) -> Tensor:
            return g * math.inf

    def loss(m: nn.Module, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        outputs = m(a)
        return outputs, Infinite.apply(outputs - b).square()[:, 0]

    model = layer()
    with pytest.raises(DivergenceError, match="diverged"):
        train(model, product(), Settings(epochs=1, batch_size=96, loss=loss, gradient_clip=clip))
    assert same_weights(model, layer())


def test_bad_batches_of_a_loader_are_named() -> None:
    x, y = product()
    x[3, 0] = math.nan
    with pytest.raises(DivergenceError, match=r"inputs of this batch hold NaN.* Correct the data\.$"):
        train(layer(), [(x, y)], Settings(epochs=1))


def test_before_the_first_step_the_advice_is_about_inputs_and_start() -> None:
    x, y = product()
    with pytest.raises(DivergenceError, match=r"at step 1 .* Scale the inputs") as caught:
        train(layer(), (1e5 * x, y), Settings(epochs=1))
    assert "learning_rate" not in str(caught.value)


@pytest.mark.parametrize("place", ["training", "validation"])
def test_a_layer_that_raises_at_an_overflow_diverges_like_others(place: str) -> None:
    (x, y), model = product(), layer()
    model.on_overflow = "raise"
    spoiled = (torch.cat([x, 1e5 * x]), torch.cat([y, y]))
    data, validation = ((spoiled, None), ((x, y), spoiled))[place == "validation"]
    settings = Settings(epochs=3, batch_size=8, on_divergence="stop")
    result = train(model, data, settings, validation=validation)
    assert result.stopped == "diverged"
    assert "training diverged at step" in result.message
    assert "Scale the inputs" in result.message
    assert same_weights(model, layer())


def test_a_validation_loss_that_is_not_a_number_is_divergence() -> None:
    x, y = product()
    with pytest.raises(DivergenceError):
        train(layer(), (x, y), Settings(epochs=1), validation=[(x * 1e30, y)])


@pytest.mark.parametrize("rate", [30.0, 1e3])
@pytest.mark.parametrize("epochs", [1, 50])
def test_weights_that_a_step_has_spoilt_do_not_pass_for_the_best(rate: float, epochs: int) -> None:
    """The loss of an epoch is measured before its steps: with one step an epoch, none of it is the step's."""
    x, y = product(64)
    model, start = layer(), layer()
    settings = Settings(
        epochs=epochs, batch_size=64, optimizer="sgd", learning_rate=rate, on_divergence="stop"
    )
    result = train(model, (x, y), settings)

    def loss(one: nn.Module) -> float:
        return (one(x) - y).square().mean().item()

    assert loss(model) <= loss(start)
    assert result.best_value == pytest.approx(loss(model), rel=1e-4)


def test_last_weights_that_give_no_number_are_divergence_whatever_is_restored() -> None:
    x, y = product(64)
    settings = Settings(epochs=1, batch_size=64, optimizer="sgd", learning_rate=1e3, restore_best=False)
    with pytest.raises(DivergenceError):
        train(layer(), (x, y), settings)
