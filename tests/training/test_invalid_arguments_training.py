"""Each complaint says which argument, what it must be, what it was and what to do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from problems import layer, product

from mlayer.errors import ArgumentError, ArgumentTypeError, MLayerError
from mlayer.training import Plateau, Settings, evaluate, train, train_many

X, Y = product(8)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": -1}, "epochs must be an integer of at least 0; got -1"),
        ({"epochs": 2.5}, "epochs must be an integer"),
        ({"epochs": True}, "epochs must be an integer"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"gradient_clip": -1.0}, "gradient_clip"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"activity_penalty": math.inf}, "activity_penalty"),
        ({"early_stopping": 0}, "early_stopping"),
        ({"loss": "crossentropy"}, "Did you mean 'cross_entropy'"),
        ({"loss": 3}, "loss must be one of"),
        ({"loss": "mse"}, "The mean squared error is 'squared_error'"),
        ({"loss": torch.nn.MSELoss()}, r"loss must be .* a callable \(model, x, y\)"),
        ({"loss": torch.nn.functional.mse_loss}, r"loss must be .* a callable \(model, x, y\)"),
        ({"loss": lambda outputs, y: outputs - y}, r"loss must be .* a callable \(model, x, y\)"),
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
        ({"optimizer": 3}, "optimizer must be a name or a callable"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"schedule": torch.optim.lr_scheduler.StepLR}, "schedule must be .* got the class StepLR. .*lambda"),
        ({"metrics": ("acuracy",)}, "Did you mean 'accuracy'"),
        ({"monitor": "accuracy"}, "Add it: Settings"),
        ({"activity_kind": "l2"}, "activity_kind must be one of"),
        ({"on_divergence": "ignore"}, "on_divergence must be one of"),
        ({"plateau": 0.5}, "plateau must be a Plateau or None"),
    ],
)
def test_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(MLayerError, match=words):
        Settings(**settings)


def test_plateau() -> None:
    with pytest.raises(ArgumentError, match="factor must be between 0 and 1"):
        Plateau(factor=2.0)
    with pytest.raises(ArgumentError, match="patience"):
        Plateau(patience=0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (X, "data must be a pair"),
        (3, "data must be tensors"),
        ((X,), "data must be tensors"),
        ((X.numpy(), Y), "Convert arrays with torch.as_tensor"),
        ((X, Y[:5]), "tensors of equal length; got lengths"),
        ((X[:0], Y[:0]), "at least one example"),
        ((X * math.nan, Y), "data: x must be finite; got NaN or inf in 8 rows"),
        ((X, Y / 0), "data: y must be finite"),
        ((X, Y, -torch.ones(8)), "data: weight"),
        ((X, Y, torch.ones(8, 1)), "data: weight"),
        ((b for b in [(X, Y)]), "read only once"),
        ([[X]], "a loader of batches"),
        (torch.utils.data.TensorDataset(X, Y), "Wrap a data set: torch.utils.data.DataLoader"),
        ([(X[0], Y[0])], r"batches of equal length; got one that yields lengths \[2, 1\]"),
        (torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X[:0])), "one batch or more"),
        ((X, torch.ones(8, 2)), r"y must be of shape \(8, 1\)"),
    ],
)
def test_data(data: Any, words: str) -> None:
    with pytest.raises(MLayerError, match=words):
        train(layer(), data, Settings(epochs=1))


@pytest.mark.parametrize(
    ("pick", "words"),
    [
        (lambda p, e: e[:, 0], r"got a tensor of shape \(8,\) alone"),
        (lambda p, e: e.mean(), r"got a tensor of shape \(\) alone"),
        (lambda p, e: (p, e), r"got a tensor of shape \(8, 1\) as its losses"),
        (lambda p, e: (p, e.mean()), r"got a tensor of shape \(\) as its losses"),
        (lambda p, e: (p, e.mean().item()), "got [0-9.e-]+ as its losses"),
        (lambda p, e: None, "got None alone"),
    ],
)
@pytest.mark.parametrize("weights", [(), (torch.ones(8),)])
def test_a_loss_gives_outputs_and_one_loss_per_example(pick: Any, words: str, weights: Any) -> None:
    """The second row of a tensor is not the losses, and (b, 1) losses times (b,) weights would be (b, b)."""

    def loss(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        outputs = model(x)
        return pick(outputs, (outputs - y).square())

    with pytest.raises(ArgumentError, match=words):
        train(layer(), (X, Y, *weights), Settings(epochs=1, loss=loss))


def test_a_wrong_shape_is_never_broadcast_away() -> None:
    """(b, 2) outputs beside (b,) targets would give (b, b) differences without a word."""
    with pytest.raises(ArgumentError, match=r"y must be of shape \(8, 2\)"):
        train(layer(2), (X, Y[:, 0]), Settings(epochs=1))


def test_models_and_optimizers() -> None:
    with pytest.raises(ArgumentTypeError, match=r"model must be a torch.nn.Module"):
        train("model", (X, Y))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="trainable parameters"):
        train(layer().requires_grad_(False), (X, Y))
    with pytest.raises(ArgumentTypeError, match="settings must be a Settings"):
        train(layer(), (X, Y), {"epochs": 3})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="Did you mean 'momentum'"):
        train(layer(), (X, Y), Settings(optimizer="sgd", optimizer_options={"momentun": 0.9}))
    with pytest.raises(ArgumentTypeError, match="returned NoneType"):
        train(layer(), (X, Y), Settings(optimizer=lambda p: None))  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentError, match="weight_decay must be 0 for LBFGS"):
        train(layer(), (X, Y), Settings(optimizer="lbfgs", weight_decay=0.1))


def test_a_schedule_needs_a_length() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from [(X[0], Y[0])]

    loader = torch.utils.data.DataLoader(Stream())
    with pytest.raises(ArgumentError, match="data loader of unknown length"):
        train(layer(), loader, Settings(epochs=1, schedule="cosine"))
    assert train(layer(), loader, Settings(epochs=2)).steps == 2


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.zeros(8), r"integers.*; got torch.float32 of shape \(8,\). .*y.long\(\)"),
        (torch.zeros(8, dtype=torch.int32), r"got torch.int32 of shape \(8,\). .*y.long\(\)"),
        (torch.zeros(8, 1, dtype=torch.int64), r"got torch.int64 of shape \(8, 1\). .*y.flatten\(\)"),
        (torch.eye(8, 2, dtype=torch.int64), r"got torch.int64 of shape \(8, 2\). .*y.argmax\(1\)"),
    ],
)
@pytest.mark.parametrize("loader", [False, True])
def test_labels_of_another_kind(labels: torch.Tensor, words: str, loader: bool) -> None:
    with pytest.raises(ArgumentError, match=words):
        train(layer(2), _given(labels, loader), Settings(epochs=1, loss="cross_entropy"))


def _given(labels: torch.Tensor, loader: bool) -> Any:
    """X and labels as two tensors, or as a loader of one batch."""
    pairs = torch.utils.data.TensorDataset(X, labels)
    return torch.utils.data.DataLoader(pairs, batch_size=8) if loader else (X, labels)


@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize(
    ("y", "loss", "words"),
    [
        (torch.ones(8, 3), "cross_entropy", r"probabilities of shape \(8, 2\); got shape \(8, 3\)"),
        (torch.ones(8, 2) + 0j, "squared_error", "y must be real, .* got torch.complex64"),
    ],
)
def test_targets_that_do_not_fit_the_outputs(y: torch.Tensor, loss: str, words: str, loader: bool) -> None:
    with pytest.raises(ArgumentError, match=words):
        train(layer(2), _given(y, loader), Settings(epochs=1, loss=loss))


def test_the_accuracy_of_columns_and_of_probabilities() -> None:
    def both(model: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = model(x)
        return outputs, outputs.square().mean(1)

    model, settings = layer(2), Settings(loss=both, metrics=("accuracy",))
    classes = model(X).argmax(1)
    with pytest.raises(ArgumentError, match=r"shape \(8, 1\). Convert them with y.flatten"):
        evaluate(model, (X, classes[:, None]), settings)
    assert evaluate(model, (X, torch.nn.functional.one_hot(classes, 2).float()), settings)["accuracy"] == 1
    assert evaluate(model, (X, 1 - classes), settings)["accuracy"] == 0
    with pytest.raises(ArgumentError, match=r"of shape \(8,\), the classes, .* got shape \(8, 3\)"):
        evaluate(model, (X, torch.ones(8, 3)), settings)


def test_a_penalty_that_no_layer_can_add() -> None:
    with pytest.raises(ArgumentError, match=r"activity_penalty must be 0 .* got 0.01 with a Linear"):
        train(torch.nn.Linear(2, 1), (X, Y), Settings(epochs=1, activity_penalty=0.01))


def test_a_refused_call_leaves_the_mode_of_the_model() -> None:
    model = layer(2)
    with pytest.raises(ArgumentError, match="x must be of shape"):
        train(model, (X[:, :1], torch.zeros(8).long()), Settings(epochs=1, loss="cross_entropy"))
    assert model.training


def test_classes_under_the_default_loss() -> None:
    with pytest.raises(ArgumentError, match=r'For classes: Settings\(loss="cross_entropy"\)'):
        train(layer(2), (X, torch.zeros(8, dtype=torch.int64)), Settings(epochs=1))


@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("label", [-100, -1, 2])  # torch leaves out examples of the class -100
def test_classes_that_the_model_does_not_have(label: int, loader: bool) -> None:
    with pytest.raises(ArgumentError, match="class numbers from 0 to 1, for a model of 2 outputs"):
        train(layer(2), _given(torch.full((8,), label), loader), Settings(epochs=1, loss="cross_entropy"))


@pytest.mark.parametrize("seconds", ["60", math.nan, -1.0])
def test_checkpoint_seconds(seconds: Any) -> None:
    with pytest.raises(MLayerError, match="checkpoint_seconds must be"):
        train(layer(), (X, Y), Settings(epochs=1), checkpoint_seconds=seconds)


def test_many() -> None:
    with pytest.raises(ArgumentError, match="seeds must be given with one settings"):
        train_many(lambda s: layer(), (X, Y), Settings())
    with pytest.raises(ArgumentError, match="seeds must be None"):
        train_many(lambda s: layer(), (X, Y), [Settings()], seeds=[1])
    with pytest.raises(ArgumentTypeError, match="cannot share a data loader"):
        train_many(lambda s: layer(), torch.utils.data.DataLoader([1]), Settings(), seeds=[1])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="settings must be"):
        train_many(lambda s: layer(), (X, Y), [3])  # type: ignore[list-item]


@pytest.mark.parametrize("size", ["", "two", "-2", "²", "9" * 5000, "2"])
def test_processes_that_torchrun_did_not_start(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of torchrun, set by something else: raw errors of int() and of torch."""
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ArgumentError, match=r"environment variable WORLD_SIZE must be .*set by torchrun"):
        train(layer(), (X, Y), Settings(epochs=1))


