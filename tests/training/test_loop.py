from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from problems import layer, product, quadrants, same_weights, with_dropout
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import mlayer
from mlayer.errors import ArgumentError
from mlayer.training import Plateau, Settings, evaluate, train


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_hand(model: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float) -> list[float]:
    """Plain gradient descent on the mean squared error, written out with autograd only."""
    losses = []
    for _ in range(epochs):
        loss = (model(x) - y).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p.sub_(rate * g)
        losses.append(float(loss.detach()))
    return losses


def test_one_batch_an_epoch_is_gradient_descent() -> None:
    x, y = product()
    ours, theirs = layer(dtype=torch.float64), layer(dtype=torch.float64)
    x, y = x.double(), y.double()
    settings = Settings(epochs=5, batch_size=96, optimizer="sgd", learning_rate=0.1, restore_best=False)
    result = train(ours, (x, y), settings)
    losses = by_hand(theirs, x, y, 5, 0.1)
    assert [r["loss"] for r in result.history] == pytest.approx(losses, rel=1e-12)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_whatever_the_context(context: Any) -> None:
    here, there, (x, y) = layer(), layer(), product()
    train(here, (x, y), Settings(epochs=1))
    with context():
        train(there, (x.clone().requires_grad_(context is torch.no_grad), y.clone()), Settings(epochs=1))
    assert same_weights(here, there)


def test_what_was_made_under_inference_mode() -> None:
    here, there, (x, y) = layer(), layer(), product()
    with torch.inference_mode():
        batches, unusable = [(x.clone(), y.clone())], layer()
    train(here, [(x, y)], Settings(epochs=2))
    train(there, batches, Settings(epochs=2))
    assert same_weights(here, there)
    with pytest.raises(ArgumentError, match=r"made outside torch.inference_mode; .*copy.deepcopy\(model\)"):
        train(unusable, (x, y), Settings(epochs=1))
    assert train(copy.deepcopy(unusable), (x, y), Settings(epochs=1)).steps
    labels = torch.zeros(3).long()
    with torch.inference_mode():
        rows = x[:3].clone(), labels.clone()
    two = layer(2)
    assert torch.equal(mlayer.attack(two, *rows).radius, mlayer.attack(two, x[:3], labels).radius)
    with torch.inference_mode():
        unusable = layer(2)
    with pytest.raises(ArgumentError, match=r"made outside torch.inference_mode, .*copy.deepcopy\(layer\)"):
        mlayer.certify(unusable, x[:3], labels)


def test_every_example_is_seen_once_an_epoch_in_a_new_order() -> None:
    seen: list[Tensor] = []

    def watch(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled():
            seen.append(y.clone())
        outputs = model(x)
        return outputs, (outputs[:, 0] - y).square()

    x, _ = product(50)
    train(layer(), (x, torch.arange(50.0)), Settings(epochs=2, batch_size=8, loss=watch, learning_rate=1e-6))
    assert [len(y) for y in seen] == [8, 8, 8, 8, 8, 8, 2] * 2
    first, second = torch.cat(seen[:7]), torch.cat(seen[7:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.arange(50.0))


@pytest.mark.parametrize("rows", [1, 31, 64, 65])
def test_blocks_of_batches_lose_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlayer.training import batches
    from mlayer.training.distributed import World

    x = torch.arange(rows * 3.0).view(rows, 3)
    source = batches.TensorsInMemory((x, x[:, 0]), 8, torch.device("cpu"))
    whole = [b.x for b in source.shuffled(5, 0, World())]
    monkeypatch.setattr(batches, "_BLOCK_NUMBERS", 3 * 8 * 2)  # two batches a block
    blocks = [b.x for b in source.shuffled(5, 0, World())]
    assert all(torch.equal(a, b) for a, b in zip(whole, blocks, strict=True))
    rest = [b.x for b in source.shuffled(5, 3, World())]
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], rest, strict=True))
    # Parts of two processes make up each batch.
    parts = [list(source.shuffled(5, 0, World(rank, 2))) for rank in (0, 1)]
    for a, b, c in zip(*parts, whole, strict=True):
        assert torch.equal(torch.cat([a.x, b.x]), c)
        assert a.whole == b.whole == len(c)


@pytest.mark.parametrize("build", [layer, with_dropout])
def test_seeds_make_a_run_repeatable_and_leave_torch_alone(build: Any) -> None:
    data, settings = product(), Settings(epochs=3, learning_rate=1e-2, seed=7)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = build()
    train(one, data, settings, augment=lambda x, g: x + 0.01 * torch.randn(x.shape, generator=g))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    two = build()
    train(two, data, settings, augment=lambda x, g: x + 0.01 * torch.randn(x.shape, generator=g))
    assert same_weights(one, two)
    other = build()
    train(other, data, Settings(epochs=3, learning_rate=1e-2, seed=8))
    assert not same_weights(one, other)


