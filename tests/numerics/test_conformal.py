"""Conformal intervals: the promised coverage, by counting over many draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlayer.errors import MLayerError
from mlayer.numerics.conformal import half_width, measured_coverage


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("rows", [19, 60])
def test_coverage_is_at_least_what_was_asked_for(coverage: float, rows: int) -> None:
    """The theorem: between coverage and coverage + 1 / (n + 1), on average over the draws."""
    draw = np.random.default_rng(0)
    errors = np.abs(draw.standard_cauchy((4000, rows + 1)))
    inside = [row[-1] <= half_width(row[:-1], coverage) for row in errors]
    deviation = 4 * math.sqrt(coverage * (1 - coverage) / len(inside))
    assert coverage - deviation <= np.mean(inside) <= coverage + 1 / (rows + 1) + deviation


def test_too_few_errors_promise_nothing() -> None:
    assert half_width(np.ones(8), 0.9) == math.inf
    assert half_width(np.arange(9.0), 0.9) == 8.0
    assert measured_coverage(np.ones(19), 0.9) is None


def test_coverage_must_be_a_share() -> None:
    for wrong in (0.0, 1.0, math.nan):
        with pytest.raises(MLayerError, match="coverage must be"):
            half_width(np.ones(50), wrong)
