"""A linear model as a rival of the layer on held-out rows: ridge and lasso, for classes logistic regression.

With few rows for many columns a layer cannot learn to ignore most of them; the lasso can (Tibshirani, J. R.
Stat. Soc. B 58, 1996; refitted on the columns that it chooses: Meinshausen, Comput. Stat. Data Anal. 52,
2007). A linear model is an M-layer, so that nothing else changes: docs/theory/waves.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax
from torch import Tensor

from mlayer.estimators.fitting import Tensors
from mlayer.numerics.arrays import AnyArray, Array

# Ridges, as parts of the number of rows; unit variance of inputs makes them comparable.
_RIDGES = tuple(float(ridge) for ridge in np.geomspace(1e-4, 3.0, 12))
_STEPS = 25  # strengths of the lasso
_WEAKEST = 3e-3  # of them, relative to the strength at which nothing is chosen
# With fewer inputs the ridge does what the lasso would; for more numbers than that it takes too long.
_FEWEST_INPUTS = 6
_MOST_NUMBERS = 1_000_000
# Penalties of logistic regression, as parts of the number of rows, from strong to weak.
_STRENGTHS = tuple(float(strength) for strength in np.geomspace(0.3, 1e-4, 7))
_ITERATIONS = 60
_USUAL = 0.95  # the share of held-out rows that are not counted as unusual

# From rows (x, y, weight) to coefficients (strengths, 1 + inputs, outputs).
Path = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class LinearFit:
    """A linear model in standardized units."""

    coefficients: Array  # a constant, then those of the inputs, (1 + inputs, outputs)
    loss: float  # on held-out rows, as that of the layer is measured
    # of each row when it was held out, NaN where it never was: absolute, (rows, outputs); of classes the
    # terms of the loss, (rows, 1)
    errors: Array

    def is_no_worse(self, loss: float, errors: Array) -> bool:
        """Compared with another model of a quantity on the same held-out rows, on average and on usual rows.

        A mean of squares alone is decided by the few rows that lie far from all others.
        """
        return self.loss <= loss and _usual_loss(self.errors) <= _usual_loss(errors)

    def is_as_good(self, losses: Array) -> bool:
        """Compared with another model of classes: its loss is within a standard error of the difference.

        The losses are those of the rows that were held out; some are infinite after an overflow.
        The rows of a rare class are few (Breiman et al., "Classification and Regression Trees", 1984).
        """
        if not np.isfinite(losses).all():
            return True
        gain = self.errors[~np.isnan(self.errors)] - losses
        return bool(gain.mean() <= gain.std() / np.sqrt(len(gain)))


def best_linear(data: Tensors, folds: Sequence[Tensor]) -> LinearFit:
    """The linear model with the least squared error on held-out rows, fitted to all.

    The folds are masks of the rows to hold out, one after the other.
    """
    rows = data.rows
    x, y, weight = rows.x, rows.y, rows.weight
    paths: list[tuple[Path, int]] = [(_ridge, len(_RIDGES))]
    if x.shape[1] >= _FEWEST_INPUTS and x.size <= _MOST_NUMBERS and y.shape[1] == 1:
        paths.append((_lasso, 2 * _STEPS))
    trials = []
    for path, strengths in paths:
        losses, errors = np.zeros(strengths), np.full((strengths, *y.shape), np.nan)
        for fold in folds:
            held = fold.numpy()
            found = path(x[~held], y[~held], weight[~held])
            left = np.abs(_values(found, x[held]) - y[held])  # (strengths, rows, outputs)
            losses += np.square(left).mean(axis=2) @ (weight[held] / weight[held].sum()) / len(folds)
            errors[:, held] = left
        place = int(np.argmin(losses))
        trials.append((float(losses[place]), path, place, errors[place]))
    loss, path, place, error = min(trials, key=lambda trial: trial[0])
    return LinearFit(path(x, y, weight)[place], loss, error)


def best_logistic(data: Tensors, folds: Sequence[Tensor], classes: int) -> LinearFit | None:
    """The linear logits with the least cross-entropy on held-out rows, fitted to all.

    None for tables so large that it would take long, where a layer has rows enough.
    """
    x, labels, weight = data.rows.x, data.y.numpy(), data.rows.weight
    if x.size * classes > _MOST_NUMBERS:
        return None
    trials = []
    for penalty in ("l2", "l1") if classes == 2 and x.shape[1] >= _FEWEST_INPUTS else ("l2",):
        losses, errors = np.zeros(len(_STRENGTHS)), np.full((len(_STRENGTHS), len(x), 1), np.nan)
        for fold in folds:
            held = fold.numpy()
            found = _logistic(x[~held], labels[~held], weight[~held], classes, penalty)
            for place, logits in enumerate(_values(found, x[held])):
                each = -log_softmax(logits, axis=1)[np.arange(len(logits)), labels[held]]
                errors[place, held, 0] = each * weight[held] / weight[held].mean()
                losses[place] += errors[place, held].mean() / len(folds)
        place = int(np.argmin(losses))
        trials.append((float(losses[place]), penalty, place, errors[place]))
    loss, penalty, place, error = min(trials, key=lambda trial: trial[0])
    coefficients = _logistic(x, labels, weight, classes, penalty)[place]
    return LinearFit(coefficients, loss, error)


def _logistic(x: Array, labels: AnyArray, weight: Array, classes: int, penalty: str) -> Array:
    """Coefficients (strengths, 1 + inputs, classes); classes without a row here are improbable."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    result = np.zeros((len(_STRENGTHS), 1 + x.shape[1], classes))
    seen = np.unique(labels)
    result[:, 0] = -np.log(len(x) + 1.0)
    result[:, 0, seen] = 0.0
    if len(seen) == 1:
        return result
    how = {"l1_ratio": 1.0, "solver": "liblinear"} if penalty == "l1" else {"solver": "lbfgs"}
    model = LogisticRegression(**how, warm_start=penalty == "l2", tol=1e-3, max_iter=_ITERATIONS)
    for place, strength in enumerate(_STRENGTHS):
        with warnings.catch_warnings():  # held-out rows judge the slopes, converged or not
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(C=1 / (strength * len(x))).fit(x, labels, weight / weight.mean())
        slopes = np.column_stack([model.intercept_, model.coef_])  # (classes or 1, 1 + inputs)
        if len(slopes) == 1:
            slopes = np.concatenate([-slopes / 2, slopes / 2])
        result[place][:, seen] = slopes.T
    return result


