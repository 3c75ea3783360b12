"""Permanents of 3 x 3 matrices: section 4.3 says that they behave as determinants do.

    mlayer reproduce permanent              a quarter of an hour on one core
    mlayer reproduce permanent --full       the whole grid: hours
    mlayer reproduce permanent --smoke      seconds

Expected (paper): "equivalent behavior"; no figure is given.
"""

from __future__ import annotations

from dataclasses import replace

from mlayer.experiments import determinant
from mlayer.experiments.running.protocol import Results
from mlayer.experiments.running.rows import PaperRow

TITLE = "Permanents of 3 x 3 matrices"
IN_PAPER = '; section 4.3, "equivalent behavior"'
CAPTION = "As Figure 4, for permanents of 3 x 3 matrices."
EXPECTED = {"zero_guess_mse": 2 / 9}
Config, needs, run, plot = determinant.Config, determinant.needs, determinant.run, determinant.plot
ROWS = (
    PaperRow(
        "3 x 3 permanent, text's recipe, 8,192 examples",
        '"equivalent"',
        "permanent3.paper_recipe_mse_8192_examples",
        ".1e",
    ),
    PaperRow(
        "3 x 3 permanent, DNN, 8,192 examples",
        '"equivalent"',
        "permanent3.dnn_mse_8192_examples",
        ".1e",
    ),
    PaperRow("3 x 3 permanent, 811 parameters, our recipe", '"equivalent"', "permanent3.best_mse", ".1e"),
)


SCALES = {
    "smoke": replace(determinant.SCALES["smoke"], polynomial="permanent"),
    "default": replace(
        determinant.SCALES["default"],
        polynomial="permanent",
        matrix_sizes=(6, 9, 12),
        headline_examples=2**13,
        dnn_examples=2**13,
    ),
    "full": replace(determinant.SCALES["full"], polynomial="permanent"),
}


def headline(results: Results) -> dict[str, float]:
    """The figures for the summary."""
    return determinant.figures(results, "permanent3")
