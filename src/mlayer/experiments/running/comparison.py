"""The paper's figures and ours: the rows of all experiments, for the report page and the README.

What was not measured has no row; what the paper does not give is left empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlayer.experiments.running.registry import EXPERIMENTS, experiment
from mlayer.experiments.running.rows import PaperRow


def all_rows() -> tuple[PaperRow, ...]:
    """The rows of the experiments' own modules, in the order of the paper."""
    return tuple(row for name in EXPERIMENTS for row in experiment(name).ROWS)


def compare(figures: Mapping[str, float]) -> list[list[str]]:
    """For the figures that were measured: what it is, what the paper says, what was measured here, the goal.

    >>> compare({"timing.ratio": 1.5})
    [['Time per epoch, M-layer / ReLU net', '2.1 (V100)', '1.50', '≤ 2.1: met']]
    """
    return [
        [row.what, row.paper, row.here(figures), row.goal(figures)]
        for row in all_rows()
        if row.value(figures) is not None
    ]
