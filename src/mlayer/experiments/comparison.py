"""The paper's figures beside ours: one row a figure, for the report page and the README.

What was not measured has no row; what the paper does not give is left empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        what: it is, in words.
        paper: what the paper says, quoted.
        name: of our figure in the summary; a name with .mean, .sd and .seeds below it gives all three.
        form: how to write it.
        at_most: our goal, if it is an error.
        at_least: our goal, if it is an accuracy.
        epochs: the name of the figure that says for how many epochs it was trained, if that needs saying.
        examples: the same for the number of examples.
    """

    what: str
    paper: str
    name: str
    form: str
    at_most: float | None = None
    at_least: float | None = None
    epochs: str = ""
    examples: str = ""

    def value(self, figures: Mapping[str, float]) -> float | None:
        """Our figure, or None if it was not measured."""
        return figures.get(self.name, figures.get(f"{self.name}.mean"))

    def here(self, figures: Mapping[str, float]) -> str:
        """Our figure in writing, with its spread and the number of seeds if there are any."""
        value = self.value(figures)
        if value is None:
            return ""
        text = format(value, self.form)
        if f"{self.name}.sd" in figures:
            text += f" ± {format(figures[f'{self.name}.sd'], self.form)}"
        if f"{self.name}.seeds" in figures:
            seeds = round(figures[f"{self.name}.seeds"])
            text += f" ({seeds} seed{'s' if seeds > 1 else ''})"
        counts = ((figures.get(self.examples), "examples"), (figures.get(self.epochs), "epochs"))
        said = [f"{round(count):,} {unit}" for count, unit in counts if count is not None]
        return f"{text} ({', '.join(said)})" if said else text

    def goal(self, figures: Mapping[str, float]) -> str:
        """The goal, and whether it is met."""
        value = self.value(figures)
        if value is None or (self.at_most is None and self.at_least is None):
            return ""
        if self.at_most is not None:
            return f"≤ {_short(self.at_most, self.form)}: {'met' if value <= self.at_most else 'missed'}"
        assert self.at_least is not None
        return f"≥ {_short(self.at_least, self.form)}: {'met' if value >= self.at_least else 'missed'}"


def _short(goal: float, form: str) -> str:
    return f"{goal:.0%}" if form.endswith("%") else f"{goal:g}"


