"""The page of `mlayer fit`: how good, on what, made how, and what to do next."""

from __future__ import annotations

import shlex
from pathlib import PurePath

import numpy as np

from mlayer.checks import file_path, instance
from mlayer.report import plots
from mlayer.report.page import Page
from mlayer.report.theme import Draw
from mlayer.tables.fit.result import FitResult, importance_metric
from mlayer.tables.metrics import rarer_class, readable

# A line through more moments than these is a solid block where a season is fast.
_MOMENTS_OF_A_LINE = 240
# Of a longer series: stretches in the picture of the whole, moments before and after in the closer one.
_STRETCHES = 60
_CLOSE = (30, 90)
_PLUS_MINUS = "±\N{NO-BREAK SPACE}"
# A loss that changes by less than this part of itself is a flat line.
_FLAT = 1e-3


def fit_page(result: FitResult, source: str, model: str | PurePath) -> Page:
    """The report of a fit; ``source`` describes what was read, ``model`` is the file of the model."""
    instance("result", result, FitResult, "a FitResult", "fit_table(frame, plan) gives one.")
    instance("source", source, str, "text", "Say what was read, for example the name of the file.")
    model = file_path("model", model)
    target, facts = result.model.target, result.model.facts
    page = Page(f"{target.task.capitalize()} of {target.name}", source)
    page.paragraph(result.verdict.replace("+- ", _PLUS_MINUS))
    first = next(iter(result.metrics), None)
    cards = [] if first is None else [(readable(result.metrics[first]), f"{first} on held-out rows")]
    columns = len(result.model.schema.columns)
    cards += [
        (f"{facts['rows']['train']:,}", "training rows"),
        (f"{facts['rows']['test']:,}", "held-out rows"),
        (f"{columns}", "column used" if columns == 1 else "columns used"),
        (f"{facts['parameters']:,}", "parameters"),
    ]
    page.cards(cards)
    page.heading("Metrics on the held-out rows").table(
        ["metric", "model", "best constant"],
        [
            [name, readable(value), readable(result.baseline[name]) if name in result.baseline else ""]
            for name, value in result.metrics.items()
        ],
        numbers=True,
    )
    page.heading("Plots").figures(_pictures(result))
    page.heading("How each column is used").table(
        ["column", "kind", "how"], [[c.name, c.kind, c.description] for c in result.model.schema.columns]
    )
    if result.remarks:
        page.heading("What was done with the table").items(map(str, result.remarks))
    if target.classes:
        shown = ", ".join(map(str, target.classes[:50])) + (
            f" and {len(target.classes) - 50} more" if len(target.classes) > 50 else ""
        )
        page.heading("Classes").paragraph(shown)
    file = shlex.quote(str(model))
    onnx = shlex.quote(str(model.with_suffix(".onnx")))
    page.heading("Next steps").code(
        "\n".join(
            (
                f"mlayer predict {file} NEW.csv -o predictions.csv",
                f"mlayer info {file}",
                f"mlayer export {file} --onnx {onnx}",
            )
        )
    )
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    again = "fitted to" in facts
    after = "the model file was then fitted to all rows" if again else "the model file holds this model"
    page.heading("How the model was fitted").items(
        [
            f"The task was {target.task}: {result.reason}.",
            _training(result),
            "The metrics and the plots are those of a model fitted to the training rows alone, on the "
            f"held-out rows; {after}.",
            f"Seed {facts['seed']}; {versions}; {facts['created']}.",
        ]
    )
    return page


def _training(result: FitResult) -> str:
    facts = result.model.facts
    if result.periods:
        return f"Waves found in the spectrum and solved by least squares, {facts['seconds']} s."
    if any(remark.kind == "forecast" for remark in result.remarks):
        return f"Level and trend solved by least squares, {facts['seconds']} s."
    return f"Training: {facts['epochs']} passes over the rows, {facts['seconds']} s."


