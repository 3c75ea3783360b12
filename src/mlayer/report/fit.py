"""The page of `mlayer fit`: how good, on what, made how, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.report import plots
from mlayer.report.page import Page
from mlayer.report.theme import Draw

Array = np.ndarray[Any, Any]


def fit_page(summary: Mapping[str, Any], truth: Array, outputs: Array) -> Page:
    """The report of a fit.

    Args:
        summary: the JSON object of ``FitResult.summary``, with "source" (what was read) and "model" (its
            file) added.
        truth: held-out targets: class numbers, or values.
        outputs: predictions for them: (rows, classes) probabilities, or (rows,) values.
    """
    _check(summary, truth, outputs)
    target, facts = summary["target"], summary["facts"]
    classes = target["classes"]
    page = Page(f"{target['task'].capitalize()} of {target['name']}", summary["source"])
    page.paragraph(summary["verdict"])
    first = next(iter(summary["metrics"]), None)
    cards = [] if first is None else [(f"{summary['metrics'][first]:.4g}", f"{first} on held-out rows")]
    cards += [
        (f"{facts['rows']['train']:,}", "rows learned from"),
        (f"{facts['rows']['test']:,}", "rows held out"),
        (f"{len(summary['columns'])}", "columns used"),
        (f"{facts['parameters']:,}", "parameters"),
    ]
    page.cards(cards)
    page.heading("Metrics on the held-out rows").table(
        ["metric", "model", "best constant"],
        [
            [name, f"{value:.4g}", f"{summary['baseline'][name]:.4g}" if name in summary["baseline"] else ""]
            for name, value in summary["metrics"].items()
        ],
        numbers=True,
    )
    page.heading("Plots").figures(_pictures(summary, truth, outputs))
    page.heading("How each column is used").table(
        ["column", "kind", "how"], [[c["name"], c["kind"], c["said"]] for c in summary["columns"]]
    )
    if summary["remarks"]:
        page.heading("What was done with the table").items(remark["said"] for remark in summary["remarks"])
    if classes:
        shown = ", ".join(map(str, classes[:50])) + (
            f" and {len(classes) - 50} more" if len(classes) > 50 else ""
        )
        page.heading("Classes").paragraph(shown)
    model = summary["model"]
    onnx = str(PurePath(model).with_suffix(".onnx"))
    page.heading("What to do with it").code(
        "\n".join(
            (
                f"mlayer predict {shlex.quote(model)} NEW.csv -o predictions.csv",
                f"mlayer info {shlex.quote(model)}",
                f"mlayer export {shlex.quote(model)} --onnx {shlex.quote(onnx)}",
            )
        )
    )
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    page.heading("How it was made").items(
        [
            f"The task was {target['task']}: {summary['reason']}.",
            f"Training: {facts['epochs']} epochs, {facts['seconds']} s.",
            "The columns and the model were learned from the training rows alone; the metrics and the plots "
            "are of the held-out rows; the model was not fitted again afterwards.",
            f"Seed {facts['seed']}; {versions}; {facts['created']}.",
        ]
    )
    return page


_KEYS = ("target", "metrics", "baseline", "reason", "verdict", "remarks", "columns", "importance")
_MORE = ("history", "facts", "source", "model")


def _check(summary: Any, truth: Any, outputs: Any) -> None:
    needed = _KEYS + _MORE
    if not isinstance(summary, Mapping) or not all(key in summary for key in needed):
        raise ArgumentTypeError(
            "summary",
            f"a dictionary with {', '.join(needed)}",
            f"one with {', '.join(map(str, summary))}" if isinstance(summary, Mapping) else brief(summary),
            "Begin with FitResult.summary(); add source and model.",
        )
    for name, value in (("truth", truth), ("outputs", outputs)):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            hint = "FitResult has both: truth, and predictions.outputs."
            raise ArgumentTypeError(name, "an array of numbers", brief(value), hint)
    classes = len(summary["target"]["classes"])
    wanted = (truth.size, classes) if classes else (truth.size,)
    if truth.ndim != 1 or outputs.shape != wanted:
        raise ArgumentError(
            "outputs",
            f"of shape {wanted} for {truth.size} rows of truth",
            f"shape {outputs.shape}, and truth of shape {truth.shape}",
            "FitResult has both: truth, and predictions.outputs.",
        )


def _pictures(summary: Mapping[str, Any], truth: Array, outputs: Array) -> list[tuple[Draw, str, str]]:
    classes = summary["target"]["classes"]
    finite = np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1)
    truth, outputs = truth[finite], outputs[finite]
    pictures: list[tuple[Draw, str, str]] = []
    metrics = ", ".join(f"{name} {value:.3g}" for name, value in summary["metrics"].items())
    if len(truth) and classes:
        guess = outputs.argmax(axis=1)
        pictures.append(
            (
                plots.confusion(truth, guess, classes),
                f"Confusion matrix of {len(truth)} held-out rows: {metrics}",
                "Confusion matrix: figures are rows; the brighter, the larger a share of the true class.",
            )
        )
        if len(classes) == 2 and len(np.unique(truth)) == 2:
            words = f"ROC curve for the class {classes[1]}: {metrics}"
            pictures.append(
                (plots.roc(truth, outputs[:, 1]), words, f"ROC curve for the class {classes[1]}.")
            )
        pictures.append(
            (
                plots.reliability(truth, outputs),
                "Share of right answers against the probability given to them",
                "Reliability: on the dotted line, a probability of 0.8 is right 8 times in 10.",
            )
        )
    elif len(truth):
        pictures += [
            (
                plots.predicted_against_true(truth, outputs),
                f"Predicted against true values of {len(truth)} held-out rows: {metrics}",
                "Predicted against true values of the held-out rows; dotted: exactly right.",
            ),
            (
                plots.errors(truth, outputs),
                f"Histogram of the errors of {len(truth)} held-out rows: {metrics}",
                "Errors on the held-out rows.",
            ),
        ]
    importance = {k: v for k, v in summary["importance"].items() if np.isfinite(v).all()}
    if importance:
        label = "loss of accuracy" if classes else "rise of RMSE"
        best = ", ".join(sorted(importance, key=lambda name: -importance[name][0])[:3])
        pictures.append(
            (
                plots.importance_bars(importance, label),
                f"What shuffling a column costs; the columns that matter most: {best}",
                "How much worse the answers get when a column's cells are shuffled among the held-out rows.",
            )
        )
    if summary["history"]:
        last = summary["history"][-1]
        words = f"Loss over {len(summary['history'])} epochs, {last['loss']:.3g} at the end"
        pictures.append((plots.learning_curve(summary["history"]), words, "Loss during training."))
    return pictures
