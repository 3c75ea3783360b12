"""Waves: known frequencies are found, and the layer is the sum that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlayer.estimators import MLayerRegressor
from mlayer.estimators.waves import find_waves, wave_layer


def _series(rows: int = 200, noise: float = 0.05) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    generator = np.random.default_rng(0)
    t = np.linspace(-2, 2, rows)
    y = 0.3 * t + np.sin(7 * t) + 0.5 * np.cos(17.3 * t) + noise * generator.standard_normal(rows)
    return t[:, None], y[:, None]


def test_frequencies_are_found() -> None:
    x, y = _series()
    waves = find_waves(x, y, np.ones(len(x)))
    assert waves is not None
    assert sorted(waves.frequencies) == pytest.approx([7, 17.3], abs=0.05)


def test_weighted_rows_count() -> None:
    x, y = _series()
    spoilt = y.copy()
    spoilt[::2] += 50 * np.random.default_rng(1).standard_normal((100, 1))
    waves = find_waves(x, spoilt, np.tile([1e-9, 2.0], 100))
    assert waves is not None
    assert sorted(waves.frequencies)[0] == pytest.approx(7, abs=0.1)


def test_noise_has_no_waves() -> None:
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(-2, 2, (200, 1)), axis=0)
    assert find_waves(x, generator.standard_normal((200, 1)), np.ones(200)) is None


def test_few_values_have_no_waves() -> None:
    x = np.tile(np.arange(5.0), 20)[:, None]
    assert find_waves(x, np.sin(x), np.ones(100)) is None


def test_the_layer_is_the_sum() -> None:
    """Two inputs, two outputs, against the formula written out."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (400, 2))
    one = 1 + x[:, 0] - 2 * x[:, 1] + np.sin(9 * x[:, 1] + 1)
    two = 3 * np.cos(5 * x[:, 0])
    waves = find_waves(x, np.column_stack([one, two]), np.ones(400))
    assert waves is not None
    new = generator.uniform(-6, 6, (50, 2))
    p = wave_layer(waves, 2)(torch.from_numpy(new)).detach().numpy()
    expected = [1 + new[:, 0] - 2 * new[:, 1] + np.sin(9 * new[:, 1] + 1), 3 * np.cos(5 * new[:, 0])]
    assert p == pytest.approx(np.column_stack(expected), abs=1e-4)


def test_regressor_extrapolates_a_season() -> None:
    x, y = _series()
    x = 10 + 3 * x
    model = MLayerRegressor(random_state=0, alpha=0.01, max_iter=40).fit(x[:140], y[:140, 0])
    assert model.periodic_
    assert model.score(x[140:], y[140:, 0]) > 0.9
    p = model.to_mlayer()(torch.from_numpy(x)).detach().numpy()[:, 0]
    assert p == pytest.approx(model.predict(x), abs=1e-8)


def test_no_waves_where_none_are_wanted_or_found() -> None:
    x, y = _series()
    assert (
        not MLayerRegressor(periodic=False, alpha=0.01, max_iter=20, random_state=0).fit(x, y[:, 0]).periodic_
    )
    generator = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="periodic=True, but no waves were found"):
        MLayerRegressor(periodic=True, alpha=0.01, max_iter=20).fit(
            generator.uniform(size=(60, 1)), generator.standard_normal(60)
        )
