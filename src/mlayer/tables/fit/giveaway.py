"""Columns that give the target away: alone they predict it as no honest column would.

Such a column is often computed from the target, or known only after it: the price with tax, the date of the
cancellation. A model that uses it looks perfect and fails where it is needed. Half of the training rows learn
from the column alone, the other half judges; of copied rows the first alone, since a copy of a row that was
learned judges nothing.
"""

from __future__ import annotations

import numpy as np

from mlayer.numerics.arrays import AnyArray, Array
from mlayer.tables.columns import Column
from mlayer.tables.metrics import area_under_roc
from mlayer.tables.remarks import Remark
from mlayer.tables.schema import Schema
from mlayer.tables.target import Target

# From these scores on, of one column alone on rows it was not fitted to, a column is suspected of giving the
# target away; docs/cli.md quotes them.
_SUSPICIOUS_R2 = 0.99
_SUSPICIOUS_AUC = 0.995
_ROWS = 50  # fewer say little
_MOST_ROWS = 20_000  # more say no more: a score of 0.995 is known to 0.001 or better
_DEGREE = 3  # of the polynomial in the column
_ROWS_OF_A_GROUP = 5  # on average, for the means of categories to be learned


def giveaways(
    schema: Schema, numbers: Array, target: Target, truth: AnyArray, same: AnyArray | None = None
) -> list[Remark]:
    """A remark for each column that predicts the target alone.

    Args:
        schema: the columns.
        numbers: the training rows, encoded.
        target: what is predicted.
        truth: of the training rows, as :meth:`Target.encode` gives it.
        same: a number for each of them, equal for exact copies; None without copies.
    """
    chosen = np.arange(len(numbers)) if same is None else np.sort(np.unique(same, return_index=True)[1])
    if len(chosen) < _ROWS or len(schema.columns) < 2:
        return []
    chosen = _some(chosen[np.random.default_rng(0).permutation(len(chosen))], target, truth)
    numbers, truth = numbers[chosen], truth[chosen]
    remarks = []
    halves = np.arange(0, len(chosen), 2), np.arange(1, len(chosen), 2)
    for column, places in schema.placed:
        if column.date is not None:
            continue  # many series depend on time, which is known in advance
        name, value, limit = _alone(column, numbers[:, places], target, truth, halves)
        if value > limit:
            said = (
                f"warning: it predicts the target alone ({name} {value:.3f}): if it is known only after the "
                f"target, or computed from it, leave it out with --drop {column.name!r}"
            )
            remarks.append(Remark("giveaway", column.name, 0, said, strict=True))
    return remarks


def _some(rows: AnyArray, target: Target, truth: AnyArray) -> AnyArray:
    """The first of the rows if there are very many; of a class no fewer than of others, if it has them."""
    if len(rows) <= _MOST_ROWS:
        return rows
    if not target.classifies:
        return rows[:_MOST_ROWS]
    share = max(_ROWS, _MOST_ROWS // len(target.classes))
    kept = [np.flatnonzero(truth[rows] == k)[:share] for k in range(len(target.classes))]
    return np.asarray(rows[np.sort(np.concatenate(kept))])


def _alone(
    column: Column, part: Array, target: Target, truth: AnyArray, halves: tuple[AnyArray, AnyArray]
) -> tuple[str, float, float]:
    learn, judge = halves
    if not target.classifies:
        # In heavy tails a cubic of half of the rows goes astray where a line does not.
        guesses = (_guess(column, part, truth[:, None], halves, degree)[:, 0] for degree in (1, _DEGREE))
        return "R2", max(_r2(truth[judge], guess) for guess in guesses), _SUSPICIOUS_R2
    # The worst of the classes: one that is easily separated does not make the column suspicious.
    is_class = truth[:, None] == np.arange(len(target.classes))
    known = is_class[judge].any(axis=0) & ~is_class[judge].all(axis=0) & is_class[learn].any(axis=0)
    is_class = is_class[:, known]
    score = 1.0 if known.any() else 0.0
    of_classes = _guess(column, part, is_class.astype(float), halves, _DEGREE)
    for truths, guess in zip(is_class[judge].T, of_classes.T, strict=True):
        score = min(score, area_under_roc(truths, guess))
        if score <= _SUSPICIOUS_AUC:
            break
    return "ROC AUC", score, _SUSPICIOUS_AUC


def _guess(
    column: Column, part: Array, values: Array, halves: tuple[AnyArray, AnyArray], degree: int
) -> Array:
    """Values, (rows, outputs), of the second half from the first: means of groups, or a polynomial."""
    learn, judge = halves
    groups, number = np.unique(part, axis=0, return_inverse=True)
    number = number.reshape(-1)
    mean = values[learn].mean(axis=0)
    if len(groups) * _ROWS_OF_A_GROUP <= len(learn):
        counts = np.bincount(number[learn], minlength=len(groups))[:, None]
        sums = np.zeros((len(groups), values.shape[1]))
        np.add.at(sums, number[learn], values[learn])
        return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), mean)[number[judge]])
    if not column.moves:
        return np.tile(mean, (len(judge), 1))
    x = part[:, 0]
    x = (x - x[learn].mean()) / (x[learn].std() or 1.0)
    columns = np.column_stack([x[:, None] ** np.arange(degree + 1), part[:, 1:]])
    found = np.linalg.lstsq(columns[learn], values[learn], rcond=None)[0]
    return np.asarray(columns[judge] @ found)


def _r2(truth: AnyArray, guess: Array) -> float:
    spread = float(np.square(truth - truth.mean()).sum())
    return 1 - float(np.square(truth - guess).sum()) / spread if spread > 0 else 0.0
