"""The ablation of our image recipe, and dropout at its three places."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from mlayer.experiments import ingredients, reproduce
from mlayer.experiments.shared.dropout import PLACES, dropout_builder
from mlayer.experiments.shared.image_recipes import RECIPES
from mlayer.experiments.shared.image_training import fold_in, layer_builder


def _nets(place: str, rate: float) -> tuple[torch.nn.Module, torch.nn.Module]:
    plain, dropped = layer_builder(5, 7), dropout_builder(place, rate, 5, 7)
    one, two = (
        build(12, 3, "notebook", torch.Generator().manual_seed(4)).double() for build in (plain, dropped)
    )
    return one, two


@pytest.mark.parametrize("place", PLACES)
def test_evaluation_is_that_of_the_plain_layer(place: str) -> None:
    plain, dropped = _nets(place, 0.5)
    x = torch.rand(20, 12, dtype=torch.float64)
    torch.testing.assert_close(dropped.eval()(x), plain(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_training_drops(place: str) -> None:
    plain, dropped = _nets(place, 0.5)
    x = torch.rand(20, 12, dtype=torch.float64)
    torch.manual_seed(0)
    first, second = dropped(x), dropped(x)
    assert (first != plain(x)).all(1).any()
    assert (first != second).any()


def test_a_dropped_generator_is_a_dropped_feature() -> None:
    """M is B where every z_a is dropped, and B + sum_a u_a T_a where every input is dropped."""
    for place in ("generators", "inputs"):
        plain, dropped = _nets(place, 1.0)
        x = torch.rand(4, 12, dtype=torch.float64)
        with torch.no_grad():
            if place == "generators":
                plain.embedding.zero_()  # type: ignore[operator]
                plain.embedding_bias.zero_()  # type: ignore[operator]
        expected = plain(x if place == "generators" else torch.zeros_like(x))
        torch.testing.assert_close(dropped(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_standardizing_is_folded_in(place: str) -> None:
    _, net = _nets(place, 0.5)
    net.eval()
    x = torch.rand(20, 12, dtype=torch.float64)
    mean, deviation = torch.rand(12, dtype=torch.float64), 0.5 + torch.rand(12, dtype=torch.float64)
    before = net((x - mean) / deviation)
    fold_in(net, mean, deviation)
    torch.testing.assert_close(net(x), before, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("change", [name for name in ingredients.CHANGES if name != "as it is"])
def test_one_thing_is_left_out(change: str) -> None:
    whole = RECIPES["cifar10"]["our_recipe"]
    recipe, _ = ingredients._changed("cifar10", change, ingredients.Config())
    different = [
        field.name
        for of, other in ((whole, recipe), (whole.settings, recipe.settings))
        for field in fields(of)
        if field.name not in {"settings", "on_divergence"}
        and getattr(of, field.name) != getattr(other, field.name)
    ]
    assert len(different) == 1, different


def test_smoke_run(tmp_path: Path) -> None:
    record = reproduce("ingredients", "smoke", out=tmp_path)
    names = {row["change"] for row in record["results"]["trainings"]}
    assert names == {*ingredients.CHANGES, *ingredients.DROPOUT}
    assert record["headline"]["ingredients.digits.no augmentation.seeds"] == 2
    assert (tmp_path / "ingredients.smoke.png").stat().st_size > 5000