def test_a_loader_does_what_tensors_do() -> None:
    x, y = product()
    one, two = layer(), layer()
    settings = Settings(epochs=3, batch_size=96, learning_rate=1e-2)
    a = train(one, (x, y), settings, validation=product(40, 1))
    loader = DataLoader(TensorDataset(x, y), batch_size=96)
    held_out = DataLoader(TensorDataset(*product(40, 1)), batch_size=7)
    b = train(two, loader, settings, validation=held_out)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)  # the order inside the batch differs
    assert a.history[-1]["validation_loss"] == pytest.approx(b.history[-1]["validation_loss"], rel=1e-4)


def test_a_shuffled_loader_is_repeatable() -> None:
    loader = DataLoader(TensorDataset(*product()), batch_size=8, shuffle=True)
    runs = []
    for start in (1, 2):
        torch.manual_seed(start)
        model = layer()
        train(model, loader, Settings(epochs=2, learning_rate=1e-2))
        runs.append(model)
    assert same_weights(*runs)


def test_weights_count_like_copies_and_zero_like_absence() -> None:
    x, y = (t.double() for t in product(20))
    weight = torch.tensor([0.0, 1.0, 2.0, 3.0]).repeat(5).double()
    repeated = torch.arange(20).repeat_interleave(weight.long())
    one, two = layer(dtype=torch.float64), layer(dtype=torch.float64)
    settings = Settings(epochs=4, batch_size=1000, optimizer="sgd", learning_rate=0.1)
    train(one, (x, y, weight / weight.mean()), settings)
    train(two, (x[repeated], y[repeated]), settings)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12)


def test_the_penalty_is_added_for_every_m_layer_inside() -> None:
    x, y = product()
    model: Any = nn.Sequential(layer(2), layer(1, seed=3))
    seen: list[float] = []

    class Watch(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            seen.append(float(model[0].free_generators.grad.abs().sum()))

    for penalty in (0.0, 0.5):
        settings = Settings(
            epochs=1, batch_size=96, optimizer=partial(Watch, lr=0.0), activity_penalty=penalty
        )
        result = train(model, (x, y), settings)
        hidden = model[0](x)
        expected = (model(x) - y).square().mean()
        expected = expected + penalty * (model[0].activity(x) + model[1].activity(hidden))
        (gradient,) = torch.autograd.grad(expected, [model[0].free_generators])
        assert result.history[0]["loss"] == pytest.approx(expected.item(), rel=1e-5)
        assert seen[-1] == pytest.approx(gradient.abs().sum().item(), rel=1e-4)
    assert model[0].watcher is None
    assert seen[0] != pytest.approx(seen[1])


def test_l1_penalty() -> None:
    x, y = product()
    model = layer()
    settings = Settings(epochs=1, batch_size=96, learning_rate=1e-9, activity_penalty=2.0, activity_kind="l1")
    expected = (model(x) - y).square().mean() + 2.0 * model.activity(x, "l1")
    result = train(model, (x, y), settings)
    assert result.history[0]["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_gradient_clipping() -> None:
    model, (x, y) = layer(), product()
    start = [p.detach().clone() for p in model.parameters()]
    settings = Settings(epochs=1, batch_size=96, optimizer="sgd", learning_rate=1.0, gradient_clip=1e-3)
    train(model, (x, 100 * y), settings)
    moved = torch.cat([(p - q).flatten() for p, q in zip(model.parameters(), start, strict=True)])
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_weight_decay() -> None:
    model, (x, y) = layer(), product()
    before = model.readout.detach().clone()
    zero_loss = Settings(
        epochs=1,
        batch_size=96,
        optimizer="sgd",
        learning_rate=0.1,
        weight_decay=0.5,
        loss=lambda m, a, b: (m(a), 0 * m(a)[:, 0]),
        restore_best=False,
    )
    train(model, (x, y), zero_loss)
    torch.testing.assert_close(model.readout, before * (1 - 0.1 * 0.5))


def test_plateau_reduces_the_rate_after_patience_and_not_below_its_floor() -> None:
    settings = Settings(
        epochs=9,
        optimizer="sgd",
        learning_rate=1.0,
        loss=lambda m, x, y: (m(x), 0 * m(x)[:, 0] + 1.0),
        plateau=Plateau(factor=0.1, patience=2, floor=0.005),
    )
    rates = [r["learning_rate"] for r in train(layer(), product(), settings).history]
    # The first epoch is an improvement over nothing; each rate is that of its epoch.
    assert rates == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.005, 0.005])


@pytest.mark.parametrize("schedule", ["cosine", "one_cycle", lambda fraction: 1 - fraction / 2])
def test_schedules_and_time_decay_multiply(schedule: Any) -> None:
    from mlayer.training.learning_rate import SCHEDULES

    settings = Settings(
        epochs=5, batch_size=48, optimizer="sgd", learning_rate=0.1, schedule=schedule, time_decay=0.5
    )
    rates = [r["learning_rate"] for r in train(layer(), product(), settings).history]
    factor = SCHEDULES[schedule] if isinstance(schedule, str) else schedule
    last_steps = [1, 3, 5, 7, 9]
    assert rates == pytest.approx([0.1 * factor(s / 10) / (1 + 0.5 * s) for s in last_steps])


