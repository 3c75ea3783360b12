"""Waves: known frequencies are found, and the layer is the sum that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlayer.errors import ArgumentError
from mlayer.estimators import MLayerRegressor
from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, find_waves, wave_layer


def _series(rows: int = 200, noise: float = 0.05) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    generator = np.random.default_rng(0)
    t = np.linspace(-2, 2, rows)
    y = 0.3 * t + np.sin(7 * t) + 0.5 * np.cos(17.3 * t) + noise * generator.standard_normal(rows)
    return t[:, None], y[:, None]


def test_frequencies_are_found() -> None:
    x, y = _series()
    waves = find_waves(Rows(x, y, np.ones(len(x))), [0])
    assert waves is not None
    assert sorted(waves.frequencies) == pytest.approx([7, 17.3], abs=0.05)


def test_weighted_rows_count() -> None:
    x, y = _series()
    spoilt = y.copy()
    spoilt[::2] += 50 * np.random.default_rng(1).standard_normal((100, 1))
    waves = find_waves(Rows(x, spoilt, np.tile([1e-9, 2.0], 100)), [0])
    assert waves is not None
    assert sorted(waves.frequencies)[0] == pytest.approx(7, abs=0.1)


def test_noise_has_no_waves() -> None:
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(-2, 2, (200, 1)), axis=0)
    assert find_waves(Rows(x, generator.standard_normal((200, 1)), np.ones(200)), [0]) is None


def test_few_values_have_no_waves() -> None:
    x = np.tile(np.arange(5.0), 20)[:, None]
    assert find_waves(Rows(x, np.sin(x), np.ones(100)), [0]) is None


def test_the_layer_is_the_sum() -> None:
    """Two inputs, two outputs, against the formula written out."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (400, 2))
    one = 1 + x[:, 0] - 2 * x[:, 1] + np.sin(9 * x[:, 1] + 1)
    two = 3 * np.cos(5 * x[:, 0])
    waves = find_waves(Rows(x, np.column_stack([one, two]), np.ones(400)), [0, 1])
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


def _stores(days: int = 500) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows (day, group, promotion): the groups have seasons of opposite sign, so that their mean has none."""
    generator = np.random.default_rng(0)
    t = np.tile(np.arange(float(days)), 2)
    group = np.repeat([0.0, 1.0], days)
    promo = (generator.random(2 * days) < 0.2).astype(float)
    wave = np.sin(2 * np.pi * t / 7 + 0.3) * np.where(group > 0, -2.0, 2.0)
    y = 5 + 3 * group + 0.01 * t * (1 - group) + wave + promo * (1 + group)
    return np.column_stack([t, group, promo]), y, 0.1 * generator.standard_normal(2 * days)


def test_groups_have_seasons_and_trends_of_their_own() -> None:
    x, truth, noise = _stores()
    early = x[:, 0] < 350
    extra = np.random.default_rng(1).standard_normal(
        (len(x), 3)
    )  # more inputs than waves were once limited to
    x = np.column_stack([x, extra])
    model = MLayerRegressor(random_state=0).fit(x[early], (truth + noise)[early])
    assert model.periodic_
    assert [place for place, _ in model.periods_] == [0]
    assert model.periods_[0][1] == pytest.approx(7, abs=0.01)
    error = np.sqrt(np.mean((model.predict(x[~early]) - truth[~early]) ** 2))
    assert error < 0.1  # the noise is 0.1; a model without groups has 2
    p = model.to_mlayer()(torch.from_numpy(x)).detach().numpy()[:, 0]
    assert p == pytest.approx(model.predict(x), abs=1e-8)


def test_a_quantity_bends_and_changes_the_season() -> None:
    """Power of a panel under clouds: less of the day's wave; heating and cooling: a parabola."""
    generator = np.random.default_rng(0)
    t = np.arange(720.0) / 24
    clouds, heat = generator.uniform(0, 1, 720), generator.normal(0, 1, 720)
    truth = 4 * (1 - clouds) * np.sin(2 * np.pi * t) + heat**2
    y = truth + 0.1 * generator.standard_normal(720)
    early = t < 20
    found = find_waves(
        Rows(np.column_stack([t, clouds, heat])[early], y[early, None], np.ones(early.sum())), [0]
    )
    assert found is not None
    assert 1 in found.groups
    assert (2, 2) in found.products
    p = wave_layer(found, 3)(torch.from_numpy(np.column_stack([t, clouds, heat]))).detach().numpy()[:, 0]
    assert np.sqrt(np.mean((p - truth)[~early] ** 2)) < 0.05  # the noise is 0.1; without them it is 1.6
    few = find_waves(
        Rows(np.column_stack([t, clouds.round(), heat])[early], y[early, None], np.ones(early.sum())), [0]
    )
    assert few is not None
    assert (1, 1) not in few.products  # the square of a column of two values is that column


def test_the_layer_is_the_sum_with_groups_and_products() -> None:
    """Against the formula written out, far outside the rows too."""
    generator = np.random.default_rng(0)
    waves = WaveFit(
        np.array([3.0, 7.0]), np.array([0, 2]), (1, 3), ((0, 1), (2, 3)), generator.standard_normal((19, 2))
    )
    x = generator.uniform(-5, 5, (40, 4))
    c = waves.coefficients
    expected = c[0] + x @ c[1:5] + np.outer(x[:, 0] * x[:, 1], c[5]) + np.outer(x[:, 2] * x[:, 3], c[6])
    for k, (w, a) in enumerate(((3.0, 0), (7.0, 2))):
        for level, factor in enumerate((np.ones(40), x[:, 1], x[:, 3])):
            place = 7 + 6 * k + 2 * level
            expected += np.outer(factor * np.cos(w * x[:, a]), c[place])
            expected += np.outer(factor * np.sin(w * x[:, a]), c[place + 1])
    p = wave_layer(waves, 4)(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(p, expected, atol=1e-10)


def test_numbers_of_inputs_that_are_not_there() -> None:
    x, y = _series()
    with pytest.raises(ArgumentError, match="periodic must be numbers of inputs below 1; got 3"):
        MLayerRegressor(periodic=[3]).fit(x, y[:, 0])
