"""Models have the paper's numbers of parameters; data are divided as in its text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from mlayer.datasets import random_cosines
from mlayer.experiments import determinant, determinant5, periodic, spiral, temperatures
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared import polynomials, spectral, wave_baselines
from mlayer.experiments.shared.dense import dense_net, parameter_count
from mlayer.experiments.shared.polynomials import PolynomialProblem
from mlayer.numerics.find_waves import find_waves


def test_parameter_counts_of_the_paper() -> None:
    counts = {
        "3 x 3 M-layer": parameter_count(polynomials.m_layer(3, 9, 0)),
        "5 x 5 M-layer": parameter_count(polynomials.m_layer(5, 24, 0)),
        "3 x 3 DNN": parameter_count(polynomials.dnn(3, 4, 30, 0)),
        "5 x 5 DNN": parameter_count(polynomials.dnn(5, 5, 100, 0)),
        "periodic M-layer": parameter_count(periodic.recipe("text", periodic.Config(), 0)[0]),
        "periodic DNN": parameter_count(periodic.recipe("dnn", periodic.Config(), 0)[0]),
    }
    assert list(counts.values()) == [811, 14977, 3121, 43101, 115, 3221]


def test_dense_nets_are_glorot_and_draw_from_their_generator() -> None:
    state = torch.get_rng_state()
    net = dense_net((200, 300, 1), "tanh", torch.Generator().manual_seed(1))
    first = net[0]
    assert isinstance(first, nn.Linear)
    limit = math.sqrt(6 / 500)
    assert 0.99 * limit < first.weight.abs().max() <= limit
    assert not first.bias.any()
    assert isinstance(net[1], nn.Tanh)
    assert isinstance(net[-1], nn.Linear)
    assert torch.equal(state, torch.get_rng_state())


def test_the_notebook_recipe_for_determinants() -> None:
    layer = polynomials.notebook_layer(3, 8, 0)
    assert parameter_count(layer) == 641
    limit = math.sqrt(6 / 65)
    assert 0.9 * limit < layer.readout.abs().max() <= limit  # Keras: 64 inputs, one output
    assert layer.output_bias is not None
    assert not layer.output_bias.any()
    assert layer.generators.std().item() == pytest.approx(0.05, rel=0.15)
    settings = polynomials.notebook_settings(256, 0, 1e-4)
    assert settings.plateau is not None
    assert (settings.epochs, settings.plateau.patience, settings.plateau.floor) == (150, 5, 1e-5)
    assert settings.learning_rate == polynomials.text_settings(256, 0, 1e-4).learning_rate


@pytest.mark.parametrize("parts", [(), ("m_layer",), ("m_layer", "dnn")])
def test_a_run_on_its_way_can_be_told_and_drawn(parts: tuple[str, ...]) -> None:
    point = {"parameters": 811, "examples": 2**17, "test_mse": 1e-4}
    results = {
        "ours": {"parameters": 811, "test_mse": 1e-9, "history": [[1, 0.1], [2, 0.01]]},
        "headline": dict.fromkeys(parts, point),
        "notebook": None,
        "grid": [],
    }
    keys = {"m_layer": "determinant3.paper_recipe_mse", "dnn": "determinant3.dnn_mse"}
    assert set(determinant.headline(results)) == {"determinant3.best_mse", *(keys[part] for part in parts)}
    assert len(determinant.plot(results).axes) == 2
    results["notebook"] = point
    assert determinant.headline(results)["determinant3.notebook_mse"] == 1e-4
    assert len(determinant.plot(results).axes) == 2


def test_the_grid_has_its_seeds_where_examples_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed draws its own data and weights, and has a checkpoint of its own."""
    asked: list[tuple[int, int, str]] = []

    def trained(problem: PolynomialProblem, model: nn.Module, examples: int, **how: Any) -> dict[str, Any]:
        asked.append((problem.seed, examples, how["part"]))
        first = next(model.parameters()).flatten()[0].item()
        return {"parameters": 10, "examples": examples, "test_mse": 0.1 + abs(first)}

    monkeypatch.setattr(determinant, "by_the_text", trained)
    config = replace(determinant.SCALES["smoke"], seed=4, seeds=3, ours_steps=1, dnn_steps=0)
    results = determinant.run(config, RunContext())
    grid = [row for row in asked if row[2].startswith(("M-layer", "DNN"))]
    assert [(seed, examples) for seed, examples, _ in grid[::2]] == [(4, 128), (5, 128), (6, 128), (4, 256)]
    assert len({part for _, _, part in asked}) == len(asked)
    few = [row for row in results["grid"] if row["examples"] == 128 and row["model"] == "M-layer"]
    assert [row["seed"] for row in few] == [4, 5, 6]
    assert len({row["test_mse"] for row in few}) == 3
    assert determinant.plot(results).axes
    full = determinant.SCALES["full"]
    assert (full.seeds, full.seeds_up_to, len(full.dnns), full.examples[-1]) == (5, 2**12, 18, 2**17)


