"""Permanents of 5 x 5 matrices: section 4.3 says that permanents behave as determinants do.

    mlayer reproduce permanent5             our recipe: 25 to 60 minutes on one core
    mlayer reproduce permanent5 --full      as `determinant5 --full`: half a day
    mlayer reproduce permanent5 --smoke     seconds

Expected (paper): "equivalent behavior"; no figure is given. Guessing 0 gives 40/81, as for determinants: the
square of each of the 120 products has the mean 1/3^5, and different products do not correlate. Near the
identity a permanent has terms of every degree too, so that our recipe is the one of determinants.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mlayer.experiments import determinant5
from mlayer.experiments.running.rows import paper_rows

TITLE = "Permanents of 5 x 5 matrices"
IN_PAPER = '; section 4.3, "equivalent behavior"'
CAPTION = "As Figure 5, for permanents of 5 x 5 matrices; the paper's lines are those of determinants."
EXPECTED = {"zero_guess_mse": 40 / 81}
Config, run, plot = determinant5.Config, determinant5.run, determinant5.plot
ROWS = paper_rows(
    "5 x 5 permanent, mean squared error: ",
    "permanent5",
    (
        ("text's recipe", '"equivalent"', "paper_recipe_mse", ".1e", {}),
        ("DNN of 43,101 parameters", '"equivalent"', "dnn_mse", ".3f", {}),
        ("14,977 parameters, our recipe", '"equivalent"', "best_mse", ".1e", {}),
        ("DNN, our recipe", "", "ours_dnn_mse", ".3f", {}),
    ),
)
SCALES = {scale: replace(config, polynomial="permanent") for scale, config in determinant5.SCALES.items()}
headline = partial(determinant5.figures, prefix="permanent5")
