"""Certified training behind one layer of ReLUs: each term of the loss against what it is to bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlayer.errors import ArgumentError
from mlayer.experiments import certified_networks, reproduce
from mlayer.experiments.running import runner
from mlayer.experiments.shared.interval_loss import as_images
from mlayer.experiments.shared.pooled_network import pooled_network
from mlayer.experiments.shared.relaxed_loss import PooledModel, RelaxedCrossEntropy, _zonotope
from mlayer.nn import MLayer

SHAPE = (8, 7, 2)  # height, width, colors
EPS = 0.05


def made(head: str = "M-layer") -> PooledModel:
    generator = torch.Generator().manual_seed(0)
    network = pooled_network(
        (2, 8, 7),
        3,
        head,
        channels=5,
        patch=3,
        pool=(2, 1),
        matrix_size=4,
        embedding_size=6,
        generator=generator,
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return PooledModel(network, SHAPE, torch.tensor([0.4, 0.6]), torch.tensor([0.3, 0.2]))


def layer_of(model: PooledModel) -> MLayer:
    layer = model.network[-1]
    assert isinstance(layer, MLayer)
    return layer


def features(model: PooledModel, before: Tensor) -> Tensor:
    found: Tensor = model.network[1:-1](before)
    return found


def pictures(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, 112, generator=generator), torch.arange(count) % 3


def test_the_plain_network_takes_images_as_they_are() -> None:
    for head in ("M-layer", "linear"):
        model, (x, _) = made(head), pictures(9)
        before = model(x)
        torch.testing.assert_close(model.plain()(as_images(x, SHAPE)), before, rtol=1e-4, atol=1e-5)


def test_chords_are_the_most_that_planes_lose() -> None:
    """Weighed by gradients of either sign, against the largest distance on a fine grid."""
    model, (x, _) = made(), pictures(6)
    before = model.before(x).detach()
    weights = torch.randn(before.shape, generator=torch.Generator().manual_seed(2))
    found = RelaxedCrossEntropy(EPS)._of_chords(model, before, weights, EPS).detach()
    weight = model.network[0].get_parameter("weight").detach()
    reach = EPS * (weight.abs() / model.deviation).sum((1, 2, 3))[:, None, None]
    t = torch.linspace(-1, 1, 2001)
    h = before[..., None] + reach[..., None] * t
    low, high = h[..., :1], h[..., -1:]
    chord = torch.where(low >= 0, h, torch.where(high <= 0, 0 * h, (h - low) * high / (high - low)))
    above = (chord - h.relu()).amax(-1)
    below = torch.minimum(h.relu().amax(-1), (h.relu() - h).amax(-1))
    truth = (weights.abs() * torch.where(weights > 0, above, below)).flatten(1).sum(1)
    torch.testing.assert_close(found, truth, rtol=1e-2, atol=1e-4)
    assert float(found.min()) > 0
    still = RelaxedCrossEntropy(0.0)._of_chords(model, before, weights, 1e-9).detach()
    assert float(still.max()) < 1e-6


def test_features_move_within_the_zonotope_of_the_rest() -> None:
    model, (x, _) = made(), pictures(1)
    embedding = layer_of(model).embedding
    assert embedding is not None
    U = embedding.detach()
    before = model.before(x).detach()
    directions = _zonotope(model, U, before, EPS).detach()
    pixels = directions[:, :112]
    generator = torch.Generator().manual_seed(3)
    width = directions[:, 112:].abs().sum(1)
    centers = []
    for _ in range(200):
        t = torch.randint(0, 2, (112,), generator=generator) * 2.0 - 1
        z = features(model, model.before(x + EPS * t))[0] @ U.T
        centers.append(z - pixels @ as_images(t[None], SHAPE).flatten())
    spread = torch.stack(centers)
    assert bool(((spread.amax(0) - spread.amin(0)) <= 2 * width + 1e-4).all())
    assert float(width.max()) > 0


def test_the_rest_bounds_how_far_the_matrix_moves() -> None:
    model, (x, _) = made(), pictures(1)
    loss = RelaxedCrossEntropy(EPS)
    before = model.before(x).detach()
    layer = layer_of(model)
    assert layer.embedding is not None
    rest = float(loss._rest(model, before, EPS).detach())
    directions = _zonotope(model, layer.embedding, before, EPS).detach()
    t = torch.randint(0, 2, (500, directions.shape[1]), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        moves = ((2.0 * t - 1) @ directions.T) @ layer.generators.flatten(1)
        M = layer.matrix(features(model, before))[0]
        mu = torch.linalg.eigvalsh((M + M.T) / 2)[-1]
        S = layer.readout
        norm = sum(float(torch.linalg.matrix_norm(S[i] - S[i - 1], 2)) for i in range(3)) / 3
    q = float(moves.norm(dim=1).max())
    assert rest >= norm * float(mu.exp()) * q**3 / 6


@pytest.mark.parametrize("head", ["M-layer", "linear"])
def test_training_adds_terms_and_evaluation_attacks(head: str) -> None:
    model, (x, y) = made(head).train(), pictures(12)
    plain = RelaxedCrossEntropy(EPS, chords=0.0, rest=0.0)
    adversarial = plain(model, x, y)[1]
    assert bool(
        (adversarial > nn.functional.cross_entropy(model(x), y, reduction="none")).float().mean() > 0.9
    )
    chords = RelaxedCrossEntropy(EPS, rest=0.0)(model, x, y)[1]
    added = chords - adversarial
    assert bool((added[:3] > 0).all())
    assert not added[3:].any()  # exact: the losses of these images are the same sums
    model.batches.zero_()
    rest = RelaxedCrossEntropy(EPS, chords=0.0)(model, x, y)[1] - adversarial
    assert bool((rest > 0).all()) == (head == "M-layer")
    assert int(model.batches) == 1
    later = RelaxedCrossEntropy(EPS, chords=0.0)(model, x, y)[1]  # the second batch goes without
    torch.testing.assert_close(later, adversarial)
    (rest.sum() + chords.sum()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    ramped = RelaxedCrossEntropy(EPS, ramp=10)
    model.batches.zero_()
    assert float(ramped(model, x, y)[1].detach().mean()) < float(chords.detach().mean())
    model.eval()
    with torch.no_grad():
        outputs, losses = plain(model, x, y)
    torch.testing.assert_close(losses, adversarial.detach())
    assert outputs.shape == (12, 3)


def fake(part: str, **named: Any) -> dict[str, Any]:
    return {
        "model": named["head"],
        "seed": named["seed"],
        "clean": 3.0,
        "attacked": 2.0,
        "certified": 1.0,
        "test_images": 10,
        "part": part,
    }


def test_one_task_of_an_experiment_is_kept_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tuple(
        certified_networks.NetworkTask("digits", radius, certified_networks.DIGITS)
        for radius in ("0.1", "0.2")
    )
    config = certified_networks.Config(tasks=tasks, heads=("M-layer",))
    monkeypatch.setitem(certified_networks.SCALES, "default", config)
    monkeypatch.setattr(certified_networks, "train_network", fake)
    monkeypatch.setattr(runner, "write_picture", lambda *arguments: None)
    record = reproduce("certified_networks", out=tmp_path, tasks=["digits_0.2"], page=False)
    assert [row["task"] for row in record["results"]["rows"]] == ["digits_0.2"]
    assert not record["complete"]
    assert record["command"].endswith(" --task digits_0.2")
    made: list[str] = []

    def noted(part: str, **named: Any) -> dict[str, Any]:
        made.append(part)
        return fake(part, **named)

    monkeypatch.setattr(certified_networks, "train_network", noted)
    record = reproduce("certified_networks", out=tmp_path, tasks=["digits_0.1"], page=False)
    assert [row["task"] for row in record["results"]["rows"]] == ["digits_0.1", "digits_0.2"]
    assert made == ["digits_0.1-M-layer-0"]
    record = reproduce("certified_networks", out=tmp_path, page=False)
    assert record["complete"]
    assert len(made) == 1
    assert not (tmp_path / "parts").exists()
    with pytest.raises(
        ArgumentError, match=r"tasks must be tasks of certified_networks.*'nope'.*digits_0\.1"
    ):
        reproduce("certified_networks", out=tmp_path, tasks=["nope"])
    with pytest.raises(ArgumentError, match="spiral has no tasks"):
        reproduce("spiral", "smoke", out=tmp_path, tasks=["a"])
