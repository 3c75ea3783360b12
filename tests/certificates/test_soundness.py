"""Every certificate is attacked: by our search, by PGD, by sampling and at the corners. No tolerance."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from certificate_layers import KINDS, random_layer
from mlayer import MLayer
from mlayer.certificates import Certificates, Certifier, attack
from mlayer.certificates.bounds import methods

METHODS = methods.names()  # a new bound is attacked too
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 7))]


def assert_unbroken(
    layer: MLayer,
    x: Tensor,
    labels: Tensor,
    found: Certificates,
    *,
    attacked: Tensor,
    box: bool,
    scale: Tensor,
) -> None:
    """No sampled point, corner or attack within the radius has a margin <= 0."""
    random = torch.Generator().manual_seed(1)
    assert bool((found.radius <= attacked).all())
    m = x.shape[1]
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=min(m, 6))), dtype=torch.float64)
    if m > 6:
        signs = torch.randint(0, 2, (64, m - 6), generator=random, dtype=torch.float64) * 2 - 1
        corners = torch.cat([corners, signs], 1)
    for row, label, radius in zip(x, labels.tolist(), found.radius.tolist(), strict=True):
        if radius == 0:
            continue
        size = min(radius, 10.0)
        points = torch.cat([corners, torch.rand(200, m, generator=random, dtype=torch.float64) * 2 - 1])
        if found.norm == "l2":
            points = points / points.norm(dim=1, keepdim=True)
        near = row + size * points * scale
        if box:
            near = near.clamp(0, 1)
        outputs = layer(near).detach()
        own = outputs[:, label].clone()
        outputs[:, label] = -torch.inf
        assert bool((own > outputs.max(1).values).all())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norm", ["linf", "l2", "boxed"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_certificate_is_broken(kind: str, norm: str, seed: int) -> None:
    layer, x, labels = random_layer(kind, 100 * KINDS.index(kind) + seed)
    box = norm == "boxed"
    random = torch.Generator().manual_seed(seed)
    scale = torch.rand(x.shape[1], generator=random, dtype=torch.float64) + 0.2
    if seed == 3:
        scale[0] = 0
    certifier = Certifier(
        layer, norm="l2" if norm == "l2" else "linf", scale=scale, box=(0, 1) if box else None, fit_steps=12
    )
    radii = {}
    # One attack for all methods: it knows nothing of them.
    attacked = attack(
        layer,
        x,
        labels,
        norm="l2" if norm == "l2" else "linf",
        box=(0, 1) if box else None,
        scale=scale,
        starts=3,
    ).radius
    for method in METHODS:
        found = certifier(x, labels, method=method)
        assert_unbroken(layer, x, labels, found, attacked=attacked, box=box, scale=scale)
        assert not bool(found.correct[-1]) or kind == "ties"
        radii[method] = found.radius
        asked = certifier(x, labels, method=method, eps=0.01)
        assert_unbroken(layer, x, labels, asked, attacked=attacked, box=box, scale=scale)
    assert bool((radii["best"] >= radii["first_order"] * (1 - 1e-3)).all())
    assert bool((radii["best"] >= radii["third_order"] * (1 - 1e-3)).all())


def test_zero_generators_give_infinite_radii() -> None:
    layer, x, labels = random_layer("zero", 3)
    found = Certifier(layer, fit_steps=5)(x, labels)
    assert bool(found.radius[found.correct].isinf().all())
    assert bool((found.radius[~found.correct] == 0).all())


def test_the_bracket_is_tight() -> None:
    """Soundness alone would be met by zeros."""
    ratios = []
    for seed in range(12):
        layer, x, labels = random_layer("full", seed)
        found = Certifier(layer, fit_steps=40)(x, labels)
        upper = attack(layer, x, labels).radius
        keep = found.correct & upper.isfinite() & (upper < 0.5)
        ratios += (found.radius[keep] / upper[keep]).tolist()
    assert len(ratios) > 10
    assert sorted(ratios)[len(ratios) // 2] > 0.6
