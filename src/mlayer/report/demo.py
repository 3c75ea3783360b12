"""The page of `mlayer demo`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.report.numbers import formatted
from mlayer.report.page import Page
from mlayer.report.theme import Draw, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EDGE = 14.0
# Share of the next turn from which the page says that the spirals are continued, not only in part.
_CONTINUED = 0.9
Results = dict[str, Any]


def demo_page(results: Results, seconds: float) -> Page:
    """Four short chapters, each with a picture or a figure."""
    page = Page(
        "One exponential is enough",
        "An M-layer has one nonlinearity: the exponential of a matrix that depends on the input. "
        f"Everything on this page was trained, computed and drawn in {seconds:.0f} seconds on this machine.",
    )
    spiral, wave = results["spiral"], results["wave"]
    determinant, digits = results["determinant"], results["digits"]
    ratio = statistics.median(c / a for c, a in zip(digits["certified"], digits["attacked"], strict=True))
    page.cards(
        [
            (
                _share(spiral["ours"]["extra_turn_accuracy"]),
                "accuracy on the next turn of the spirals, which was not in the training data",
            ),
            (
                formatted(wave["ours"]["rmse"], ".1e"),
                "root mean squared error of a wave on [2, 6], found in data on [0, 2]",
            ),
            (
                f"{determinant['matrix_size']} x {determinant['matrix_size']}",
                "matrix computes the 3 x 3 determinant",
            ),
            (f"{ratio:.0%}", "of the radius at which an attack succeeds is proved safe (median)"),
        ]
    )
    page.heading("It extrapolates a spiral")
    ours, relu = spiral["ours"], spiral["relu"]
    whole = ours["extra_turn_accuracy"] >= _CONTINUED
    page.paragraph(
        f"Both models learn from {len(spiral['points']):,} noisy points of two spirals: the M-layer "
        f"({ours['parameters']:,} parameters) classifies {_share(ours['training_accuracy'])} of them "
        f"correctly, a ReLU net ({relu['parameters']:,} parameters) {_share(relu['training_accuracy'])}. "
        f"Beyond the points the M-layer continues the spirals{'' if whole else ' in part'}; the net does "
        f"not, nor does it after the paper's 1,000 epochs (mlayer reproduce spiral; here: {relu['epochs']}). "
        "The dotted circle marks the end of the next turn: "
        f"of new points there the M-layer classifies {_share(ours['extra_turn_accuracy'])} correctly, the "
        f"net {_share(relu['extra_turn_accuracy'])}."
    )
    page.figures(
        (
            boundary_picture(
                spiral[name]["boundary"],
                spiral["points"],
                spiral["labels"],
                xlabel="first input",
                ylabel="second input",
            ),
            f"Decision boundary of the {spiral[name]['title']} around two spirals of points",
            f"{spiral[name]['title']}: {_share(spiral[name]['training_accuracy'])} of the points, "
            f"{_share(spiral[name]['extra_turn_accuracy'])} of the next turn",
        )
        for name in ("ours", "relu")
    )
    page.heading("It extrapolates a wave")
    page.paragraph(
        f"The function is {wave['function']}. A periodogram and least squares find its waves in values for x "
        "from 0 to 2, with a little noise, and the layer is compiled from them. Its matrix generates two "
        "rotations whose angles are proportional to x, so the waves continue."
    )
    page.figures(
        [
            (
                wave_picture(wave["curve"], wave["ours"]["curve"]),
                "The wave and the layer's output from 0 to 6; the curves coincide",
                f"Root mean squared error on [2, 6]: {formatted(wave['ours']['rmse'], '.1e')}; "
                f"the wave's amplitude is {max(map(abs, wave['curve'])):.1f}",
            )
        ]
    )
    page.heading("It can be compiled from a formula")
    n = determinant["matrix_size"]
    page.paragraph(
        "This layer was not trained: it is the determinant of a 3 x 3 matrix, compiled into an M-layer with "
        f"{n} x {n} matrices. On {determinant['checked']} integer matrices, compared with exact arithmetic, "
        f"its largest error is {formatted(determinant['largest_error'], '.1e')} for values of up to "
        f"{determinant['largest_value']:,.0f}."
    )
    page.code("from mlayer.symbolic import determinant\nlayer = determinant(3)")
    page.heading("Its predictions come with proofs")
    page.paragraph(
        f"A layer of {digits['parameters']:,} parameters classifies {_share(digits['accuracy'])} of the test "
        f"digits correctly. For {len(digits['certified'])} of those it is proved that no change of the "
        "pixels by less than the certified radius changes the predicted class; an attack finds a somewhat "
        "larger change that does. The crosses on the left are the paper's bound."
    )
    page.figures(
        [
            (
                _radii(digits),
                "Radii of each digit on a logarithmic scale: the paper's bound, the certificate, the attack",
                "Each line is one digit: its true radius lies between the certificate and the attack",
            )
        ]
    )
    page.heading("Next")
    page.code("mlayer fit data.csv --target price\nmlayer reproduce all --smoke\nmlayer --help")
    return page


def _share(value: float) -> str:
    return formatted(value, ".1%")


def boundary_picture(
    tenths: Sequence[str], points: Sequence[Sequence[float]], labels: Sequence[int], **axes_with: Any
) -> Draw:
    """Draws where a model puts the boundary between two spirals of points; a digit for each place."""

    def draw(figure: Figure, theme: Theme) -> None:
        from matplotlib.patches import Circle

        axes, colors = figure.subplots(), [theme.first, theme.second]
        rows = np.array([[int(digit) / 9 for digit in row] for row in tenths])
        ticks = np.linspace(-EDGE, EDGE, len(rows))
        axes.contourf(ticks, ticks, rows, levels=[-0.1, 0.5, 1.1], colors=colors, alpha=0.3)
        for label, color in enumerate(colors):
            chosen = np.array(points)[np.array(labels) == label]
            axes.plot(*chosen.T, ".", color=color, markersize=1.5, rasterized=True)
        axes.add_patch(Circle((0, 0), 4 * np.pi, fill=False, color=theme.text, linestyle=":"))
        axes.set(aspect=1, xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), **axes_with)

    return draw


def wave_picture(function: Sequence[float], learned: Sequence[float]) -> Draw:
    """Draws a function on [0, 6] and the curve of a layer that has seen a third of it."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        x = np.linspace(0, 6, len(function))
        axes.axvspan(0, 2, color=theme.faint, alpha=0.4, linewidth=0, label="seen")
        axes.plot(x, function, color=theme.first, linewidth=2.5, label="function")
        axes.plot(x, learned, "--", color=theme.second, linewidth=1, label="M-layer")
        axes.set(xlabel="x", xlim=(0, 6))
        axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.16))

    return draw


def _radii(digits: Results) -> Draw:
    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        order = np.argsort(digits["certified"])
        for place, k in enumerate(order):
            axes.plot(
                [digits["certified"][k], digits["attacked"][k]], [place] * 2, color=theme.text, linewidth=1
            )
        for key, marker, color, label in (
            ("paper", "x", theme.text, "paper's bound"),
            ("certified", "o", theme.first, "certified"),
            ("attacked", ">", theme.second, "attacked"),
        ):
            values = np.array(digits[key])[order]
            axes.plot(values, range(len(order)), marker, color=color, markersize=4.5, label=label)
        axes.set(xscale="log", xlabel="radius (change of each pixel; pixels are 0 to 1)", ylabel="digit")
        axes.set_yticks([])
        axes.legend(
            loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.16), handletextpad=0.2, columnspacing=1
        )

    return draw