def test_figures_of_several_seeds_of_our_recipe() -> None:
    ours = {"test_mse": 2e-4}
    more = [{"model": "ours", "test_mse": 1e-4}, {"model": "ours_dnn", "test_mse": 0.3}]
    results = {"ours": ours, "ours_dnn": {"test_mse": 0.2}, "more": more, "m_layer": None, "dnn": None}
    assert determinant5.figures(results, "permanent5") == {
        "permanent5.best_mse": 2e-4,
        "permanent5.ours_dnn_mse": 0.2,
        "permanent5.best_mse_lowest": 1e-4,
        "permanent5.best_mse_highest": 2e-4,
        "permanent5.best_mse_seeds": 2.0,
        "permanent5.ours_dnn_mse_lowest": 0.2,
        "permanent5.ours_dnn_mse_highest": 0.3,
        "permanent5.ours_dnn_mse_seeds": 2.0,
    }
    # What was written before there were several seeds.
    assert determinant5.headline({"ours": ours, "m_layer": None, "dnn": None}) == {
        "determinant5.best_mse": 2e-4
    }


@pytest.mark.parametrize("polynomial", ["determinant", "permanent"])
def test_sets_of_a_problem(polynomial: str) -> None:
    problem = PolynomialProblem(polynomial, 3, 0)
    training, validation = problem.training(400), problem.validation(100)
    assert torch.equal(problem.training(100).x, training.x[:100])
    seen = {tuple(row) for row in training.x.tolist()}
    assert not seen & {tuple(row) for row in validation.x.tolist()}
    torch.testing.assert_close(problem.exact(training.x).float(), training.y)

    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0 * x[:, :1]

    # The text: guessing 0 has the error 2/9.
    assert problem.test_error(Zero(), 50_000) == pytest.approx(2 / 9, rel=0.03)


def test_the_spectral_layer_is_the_sum_of_the_waves() -> None:
    t = np.arange(800) / 400
    y = 0.5 + np.exp(-0.4 * t) * np.cos(25.3 * t + 1) + 2 * np.cos(40.7 * t)
    waves = find_waves(t, y, fixed=np.ones((800, 1)), damped=True)
    assert waves is not None
    model = spectral.spectral_layer(waves, 6)
    assert parameter_count(model) == 115
    later = np.arange(2000) / 400
    exact = 0.5 + np.exp(-0.4 * later) * np.cos(25.3 * later + 1) + 2 * np.cos(40.7 * later)
    outputs = model(torch.from_numpy(later)[:, None]).detach().numpy()[:, 0]
    np.testing.assert_allclose(outputs, exact, atol=1e-6)


@pytest.mark.parametrize(
    ("seed", "whole"),
    [
        (3, True),
        (4, False),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in ((4, True), (3, False))),
    ],
)
def test_ours_extrapolates_a_periodic_function(seed: int, whole: bool) -> None:
    """The goal itself, at a small scale: functions of the text's kind, noise included."""
    outcome = periodic.ours(random_cosines(seed, whole=whole), 0)[1]
    assert outcome["parameters"] == 115
    assert outcome["rmse"] < 1e-3


