"""Certified training: layers of degree two, the robust loss, accuracies against enumerated corners."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mlayer.certificates import Certifier, attack
from mlayer.certificates.problem import constants
from mlayer.certificates.problem.coordinates import whiten
from mlayer.datasets import Split, digits
from mlayer.errors import FileFormatError
from mlayer.experiments import certified, reproduce
from mlayer.experiments.certified import EXPECTED, TASKS, CertifiedTask
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared import robust_accuracy
from mlayer.experiments.shared.kept_network import certify_again
from mlayer.experiments.shared.robust_accuracy import certified_in_box, tally_of, withstands
from mlayer.experiments.shared.robust_loss import (
    PixelModel,
    RobustCrossEntropy,
    box_of,
    last_corner,
    worst_of_way,
)
from mlayer.experiments.shared.robust_training import RobustRecipe, _plain, train_robustly
from mlayer.files.network_file import save_network
from mlayer.nn import BlockTriangular, MLayer
from mlayer.training import Settings, train

BLOCKS = (2, 3, 2)
INPUTS, CLASSES = 5, 3
EPS = 0.15


def degree_two(seed: int = 0, size: float = 4.0) -> MLayer:
    generator = torch.Generator().manual_seed(seed)
    layer = MLayer(
        INPUTS, CLASSES, 7, 4, structure=BlockTriangular(BLOCKS), init="balanced", generator=generator
    )
    with torch.no_grad():
        layer.free_generators.mul_(size)
        layer.readout.mul_(size)
    return layer


def pictures(count: int, seed: int = 0) -> Tensor:
    """Images with black and white pixels among them, whose boxes are cut."""
    generator = torch.Generator().manual_seed(seed)
    return (1.4 * torch.rand(count, INPUTS, generator=generator) - 0.2).clamp(0, 1)


def corners(x: Tensor) -> Tensor:
    """(rows, 2^m, m)"""
    low, high = (x - EPS).clamp(min=0), (x + EPS).clamp(max=1)
    choices = torch.tensor(list(itertools.product([0.0, 1.0], repeat=x.shape[1])), dtype=x.dtype)
    return low[:, None] + choices * (high - low)[:, None]


def test_three_blocks_give_a_quadratic_function() -> None:
    layer = degree_two()
    x = pictures(6)
    M = layer.matrix(x)
    torch.testing.assert_close(torch.linalg.matrix_exp(M), torch.eye(7) + M + M @ M / 2)
    along = layer(x[0] + torch.linspace(-3, 3, 7)[:, None] * (x[1] - x[0])).double()
    third = along[3:] - 3 * along[2:-1] + 3 * along[1:-2] - along[:-3]
    assert float(third.abs().max().detach()) < 1e-4 * float(along.abs().max().detach())


def test_an_expansion_that_ends_makes_certificates_tight() -> None:
    layer, x = degree_two(size=5.0).with_structure("full"), pictures(8).double()
    with torch.no_grad():
        labels = layer(x.float()).argmax(1)
    found = Certifier(layer, fit_steps=0)(x, labels, method="second_order").radius
    broken = attack(layer, x, labels).radius
    with torch.no_grad():  # one entry back to the first block, and the expansion no longer ends
        layer.free_generators[0, -1, 0] = 1e-6
    endless = Certifier(layer, fit_steps=0)(x, labels, method="second_order").radius
    assert bool((endless < found).all())
    assert bool((found <= broken).all())
    assert float((broken - found).sum()) < 0.25 * float((broken - endless).sum())


@pytest.mark.parametrize("find", [last_corner, worst_of_way])
def test_the_corner_found_of_a_linear_model_is_the_worst_of_all(find: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(3)
    body = nn.Linear(INPUTS, 2)
    with torch.no_grad():
        body.weight.copy_(torch.randn(2, INPUTS, generator=generator))
    model = PixelModel(body, torch.full((INPUTS,), 0.3), torch.full((INPUTS,), 0.5))
    x, y = pictures(20), torch.arange(20) % 2
    found = find(model, y, *box_of(x, EPS), steps=1)
    assert bool(((found - x).abs() <= EPS + 1e-6).all())
    assert bool(((found >= 0) & (found <= 1)).all())
    with torch.no_grad():
        losses = cross_entropy(model(found), y, reduction="none")
        everywhere = model(corners(x).flatten(0, 1))
        worst = (
            cross_entropy(everywhere, y.repeat_interleave(2**INPUTS), reduction="none").view(20, -1).amax(1)
        )
    torch.testing.assert_close(losses, worst)


def test_the_worst_point_of_the_way() -> None:
    """It is one of the points that the other attack ends at after so many steps, and no other is worse."""
    torch.manual_seed(0)
    model = PixelModel(MLayer(INPUTS, 3, matrix_size=4, embedding_size=None), *torch.ones(2, INPUTS) / 8)
    x, y = pictures(40), torch.arange(40) % 3
    low, high = box_of(x, 0.5)

    def loss(point: Tensor) -> Tensor:
        with torch.no_grad():
            return cross_entropy(model(point), y, reduction="none")

    way = torch.stack([loss(last_corner(model, y, low, high, steps)) for steps in range(4)])
    torch.testing.assert_close(loss(worst_of_way(model, y, low, high, 3)), way.amax(0))
    assert len(set(way.argmax(0).tolist())) > 1  # not always the last


def test_the_model_standardizes_and_its_plain_form_does_not_need_to() -> None:
    mean, deviation = torch.linspace(0.1, 0.5, INPUTS), torch.linspace(0.5, 2.0, INPUTS)
    x = pictures(10)
    for body in (degree_two(), nn.Linear(INPUTS, CLASSES)):
        model = PixelModel(body, mean, deviation)
        expected = model(x).detach()
        torch.testing.assert_close(expected, body((x - mean) / deviation))
        torch.testing.assert_close(expected, model.unwatched(x))
        torch.testing.assert_close(_plain(body, mean, deviation)(x), expected, rtol=1e-4, atol=1e-4)


def test_the_loss_ramps_up_and_counts_in_the_state() -> None:
    model = PixelModel(degree_two(), torch.zeros(INPUTS), torch.ones(INPUTS))
    x, y = pictures(30), torch.arange(30) % CLASSES
    loss = RobustCrossEntropy(EPS, steps=2, ramp=4)
    plain = cross_entropy(model(x), y, reduction="none")
    means = [loss(model, x, y)[1].mean() for _ in range(6)]
    torch.testing.assert_close(means[0], plain.mean())  # eps is 0 at first
    assert all(bool(a < b) for a, b in itertools.pairwise(means[:5]))
    torch.testing.assert_close(means[4], means[5])
    assert int(model.state_dict()["batches"]) == 6
    model.eval()
    torch.testing.assert_close(loss(model, x, y)[1], plain)
    assert int(model.batches) == 6


def test_a_stopped_training_goes_on_with_its_ramp(tmp_path: Path) -> None:
    x, y = pictures(64), torch.arange(64) % CLASSES
    settings = Settings(
        epochs=4, batch_size=16, loss=RobustCrossEntropy(EPS, ramp=12), learning_rate=0.01, restore_best=False
    )

    def fresh() -> PixelModel:
        return PixelModel(degree_two(), torch.zeros(INPUTS), torch.ones(INPUTS))

    whole, halves = fresh(), fresh()
    train(whole, (x, y), settings)
    train(fresh(), (x, y), replace(settings, epochs=2), checkpoint=tmp_path)
    train(halves, (x, y), settings, checkpoint=tmp_path)
    assert int(halves.batches) == 16
    for a, b in zip(whole.state_dict().values(), halves.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("recipe", [task.recipe for task in TASKS], ids=[task.name for task in TASKS])
def test_every_recipe_lowers_the_robust_loss_with_its_optimizer(recipe: RobustRecipe) -> None:
    """Options of SGD are not given to another optimizer; settings that the recipe leaves out are None."""
    x, y = pictures(64), (pictures(64)[:, 0] > 0.5).long()
    settings = replace(recipe, epochs=12, batch_size=16, ramp=0.0).settings(64, 0.05, seed=0)
    assert settings.optimizer == recipe.optimizer
    assert ("nesterov" in settings.optimizer_options) is (recipe.optimizer == "sgd")
    rate = 0.003 if recipe.optimizer == "muon" else 0.02
    model = PixelModel(degree_two(), torch.zeros(INPUTS), torch.ones(INPUTS))
    result = train(model, (x, y), replace(settings, learning_rate=rate))
    assert result.history[-1]["loss"] < 0.8 * result.history[0]["loss"]


def test_the_attack_and_the_certificates_bracket_the_corners() -> None:
    layer = degree_two().with_structure("full")
    x = pictures(60)
    with torch.no_grad():
        y = layer(x).argmax(1)
        at_corners = (layer(corners(x)).argmax(-1) == y[:, None]).all(1)
        low, high = box_of(x, EPS)
        at_middle = layer((low + high) / 2).argmax(1) == y
    found = withstands(layer, x, y, EPS)
    assert bool((found | ~(at_corners & at_middle)).all())  # what it breaks is broken
    assert float((found == (at_corners & at_middle)).float().mean()) > 0.95  # and it breaks nearly all of it
    proved = certified_in_box(Certifier(layer, box=(0, 1), fit_steps=0), x.double(), y, EPS)
    assert 0 < int(proved.sum()) < len(x)
    assert bool((found | ~proved).all())
    generator = torch.Generator().manual_seed(0)
    low, high = box_of(x.double(), EPS)
    inside = (
        low[:, None] + torch.rand(len(x), 200, INPUTS, generator=generator).double() * (high - low)[:, None]
    )
    with torch.no_grad():
        same = (layer.double()(inside).argmax(-1) == y[:, None]).all(1)
    assert bool((same | ~proved).all())
    assert bool((at_corners | ~proved).all())
    assert int(proved.sum()) >= 0.9 * int(found.sum())


def some_split(count: int) -> Split:
    pixels = (255 * pictures(count, seed=9)).round().to(torch.uint8)
    return Split(pixels, torch.arange(count) % CLASSES)


def test_a_linear_tally_is_that_of_all_corners() -> None:
    generator = torch.Generator().manual_seed(4)
    model = nn.Linear(INPUTS, CLASSES)
    with torch.no_grad():
        model.weight.copy_(torch.randn(CLASSES, INPUTS, generator=generator))
    images = some_split(300)
    found = tally_of(model, images, EPS, images.images(), fit_steps=0)
    x, y = images.images(), images.labels
    with torch.no_grad():
        robust = (model(corners(x)).argmax(-1) == y[:, None]).all(1)
        clean = model(x).argmax(1) == y
    assert found.images == 300
    assert found.clean == int(clean.sum())
    assert found.attacked == found.certified == int(robust.sum()) > 0


def test_a_tally_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robust_accuracy, "_CHUNK", 10)
    layer, images = degree_two().with_structure("full"), some_split(25)
    whole = tally_of(layer, images, EPS, images.images(), fit_steps=0)
    assert whole.images == 25
    assert 0 < whole.certified <= whole.attacked <= whole.clean < 25
    seen: list[float] = []
    first = tally_of(layer, images, EPS, images.images(), fit_steps=0, folder=tmp_path, progress=seen.append)
    assert first == whole
    assert seen == [0.4, 0.8, 1.0]
    kept = json.loads((tmp_path / "tally.json").read_text())
    (tmp_path / "tally.json").write_text(json.dumps(kept[:2]))
    again = tally_of(layer, images, EPS, images.images(), fit_steps=0, folder=tmp_path, progress=seen.append)
    assert again == whole
    assert seen == [0.4, 0.8, 1.0, 1.0]


def test_a_tally_computes_the_constants_of_the_certificates_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counted(*arguments: Any) -> Any:
        computed.append(len(arguments[0]))
        return whiten(*arguments)

    monkeypatch.setattr(constants, "whiten", counted)
    monkeypatch.setattr(robust_accuracy, "_CHUNK", 10)
    layer, images = degree_two().with_structure("full"), some_split(25)
    for resumed in range(2):
        tally_of(layer, images, EPS, images.images(), fit_steps=0, folder=tmp_path)
        assert len(computed) == resumed + 1
        (tmp_path / "tally.json").unlink()


def test_boxes_of_a_tiny_radius_are_covered() -> None:
    """The ends of the box are rounded by more than the radius is: the certified region holds them."""
    regions: list[tuple[Any, Any, float]] = []

    class Recorder:
        def __call__(self, x: torch.Tensor, labels: torch.Tensor, *, eps: float, box: Any) -> Any:
            regions.append((x, box, eps))
            return SimpleNamespace(certified=labels > -1)

    random = torch.rand(50, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = 0.5 + 1e-13 * (random - 0.5)  # the two ends are rounded to different units
    certified_in_box(cast(Certifier, Recorder()), x, torch.zeros(50, dtype=torch.int64), 1e-13)
    ((middle, (low, high), eps),) = regions
    for center, a, b, at in zip(*(t.flatten().tolist() for t in (middle, low, high, x)), strict=True):
        wide = Fraction(eps)
        assert max(Fraction(0), Fraction(at) - Fraction(1e-13)) >= max(Fraction(center) - wide, Fraction(a))
        assert min(Fraction(1), Fraction(at) + Fraction(1e-13)) <= min(Fraction(center) + wide, Fraction(b))


def test_one_training_on_digits(tmp_path: Path) -> None:
    recipe = RobustRecipe(
        (3, 4, 3), 12, epochs=12, attack_steps=2, ramp=0.3, batch_size=32, gradient_clip=2.0
    )
    context = RunContext(checkpoints=tmp_path / "checkpoints", parts=tmp_path / "parts")
    images = digits()
    train = partial(
        train_robustly, images=images, recipe=recipe, eps=0.05, seed=0, context=context, test_images=60
    )
    row = context.part("part", train)
    assert row["test_images"] == 60
    assert 60 < row["certified"] <= row["attacked"] <= row["clean"] <= 100
    assert row["certified"] < row["clean"]
    assert row["losses"][-1] < row["losses"][0]
    assert row["parameters"] == 64 * 12 + 12 + 13 * (3 * 4 + 3 * 3 + 4 * 3) + 10 * 100 + 10
    assert context.part("part", train) == row


def test_tasks() -> None:
    assert CertifiedTask("cifar10", "2/255", TASKS[0].recipe).eps == 2 / 255
    assert CertifiedTask("mnist", "0.3", TASKS[0].recipe).eps == 0.3
    assert set(EXPECTED) == {task.name for task in TASKS if task.set != "digits"}


def test_a_set_that_is_missing_is_left_out_and_named(tmp_path: Path) -> None:
    config = replace(certified.SCALES["default"], tasks=TASKS[1:2])
    results = certified.run(config, RunContext(data=tmp_path))
    assert results["rows"] == []
    assert "mnist" in results["left_out"]["mnist_0.1"].lower()


def test_smoke_run_writes_results_and_picture(tmp_path: Path) -> None:
    record = reproduce("certified", "smoke", out=tmp_path)
    start = "certified.digits_0.05"
    figures = record["headline"]
    assert figures[f"{start}.certified"] <= figures[f"{start}.attacked"] <= figures[f"{start}.clean"]
    assert figures[f"{start}.linear.certified"] == figures[f"{start}.linear.attacked"]
    assert (tmp_path / "certified.smoke.png").stat().st_size > 5000
    (kept,) = (tmp_path / "models.smoke").iterdir()
    again = certify_again(kept, images=40)
    assert again["certified"] <= again["attacked"] <= again["clean"]
    assert again["test_images"] == 40
    assert (again["set"], again["eps"]) == ("digits", 0.05)
    assert abs(again["clean"] - figures[f"{start}.clean"]) < 30  # of 40 images each, mostly others


def test_a_kept_layer_must_fit_its_images(tmp_path: Path) -> None:
    file = tmp_path / "layer.safetensors"
    save_network(nn.Sequential(MLayer(63, 10, 3, 2)), file, {"set": "digits", "eps": 0.1})
    with pytest.raises(FileFormatError, match="an M-layer from 64 pixels to 10 classes"):
        certify_again(file)


@pytest.mark.parametrize("front", [[], [nn.Flatten(), nn.Linear(64, 4)]], ids=["layer", "network"])
def test_kept_in_double_precision(front: list[nn.Module], tmp_path: Path) -> None:
    file, random = tmp_path / "layer.safetensors", torch.Generator().manual_seed(0)
    network = nn.Sequential(*front, MLayer(4 if front else 64, 10, 3, 2))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=random))
    found = []
    for kept in (network, network.double()):
        save_network(kept, file, {"set": "digits", "eps": 0.01})
        found.append(certify_again(file, images=20))
    assert found[0] == found[1]
    assert found[0]["test_images"] == 20
