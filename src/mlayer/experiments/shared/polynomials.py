"""The common part of the experiments on determinants and permanents: data, models, recipes, the test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mlayer import datasets
from mlayer.datasets import Table
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared.dense import dense_net, parameter_count
from mlayer.nn.initializers import Normal
from mlayer.nn.layer import MLayer
from mlayer.training import Plateau, Settings

Maker = Callable[..., Table]
MAKERS: dict[str, Maker] = {"determinant": datasets.determinants, "permanent": datasets.permanents}
# Seeds of the three sets, far apart from each other and from those of other seeds.
_TRAINING, _VALIDATION, _TEST = 0, 1, 2


@dataclass(frozen=True)
class PolynomialProblem:
    """A polynomial of the entries of a matrix."""

    polynomial: str  # "determinant" or "permanent"
    size: int  # of the matrix
    seed: int  # of the data

    def training(self, count: int) -> Table:
        """The training set; a smaller one is a part of a larger one."""
        return self._draw(count, _TRAINING)

    def validation(self, count: int) -> Table:
        """The text: 25% of the training set's size, in addition to it."""
        return self._draw(count, _VALIDATION)

    def test(self, count: int) -> Table:
        """The first matrices of the test."""
        return self._draw(count, _TEST)

    def test_error(self, model: nn.Module, count: int) -> float:
        """Mean squared error on ``count`` new matrices, in the model's precision, targets in float64."""
        dtype = next(model.parameters()).dtype
        total, piece = 0.0, 20_000
        for k in range(0, count, piece):
            rows = min(piece, count - k)
            x = self._draw(rows, _TEST + k // piece).x
            with torch.no_grad():
                error = model(x.to(dtype)).double() - self.exact(x)
            total += error.square().sum().item()
        return total / count

    def exact(self, x: Tensor) -> Tensor:
        """The polynomial in float64.  (N, size^2) -> (N, 1)"""
        matrices = x.double().reshape(-1, self.size, self.size)
        if self.polynomial == "determinant":
            return torch.linalg.det(matrices)[:, None]
        return datasets.permanent(matrices)[:, None]

    def _draw(self, count: int, part: int) -> Table:
        return MAKERS[self.polynomial](count, self.size, seed=1_000_003 * (self.seed + 1) + part)


def m_layer(size: int, matrix_size: int, seed: int, dtype: torch.dtype = torch.float32) -> MLayer:
    """The text's model: the entries are the features, no embedding, no matrix bias; weights N(0, 0.05^2).

    >>> parameter_count(m_layer(3, 9, 0)), parameter_count(m_layer(5, 24, 0))
    (811, 14977)
    """
    layer = MLayer(
        size**2,
        1,
        matrix_size=matrix_size,
        embedding_size=None,
        matrix_bias=False,
        init=Normal(0.05),
        generator=torch.Generator().manual_seed(seed),
    )
    return layer.to(dtype)


def notebook_layer(size: int, matrix_size: int, seed: int) -> MLayer:
    """The authors' notebook's start: T as in the text, S Glorot uniform, V zero."""
    layer, generator = m_layer(size, matrix_size, seed), torch.Generator().manual_seed(seed)
    nn.init.xavier_uniform_(layer.readout.data.flatten(1), generator=generator)
    assert layer.output_bias is not None
    nn.init.zeros_(layer.output_bias)
    return layer


def dnn(size: int, layers: int, width: int, seed: int) -> nn.Sequential:
    """The text's dense nets.

    >>> parameter_count(dnn(3, 4, 30, 0)), parameter_count(dnn(5, 5, 100, 0))
    (3121, 43101)
    """
    generator = torch.Generator().manual_seed(seed)
    return dense_net((size**2, *[width] * layers, 1), "relu", generator)


def text_settings(epochs: int, seed: int, penalty: float) -> Settings:
    """Section 4.3: Keras' RMSprop, 1e-3 with decay 1e-6, batch 32, x 0.2 after 10 epochs, stop after 30."""
    return Settings(
        epochs=epochs,
        batch_size=32,
        optimizer="rmsprop",
        optimizer_options={"alpha": 0.9, "eps": 1e-7},
        learning_rate=1e-3,
        time_decay=1e-6,
        plateau=Plateau(factor=0.2, patience=10),
        early_stopping=30,
        activity_penalty=penalty,
        seed=seed,
        on_divergence="stop",
    )


def notebook_settings(epochs: int, seed: int, penalty: float) -> Settings:
    """The authors' notebook's: at most 150 epochs, x 0.2 after 5, no rate below 1e-5; the rest as above."""
    settings = text_settings(min(epochs, 150), seed, penalty)
    return replace(settings, plateau=Plateau(factor=0.2, patience=5, floor=1e-5))


def by_the_text(
    problem: PolynomialProblem,
    model: nn.Module,
    examples: int,
    *,
    epochs: int,
    test: int,
    penalty: float,
    part: str,
    context: RunContext,
    recipe: Callable[[int, int, float], Settings] = text_settings,
    then: Callable[[nn.Module], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Train ``model`` by the text's recipe, or by another, and test it.

    A resumed experiment does not repeat this, and leaves ``model`` untrained: what else is measured of the
    trained model is measured by ``then``.
    """

    def make(name: str) -> dict[str, Any]:
        training, validation = problem.training(examples), problem.validation(max(1, examples // 4))
        settings = recipe(epochs, problem.seed, penalty)
        judged = validation.x, validation.y
        result = context.train(model, (training.x, training.y), settings, name, validation=judged)
        row = {
            "parameters": parameter_count(model),
            "examples": examples,
            "epochs": len(result.history),
            "stopped": result.stopped,
            "seconds": round(result.seconds, 1),
            "validation_mse": result.best_value,
            "test_mse": problem.test_error(model, test),
        }
        return row if then is None else row | then(model)

    return context.part(part, make)


def powers_of_two(examples: Sequence[int]) -> list[str]:
    """Labels for an axis.

    >>> powers_of_two([1024, 2048, 100])
    ['$2^{10}$', '$2^{11}$', '100']
    """
    return [f"$2^{{{int(math.log2(e))}}}$" if e & (e - 1) == 0 else str(e) for e in examples]