def test_a_model_on_the_device_meta() -> None:
    with pytest.raises(
        ArgumentError, match=r"model must be one with values; got parameters on the device meta"
    ):
        train(layer().to("meta"), (X, Y), Settings(epochs=1))


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("loader", [False, True])
def test_a_model_that_returns_several_tensors(loss: str, loader: bool) -> None:
    y = torch.zeros(len(X), dtype=torch.int64)
    data = [(X, y)] if loader else (X, y)
    with pytest.raises(ArgumentTypeError, match=r"model must be a module that returns a tensor; got .*tuple"):
        train(torch.nn.LSTM(X.shape[1], 2), data, Settings(epochs=1, loss=loss))


@pytest.mark.parametrize("loader", [False, True])
def test_a_model_that_returns_several_rows_per_example(loader: bool) -> None:
    x, y = torch.zeros(4, 5, 3), torch.zeros(4, dtype=torch.int64)
    data = [(x, y)] if loader else (x, y)
    with pytest.raises(
        ArgumentError, match=r"of shape \(examples, classes\); got outputs of shape \(\d, 5, 2\)"
    ):
        train(torch.nn.Linear(3, 2), data, Settings(epochs=1, loss="cross_entropy"))


def test_many_runs_of_a_model_that_is_made_already() -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"build must be a callable .*; got of type MLayer\. .*lambda settings"
    ):
        train_many(layer(), (X, Y), Settings(epochs=1), seeds=[0])  # type: ignore[arg-type]
