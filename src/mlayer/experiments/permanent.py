"""Permanents of 3 x 3 matrices: section 4.3 says that they behave as determinants do.

    mlayer reproduce permanent              a quarter of an hour on one core
    mlayer reproduce permanent --full       the whole grid: hours
    mlayer reproduce permanent --smoke      seconds

Expected (paper): "equivalent behavior"; no figure is given.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mlayer.experiments import determinant
from mlayer.experiments.running.rows import paper_rows

TITLE = "Permanents of 3 x 3 matrices"
IN_PAPER = '; section 4.3, "equivalent behavior"'
CAPTION = "As Figure 4, for permanents of 3 x 3 matrices."
EXPECTED = {"zero_guess_mse": 2 / 9}
Config, run, plot = determinant.Config, determinant.run, determinant.plot
ROWS = paper_rows(
    "3 x 3 permanent, mean squared error: ",
    "permanent3",
    (
        ("text's recipe, 8,192 examples", '"equivalent"', "paper_recipe_mse_8192_examples", ".1e", {}),
        ("DNN, 8,192 examples", '"equivalent"', "dnn_mse_8192_examples", ".1e", {}),
        ("811 parameters, our recipe", '"equivalent"', "best_mse", ".1e", {}),
    ),
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
headline = partial(determinant.figures, prefix="permanent3")
