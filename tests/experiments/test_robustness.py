"""The paper's radii, against scipy's Lambert W and norms written out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import lambertw

from mlayer.errors import MissingDataError
from mlayer.experiments import reproduce, robustness
from mlayer.experiments.protocol import Where


def test_radii_are_the_formulas() -> None:
    config = robustness.SCALES["smoke"]
    layer, x, labels = robustness._small(config)
    results = robustness.run(config, Where())
    assert layer.embedding is not None
    T, U = layer.generators.detach().numpy(), layer.embedding.detach().numpy()
    S = layer.readout.detach().numpy()
    per_input = np.einsum("ajk,ai->ijk", T, U)
    delta_in = np.linalg.norm(np.abs(per_input).sum(0), 2)
    readout_norm = np.linalg.norm(S.reshape(len(S), -1), 2)
    assert results["delta_in"] == pytest.approx(delta_in, rel=1e-8)
    assert results["readout_norm"] == pytest.approx(readout_norm, rel=1e-8)
    radii = []
    for row, label in zip(x, labels, strict=True):
        outputs = layer(row).detach().numpy()
        margin = outputs[label] - np.delete(outputs, label).max()
        norm = np.linalg.norm(layer.matrix(row).detach().numpy(), 2)
        evidence = margin / (2 * np.sqrt(4) * readout_norm * np.exp(norm))
        radii.append(lambertw(evidence).real / delta_in)
    np.testing.assert_allclose(results["radii"], radii, rtol=1e-4)
    assert results["radius"]["0.5"] == pytest.approx(np.median(radii), rel=1e-6)
    assert results["accuracy"] == 100


def test_smoke_run_writes_results_and_picture(tmp_path: Path) -> None:
    record = reproduce("robustness", "smoke", out=tmp_path)
    assert record["headline"]["robustness.paper_median_radius"] > 0
    assert (tmp_path / "robustness.smoke.png").stat().st_size > 5000


def test_a_missing_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDataError, match=r"cifar10_model\.npy.*is not in.*Get it from"):
        robustness.run(robustness.SCALES["default"], Where(data=tmp_path))
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"not in any data folder"):
        robustness.run(robustness.SCALES["default"], Where())


@pytest.mark.slow
def test_the_released_model_has_the_papers_constants() -> None:
    folder = Path(os.environ.get("MLAYER_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not (folder / robustness.MODEL).is_file():
        pytest.skip(f"no {robustness.MODEL} in {folder}")
    results = robustness.run(robustness.Config(images=300), Where(data=folder))
    assert torch.isfinite(torch.tensor(results["radii"])).all()
    assert results["delta_in"] == pytest.approx(213.598, abs=1e-3)
    assert results["readout_norm"] == pytest.approx(3.153, abs=1e-3)
    assert 3e-6 < results["radius"]["0.5"] < 1.2e-5
