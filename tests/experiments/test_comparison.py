"""The rows that compare the paper's figures with ours."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from mlayer.errors import MissingPackageError
from mlayer.experiments import EXPERIMENTS, baselines
from mlayer.experiments.images import EXPECTED
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.running.registry import all_rows, compare, experiment
from mlayer.experiments.shared.equal_nets import NETS, build_net

RESULTS = Path(__file__).parents[2] / "results"


def test_a_row_says_for_how_long_it_was_trained() -> None:
    figures = {
        "baselines.mnist.NODE.mean": 96.4,
        "baselines.mnist.NODE.seeds": 1.0,
        "baselines.mnist.NODE.epochs": 20.0,
    }
    assert compare(figures) == [
        ["MNIST, NODE, trained here, %", "96.40 ± 0.50", "96.40 (1 seed, 20 epochs)", ""]
    ]


def test_a_net_with_a_part_of_its_epochs_has_no_row() -> None:
    assert compare({"periodic.dnn_figure_rmse_min": 15.2, "periodic.dnn_epochs": 30.0}) == []
    assert compare({"periodic.dnn_figure_rmse_min": 15.2, "periodic.dnn_epochs": 300.0}) == [
        [
            "Periodic: root mean squared error on [2, 6], best of the DNNs",
            "a picture",
            "15.2 (300 epochs)",
            "",
        ]
    ]


def test_the_text_s_recipe_is_held_against_the_paper_s_spread() -> None:
    missed = compare({"images.svhn.paper_recipe.mean": 79.1})
    assert missed[0][3] == "≥ 80.96: missed"
    assert compare({"images.svhn.paper_recipe.mean": 81.0})[0][3] == "≥ 80.96: met"


def test_goals_are_on_every_row_of_a_kind_or_on_none() -> None:
    """A goal that only the rows that reach it have would say nothing."""
    kinds = {
        "recipes of the spirals": r"spiral\.(text_|notebook_)?extra_turn_accuracy",
        "recipes of Figure 3": r"periodic\.(text_)?figure_rmse_max",
        "recipes of determinants": r"determinant[35]\.(paper_recipe|best)_mse",
        "recipes of permanents": r"permanent[35]\.(paper_recipe|best)_mse.*",
        "recipes of images": r"images\..*",
        "rivals": r"(rivals|convolutional|ingredients|baselines)\..*",
        "certified": r"certified\..*\.certified",
        "clean": r"certified\..*\.clean",
        "certified networks": r"certified_networks\..*",
    }
    for kind, pattern in kinds.items():
        rows = [row for row in all_rows() if re.fullmatch(pattern, row.name)]
        assert len(rows) > 1, kind
        with_goal = [row.name for row in rows if row.at_most is not None or row.at_least is not None]
        assert len(with_goal) in {0, len(rows)}, (kind, with_goal)


@pytest.mark.parametrize("of", ["mnist", "cifar10", "svhn"])
def test_rivals_of_equal_size_have_it(of: str) -> None:
    inputs = {"mnist": 784, "cifar10": 3072, "svhn": 3072}[of]
    rows = {row.name: row.what for row in all_rows()}
    counts = {
        net: sum(
            p.numel() for p in build_net(net, of)(inputs, 10, "notebook", torch.Generator()).parameters()
        )
        for net in NETS
    }
    for net, count in counts.items():
        equal = abs(count / counts["M-layer"] - 1) < 0.02
        assert ("equal size" in rows[f"rivals.{of}.{net}"]) == equal, net


@pytest.mark.parametrize("name", ["certified", "certified_networks"])
def test_figures_on_the_bars_are_those_of_the_table(name: str) -> None:
    record = json.loads((RESULTS / f"{name}.json").read_text())
    drawn = {text.get_text() for axes in experiment(name).plot(record["results"]).axes for text in axes.texts}
    rows = compare(record["headline"])
    assert len(rows) >= 4
    assert {here for _, _, here, _ in rows} <= drawn


@pytest.mark.parametrize("of", list(EXPECTED))
def test_quoted_accuracies_are_those_of_the_table(of: str) -> None:
    rows = {row.name: row for row in all_rows()}
    for net, (mean, spread, _) in EXPECTED[of].items():
        quoted = f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}")
        recipes = [f"images.{of}.paper_recipe", f"images.{of}.notebook_recipe"]
        for name in recipes if net == "M-layer" else [f"baselines.{of}.{net}"]:
            assert rows[name].paper == quoted
    goal = rows[f"images.{of}.paper_recipe"].at_least
    mean, spread, _ = EXPECTED[of]["M-layer"]
    assert spread is not None
    assert goal == pytest.approx(mean - spread)


def test_every_row_has_its_figure_in_the_summary() -> None:
    summary = json.loads((RESULTS / "summary.json").read_text())
    figures = {name: entry["value"] for name, entry in summary.items()}
    measured = {name.partition(".")[0] for name in figures}
    rows = [row for row in all_rows() if row.name.partition(".")[0] in measured]
    lacking = [row.name for row in rows if row.value(figures) is None]
    # Only full scales that have not been run have these.
    later = (
        "periodic.dnn_figure_rmse_min",
        "rivals.cifar10.large ReLU",
        "determinant3.ours_dnn",
        "determinant5.ours_dnn",
        "permanent5.paper_recipe",
        "permanent5.dnn",
        "permanent5.ours_dnn",
        "convolutional.svhn",
    )
    lacking = [name for name in lacking if not name.startswith(later)]
    assert lacking == ["determinant3.paper_recipe_mse_8192_examples"]


def test_a_missing_solver_is_said_before_any_net_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(baselines, "search_rates", lambda *arguments, **named: pytest.fail("trained"))
    with pytest.raises(MissingPackageError, match="torchdiffeq"):
        baselines.run(baselines.SCALES["smoke"], RunContext())


def test_help_and_documentation_list_every_experiment() -> None:
    """The help cannot import the table of experiments, which loads torch; so it is compared here."""
    from mlayer.cli.commands.reproduce import command

    named = re.search(r"Names: (.*?); all\.", " ".join((command.help or "").split()))
    assert named
    assert named[1].split(", ") == list(EXPERIMENTS)
    page = (Path(__file__).resolve().parents[2] / "docs/experiments.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(EXPERIMENTS)
