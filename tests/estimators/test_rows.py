"""The standard form of rows, and the scales, against plain recomputation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlayer.estimators.rows import standard_rows
from mlayer.estimators.scaling import Scale, raw_layer
from mlayer.nn import MLayer


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=12))
def test_weights_repetition_and_order_are_one(table: list[tuple[int, int, int]]) -> None:
    if not any(weight for _, _, weight in table):
        return
    x = np.array([[row[0] / 3] for row in table])
    y = np.array([[float(row[1])] for row in table])
    weight = np.array([float(row[2]) for row in table])
    one = standard_rows(x, y, weight)
    times = weight.astype(int)
    two = standard_rows(np.repeat(x, times, 0)[::-1], np.repeat(y, times, 0)[::-1], None)
    for name in ("x", "y", "weight"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name  # exact: sums of whole numbers
    counts: dict[tuple[float, float], int] = {}
    for a, b, w in table:
        counts[a / 3, float(b)] = counts.get((a / 3, float(b)), 0) + w
    expected = {key: count for key, count in sorted(counts.items()) if count}
    assert list(zip(one.x[:, 0], one.y[:, 0], strict=True)) == list(expected)
    assert one.weight == pytest.approx(np.array([*expected.values()]) / np.mean([*expected.values()]))


def test_minus_zero_is_zero() -> None:
    assert len(standard_rows(np.array([[0.0], [-0.0]]), np.zeros((2, 1)), None)) == 1


def test_scale_is_the_weighted_one() -> None:
    generator = np.random.default_rng(0)
    values, weight = generator.normal(3, 5, (40, 2)), generator.integers(1, 4, 40)
    scale = Scale.of(values, weight.astype(float), "X")
    repeated = np.repeat(values, weight, axis=0)
    assert scale.mean == pytest.approx(repeated.mean(0))
    assert scale.deviation == pytest.approx(repeated.std(0))
    assert scale.undo(scale.apply(values)) == pytest.approx(values)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 + 0.1])
def test_constant_columns_have_scale_one(constant: float) -> None:
    assert Scale.of(np.full((37, 1), constant), np.linspace(1, 2, 37), "X").deviation == 1.0


@pytest.mark.parametrize("embedding_size", [None, 2])
@pytest.mark.parametrize("matrix_bias", [True, False])
@pytest.mark.parametrize("output_bias", [True, False])
@pytest.mark.parametrize("embedding_bias", [True, False])
def test_folding_is_the_composition(
    embedding_size: int | None, matrix_bias: bool, output_bias: bool, embedding_bias: bool
) -> None:
    layer = MLayer(
        3,
        2,
        4,
        embedding_size,
        matrix_bias,
        output_bias,
        embedding_bias=embedding_bias,
        generator=torch.Generator().manual_seed(0),
        init="balanced",
        dtype=torch.float64,
    )
    generator = np.random.default_rng(1)
    inputs = Scale(generator.normal(size=3), generator.uniform(0.5, 2, 3))
    outputs = Scale(generator.normal(size=2), generator.uniform(0.5, 2, 2))
    x = generator.normal(size=(5, 3))
    with torch.no_grad():
        expected = outputs.undo(layer(torch.from_numpy(inputs.apply(x))).numpy())
        assert raw_layer(layer, inputs, outputs)(torch.from_numpy(x)).numpy() == pytest.approx(expected)
