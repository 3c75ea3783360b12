"""The dependence of the size of errors on the row: intervals are wide where predictions are poor.

The logarithm of the absolute error on the training rows is fitted by ridge regression on the prediction,
its distance from the middle, and, if that pays, the same of every input. The size s(x) is the exponential
of that, kept inside the range of the training rows. Errors on rows that the fit has not seen, divided by
s(x), then take the place of the errors in :mod:`mlayer.numerics.conformal` (normalized conformal
prediction: Papadopoulos, Gammerman and Vovk, "Normalized nonconformity measures for regression conformal
prediction", 2008): the coverage is guaranteed whatever s is, because s does not depend on those rows.

Whether it pays is judged by the likelihood of held-out training errors under Laplace distributions of size
s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array, Indices

_FEWEST = 60  # rows
_FOLDS = 5
# The ridge of standardized columns, as a number of rows.
_RIDGE = 10.0
# Errors below this part of their median count as that: the logarithm of 0 says nothing.
_LEAST = 0.1
# The least gain of log-likelihood per row, and the same in its standard errors.
_GAIN, _SIGMAS = 0.02, 3.0
# Rows for each column of a fit that uses every input.
_ROWS_PER_COLUMN = 8
_MOST_ROWS = 20_000
# Sizes stay between these quantiles of those of the training rows.
_RANGE = (0.01, 0.99)
# A JSON object with larger exponents is damaged.
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Spread:
    """The size of errors as a function of the row."""

    columns: Indices  # which inputs count; the number of inputs stands for the prediction
    middle: Array  # of those columns
    scale: Array  # of those columns
    # a constant, then for each column that of its standardized value and that of its distance from the middle
    weights: Array
    low: float  # the least logarithm of a size
    high: float  # the largest

    def at(self, x: Array, predictions: Array) -> Array:
        """The size for inputs (rows, inputs) and their predictions (rows,); positive."""
        both = np.column_stack([x, predictions])[:, self.columns]
        with np.errstate(all="ignore"):
            logs = _features((both - self.middle) / self.scale) @ self.weights
        return np.asarray(np.exp(np.clip(np.nan_to_num(logs, nan=self.high), self.low, self.high)))

    @classmethod
    def of(cls, x: Array, predictions: Array, errors: Array, weight: Array | None = None) -> Spread | None:
        """Fit to training rows (rows, inputs) and their absolute errors; None if one size is as good."""
        weight = np.ones(len(x)) if weight is None else weight
        known = np.isfinite(predictions) & np.isfinite(errors) & (weight > 0)
        x, predictions, errors, weight = x[known], predictions[known], errors[known], weight[known]
        if len(x) > _MOST_ROWS:
            chosen = np.sort(np.random.default_rng(0).choice(len(x), _MOST_ROWS, replace=False))
            x, predictions, errors, weight = x[chosen], predictions[chosen], errors[chosen], weight[chosen]
        if len(x) < _FEWEST or not np.median(errors) > 0:
            return None
        logs = np.log(np.maximum(errors, _LEAST * float(np.median(errors))))
        both = np.column_stack([x, predictions])
        varied = np.flatnonzero(np.ptp(both, axis=0) > 0)
        choices = [varied[varied == x.shape[1]]]
        if _ROWS_PER_COLUMN * (1 + 2 * len(varied)) <= len(x):
            choices.append(varied)
        fold = np.random.default_rng(0).permutation(len(x)) % _FOLDS
        best: tuple[float, Indices] | None = None
        for columns in choices:
            if not len(columns):
                continue
            logs_held = np.empty(len(x))
            for part in range(_FOLDS):
                rows = fold != part
                one = _fitted(both[rows][:, columns], logs[rows], weight[rows], columns)
                logs_held[~rows] = np.log(one.at(x[~rows], predictions[~rows]))
            gains = _laplace(errors, np.zeros(len(x)), weight) - _laplace(errors, logs_held, weight)
            mean = float(np.average(gains, weights=weight))
            doubt = float(np.sqrt(np.average((gains - mean) ** 2, weights=weight) / len(x)))
            if mean > max(_GAIN, _SIGMAS * doubt) and (best is None or mean > best[0] + _GAIN):
                best = mean, columns
        return None if best is None else _fitted(both[:, best[1]], logs, weight, best[1])

    def as_json(self) -> dict[str, Any]:
        """A JSON object for a model file."""
        return {
            "columns": self.columns.tolist(),
            "middle": self.middle.tolist(),
            "scale": self.scale.tolist(),
            "weights": self.weights.tolist(),
            "low": self.low,
            "high": self.high,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], inputs: int) -> Spread:
        """The inverse of :meth:`as_json`; KeyError, TypeError or ValueError if the entry is damaged."""
        columns = np.asarray(entry["columns"], dtype=np.int64)
        middle, scale, weights = (
            np.asarray(entry[n], dtype=np.float64) for n in ("middle", "scale", "weights")
        )
        low, high = float(entry["low"]), float(entry["high"])
        count = len(columns)
        fits = middle.shape == scale.shape == (count,) and weights.shape == (1 + 2 * count,)
        places = columns.ndim == 1 and bool(((columns >= 0) & (columns <= inputs)).all())
        sane = all(np.isfinite(each).all() for each in (middle, scale, weights)) and bool((scale > 0).all())
        if not (fits and places and sane and -_LARGEST_LOG <= low <= high <= _LARGEST_LOG):
            raise ValueError("sizes of errors")
        return cls(columns, middle, scale, weights, low, high)


def _features(standard: Array) -> Array:
    return np.column_stack([np.ones(len(standard)), standard, np.abs(standard)])


def _fitted(values: Array, logs: Array, weight: Array, columns: Indices) -> Spread:
    """Ridge regression of the logarithms of errors."""
    unit = np.maximum(np.abs(values).max(axis=0), np.finfo(np.float64).tiny)  # squares of 1e200 are infinite
    middle = np.average(values / unit, axis=0, weights=weight)
    scale = np.sqrt(np.average((values / unit - middle) ** 2, axis=0, weights=weight))
    middle, scale = middle * unit, np.where(scale > 0, scale, 1.0) * unit
    features = _features((values - middle) / scale)
    share = weight / weight.mean()
    penalty = _RIDGE * np.eye(features.shape[1])
    penalty[0, 0] = 0.0
    normal = (features * share[:, None]).T @ features + penalty
    found = np.linalg.solve(normal, features.T @ (share * logs))
    low, high = np.quantile(features @ found, _RANGE)
    return Spread(columns, middle, scale, found, float(low), float(high))


def _laplace(errors: Array, logs: Array, weight: Array) -> Array:
    """Negative log-likelihood of each row with sizes proportional to exp(logs), the factor fitted."""
    shares = errors * np.exp(-logs)
    factor = float(np.average(shares, weights=weight))
    return np.asarray(logs + math.log(max(factor, 1e-300)) + shares / max(factor, 1e-300))
