"""The authors' CIFAR-10 model: all methods' certificates against attack, points, corners and balls."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mlayer.certificates import Certifier, attack
from mlayer.certificates.bounds.methods import names
from mlayer.files import load_authors_model

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 6


@pytest.mark.slow
def test_no_certificate_of_the_real_model_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(os.environ.get("MLAYER_DATA", "/nowhere"))
    batch = data / "cifar-10-batches-bin/test_batch.bin"
    if not (batch.exists() and (data / "cifar10_model.npy").exists()):
        pytest.skip("needs the data: $MLAYER_DATA has not the model and CIFAR-10")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("certificates", None)
    from certificates import images, violations

    layer = load_authors_model(data / "cifar10_model.npy", dtype=torch.float64)
    x, y = images(batch, 200)
    correct = np.flatnonzero((layer(x).argmax(1) == y).numpy())[:IMAGES]
    x, y = x[correct], y[correct]
    certifier = Certifier(layer, fit_steps=60)
    upper = attack(layer, x, y).radius
    for method in names():
        radius = certifier(x, y, method=method).radius
        assert bool((radius > 0).all())
        assert bool((radius <= upper).all())
        for row, label, size in zip(x, y.tolist(), radius.tolist(), strict=True):
            assert violations(layer, row, label, size) == 0