ROWS = (
    Row(
        "Spirals: points of a further turn, right",
        "a picture",
        "spiral.extra_turn_accuracy",
        ".1%",
        at_least=0.9,
    ),
    Row(
        "Spirals: the same, ReLU net",
        "a picture",
        "spiral.relu_extra_turn_accuracy",
        ".1%",
        epochs="spiral.dnn_epochs",
    ),
    Row(
        "Spirals: the same, tanh net",
        "a picture",
        "spiral.tanh_extra_turn_accuracy",
        ".1%",
        epochs="spiral.dnn_epochs",
    ),
    Row(
        "Periodic: error on [2, 6], worst of the figure's",
        "a picture",
        "periodic.figure_rmse_max",
        ".1e",
        at_most=0.05,
    ),
    Row(
        "Periodic: the same, text's recipe",
        "a picture",
        "periodic.text_figure_rmse_max",
        ".2g",
        epochs="periodic.text_epochs",
    ),
    Row(
        "Periodic: the same, DNN, best of the figure's",
        "a picture",
        "periodic.dnn_figure_rmse_min",
        ".1f",
        epochs="periodic.dnn_epochs",
    ),
    Row("Periodic: random functions within 0.05", "", "periodic.random_success_rate", ".0%", at_least=0.9),
    Row("Temperatures: error of the forecast, °C", "a notebook", "temperatures.rmse", ".2f"),
    Row("Temperatures: seasonal naive forecast", "", "temperatures.seasonal_naive_rmse", ".2f"),
    Row("Temperatures: DNN", "", "temperatures.dnn_rmse", ".2f"),
    Row(
        "3 x 3 determinant, 811 parameters, text's recipe",
        "2e-4",
        "determinant3.paper_recipe_mse",
        ".1e",
        at_most=2e-4,
    ),
    Row("3 x 3 determinant, DNN of 3,121 parameters", "0.003", "determinant3.dnn_mse", ".1e"),
    Row(
        "3 x 3 determinant, text's recipe, 8,192 examples",
        "",
        "determinant3.paper_recipe_mse_8192_examples",
        ".1e",
    ),
    Row(
        "3 x 3 determinant, 811 parameters, our recipe", "2e-4", "determinant3.best_mse", ".1e", at_most=1e-6
    ),
    Row(
        "5 x 5 determinant, 14,977 parameters, text's recipe",
        "0.0012",
        "determinant5.paper_recipe_mse",
        ".1e",
        at_most=1.2e-3,
    ),
    Row(
        "5 x 5 determinant, 14,977 parameters, our recipe",
        "0.0012",
        "determinant5.best_mse",
        ".1e",
        at_most=1e-4,
    ),
    Row("5 x 5 determinant, DNN of 43,101 parameters", "0.279", "determinant5.dnn_mse", ".3f"),
    Row(
        "3 x 3 permanent, text's recipe, 8,192 examples",
        '"equivalent"',
        "permanent3.paper_recipe_mse_8192_examples",
        ".1e",
    ),
    Row(
        "3 x 3 permanent, DNN, 8,192 examples",
        '"equivalent"',
        "permanent3.dnn_mse_8192_examples",
        ".1e",
    ),
    Row("3 x 3 permanent, 811 parameters, our recipe", '"equivalent"', "permanent3.best_mse", ".1e"),
    # The text's recipe, or the notebook's: within the paper's spread, or above it.
    Row("MNIST, text's recipe, %", "97.99 ± 0.12", "images.mnist.paper_recipe", ".2f", at_least=97.87),
    Row("MNIST, notebook's recipe, %", "97.99 ± 0.12", "images.mnist.notebook_recipe", ".2f"),
    Row("MNIST, our recipe, %", "ANODE 98.2", "images.mnist.our_recipe", ".2f", at_least=98.6),
    Row("CIFAR-10, text's recipe, %", "54.17 ± 0.36", "images.cifar10.paper_recipe", ".2f", at_least=53.81),
    Row(
        "CIFAR-10, notebook's recipe, %",
        "54.17 ± 0.36",
        "images.cifar10.notebook_recipe",
        ".2f",
        at_least=53.81,
    ),
    Row("CIFAR-10, our recipe, %", "ANODE 60.6", "images.cifar10.our_recipe", ".2f", at_least=60.6),
    Row("SVHN, text's recipe, %", "81.19 ± 0.23", "images.svhn.paper_recipe", ".2f", at_least=80.96),
    Row("SVHN, notebook's recipe, %", "81.19 ± 0.23", "images.svhn.notebook_recipe", ".2f", at_least=80.96),
    Row("SVHN, our recipe, %", "ANODE 83.5", "images.svhn.our_recipe", ".2f", at_least=83.5),
    *(
        Row(
            f"{title}, {net}, %",
            quoted,
            f"baselines.{of}.{net}",
            ".1f",
            epochs=f"baselines.{of}.{net}.epochs",
            examples=f"baselines.{of}.{net}.examples",
        )
        for title, of, net, quoted in (
            ("MNIST", "mnist", "NODE", "96.40 ± 0.50"),
            ("MNIST", "mnist", "ANODE", "98.20 ± 0.10"),
            ("CIFAR-10", "cifar10", "sigmoid", "46.63"),
            ("CIFAR-10", "cifar10", "ReLU", "56.29"),
            ("CIFAR-10", "cifar10", "PReLU", "51.94"),
            ("CIFAR-10", "cifar10", "maxout", "52.80"),
            ("CIFAR-10", "cifar10", "NODE", "53.70 ± 0.20"),
            ("CIFAR-10", "cifar10", "ANODE", "60.60 ± 0.40"),
            ("SVHN", "svhn", "NODE", "81.00 ± 0.60"),
            ("SVHN", "svhn", "ANODE", "83.50 ± 0.50"),
        )
    ),
    Row("Time of an epoch, M-layer / ReLU net", "2.1 (V100)", "timing.ratio", ".2f", at_most=2.1),
    Row("Their certified radius, their model, median", "about 1e-5", "robustness.paper_median_radius", ".2e"),
    Row("Our certified radius, their model, median", "", "robustness.our_median_radius", ".2e"),
    Row("Our radius / their radius, median", "", "robustness.median_ratio", ".0f", at_least=1000),
    Row("Our radius / the attack's, median", "", "robustness.median_part_of_attack", ".3f", at_least=0.98),
    Row(
        "CIFAR-10 at 2/255, trained for it: clean, %", "", "certified.cifar10_2_255.clean", ".1f", at_least=52
    ),
    Row("CIFAR-10 at 2/255: certified, %", "", "certified.cifar10_2_255.certified", ".1f", at_least=45),
    Row("MNIST at 0.1, trained for it: clean, %", "", "certified.mnist_0.1.clean", ".1f"),
    Row("MNIST at 0.1: certified, %", "", "certified.mnist_0.1.certified", ".1f", at_least=85),
)


def compare(figures: Mapping[str, float]) -> list[list[str]]:
    """For the figures that were measured: what it is, what the paper says, what came out here, the goal.

    >>> compare({"timing.ratio": 1.5})
    [['Time of an epoch, M-layer / ReLU net', '2.1 (V100)', '1.50', '≤ 2.1: met']]
    """
    return [
        [row.what, row.paper, row.here(figures), row.goal(figures)]
        for row in ROWS
        if row.value(figures) is not None
    ]
