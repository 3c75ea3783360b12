"""`MLayerClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.estimators.base import Auto, MLayerEstimator
from mlayer.estimators.rows import Rows, scaled_weights, standard_rows
from mlayer.estimators.scaling import Scale
from mlayer.numerics.arrays import Array


class MLayerClassifier(ClassifierMixin, MLayerEstimator):  # type: ignore[misc]
    """An M-layer as a scikit-learn classifier.

    Inputs are standardized inside. The outputs of the layer are logits, one per class (two for two
    classes). Small tables are fitted by L-BFGS on all rows, with the ridge chosen on held-out rows; large
    ones by Adam on batches, with early stopping.

    Args:
        matrix_size: n, or "auto".
        embedding_size: d, "auto", or None for one generator per input.
        structure: of the generators, as in :class:`mlayer.MLayer`.
        init: initial weights, as in :class:`mlayer.MLayer`.
        alpha: factor of the ridge; "auto" chooses it on held-out rows (L-BFGS) or takes 1e-4.
        penalty: what the ridge is made of: "matrix" or "weights"; see docs/estimators.md.
        activity_penalty: factor of the paper's penalty on exp(M).
        solver: "lbfgs", the name of an optimizer of torch for batches, or "auto" by the number of rows.
        max_iter: iterations of L-BFGS or epochs, at most.
        learning_rate: of the solvers with batches.
        batch_size: likewise.
        early_stopping: hold out rows to stop solvers with batches; "auto": from 500 rows.
        validation_fraction: the share of rows held out for that.
        n_iter_no_change: epochs without improvement until the stop.
        class_weight: None, "balanced", or a dictionary from class to weight.
        effort: of the search for alpha: "quick", "default" or "thorough"; see docs/estimators.md.
        warm_start: continue from the last fit, with its scales and its alpha.
        random_state: seed of initial weights, folds and shuffling.
        verbose: show a progress bar on a terminal.

    Attributes:
        classes_: the classes.
        n_features_in_: the number of inputs; also ``feature_names_in_`` if X had names.
        alpha_: the ridge that was used.
        history_: a dictionary for each epoch (for L-BFGS: each 20 iterations).
        n_iter_: iterations or epochs of the final fit.
        loss_: the last training loss, ridge included.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLayerClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> model.to_mlayer().in_features
    4
    """

    _loss = "cross_entropy"
    class_weight: Any
    classes_: NDArray[Any]

    def __init__(
        self,
        matrix_size: int | Auto = "auto",
        embedding_size: int | Auto | None = "auto",
        *,
        structure: Any = "full",
        init: Any = "balanced",
        alpha: float | Auto = "auto",
        penalty: str = "matrix",
        activity_penalty: float = 0.0,
        solver: str = "auto",
        max_iter: int = 300,
        learning_rate: float | Auto = "auto",
        batch_size: int | Auto = "auto",
        early_stopping: bool | Auto = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Any = None,
        effort: str = "default",
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MLayerClassifier:
        """Fit to rows X, (rows, inputs), and their classes y, (rows,).

        A weight of 2 is the same as the row twice, a weight of 0 as no row.
        """
        with self._all_or_nothing():
            inputs, labels, weight = self._checked(X, y, sample_weight, reset=True)
            classes = np.unique(labels)
            if self.warm_start and hasattr(self, "_layer") and not np.array_equal(classes, self.classes_):
                raise ArgumentError(
                    "y",
                    f"of the classes {list(self.classes_)}, as in the fit before",
                    str(list(classes)),
                    "Set warm_start=False to start over.",
                )
            self.classes_ = classes
            rows = self._rows(inputs, labels, weight)
            self._fit(rows, Scale.identity(len(classes)))
            self._set_prior(rows)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> MLayerClassifier:
        """One pass of Adam over these rows.

        The first call must name all ``classes``; its rows set the scales of the inputs and, where they
        are "auto", the sizes.
        """
        with self._all_or_nothing():
            first = not hasattr(self, "_layer")
            inputs, labels, weight = self._checked(X, y, sample_weight, reset=first)
            if first and classes is None:
                raise ArgumentError(
                    "classes", "given in the first call of partial_fit", "None", "Pass np.unique(all labels)."
                )
            if isinstance(self.class_weight, str):
                raise ArgumentError(
                    "class_weight",
                    "None or a dictionary with partial_fit, which never sees all rows",
                    repr(self.class_weight),
                    "Compute the weights from all labels: sklearn.utils.compute_class_weight.",
                )
            if classes is not None:
                known = _different(classes)
                if not first and not np.array_equal(known, self.classes_):
                    raise ArgumentError(
                        "classes",
                        "the same in every call",
                        str(list(known)),
                        "Leave it out after the first call.",
                    )
                self.classes_ = known
            unknown = np.setdiff1d(labels, self.classes_)
            if len(unknown):
                raise ArgumentError(
                    "y",
                    f"of the classes {list(self.classes_)}",
                    str(list(unknown)),
                    "Name all classes in the first call.",
                )
            rows = self._rows(inputs, labels, weight)
            self._partial_fit(rows, Scale.identity(len(self.classes_)))
            self._set_prior(rows)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row, (rows,)."""
        chosen = self._logits(X).argmax(axis=1)
        return self.classes_[chosen]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities, (rows, classes), in the order of ``classes_``."""
        return np.asarray(softmax(self._logits(X), axis=1))

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of the probabilities, (rows, classes)."""
        return np.asarray(log_softmax(self._logits(X), axis=1))

    def decision_function(self, X: ArrayLike) -> Array:
        """Logits, (rows, classes); for two classes their difference, (rows,), positive for the second."""
        logits = self._logits(X)
        return np.asarray(logits[:, 1] - logits[:, 0]) if logits.shape[1] == 2 else logits

    def _logits(self, X: ArrayLike) -> Array:
        """(rows, classes). Rows on which the exponential overflows get the shares of the classes."""
        check_is_fitted(self)
        inputs = self._validated(X, dtype=np.float64, reset=False)
        logits, finite = self._raw_outputs(inputs)
        logits[~finite] = self._log_prior
        return logits

    def _set_prior(self, rows: Rows) -> None:
        shares = np.bincount(rows.y, rows.weight, minlength=len(self.classes_)) + 1e-9
        self._log_prior = np.log(shares / shares.sum())

    def _checked(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Array, NDArray[Any], Array]:
        """Inputs, labels and weights, checked by scikit-learn."""
        inputs, labels = self._validated(X, y, dtype=np.float64, reset=reset)
        check_classification_targets(labels)
        return inputs, labels, scaled_weights(self._sample_weight(inputs, sample_weight), "sample_weight")

    def _rows(self, inputs: Array, labels: NDArray[Any], weight: Array) -> Rows:
        """The rows in standard form, with the weights of their classes."""
        indices = np.searchsorted(self.classes_, labels)
        if self.class_weight is not None:
            # Balanced by weights, so that a row twice and a row of weight 2 are still the same.
            kept = weight > 0
            weight = weight * self._class_factors(indices[kept], weight[kept])[indices]
        return standard_rows(inputs, indices, weight)

    def _class_factors(self, indices: NDArray[np.int64], weight: Array) -> Array:
        if isinstance(self.class_weight, str):
            sums = np.bincount(indices, weight, minlength=len(self.classes_))
            factors = weight.sum() / (len(self.classes_) * np.where(sums > 0, sums, 1.0))
        else:
            # scikit-learn needs every class that it computes a weight for.
            try:
                factors = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
            except (TypeError, ValueError) as error:
                raise ArgumentError(
                    "class_weight",
                    f"weights of the classes {self.classes_.tolist()}",
                    f"a dictionary of which scikit-learn says: {in_one_line(error)}",
                    "Its keys are the classes as they stand in y, its values numbers.",
                ) from error
        return scaled_weights(np.asarray(factors, dtype=np.float64), "class_weight")


def _different(classes: ArrayLike) -> NDArray[Any]:
    try:
        known = np.unique(np.asarray(classes))
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            "classes",
            "labels of one kind",
            f"something else: {in_one_line(error)}",
            "Pass np.unique(all labels).",
        ) from error
    if np.ndim(classes) != 1 or len(known) < 1:
        raise ArgumentError(
            "classes", "several labels", f"shape {np.shape(classes)}", "Pass np.unique(all labels)."
        )
    return known
