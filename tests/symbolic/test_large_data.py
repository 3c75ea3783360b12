"""Formulas at points so large that the layer, or a term, is beyond float64: an error that says which."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import mlayer
from mlayer.errors import ArgumentError

LAYERS = {
    "trained": lambda: mlayer.MLayer(2, 1, 3, generator=torch.Generator().manual_seed(0)),
    "exact": lambda: mlayer.from_polynomial("x*y + 1", "x y", dtype=torch.float64),
}


@pytest.mark.parametrize("degree", [None, 1, 3])
@pytest.mark.parametrize("with_targets", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_large_data_are_an_error_or_give_numbers(kind: str, with_targets: bool, degree: int | None) -> None:
    """NaN in the fit was an error of Python's fractions, and in the result no JSON."""
    layer = LAYERS[kind]()
    draw = np.random.default_rng(0)
    refused = 0
    for size in (1.0, 1e30, 1e60, 1e90, 1e160, 1e300):
        x = draw.normal(size=(30, 2)) * size
        data = (x, draw.normal(size=(30, 1)) * size) if with_targets else x
        options = {} if degree is None else {"degree": degree}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                found = mlayer.explain(layer, data, **options)
            except ArgumentError:
                refused += 1
                assert size > 1
                continue
        assert math.isfinite(found.error)
        assert math.isfinite(found.largest_error)
    assert refused
