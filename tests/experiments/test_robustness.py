"""The paper's radii, against scipy's Lambert W and norms written out; ours between them and the attack's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import lambertw

from mlayer.certificates import Attack, Certifier, attack
from mlayer.datasets.load_by_name import AUTHORS_MODEL
from mlayer.errors import MissingDataError
from mlayer.experiments import reproduce, robustness
from mlayer.experiments.running.protocol import RunContext
from mlayer.nn import MLayer


def test_radii_are_the_formulas() -> None:
    config = robustness.SCALES["smoke"]
    layer, x, labels, _ = robustness._small(config)
    results = robustness.run(config, RunContext())
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


def test_our_radii_lie_between_the_papers_and_the_attacks() -> None:
    config = robustness.SCALES["smoke"]
    results = robustness.run(config, RunContext())
    ours = results["ours"]
    assert ours["images"] == ours["correct"] == config.ours
    assert ours["violations"] == 0
    assert ours["paper_radii"] == results["radii"][: config.ours]
    table = np.array([ours["paper_radii"], ours["radii"], ours["attack_radii"]])
    assert (np.diff(table, axis=0) >= 0).all()
    assert ours["over_paper"]["0.5"] == pytest.approx(np.median(table[1] / table[0]), rel=1e-4)
    assert ours["over_attack"]["0.5"] == pytest.approx(np.median(table[1] / table[2]), rel=1e-4)
    for name, eps in (("1_255", 1 / 255), ("2_255", 2 / 255), ("4_255", 4 / 255)):
        assert ours["certified"][name] == pytest.approx(100 * np.mean(table[1] >= eps))
        assert ours["attacked"][name] == pytest.approx(100 * np.mean(table[2] > eps))


def test_shares_are_of_all_images_and_violations_are_counted() -> None:
    paper = torch.tensor([1e-6, 1e-6, 2e-6], dtype=torch.float64)
    ours = torch.tensor([5e-3, 9e-3, 1e-6], dtype=torch.float64)
    attacked = torch.tensor([6e-3, 8e-3, 2e-2], dtype=torch.float64)
    found = robustness._compared(10, paper, ours, attacked)
    assert found["certified"] == {"1_255": 20.0, "2_255": 10.0, "4_255": 0.0}
    assert found["attacked"] == {"1_255": 30.0, "2_255": 20.0, "4_255": 10.0}
    assert found["violations"] == 2  # one above the attack, one below the paper


def flat(value: object, name: str = "") -> dict[str, object]:
    """Every number and word of nested results, by its place."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = dict(enumerate(value)).items()
    else:
        return {name: value}
    return {key: leaf for k, v in items for key, leaf in flat(v, f"{name}.{k}").items()}


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robustness, "_CHUNK", 5)
    config = robustness.SCALES["smoke"]
    context = RunContext(checkpoints=tmp_path)
    whole = robustness.run(config, context)
    kept = tmp_path / "ours" / "radii.json"
    pairs = json.loads(kept.read_text())
    kept.write_text(json.dumps(pairs[:10]))
    asked = []

    def watched(layer: MLayer, x: torch.Tensor, labels: torch.Tensor) -> Attack:
        asked.append(len(x))
        return attack(layer, x, labels)

    monkeypatch.setattr(robustness, "attack", watched)
    monkeypatch.setattr(Certifier, "save", None)  # constants are read, not fitted again
    resumed = robustness.run(config, context)
    # Two batches of five are not one of ten to the last bit, on some machines.
    assert flat(resumed) == pytest.approx(flat(whole), rel=1e-6, nan_ok=True)
    assert asked == [5, 5]


def test_smoke_run_writes_results_and_picture(tmp_path: Path) -> None:
    record = reproduce("robustness", "smoke", out=tmp_path)
    assert record["headline"]["robustness.paper_median_radius"] > 0
    assert (tmp_path / "robustness.smoke.png").stat().st_size > 5000


def test_a_missing_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        MissingDataError, match=r"cifar10_model\.npy is not in.*Get it from https.*--download"
    ):
        robustness.run(robustness.SCALES["default"], RunContext(data=tmp_path))
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"No data folder is given"):
        robustness.run(robustness.SCALES["default"], RunContext())


@pytest.mark.slow
def test_the_released_model_has_the_papers_constants() -> None:
    folder = Path(os.environ.get("MLAYER_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not (folder / AUTHORS_MODEL.name).is_file():
        pytest.skip(f"no {AUTHORS_MODEL.name} in {folder}")
    results = robustness.run(robustness.Config(images=300, ours=20, fit_steps=20), RunContext(data=folder))
    assert torch.isfinite(torch.tensor(results["radii"])).all()
    assert results["delta_in"] == pytest.approx(213.598, abs=1e-3)
    assert results["readout_norm"] == pytest.approx(3.153, abs=1e-3)
    assert 3e-6 < results["radius"]["0.5"] < 1.2e-5
    assert results["ours"]["violations"] == 0
    assert results["ours"]["over_paper"]["0.5"] > 500
