"""Columns of a model of waves against its formula, and work that a search for waves is spared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mlayer.estimators import waves
from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, bounded, solved
from mlayer.numerics import find_waves as numerics
from mlayer.numerics import pencil
from mlayer.numerics import waves as parts


def test_columns_are_those_of_the_formula() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4))
    model = WaveFit(np.array([1.5, 40.0]), np.array([0, 3]), groups=(1, 0), products=((0, 1), (2, 3)))
    for row, found in zip(x, model.columns(x), strict=True):
        wanted = [1.0, *row, row[0] * row[1], row[2] * row[3]]
        for w, a in ((1.5, 0), (40.0, 3)):
            for level in (1.0, row[1], row[0]):
                wanted += [level * math.cos(w * row[a]), level * math.sin(w * row[a])]
        assert found == pytest.approx(wanted, rel=1e-14)
    assert WaveFit.linear(np.zeros((5, 1))).columns(x).shape == (5, 5)


@pytest.mark.parametrize(("apart", "asked"), [(30.0, False), (1.2, True)])
def test_poles_are_asked_where_the_spectrum_does_not_separate_waves(
    apart: float, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    poles = pencil.poles

    def counting(*arguments: Any) -> Any:
        calls.append(arguments)
        return poles(*arguments)

    monkeypatch.setattr(pencil, "poles", counting)
    t = np.arange(400) / 400
    y = np.cos(2 * np.pi * 20 * t) + np.cos(2 * np.pi * (20 + apart) * t + 1)
    found = numerics.find_waves(t, y + 0.2 * np.random.default_rng(0).normal(size=400))
    assert found is not None
    cycles = np.sort(found.frequencies[:, 0]) / (2 * np.pi)
    assert cycles == pytest.approx([20, 20 + apart], abs=0.2)
    assert bool(calls) == asked


def test_dependent_columns_cost_no_decomposition_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    store = draw.integers(0, 3, 600)
    x = np.column_stack([np.arange(600) / 300, np.eye(3)[store]])  # the last three add up to 1
    y = store + np.cos(2 * np.pi * 7 * x[:, 0]) + 0.1 * draw.normal(size=600)
    counts = []
    orthonormal = parts._orthonormal

    def counting(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts.append(np.linalg.matrix_rank(columns) < columns.shape[1])
        return orthonormal(columns)

    monkeypatch.setattr(parts, "_orthonormal", counting)
    found = waves._frequencies(Rows(x, y[:, None], np.ones(600)), [0], 3, lambda _: None)
    assert [w / (2 * np.pi) for w, _ in found] == pytest.approx([7.0], abs=0.01)
    assert counts
    assert not any(counts)


def test_swings_of_many_rows_are_measured_on_some() -> None:
    t = np.linspace(-1, 1, 4000)[:, None]
    weight = np.ones(4000)
    jump = (t > 0.9).astype(float)
    slow = WaveFit(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.zeros(5, dtype=int))
    explosive = solved(slow, Rows(t, jump, weight))
    assert np.ptp(explosive.columns(t + 1) @ explosive.coefficients) > 10
    calm = bounded(explosive, Rows(t, jump, weight), [0])
    assert np.ptp(calm.columns(t + 1) @ calm.coefficients) < 4
    week = solved(WaveFit(np.array([40.0]), np.zeros(1, dtype=int)), Rows(t, np.sin(40 * t), weight))
    assert bounded(week, Rows(t, np.sin(40 * t), weight), [0]) is week
