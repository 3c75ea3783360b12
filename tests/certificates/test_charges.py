"""Errors that a derivative knows of are charged: of its eigenvectors, and of products in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from certificate_layers import random_layer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds import quartic_tensor
from mlayer.certificates.derivatives.spectral import SpectralPath, usable_eigenvectors
from mlayer.certificates.problem.expansion import Pair, Row


def pair_of(seed: int) -> Pair:
    layer, x, labels = random_layer("full", seed)
    row = Row(Certifier(layer, fit_steps=0)._model, x.numpy()[0], int(labels[0]))
    return row.pair((row.label + 1) % len(row.outputs))


@pytest.mark.parametrize("off", [1e-9, 1e-3])
def test_eigenvalues_that_are_off(off: float) -> None:
    """The derivatives are those of another matrix; its distance moves the terms of every order."""
    row = pair_of(7).row
    found = usable_eigenvectors(row.M)
    assert found is not None
    values, vectors, inverse = found
    path = SpectralPath(row.M, row.model.white.T, values + off, vectors, inverse)
    near = (vectors * (values + off)) @ inverse
    assert float(np.linalg.norm(row.M - near)) <= path.distance <= 1e3 * off * len(row.M)
    slack, pair = pair_of(7).tensor_slack(1.0, 2), pair_of(7)
    pair.row.derivatives = path
    assert pair.tensor_slack(1.0, 2) > slack


def test_the_error_of_the_quartic_form_is_in_its_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, form_of = pair_of(7), quartic_tensor.quartic_form
    fall = quartic_tensor.Quartic(pair, 1.0).fall

    def with_error(*arguments: Any) -> Any:
        form, error = form_of(*arguments)
        return form, error + 5.0

    monkeypatch.setattr(quartic_tensor, "quartic_form", with_error)
    assert quartic_tensor.Quartic(pair, 1.0).fall - fall == pytest.approx(5.0, rel=1e-6)