def test_the_cramer_rao_bound_against_its_closed_form() -> None:
    """One wave in the middle of the band: sd of omega T is sqrt(24 / n) sigma / a."""
    x = np.arange(400) / 200
    f, sigma, a = 6.3, 0.3, 2.0
    bound, _ = wave_baselines.cramer_rao(x, x, frequencies=[f], amplitudes=[a], phases=[0.4], sigma=sigma)
    closed = np.sqrt(24 / 400) * sigma / a / (2 * np.pi * 2)
    assert bound[0] == pytest.approx(closed, rel=0.02)


def test_baselines_of_waves_on_what_they_can_do() -> None:
    """Harmonics continue what is periodic over the window; told, any frequency; features at least inside."""
    x, new = np.arange(500) / 250, 2 + np.arange(300) / 100

    def error(values: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
        return float(np.abs(values - exact).max())

    fits, off = np.cos(2 * np.pi * 3.5 * x + 1), np.cos(2 * np.pi * 3.3 * x + 1)
    assert error(wave_baselines.harmonics(x, fits, new), np.cos(2 * np.pi * 3.5 * new + 1)) < 1e-8
    assert error(wave_baselines.harmonics(x, off, new), np.cos(2 * np.pi * 3.3 * new + 1)) > 0.5
    assert (
        error(wave_baselines.known_frequencies(x, off, new, [3.3]), np.cos(2 * np.pi * 3.3 * new + 1)) < 1e-8
    )
    assert error(wave_baselines.features(x, off, x), off) < 0.05


def test_spiral_recipes() -> None:
    recipes = spiral.models(spiral.Config(), 0)
    text, notebook = recipes["text"][1], recipes["notebook"][1]
    assert (text.learning_rate, text.epochs, text.activity_penalty) == (1e-3, 100, 1e-4)
    assert (notebook.learning_rate, notebook.batch_size, notebook.activity_penalty) == (1e-2, 16, 1e-3)
    assert recipes["relu"][1].learning_rate == 1e-3
    assert recipes["tanh"][1].learning_rate == 1e-2


def test_waves_are_chosen_by_the_last_three_years_of_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each year is forecast from what lies before it; a short past has fewer such years."""
    day = torch.arange(5 * 365, dtype=torch.float64)
    past = torch.cos(2 * math.pi * day / 365.25)
    fitted: list[tuple[int, int]] = []

    def fit(series: torch.Tensor, most: int, config: temperatures.Config) -> nn.Module:
        fitted.append((len(series), most))

        class Forecast(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                days = (x[:, 0] * 365.25).round().long()
                # One wave is right in the last year only, two waves in the two years before it.
                last = days >= 4 * 365
                wrong = (last & (most == 2)) | (~last & (most == 1))
                return (torch.cos(2 * math.pi * days / 365.25) + wrong)[:, None]

        return Forecast()

    monkeypatch.setattr(temperatures, "_fit", fit)
    monkeypatch.setattr(temperatures, "parameter_count", lambda model: 0)
    config = replace(temperatures.Config(), waves=(1, 2))
    assert temperatures._ours(past, len(past) + 10, config)["waves"] == 2
    lengths = {length for length, _ in fitted}
    assert lengths == {5 * 365, 4 * 365, 3 * 365, 2 * 365}
    fitted.clear()
    temperatures._ours(past[: 3 * 365], 3 * 365, config)
    assert {length for length, _ in fitted} == {3 * 365, 2 * 365}


def test_smoothing_is_that_of_the_notebook() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 3.0, 0.0, 3.0, 10.0], dtype=torch.float64)
    centered = values - values.mean()
    wanted = [centered[:7].mean().item(), centered[1:].mean().item()]
    assert temperatures._smoothed(values).tolist() == pytest.approx(wanted)


def test_climatology_is_the_mean_of_the_day() -> None:
    past = torch.arange(800, dtype=torch.float64)
    forecast = temperatures._climatology(past, 900)
    assert forecast[800].item() == pytest.approx((70 + 435) / 2)  # days 70, 435; 800 itself is not past
    assert forecast[5 + 730].item() == pytest.approx((5 + 370 + 735) / 3)
