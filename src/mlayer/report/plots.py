"""The plots of a fit. Each takes data and returns a function that draws them on a figure in a theme.

Lines differ in dash as well as in color, and no plot relies on telling red from green.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from mlayer.checks import written_out
from mlayer.numerics.arrays import AnyArray
from mlayer.report.theme import Draw, Theme
from mlayer.tables.metrics import counts_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 2000
_COLUMNS = 12
_LETTERS = 18
_Data = ParamSpec("_Data")


def _plot(on_axes: Callable[Concatenate[Axes, Theme, _Data], None]) -> Callable[_Data, Draw]:
    """A function that takes data and returns what draws them, from one that draws them on axes."""

    @wraps(on_axes)
    def of_data(*data: _Data.args, **named: _Data.kwargs) -> Draw:
        return lambda figure, theme: on_axes(figure.subplots(), theme, *data, **named)

    return of_data


# A legend above a series, which leaves no corner free.
_ABOVE: dict[str, Any] = {
    "bbox_to_anchor": (0.45, 1.0),
    "ncols": 3,
    "fontsize": 10,
    "handlelength": 1.2,
    "handletextpad": 0.5,
    "columnspacing": 1.0,
}


@_plot
def learning_curve(axes: Axes, theme: Theme, history: Sequence[Mapping[str, Any]], passes: int) -> None:
    """Loss over ``passes`` passes over the rows, of training and, where there is one, of validation."""
    each = passes / history[-1]["epoch"]
    epochs = [each * record["epoch"] for record in history]
    for key, name, color, dash in (
        ("loss", "training", theme.first, "-"),
        ("validation_loss", "validation", theme.second, "--"),
    ):
        values = [record.get(key) for record in history]
        if any(value is not None for value in values):
            numbers = np.array([np.nan if value is None else value for value in values], dtype=float)
            alone = "o" if len(epochs) == 1 else None  # a line of one point would not be seen
            axes.plot(epochs, numbers, dash, color=color, label=name, linewidth=1.6, marker=alone)
            if (numbers[np.isfinite(numbers)] > 0).all() and np.nanmax(numbers) > 20 * np.nanmin(numbers):
                axes.set_yscale("log")
    _whole_ticks(axes.xaxis)
    axes.set(xlabel="passes over the rows", ylabel="loss")
    axes.legend(loc="best")


@_plot
def importance_bars(axes: Axes, theme: Theme, importance: Mapping[str, Sequence[float]], label: str) -> None:
    """Columns by what shuffling them costs; a whisker shows half the spread of the repetitions."""
    top = sorted(importance.items(), key=lambda item: -item[1][0])[:_COLUMNS][::-1]
    axes.barh(
        range(len(top)),
        [value for _, (value, _) in top],
        xerr=[spread for _, (_, spread) in top],
        color=theme.first,
        ecolor=theme.text,
        error_kw={"elinewidth": 1},
    )
    axes.set_yticks(range(len(top)), [short(name) for name, _ in top])
    axes.axvline(0, color=theme.faint, linewidth=1)
    axes.locator_params(axis="x", nbins=5)  # small numbers are long
    _plain_numbers(axes.xaxis)
    axes.set(xlabel=written_out(label))


@_plot
def confusion(axes: Axes, theme: Theme, truth: AnyArray, guess: AnyArray, classes: Sequence[object]) -> None:
    """Rows: the true class; columns: the predicted one; shade: share of the row; figures: counts."""
    size = len(classes)
    counts = np.zeros((size, size), dtype=int)
    np.add.at(counts, (truth, guess), 1)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    axes.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    if size <= 12:
        for row in range(size):
            for column in range(size):
                color = "#000000" if shares[row, column] > 0.6 else "#ffffff"
                axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=color)
    if size <= 20:
        names = [short(str(name), 10) for name in classes]
        slant = 0 if max(map(len, names)) * size <= 36 else 60
        axes.set_xticks(range(size), names, rotation=slant, ha="right" if slant else "center")
        axes.set_yticks(range(size), names)
    axes.set(xlabel="predicted", ylabel="true")
    for side in axes.spines.values():
        side.set_visible(False)


@_plot
def calibration(axes: Axes, theme: Theme, truth: AnyArray, probabilities: AnyArray) -> None:
    """Calibration: the share of correct predictions by bins of the predicted probability."""
    chosen = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    edges = np.linspace(0, 1, 11)
    bins = np.clip(np.digitize(chosen, edges) - 1, 0, 9)
    used = [b for b in range(10) if (bins == b).any()]
    axes.plot([0, 1], [0, 1], ":", color=theme.text, linewidth=1, label="ideal")
    axes.plot(
        [chosen[bins == b].mean() for b in used],
        [right[bins == b].mean() for b in used],
        "o-",
        color=theme.first,
        label="model",
    )
    axes.set(xlabel="predicted probability", ylabel="share of correct predictions", xlim=(0, 1.02))
    axes.set_ylim(-0.02, 1.02)
    axes.legend(loc="best")


@_plot
def roc(axes: Axes, theme: Theme, truth: AnyArray, score: AnyArray) -> None:
    """True against false positives over all thresholds, for two classes."""
    hits, rows = counts_above(truth == 1, score)
    right, alarms = hits / max(1, (truth == 1).sum()), (rows - hits) / max(1, (truth == 0).sum())
    axes.plot([0, 1], [0, 1], ":", color=theme.text, linewidth=1, label="chance")
    axes.plot(np.append(0, alarms), np.append(0, right), "-", color=theme.first, linewidth=1.6, label="model")
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.legend(loc="lower right")


@_plot
def precision_recall(axes: Axes, theme: Theme, positive: AnyArray, score: AnyArray) -> None:
    """Precision over recall for the rarer class; dotted: its share, the precision of chance."""
    hits, rows = counts_above(positive, score)
    precision, recall = hits / rows, hits / max(1, int(positive.sum()))
    share = float(positive.mean())
    axes.plot([0, 1], [share, share], ":", color=theme.text, linewidth=1, label="chance")
    # Each threshold holds until the next one, so that the curve is one of steps.
    axes.step(
        np.append(0, recall),
        np.append(precision[0], precision),
        where="pre",
        color=theme.first,
        linewidth=1.6,
        label="model",
    )
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.04))
    axes.legend(loc="best")


@_plot
def forecast(
    axes: Axes,
    theme: Theme,
    before: tuple[AnyArray, AnyArray],
    after: tuple[AnyArray, AnyArray, AnyArray],
    half: AnyArray,
) -> None:
    """The series before and after the end of the training rows, with the forecast and its interval.

    ``before`` holds the moments of the training rows and their values, ``after`` the moments of the held-out
    rows, true values and predicted values, ``half`` half of the intervals' widths, infinite for none.
    """
    # The end of the training rows, three times as long as the forecast: more would hide the waves.
    shown = 3 * len(after[0])
    # Half of the text's color: what is faint enough for a grid is too faint for data.
    past = (before[0][-shown:], before[1][-shown:])
    axes.plot(*past, "-", color=theme.text, alpha=0.5, linewidth=1, label="training rows")
    axes.plot(after[0], after[1], ".", color=theme.text, markersize=3, label="true, held out")
    axes.plot(after[0], after[2], "-", color=theme.first, linewidth=1.4, label="forecast")
    if np.isfinite(half).all():
        axes.fill_between(
            after[0], after[2] - half, after[2] + half, color=theme.first, alpha=0.25, linewidth=0
        )
    _plain_dates(axes.xaxis)
    _plain_numbers(axes.yaxis)
    axes.legend(loc="lower center", **_ABOVE)


@_plot
def forecast_ranges(
    axes: Axes,
    theme: Theme,
    before: tuple[AnyArray, AnyArray],
    after: tuple[AnyArray, AnyArray, AnyArray],
    moments: int,
) -> None:
    """The lowest and highest value of stretches of ``moments`` each, of a series with too many for a line.

    ``before`` and ``after`` are those of `forecast`.
    """

    def stretches(values: AnyArray) -> list[AnyArray]:
        # The last one is as long as the others: the range of a few values would look like a narrower series.
        starts = np.minimum(np.arange(0, len(values), moments), max(0, len(values) - moments))
        return [values[start : start + moments] for start in starts]

    def ranges(values: AnyArray) -> tuple[AnyArray, AnyArray]:
        pieces = stretches(values)
        return np.array([piece.min() for piece in pieces]), np.array([piece.max() for piece in pieces])

    def middles(times: AnyArray) -> AnyArray:
        return np.array([piece[(len(piece) - 1) // 2] for piece in stretches(times)])

    past, later = (middles(times) for times in (before[0], after[0]))
    axes.fill_between(
        past, *ranges(before[1]), color=theme.text, alpha=0.3, linewidth=0, label="training rows"
    )
    low, high = ranges(after[1])
    axes.fill_between(later, low, high, color=theme.text, alpha=0.6, linewidth=0, label="true, held out")
    low, high = ranges(after[2])
    axes.plot(later, low, "-", color=theme.first, linewidth=1.4, label="forecast")
    axes.plot(later, high, "-", color=theme.first, linewidth=1.4)
    _plain_dates(axes.xaxis)
    _plain_numbers(axes.yaxis)
    axes.legend(loc="lower center", **_ABOVE)


@_plot
def predicted_against_true(axes: Axes, theme: Theme, truth: AnyArray, values: AnyArray) -> None:
    """A point for each held-out row, on the dotted line if correct."""
    step = max(1, len(truth) // _POINTS)
    ends = [min(truth.min(), values.min()), max(truth.max(), values.max())]
    axes.scatter(
        truth[::step],
        values[::step],
        s=30 if len(truth) < 100 else 12,
        alpha=0.6,
        color=theme.first,
        linewidths=0,
        rasterized=True,
    )
    axes.plot(ends, ends, ":", color=theme.text, linewidth=1)
    for axis in (axes.xaxis, axes.yaxis):
        _plain_numbers(axis)
    axes.set(xlabel="true", ylabel="predicted")


@_plot
def errors(axes: Axes, theme: Theme, truth: AnyArray, values: AnyArray) -> None:
    """A histogram of predicted minus true."""
    axes.hist(values - truth, bins=min(40, max(8, len(truth) // 8)), color=theme.first)
    axes.axvline(0, linestyle=":", color=theme.text, linewidth=1)
    _whole_ticks(axes.yaxis)
    _plain_numbers(axes.xaxis)
    axes.set(xlabel="predicted minus true", ylabel="rows")


def _plain_numbers(axis: Any) -> None:
    """Labels such as 450,000 and 0.05, and few of them; no factor aside."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _plain_dates(axis: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    # With the usual five at least there is no step of months for three years, and matplotlib warns of it.
    locator = AutoDateLocator(minticks=3, maxticks=6)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))


def _whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def short(name: str, letters: int = _LETTERS) -> str:
    """A name that fits next to an axis.

    >>> short("median_house_value_in_dollars")
    'median_house_valu…'
    """
    name = written_out(name)
    return name if len(name) <= letters else name[: letters - 1] + "…"
