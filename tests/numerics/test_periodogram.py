"""The spectrum agrees with least squares at each frequency, and its transforms are short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

from mlayer.numerics import spectrum
from mlayer.numerics.arrays import Array

GENERATOR = np.random.default_rng(0)
COLUMNS = {
    "a calendar": np.arange(300.0),
    "a calendar with gaps": np.delete(np.arange(300.0), GENERATOR.choice(300, 60, replace=False)),
    "groups": np.repeat(np.arange(100.0), 3),
    "months": np.cumsum([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 8).astype(float),
    "at random": np.sort(GENERATOR.uniform(0, 50, 200)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_power_is_what_a_wave_takes_off_the_squares(name: str) -> None:
    column = COLUMNS[name]
    generator = np.random.default_rng(1)
    residual = generator.standard_normal((len(column), 2)) + np.cos(0.3 * column)[:, None]
    weight = generator.uniform(0.5, 2, len(column))
    highest = spectrum.highest_frequency(column)
    assert highest is not None
    frequencies, power = spectrum.power(column, residual, weight, highest)
    root = np.sqrt(weight)[:, None]
    for place in np.linspace(0, 0.7 * len(frequencies), 9).astype(int):
        angle = frequencies[place] * column
        waves = np.column_stack([np.cos(angle), np.sin(angle)]) * root
        left = np.linalg.lstsq(waves, residual * root, rcond=None)[1].sum()
        taken = np.square(residual * root).sum() - left
        # Rows between the cells of a grid are misplaced by up to a sixteenth of a half period.
        exact = "calendar" in name or name == "groups"
        assert power[place] == pytest.approx(taken, rel=1e-8 if exact else 0.3, abs=0 if exact else 5)


@pytest.mark.parametrize("name", COLUMNS)
def test_transforms_are_short_and_have_small_factors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    column = COLUMNS[name]
    lengths: list[int] = []
    transform = np.fft.rfft

    def counted(values: Array) -> Any:
        lengths.append(len(values))
        return transform(values)

    monkeypatch.setattr(np.fft, "rfft", counted)
    highest = spectrum.highest_frequency(column)
    assert highest is not None
    spectrum.power(column, np.ones((len(column), 1)), np.ones(len(column)), highest)
    steps = np.ptp(column) / np.median(np.diff(np.unique(column)))
    assert lengths
    assert max(lengths) <= (10 if "calendar" in name or name == "groups" else 80) * (steps + 2)
    assert all(max(sympy.primefactors(length)) <= 5 for length in lengths)
