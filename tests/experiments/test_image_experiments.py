"""Images: augmentation against numpy, recipes, one training, the table."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from mlayer.datasets import digits
from mlayer.experiments import images, reproduce, rivals
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.running.records import read_part, write_part
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.equal_nets import LARGE, NETS, build_net
from mlayer.experiments.shared.image_augmentation import Augment, Augmentation
from mlayer.experiments.shared.image_recipes import NOTEBOOK, PAPER, RECIPES, ImageRecipe
from mlayer.experiments.shared.image_training import fold_in, layer_builder, split, train_images
from mlayer.experiments.shared.over_seeds import best_rate
from mlayer.nn import MLayer
from mlayer.training import Settings

Array = np.ndarray[Any, np.dtype[Any]]
SHAPE = (6, 5, 3)
MEAN, DEVIATION = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.25, 2.0])


def pictures(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, *SHAPE), generator=generator, dtype=torch.uint8)


def augmented(how: Augmentation, pixels: torch.Tensor, seed: int = 0) -> Array:
    augment = Augment(how, SHAPE, MEAN, DEVIATION)
    return augment(how.widened(pixels), torch.Generator().manual_seed(seed)).view(-1, *SHAPE).numpy()


def standardized(pixels: Array) -> Array:
    return (pixels / 255 - MEAN.numpy()) / DEVIATION.numpy()


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_every_image_is_a_window_of_itself_and_every_window_occurs(shift: int, flip: bool) -> None:
    pixels = pictures(900)
    found = augmented(Augmentation(shift=shift, flip=flip), pixels)
    border = ((0, 0), (shift, shift), (shift, shift), (0, 0))
    wide = np.pad(pixels.numpy(), border, mode="edge")
    seen = set()
    matched = np.zeros(len(pixels), dtype=int)
    for up in range(2 * shift + 1):
        for left in range(2 * shift + 1):
            window = standardized(wide[:, up : up + SHAPE[0], left : left + SHAPE[1]])
            for turned in (False, True) if flip else (False,):
                same = np.isclose(found, window[:, :, ::-1] if turned else window, atol=1e-5).all((1, 2, 3))
                matched += same
                if same.any():
                    seen.add((up, left, turned))
    assert (matched == 1).all()
    assert len(seen) == (2 * shift + 1) ** 2 * (2 if flip else 1)


def test_augmentation_leaves_its_argument_alone_and_follows_the_generator() -> None:
    pixels = pictures(20)
    how = Augmentation(shift=2, flip=True, cutout=3, distortion=0.1, recoloring=0.1)
    wide = how.widened(pixels)
    kept = wide.clone()
    first = augmented(how, pixels, seed=5)
    Augment(how, SHAPE, MEAN, DEVIATION)(wide, torch.Generator().manual_seed(5))
    assert torch.equal(wide, kept)
    assert np.array_equal(first, augmented(how, pixels, seed=5))
    assert not np.array_equal(first, augmented(how, pixels, seed=6))


def test_cutout_sets_a_square_to_the_mean() -> None:
    pixels = pictures(400)
    pixels[pixels == 0] = 1
    found = augmented(Augmentation(cutout=3), pixels)
    before = standardized(pixels.numpy())
    sizes = set()
    for image, plain in zip(found, before, strict=True):
        rows, columns = np.nonzero((image == 0).all(-1))
        height, width = int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1
        assert len(rows) == height * width  # a full rectangle
        sizes.add((int(height), int(width)))
        outside = np.ones(SHAPE[:2], dtype=bool)
        outside[rows, columns] = False
        np.testing.assert_allclose(image[outside], plain[outside], atol=1e-5)
    assert max(sizes) == (3, 3)
    assert min(sizes) == (2, 2)  # at a corner


def test_distortion_reads_the_image_on_a_turned_and_stretched_grid() -> None:
    """Interpolated by SciPy, which repeats the border too."""
    most, pixels = 0.4, pictures(20)
    found = augmented(Augmentation(distortion=most), pixels)
    draws = most * (2 * torch.rand(3, len(pixels), generator=torch.Generator().manual_seed(0)).double() - 1)
    height, width = SHAPE[:2]
    # From the middle of the image, in units of half its height and width.
    down, right = np.meshgrid(
        (2 * np.arange(height) + 1) / height - 1, (2 * np.arange(width) + 1) / width - 1
    )
    for image, plain, (angle, tall, wide) in zip(
        found, pixels.double().numpy(), draws.T.tolist(), strict=True
    ):
        x = math.exp(wide) * (math.cos(angle) * right - math.sin(angle) * down)
        y = math.exp(tall) * (math.sin(angle) * right + math.cos(angle) * down)
        places = ((y.T + 1) * height - 1) / 2, ((x.T + 1) * width - 1) / 2
        read = [map_coordinates(plain[..., c], places, order=1, mode="nearest") for c in range(SHAPE[2])]
        np.testing.assert_allclose(image, standardized(np.stack(read, -1)), atol=2e-4)


def test_recoloring_changes_contrast_and_mean_color_within_its_range() -> None:
    most, pixels = 0.5, pictures(200)
    found = augmented(Augmentation(recoloring=most), pixels) * DEVIATION.numpy() + MEAN.numpy()
    assert found.min() >= -1e-5
    assert found.max() <= 1 + 1e-5
    factors, shifts = [], []
    for image, plain in zip(found, pixels.numpy() / 255, strict=True):
        inside = ((image > 1e-3) & (image < 1 - 1e-3)).reshape(-1, SHAPE[2])
        colors = np.tile(np.eye(SHAPE[2]), (len(inside), 1))
        centered = (plain - plain.mean()).reshape(-1, 1)
        system = np.concatenate([centered, colors], 1)[inside.reshape(-1)]
        wanted = (image.reshape(-1, 1) - plain.mean())[inside.reshape(-1), 0]
        solved, *_ = np.linalg.lstsq(system, wanted, rcond=None)
        np.testing.assert_allclose(system @ solved, wanted, atol=1e-5)  # one factor and three shifts say all
        factors.append(math.log(solved[0]))
        shifts.extend(solved[1:])
    for values, end in ((factors, most), (shifts, 0.3 * most)):
        assert 0.9 * end < max(values) <= end * 1.001
        assert -0.9 * end > min(values) >= -end * 1.001


def test_white_is_the_sets_own() -> None:
    augment = Augment(Augmentation(), (1, 1, 1), torch.zeros(1), torch.ones(1), white=16)
    assert augment(torch.tensor([[4]], dtype=torch.uint8), torch.Generator()).item() == 0.25


def test_folding_in_the_standardization_leaves_the_function() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = MLayer(12, 3, 4, 5, generator=generator, dtype=torch.float64)
    x = torch.rand(7, 12, generator=generator, dtype=torch.float64)
    mean, deviation = x.mean(0), x.std(0) + 0.1
    before = layer((x - mean) / deviation)
    fold_in(layer, mean, deviation)
    torch.testing.assert_close(layer(x), before, rtol=1e-12, atol=1e-12)


def test_split_parts_are_disjoint_and_follow_the_seed() -> None:
    whole = digits().train
    marked = replace(whole, labels=torch.arange(len(whole)))
    a, b = split(marked, 0.1, torch.Generator().manual_seed(3))
    assert b is not None
    assert len(b) == 144
    assert sorted(torch.cat([a.labels, b.labels]).tolist()) == list(range(len(whole)))
    again, _ = split(marked, 0.1, torch.Generator().manual_seed(3))
    other, _ = split(marked, 0.1, torch.Generator().manual_seed(4))
    assert torch.equal(a.labels, again.labels)
    assert not torch.equal(a.labels, other.labels)
    everything, nothing = split(marked, 0.0, torch.Generator())
    assert nothing is None
    assert len(everything) == len(whole)


@pytest.mark.parametrize(("inputs", "count"), [(784, 68_885), (3072, 148_965)])
def test_parameter_counts_are_the_papers(inputs: int, count: int) -> None:
    assert parameter_count(MLayer(inputs, 10, 30, 35)) == count


def test_the_texts_recipe_is_the_texts() -> None:
    text = PAPER.settings
    assert (text.learning_rate, text.batch_size, text.epochs) == (1e-3, 32, 150)
    assert text.optimizer_options == {"momentum": 0.9}
    assert text.plateau is not None
    assert (text.plateau.factor, text.plateau.patience, text.early_stopping) == (0.2, 5, 15)
    assert (text.activity_penalty, text.activity_kind, PAPER.init) == (1e-4, "frobenius", "normal")
    notebook = NOTEBOOK.settings
    assert (notebook.activity_penalty, notebook.activity_kind, NOTEBOOK.init) == (1e-3, "l1", "notebook")
    assert all(set(recipes) >= {"paper_recipe", "our_recipe"} for recipes in RECIPES.values())


QUICK = ImageRecipe(
    Settings(
        epochs=40,
        loss="cross_entropy",
        optimizer="adam",
        learning_rate=3e-3,
        schedule="cosine",
        metrics=("accuracy",),
        monitor="accuracy",
    ),
    init="notebook",
    standardize=True,
    augmentation=Augmentation(shift=1),
)


def test_a_recipe_learns_and_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    context = RunContext(checkpoints=tmp_path / "checkpoints", parts=tmp_path)
    row = train_images(digits(), QUICK, 0, context, "part", build=layer_builder(6, 8))
    assert row["test_accuracy"] > 85
    assert row["training_examples"] == 1293
    assert read_part(tmp_path / "part.json") == row
    write_part(tmp_path / "part.json", row | {"test_accuracy": 1.5})
    assert train_images(digits(), QUICK, 0, context, "part", build=layer_builder())["test_accuracy"] == 1.5


def test_without_a_validation_set_all_examples_are_trained_on(tmp_path: Path) -> None:
    recipe = replace(
        QUICK,
        validation=0.0,
        settings=replace(QUICK.settings, epochs=1, metrics=(), monitor="loss", restore_best=False),
    )
    row = train_images(digits(), recipe, 0, RunContext(), "part", build=layer_builder(3, 4))
    assert row["training_examples"] == 1437
    assert row["validation_accuracy"] is None


def test_headline_is_mean_and_sample_deviation() -> None:
    rows = [{"set": "mnist", "recipe": "our_recipe", "test_accuracy": value} for value in (98.0, 98.5, 99.0)]
    rows.append({"set": "svhn", "recipe": "paper_recipe", "test_accuracy": 81.0})
    assert images.headline({"trainings": rows}) == {
        "images.mnist.our_recipe.mean": 98.5,
        "images.mnist.our_recipe.sd": 0.5,
        "images.mnist.our_recipe.seeds": 3,
        "images.svhn.paper_recipe.mean": 81.0,
        "images.svhn.paper_recipe.seeds": 1,
    }


def test_smoke_run_writes_results_and_picture(tmp_path: Path) -> None:
    record = reproduce("images", "smoke", out=tmp_path)
    assert record["headline"]["images.digits.our_recipe.seeds"] == 1
    assert (Path(tmp_path) / "images.smoke.png").stat().st_size > 5000
    assert {row["parameters"] for row in record["results"]["trainings"]} == {8 * 65 + 8 * 36 + 36 + 360 + 10}


def test_the_first_seed_of_all_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[str, ImageRecipe, int]] = []
    kept: list[int] = []

    def quick(
        images_: Any, recipe: Any, seed: int, context: RunContext, part: str, *, build: Any
    ) -> dict[str, Any]:
        trained.append((images_, recipe, seed))
        return {"set": images_, "seed": seed}

    monkeypatch.setattr(images, "train_images", quick)
    monkeypatch.setattr(images, "load_images", lambda name, data: name)
    config = images.Config(
        seed=7,
        seeds={"a": {"x": 2, "y": 1}, "b": {"y": 1}},
        recipes={"a": {"x": PAPER, "y": NOTEBOOK}, "b": {"y": QUICK}},
    )
    images.run(config, RunContext(keeper=lambda results: kept.append(len(results["trainings"]))))
    assert trained == [("a", PAPER, 7), ("a", NOTEBOOK, 7), ("b", QUICK, 7), ("a", PAPER, 8)]
    assert kept == [1, 2, 3, 4]


def test_a_diverged_training_is_a_row_too() -> None:
    """The text's rate is too large for some seeds: the others of the table must not be lost with it."""
    assert PAPER.settings.on_divergence == NOTEBOOK.settings.on_divergence == "stop"
    recipe = replace(PAPER, settings=replace(PAPER.settings, learning_rate=1e6, epochs=2))
    row = train_images(digits(), recipe, 0, RunContext(), "part", build=layer_builder(3, 4))
    assert row["stopped"] == "diverged"
    assert "norm of M" in row["message"]
    assert 0 <= row["test_accuracy"] <= 100


