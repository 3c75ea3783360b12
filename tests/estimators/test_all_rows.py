"""Training on all rows: the gradient, the best weights, the end of the time, and the search for the ridge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime

from mlayer import MLayer
from mlayer.estimators import selection
from mlayer.estimators.all_rows import Objective, fit_all_rows
from mlayer.estimators.fitting import Recipe, Tensors, fit_layer
from mlayer.estimators.penalty import Ridge
from mlayer.estimators.watch import Listener, Watch
from mlayer.training.progress import as_progress

RECIPE = Recipe("squared_error", "weights", 0.01, 0.0, "lbfgs", 300, 1e-3, 128, 10, 0)


def rows(count: int = 80) -> Tensors:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=draw, dtype=torch.float64)
    return Tensors(x, x[:, :1] * x[:, 1:], torch.rand(count, generator=draw, dtype=torch.float64) + 0.5)


def layer(seed: int = 0) -> MLayer:
    draw = torch.Generator().manual_seed(seed)
    return MLayer(2, 1, 4, embedding_size=3, init="balanced", generator=draw, dtype=torch.float64)


def objective(activity: float = 0.0) -> Objective:
    data = rows()
    return Objective(
        layer(), (data.x, data.y, data.weight), Ridge("squared_error", "weights", 0.01), activity
    )


@pytest.mark.parametrize("activity", [0.0, 0.1])
def test_the_gradient_is_that_of_finite_differences(activity: float) -> None:
    asked = objective(activity)
    start = asked.start()
    numeric = approx_fprime(start, lambda w: asked(w)[0], 1e-6)
    np.testing.assert_allclose(asked(start)[1], numeric, atol=1e-4)


def test_an_overflow_is_a_wall_and_never_the_best() -> None:
    asked = objective()
    first, _ = asked(asked.start())
    value, gradient = asked(1e4 * asked.start())
    assert math.isfinite(value)
    assert value > 1e3 * first
    assert not gradient.any()
    assert asked.best == first


def test_the_layer_ends_with_the_best_weights() -> None:
    asked = objective()
    result = fit_all_rows(asked, 60, as_progress(False))
    assert result.best_value == asked.best == pytest.approx(asked(asked.start())[0])
    assert result.best_value < 0.5 * objective()(objective().start())[0]
    assert [record["step"] for record in result.history][:2] == [20, 40]


class _Ticking(Watch):
    """A clock that is over after some looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    @property
    def left(self) -> float | None:
        self.looks -= 1
        return 0.0 if self.looks < 0 else 1.0


def test_the_time_is_looked_at_before_each_evaluation() -> None:
    trained = layer()
    start = {name: value.clone() for name, value in trained.state_dict().items()}
    fit = fit_layer(trained, rows(), RECIPE, progress=Listener(_Ticking(5)))
    assert fit.result.message == "the time was over"
    assert 1 <= fit.iterations <= 6
    assert any(not torch.equal(start[name], value) for name, value in trained.state_dict().items())


def choice(
    effort: str, losses: dict[float, float], monkeypatch: pytest.MonkeyPatch, spread: float = 0.0
) -> selection.Choice:
    """A search among alphas whose losses are given; those of two rows differ by ``spread`` over alpha."""

    def trial(make: object, data: object, recipe: Recipe, *_: object, **__: object) -> selection._Trial:
        loss, apart = losses[recipe.alpha], spread / recipe.alpha
        each = torch.tensor([loss - apart, loss + apart], dtype=torch.float64)
        return selection._Trial(loss, layer(), each, None)

    monkeypatch.setattr(selection, "_trial", trial)
    return selection.choose_alpha(layer, rows(), RECIPE, [], effort=effort)


@pytest.mark.parametrize("best", range(len(selection.ALPHAS)))
def test_the_walk_downhill_finds_the_minimum(best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {alpha: 1.0 + abs(k - best) for k, alpha in enumerate(selection.ALPHAS)}
    found = choice("default", losses, monkeypatch)
    assert found.alpha == selection.ALPHAS[best]
    assert found.loss == 1.0


@pytest.mark.parametrize(("spread", "chosen"), [(0.0, 0.0015), (0.00047, 0.0015), (0.02, 0.01)])
def test_a_gain_within_half_of_its_standard_error_is_none(
    spread: float, chosen: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = dict.fromkeys(selection.ALPHAS, 9.0) | {0.01: 1.2, 0.004: 1.1, 0.0015: 1.0}
    assert choice("default", losses, monkeypatch, spread).alpha == chosen


def test_a_thorough_search_tries_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    alphas = selection.alphas_of("thorough")
    losses = dict.fromkeys(alphas, 2.0) | {alphas[0]: 1.0}  # a minimum that no walk finds
    found = choice("thorough", losses, monkeypatch)
    assert set(found.losses) == set(alphas)
    assert found.alpha == alphas[0]
