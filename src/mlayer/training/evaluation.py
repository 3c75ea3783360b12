"""Loss and metrics of a model on a data set."""

from __future__ import annotations

import torch
from torch import nn

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.training.batches import Data, Source, as_source
from mlayer.training.distributed import World
from mlayer.training.losses import METRICS, as_loss
from mlayer.training.settings import Settings


def evaluate(model: nn.Module, data: Data, settings: Settings) -> dict[str, float]:
    """The loss and the metrics of ``settings`` on ``data``, without penalties.

    >>> import torch, mlayer
    >>> from mlayer.training import Settings, evaluate
    >>> layer, x = mlayer.MLayer(2, 1, matrix_size=3), torch.ones(5, 2)
    >>> evaluate(layer, (x, layer(x).detach()), Settings(loss="squared_error", metrics=("rmse",)))
    {'loss': 0.0, 'rmse': 0.0}
    """
    check_model(model, settings)
    device = next(iter(model.parameters())).device
    return measure(model, as_source(data, settings.batch_size, device), settings, World())


def check_model(model: object, settings: object) -> None:
    """Raise if these are not what a run is made of."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError("model", "a torch.nn.Module", type(model).__name__, "For example an MLayer.")
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise ArgumentError(
            "model",
            "made outside torch.inference_mode",
            "one whose parameters were made under it",
            "Use copy.deepcopy(model) outside.",
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ArgumentError(
            "model",
            "one with values",
            "parameters on the device meta",
            "Fill it first: load_state_dict(..., assign=True), or to_empty and reset_parameters.",
        )
    if not isinstance(settings, Settings):
        raise ArgumentTypeError(
            "settings", "a Settings", type(settings).__name__, "Write Settings(epochs=..., ...)."
        )


def check_state_dict(model: nn.Module) -> None:
    """Raise if the model's weights are not all tensors: they are copied, compared and stored."""
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ArgumentTypeError(
                "model",
                "one whose state_dict() holds tensors alone",
                f"{brief(value)} under {name!r}",
                "Let get_extra_state return a tensor, or keep it in an attribute.",
            )


@torch.no_grad()
def measure(model: nn.Module, source: Source, settings: Settings, world: World) -> dict[str, float]:
    """Means over all examples (weighted, if the data have weights) on all processes."""
    loss = as_loss(settings.loss)
    sums = dict.fromkeys(("loss", *settings.metrics), 0.0)
    weights = 0.0
    training = model.training
    model.eval()
    try:
        for batch in source.in_order(world):
            if len(batch.x) == 0:
                continue
            outputs, losses = loss(model, batch.x, batch.y)
            each = {"loss": losses} | {m: METRICS[m][0](outputs, batch.y) for m in settings.metrics}
            w = torch.ones_like(losses) if batch.weight is None else batch.weight.to(losses)
            weights += float(w.sum(dtype=torch.float64))
            for name, values in each.items():
                sums[name] += float((values * w).sum(dtype=torch.float64))
    finally:
        model.train(training)
    names = list(sums)
    *totals, weights = world.total(*(sums[name] for name in names), weights)
    means = {name: total / max(weights, 1e-300) for name, total in zip(names, totals, strict=True)}
    return {name: METRICS[name][1](mean) if name in METRICS else mean for name, mean in means.items()}