@pytest.mark.parametrize("net", ["ReLU", "maxout", "linear"])
def test_standardizing_is_folded_into_dense_nets(net: str) -> None:
    made = build_net(net, "digits")(64, 10, "notebook", torch.Generator().manual_seed(0))
    x = torch.rand(20, 64)
    mean, deviation = torch.rand(64), 0.5 + torch.rand(64)
    before = made((x - mean) / deviation)
    fold_in(made, mean, deviation)
    torch.testing.assert_close(made(x), before, rtol=1e-4, atol=1e-5)


def test_rivals_share_everything_but_the_net_and_its_penalty() -> None:
    config = rivals.Config()
    ours, theirs = (rivals._recipe("cifar10", net, True, 0.1, config) for net in ("M-layer", "ReLU"))
    assert ours.settings.activity_penalty > 0
    assert replace(ours, settings=replace(ours.settings, activity_penalty=0.0)) == theirs
    assert ours.settings.learning_rate == 0.1
    plain = rivals._recipe("cifar10", "ReLU", False, 0.1, config)
    assert plain.augmentation == Augmentation()


def test_the_rate_of_a_rival_is_the_best_of_its_own_search() -> None:
    search = [
        {"set": "a", "net": "ReLU", "augmented": True, "learning_rate": 0.1, "validation_accuracy": 50.0},
        {"set": "a", "net": "ReLU", "augmented": True, "learning_rate": 0.3, "validation_accuracy": None},
        {"set": "a", "net": "linear", "augmented": True, "learning_rate": 0.01, "validation_accuracy": 60.0},
        {"set": "b", "net": "ReLU", "augmented": True, "learning_rate": 0.03, "validation_accuracy": 70.0},
    ]
    assert best_rate(search, set="a", net="ReLU", augmented=True) == 0.1


def test_rivals_are_compared_seed_by_seed() -> None:
    """Against scipy's test of one sample of differences."""
    from scipy.stats import ttest_1samp

    ours, theirs = [60.1, 60.9, 61.0], [58.0, 58.5, 59.5]
    rows = [
        {"set": "a", "net": net, "augmented": True, "aside": 0.0, "seed": seed, "test_accuracy": value}
        for net, values in (("M-layer", ours), ("ReLU", [*theirs, 99.0]))
        for seed, value in enumerate(values)
    ]
    (row,) = rivals.differences({"trainings": rows})
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert row["seeds"] == 3  # the fourth seed has no partner
    assert row["difference"] == pytest.approx(sum(differences) / 3)
    assert row["p"] == pytest.approx(ttest_1samp(differences, 0.0).pvalue)


def test_rivals_smoke_run(tmp_path: Path) -> None:
    record = reproduce("rivals", "smoke", out=tmp_path)
    assert {row["net"] for row in record["results"]["search"]} == {*NETS, LARGE}
    assert record["headline"]["rivals.digits.ReLU.seeds"] == 2
    assert record["headline"]["rivals.digits.plain.ReLU.seeds"] == 1