def test_early_stopping_restores_the_best_weights() -> None:
    x, y = product()
    values = iter([5.0, 3.0, 4.0, 3.5, 3.2, 9.0])
    kept: list[dict[str, Tensor]] = []
    model = layer()

    def scripted(m: nn.Module, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        outputs = m(a)
        if not torch.is_grad_enabled():
            kept.append({k: v.clone() for k, v in m.state_dict().items()})
            return outputs, torch.full((len(a),), next(values))
        return outputs, (outputs - b).square()[:, 0]

    settings = Settings(epochs=50, loss=scripted, early_stopping=3, learning_rate=1e-2)
    result = train(model, (x, y), settings, validation=(x, y))
    assert (result.best_epoch, result.best_value, result.stopped) == (2, 3.0, "early")
    assert "3 epochs" in result.message
    assert len(result.history) == 5
    assert all(torch.equal(v, kept[1][k]) for k, v in model.state_dict().items())


def test_accuracy_is_monitored_upwards() -> None:
    model, data = layer(4), quadrants()
    settings = Settings(
        epochs=40, loss="cross_entropy", metrics=("accuracy",), monitor="accuracy", learning_rate=3e-2
    )
    result = train(model, data, settings, validation=quadrants(200, 1))
    best = max(r["validation_accuracy"] for r in result.history)
    assert result.best_value == best > 0.9
    x, y = quadrants(200, 1)
    assert float((model(x).argmax(1) == y).float().mean()) == pytest.approx(best)
    assert evaluate(model, (x, y), settings)["accuracy"] == pytest.approx(best)


def test_lbfgs_is_given_its_closure() -> None:
    x, y = (t.double() for t in product())
    settings = Settings(epochs=15, batch_size=96, optimizer="lbfgs", learning_rate=1.0)
    result = train(layer(dtype=torch.float64), (x, y), settings)
    assert result.history[-1]["loss"] < 1e-6 < result.history[0]["loss"]


def test_history_and_callbacks() -> None:
    records: list[dict[str, Any]] = []
    result = train(layer(), product(), Settings(epochs=3), validation=product(9), on_epoch=records.append)
    assert records == result.history
    assert [r["epoch"] for r in records] == [1, 2, 3]
    assert [r["step"] for r in records] == [3, 6, 9]
    assert set(records[0]) == {"epoch", "step", "loss", "validation_loss", "learning_rate", "seconds"}
    assert result.steps == 9
    assert math.isfinite(result.seconds)


def test_no_epochs_change_nothing() -> None:
    model = layer()
    result = train(model, product(), Settings(epochs=0))
    assert same_weights(model, layer())
    assert result.best_value is None


def test_evaluation_leaves_the_mode_of_the_model() -> None:
    model = with_dropout()
    model.train()
    settings = Settings(loss="squared_error", metrics=("rmse",))
    measured = evaluate(model, product(3000), settings)
    assert model.training
    assert measured["rmse"] == pytest.approx(measured["loss"] ** 0.5)
    model.eval()
    x, y = product(3000)
    assert measured["loss"] == pytest.approx((model(x) - y).square().mean().item(), rel=1e-4)


def test_the_periodic_loss_is_the_papers() -> None:
    from mlayer.training import PeriodicLoss

    x = torch.tensor([[0.0], [0.5], [2.0]])
    y = torch.tensor([[1.0], [2.0], [3.0]])

    class Steep(nn.Module):
        def forward(self, t: Tensor) -> Tensor:
            return 15 * t

    outputs, losses = PeriodicLoss()(Steep(), x, y)
    beyond = [max(0, abs(15 * (2 * a + 6)) - 100) ** 2 for a in (0, 0.5, 2)]
    expected = [(15 * a - b) ** 2 + c for a, b, c in zip((0, 0.5, 2), (1, 2, 3), beyond, strict=True)]
    assert losses.tolist() == pytest.approx(expected)
    torch.testing.assert_close(outputs, 15 * x)


def test_a_list_of_batches_is_a_loader() -> None:
    model = mlayer.MLayer(2, 1, 3, None, dtype=torch.float64)
    x, y = (t.double() for t in product())
    result = train(model, [(x[:50], y[:50]), (x[50:], y[50:])], Settings(epochs=2))
    assert result.steps == 4


def test_what_the_model_takes_may_be_made_by_augmentation_alone() -> None:
    x, y = quadrants()
    bytes_ = (100 * x + 100).to(torch.uint8)  # the model would refuse these
    settings = Settings(epochs=2, loss="cross_entropy")
    result = train(layer(4), (bytes_, y), settings, augment=lambda b, _: (b.float() - 100) / 100)
    assert result.stopped == "epochs"
