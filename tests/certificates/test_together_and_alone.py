"""Numbers of many rivals and rows together are those of each pair alone; sizes differ widely."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlayer import MLayer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds.second_order_together import QuickSecondOrder
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.solve.rows_batched import rows_together

CLASSES, ROWS = 9, 6


def case(seed: int) -> tuple[Certifier, torch.Tensor, torch.Tensor]:
    """Rivals whose second derivatives differ by orders of magnitude, behind margins of about 1."""
    random = torch.Generator().manual_seed(seed)
    layer = MLayer(5, CLASSES, matrix_size=4, embedding_size=3, dtype=torch.float64, generator=random)
    x = torch.rand(ROWS, 5, generator=random, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=torch.float64) * 0.5)
        layer.readout.mul_(10.0 ** torch.linspace(-3, 1, CLASSES).double()[:, None, None])
        assert layer.output_bias is not None
        layer.output_bias.copy_(-layer(x[:1])[0] - torch.rand(CLASSES, generator=random))
        layer.output_bias[0] += 2.0
    return Certifier(layer, fit_steps=3), x, layer(x).argmax(1).detach()


@pytest.mark.parametrize("seed", range(4))
def test_levels_of_rivals(seed: int) -> None:
    """Levels by the Frobenius norm of the pair's second derivative, or by its least eigenvalue."""
    certifier, x, labels = case(seed)
    compared = 0
    for eps in np.geomspace(0.01, 1.0, 16).tolist():
        for row in rows_together(certifier._model, x.numpy(), labels.tolist(), "best", eps):
            alone = Row(row.model, row.x, row.label)
            for pair in row.known.values():
                if pair.level[0] != eps or row.rivals is None:
                    continue
                fresh = alone.pair(pair.rival)
                place = np.flatnonzero(row.rivals.classes == pair.rival)
                slack = np.array([fresh.tensor_slack(alone.radius(eps), 2)])
                quick = QuickSecondOrder(row.rivals.take(place), fresh.second[None], slack, eps)
                levels = [
                    float(quick.lower(np.array([fall]))[1][0])
                    for fall in (np.linalg.norm(fresh.second), fresh.fall)
                ]
                assert any(pair.level[1] == pytest.approx(level, rel=1e-7, abs=1e-9) for level in levels)
                compared += levels[0] != pytest.approx(levels[1], rel=1e-3)
    assert compared >= 10


def test_gradients_and_sizes_of_rivals() -> None:
    certifier, x, labels = case(0)
    for row in rows_together(certifier._model, x.numpy(), labels.tolist(), "best", None):
        assert row.rivals is not None
        alone = Row(row.model, row.x, row.label)
        for place, rival in enumerate(row.rivals.classes.tolist()):
            fresh = alone.pair(rival)
            for name in (
                "margin",
                "nuclear",
                "readout_factor",
                "readout_size",
                "biases",
                "gradient",
                "slopes",
            ):
                np.testing.assert_allclose(
                    getattr(row.rivals, name)[place], getattr(fresh, name), rtol=1e-9, atol=1e-12
                )


def test_what_is_charged_lowers_the_bound() -> None:
    certifier, x, labels = case(1)
    (row, *_) = rows_together(certifier._model, x.numpy(), labels.tolist(), "best", None)
    assert row.rivals is not None
    pairs = [row.pair(int(rival)) for rival in row.rivals.classes]
    H, falls = np.stack([pair.second for pair in pairs]), np.array([pair.fall for pair in pairs])
    charge = np.linspace(0.5, 1.5, len(pairs))
    free = QuickSecondOrder(row.rivals, H, 0 * charge, 0.05).lower(falls)
    charged = QuickSecondOrder(row.rivals, H, charge, 0.05).lower(falls)
    for one, other in zip(free, charged, strict=True):
        np.testing.assert_allclose(one - other, charge, rtol=1e-9)