def _usual_loss(errors: Array) -> float:
    """The mean square of the smaller errors of each output."""
    held = errors[~np.isnan(errors).any(axis=1)]
    if not len(held):  # the time was over before a row was held out
        return 0.0
    return float(np.square(np.sort(held, axis=0)[: max(1, int(_USUAL * len(held)))]).mean())


def _values(coefficients: Array, x: Array) -> Array:
    return np.asarray(coefficients[:, :1] + x @ coefficients[:, 1:])


def _centered(x: Array, y: Array, weight: Array) -> tuple[Array, Array, Array, Array]:
    """Rows times the roots of their weights, without the means; the means."""
    share = weight / weight.sum()
    middle, level = share @ x, share @ y
    root = np.sqrt(weight / weight.mean())[:, None]
    return (x - middle) * root, (y - level) * root, middle, level


def _with_constant(slopes: Array, middle: Array, level: Array) -> Array:
    return np.concatenate([(level - middle @ slopes)[:, None], slopes], axis=1)


def _ridge(x: Array, y: Array, weight: Array) -> Array:
    moved, wanted, middle, level = _centered(x, y, weight)
    U, sizes, Vh = np.linalg.svd(moved, full_matrices=False)
    onto = U.T @ wanted
    slopes = [Vh.T @ ((sizes / (sizes**2 + ridge * len(x)))[:, None] * onto) for ridge in _RIDGES]
    return _with_constant(np.stack(slopes), middle, level)


def _lasso(x: Array, y: Array, weight: Array) -> Array:
    """The lasso's slopes, then those of least squares on the columns that it has chosen."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lasso_path

    moved, wanted, middle, level = _centered(x, y, weight)
    strongest = float(np.abs(moved.T @ wanted[:, 0]).max()) / len(x)
    strengths = max(strongest, 1e-300) * np.geomspace(1.0, _WEAKEST, _STEPS)
    with warnings.catch_warnings():  # held-out rows judge the slopes, converged or not
        warnings.simplefilter("ignore", ConvergenceWarning)
        shrunken = lasso_path(moved, wanted[:, 0], alphas=strengths, max_iter=300, tol=1e-3)[1].T
    result = np.zeros((2 * _STEPS, x.shape[1], 1))
    for k, slopes in enumerate(shrunken):
        chosen = np.flatnonzero(slopes)
        result[k, :, 0] = slopes
        if 0 < len(chosen) < len(x) // 2:
            free = np.linalg.lstsq(moved[:, chosen], wanted[:, 0], rcond=None)[0]
            result[_STEPS + k, chosen, 0] = free
        else:
            result[_STEPS + k, :, 0] = slopes
    return _with_constant(result, middle, level)
