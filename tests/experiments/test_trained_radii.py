"""Radii of models trained here."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlayer.experiments import reproduce, trained_radii
from mlayer.experiments.running.protocol import RunContext


@pytest.mark.slow
def test_smoke_run_certifies_what_it_trained(tmp_path: Path) -> None:
    record = reproduce("trained_radii", "smoke", out=tmp_path)
    models = record["results"]["models"]
    assert [row["recipe"] for row in models] == ["notebook_recipe", "our_recipe"]
    for row in models:
        measured = row["robustness"]
        assert measured["images"] == 200
        assert measured["ours"]["violations"] == 0
        assert len(measured["radii"]) == round(measured["accuracy"] * 2)
    assert record["headline"]["trained_radii.our_recipe.6.violations"] == 0
    assert (tmp_path / "trained_radii.smoke.png").stat().st_size > 5000


def test_a_stopped_run_does_not_train_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = RunContext(checkpoints=tmp_path / "checkpoints", parts=tmp_path / "parts")
    config = trained_radii.SCALES["smoke"]
    whole = trained_radii.run(config, context)
    monkeypatch.setattr(trained_radii, "radii", None)
    assert trained_radii.run(config, context) == whole
