"""Names of the experiments, their modules, and the rows of their figures next to the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from mlayer.checks import one_of
from mlayer.datasets.load_by_name import FILES
from mlayer.experiments.running.protocol import Experiment, Scale
from mlayer.experiments.running.rows import PaperRow

# Files of `mlayer.experiments`, in the order of the paper.
EXPERIMENTS = (
    "spiral",
    "periodic",
    "waves",
    "temperatures",
    "determinant",
    "determinant5",
    "permanent",
    "permanent5",
    "images",
    "baselines",
    "rivals",
    "ingredients",
    "convolutional",
    "timing",
    "robustness",
    "trained_radii",
    "certified",
    "certified_networks",
)


def experiment(name: str) -> Experiment:
    """The module of an experiment, loaded now."""
    one_of("name", name, EXPERIMENTS, "'mlayer reproduce all' runs every one of them.")
    return cast(Experiment, import_module(f"mlayer.experiments.{name}"))


def needed_sets(name: str, scale: Scale = "default") -> tuple[str, ...]:
    """The sets that ``mlayer.datasets.fetch_sets`` has to fetch for an experiment, or for "all".

    >>> needed_sets("temperatures"), needed_sets("spiral"), needed_sets("images", "smoke")
    (('temperatures',), (), ())
    >>> needed_sets("all", "full")
    ('temperatures', 'mnist', 'cifar10', 'svhn', 'authors_model')
    """
    modules = [experiment(each) for each in (EXPERIMENTS if name == "all" else (name,))]
    read = (getattr(module, "needs", lambda _: ())(module.SCALES[scale]) for module in modules)
    return tuple(dict.fromkeys(each for sets in read for each in sets if each in FILES))


def all_rows() -> tuple[PaperRow, ...]:
    """The rows of the experiments' own modules, in the order of the paper."""
    return tuple(row for name in EXPERIMENTS for row in experiment(name).ROWS)


def compare(figures: Mapping[str, float]) -> list[list[str]]:
    """For the figures that were measured: what it is, what the paper says, what was measured here, the goal.

    What the paper does not give is left empty.

    >>> compare({"timing.ratio": 1.5})
    [['Time per epoch, M-layer / ReLU net', '2.1 (V100)', '1.50', '≤ 2.1: met']]
    """
    return [
        [row.what, row.paper, row.here(figures), row.goal(figures)]
        for row in all_rows()
        if row.value(figures) is not None
    ]