def _pictures(result: FitResult) -> list[tuple[Draw, str, str]]:
    classes, finite = result.model.target.classes, result.predictions.finite
    truth, outputs = result.truth[finite], result.predictions.outputs[finite]
    pictures = [] if result.series is None else _series(result)
    metrics = ", ".join(f"{name} {readable(value)}" for name, value in result.metrics.items())

    def add(draw: Draw, words: str, caption: str) -> None:
        pictures.append((draw, words, caption))

    if len(truth) and classes:
        guess = result.predictions.choices[finite]
        add(
            plots.confusion(truth, guess, classes),
            f"Confusion matrix of {len(truth)} held-out rows: {metrics}",
            "Confusion matrix, in rows; a brighter cell holds a larger share of its true class.",
        )
        if len(classes) == 2 and len(np.unique(truth)) == 2:
            words = f"ROC curve for the class {classes[1]}: {metrics}"
            add(plots.roc(truth, outputs[:, 1]), words, f"ROC curve for the class {classes[1]}.")
            rare = rarer_class(truth)
            of = f"the class {classes[rare]}, {(truth == rare).mean():.1%} of the rows"
            add(
                plots.precision_recall(truth == rare, outputs[:, rare]),
                f"Precision over recall for {of}: {metrics}",
                f"Precision and recall for {of}; dotted: chance.",
            )
        add(
            plots.calibration(truth, outputs),
            "Share of correct predictions against their predicted probability",
            "Reliability: on the dotted line, a prediction of 0.8 is correct 8 times in 10.",
        )
    elif len(truth):
        add(
            plots.predicted_against_true(truth, outputs),
            f"Predicted against true values of {len(truth)} held-out rows: {metrics}",
            "Predicted against true values of the held-out rows; dotted: perfect prediction.",
        )
        add(
            plots.errors(truth, outputs),
            f"Histogram of the errors of {len(truth)} held-out rows: {metrics}",
            "Errors on the held-out rows.",
        )
    importance = {k: v for k, v in result.importance.items() if np.isfinite(v).all()}
    if len(importance) > 1:  # one bar compares nothing
        label = f"loss of {importance_metric(result.model)}" if classes else "increase in RMSE"
        best = ", ".join(sorted(importance, key=lambda name: -importance[name][0])[:3])
        add(
            plots.importance_bars(importance, label),
            f"Importance of columns by shuffling; the most important: {best}",
            "Importance: how much worse predictions get when a column of the held-out rows is shuffled.",
        )
    losses = [record["loss"] for record in result.history]
    # One line of the history is a dot, and a line without a fall shows rounding.
    if len(losses) > 1 and not max(losses) - min(losses) < _FLAT * abs(losses[-1]):
        # An entry of the history can stand for several passes, as one of L-BFGS does.
        last, passes = result.history[-1], result.model.facts["epochs"]
        words = f"Loss over {passes} passes over the rows, {last['loss']:.3g} at the end"
        add(plots.learning_curve(result.history, passes), words, "Loss during training.")
    return pictures


def _series(result: FitResult) -> list[tuple[Draw, str, str]]:
    """The series, its forecast and an interval from the errors of the moments; a long one in two pictures."""
    assert result.series is not None
    before, after = result.series.before, result.series.after
    half, count = result.series.half, len(after[0])
    words = f"{result.model.target.name} over {result.series.column}: {count} time points forecast"
    caption = f"The last {count} time points of {result.series.column} were held out and forecast."
    if len(result.truth) > count:
        caption += " The lines are means of the rows at each time point, of all groups."
    band = ""
    if np.isfinite(half).all():
        band = (
            " The band is the 90% interval of each row: "
            f"from {_PLUS_MINUS}{readable(float(half.min()))} to {_PLUS_MINUS}{readable(float(half.max()))}."
        )
    periods = f" Periods found: {', '.join(result.periods)}." if result.periods else ""
    shown = min(len(before[0]), 3 * count)
    if shown + count <= _MOMENTS_OF_A_LINE:
        return [(plots.forecast(before, after, half), words, caption + band + periods)]
    each = -(-(shown + count) // _STRETCHES)
    past = (before[0][-shown:], before[1][-shown:])
    caption += f" Shown are the lowest and the highest value of every {each} time points."
    whole = (plots.forecast_ranges(past, after, each), words, caption + periods)
    back, ahead = min(len(before[0]), _CLOSE[0]), min(count, _CLOSE[1])
    near = plots.forecast(
        (before[0][-back:], before[1][-back:]),
        (after[0][:ahead], after[1][:ahead], after[2][:ahead]),
        half[:ahead],
    )
    caption = f"The same close up: the last {back} time points before the forecast and its first {ahead}."
    return [whole, (near, f"{words}, the first {ahead} of them", caption + band)]
