"""`MLayerRegressor`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from mlayer.errors import ArgumentError
from mlayer.estimators.base import Auto, MLayerEstimator
from mlayer.estimators.rows import Rows, standard_rows
from mlayer.estimators.scaling import Scale
from mlayer.numerics.arrays import Array
from mlayer.numerics.conformal import half_width
from mlayer.numerics.spread import Spread


class MLayerRegressor(MultiOutputMixin, RegressorMixin, MLayerEstimator):  # type: ignore[misc]
    """An M-layer as a scikit-learn regressor, for one target or several.

    Inputs and targets are standardized inside. Small tables are fitted by L-BFGS on all rows, with the
    ridge chosen on held-out rows; large ones by Adam on batches, with early stopping.

    Args:
        matrix_size: n, or "auto".
        embedding_size: d, "auto", or None for one generator per input.
        structure: of the generators, as in :class:`mlayer.MLayer`.
        init: initial weights, as in :class:`mlayer.MLayer`.
        alpha: factor of the ridge; "auto" chooses it on held-out rows (L-BFGS) or takes 1e-4.
        penalty: what the ridge is made of: "weights" or "matrix"; see docs/estimators.md.
        activity_penalty: factor of the paper's penalty on exp(M).
        periodic: look for waves along single inputs, and use them if they predict held-out rows better;
            "auto": along all of up to three inputs, else along those spaced like times; a list of inputs:
            along these; True: use waves if there are any. See docs/estimators.md.
        solver: "lbfgs", the name of an optimizer of torch for batches, or "auto" by the number of rows.
        max_iter: iterations of L-BFGS or epochs, at most.
        learning_rate: of the solvers with batches.
        batch_size: likewise.
        early_stopping: hold out rows to stop solvers with batches; "auto": from 500 rows.
        validation_fraction: the share of rows held out for that.
        n_iter_no_change: epochs without improvement until the stop.
        effort: of the search for alpha: "quick", "default" or "thorough"; see docs/estimators.md.
        warm_start: continue from the last fit, with its scales and its alpha.
        random_state: seed of initial weights, folds and shuffling.
        verbose: show a progress bar on a terminal.

    Attributes:
        n_features_in_: the number of inputs; also ``feature_names_in_`` if X had names.
        n_outputs_: the number of targets.
        alpha_: the ridge that was used.
        periodic_: whether the model is made of waves.
        linear_: whether it is linear: no worse than a trained layer on held-out rows.
        periods_: pairs (input, period in its units), the longest first, if it is.
        history_: a dictionary for each epoch (for L-BFGS: each 20 iterations).
        n_iter_: iterations or epochs of the final fit.
        loss_: the last training loss in standardized units, ridge included.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> model = MLayerRegressor(random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> bool(model.score(X, X[:, 0] * X[:, 1]) > 0.99)
    True
    """

    _loss = "squared_error"
    _spread: Spread | None

    def __init__(
        self,
        matrix_size: int | Auto = "auto",
        embedding_size: int | Auto | None = "auto",
        *,
        structure: Any = "full",
        init: Any = "balanced",
        alpha: float | Auto = "auto",
        penalty: str = "weights",
        activity_penalty: float = 0.0,
        periodic: bool | Auto | Sequence[int] = "auto",
        solver: str = "auto",
        max_iter: int = 300,
        learning_rate: float | Auto = "auto",
        batch_size: int | Auto = "auto",
        early_stopping: bool | Auto = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        effort: str = "default",
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MLayerRegressor:
        """Fit to rows X, (rows, inputs), and their targets y, (rows,) or (rows, targets).

        A weight of 2 is the same as the row twice, a weight of 0 as no row.
        """
        with self._all_or_nothing():
            rows = self._rows(X, y, sample_weight, reset=True)
            self._fit(rows, Scale.of(rows.y, rows.weight, "y"))
            self._forget_calibration()
            self._spread = self._spread_of(rows)
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> MLayerRegressor:
        """One pass of Adam over these rows.

        The rows of the first call set the scales of inputs and targets and, where they are "auto", the
        sizes.
        """
        first = not hasattr(self, "_layer")
        with self._all_or_nothing():
            rows = self._rows(X, y, sample_weight, reset=first)
            if not first:
                self._check_same_shape(rows, rows.y.shape[1])
            # Later batches keep the scale of the first; theirs may well be that of a constant.
            self._partial_fit(rows, Scale.of(rows.y, rows.weight, "y") if first else self._outputs)
            self._forget_calibration()
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The targets of each row: (rows,), or (rows, targets) if y had this shape.

        Infinite or NaN, with a warning, for rows so far away that the exponential overflows.
        """
        check_is_fitted(self)
        inputs = self._validated(X, dtype=np.float64, reset=False)
        outputs, _ = self._raw_outputs(inputs)
        return outputs[:, 0] if self._flat else outputs

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> MLayerRegressor:
        """Measure the errors on rows that the fit has not seen, for :meth:`predict_interval`; one target."""
        check_is_fitted(self)
        inputs, truth = self._validated(X, y, dtype=np.float64, y_numeric=True, reset=False)
        outputs, _ = self._raw_outputs(inputs)
        if not self._flat:
            raise ArgumentError("y", "one target", f"{outputs.shape[1]} targets", "Fit one model for each.")
        errors = np.abs(outputs[:, 0] - np.asarray(truth, dtype=np.float64))
        self.errors_ = np.sort(errors)
        self._scores = np.sort(errors / self._sizes(inputs, outputs[:, 0]))
        return self

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> Array:
        """Intervals that hold the truth with probability ``coverage``: (rows, 2), low and high.

        Conformal: needs :meth:`calibrate` first, with rows from the same source as the new ones. Infinite
        where the rows of the calibration are too few for this coverage. Where the errors on the training rows
        depend on the row, so does the width of the intervals (docs/estimators.md).
        """
        check_is_fitted(self)
        if not hasattr(self, "errors_"):
            raise ArgumentError(
                "the estimator", "calibrated", "one that is not", "Call calibrate(X, y) with unseen rows."
            )
        inputs = self._validated(X, dtype=np.float64, reset=False)
        middle = self._raw_outputs(inputs)[0][:, 0]
        quantile = half_width(getattr(self, "_scores", self.errors_), coverage)
        half = quantile * self._sizes(inputs, middle)
        return np.stack([middle - half, middle + half], axis=1)

    def _forget_calibration(self) -> None:
        """Errors, scores and spread are those of other weights."""
        self._spread = None
        for name in ("errors_", "_scores"):
            self.__dict__.pop(name, None)

    def _sizes(self, inputs: Array, outputs: Array) -> Array:
        """The size of errors of each row; 1 where one size is as good."""
        spread: Spread | None = getattr(self, "_spread", None)
        return np.ones(len(inputs)) if spread is None else spread.at(inputs, outputs)

    def _spread_of(self, rows: Rows) -> Spread | None:
        """The dependence of errors on the row, from those on the training rows."""
        if not self._flat or getattr(self, "way_", None) is not None:
            return None  # those of a series depend on the horizon
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            outputs = self._raw_outputs(rows.x)[0][:, 0]
        with np.errstate(all="ignore"):
            return Spread.of(rows.x, outputs, np.abs(outputs - rows.y[:, 0]), rows.weight)

    def _rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool) -> Rows:
        inputs, y = self._validated(X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=reset)
        weight = self._sample_weight(inputs, sample_weight)
        targets = np.asarray(y, dtype=np.float64)
        if targets.ndim > 2:
            raise ArgumentError("y", "(rows,) or (rows, targets)", f"shape {targets.shape}", "Flatten it.")
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        self.n_outputs_ = targets.shape[1]
        return standard_rows(inputs, targets, weight)
