"""The common part of both estimators: from a checked table to a trained layer, and back to raw inputs."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.estimators import selection
from mlayer.estimators.fitting import (
    Fit,
    Recipe,
    Tensors,
    affordable_epochs,
    class_losses,
    fit_layer,
    outputs_of,
)
from mlayer.estimators.linear import LinearFit, best_linear, best_logistic
from mlayer.estimators.parameters import EstimatorPlan, check_arguments, is_auto, plan, seed_of
from mlayer.estimators.rows import Rows, dense
from mlayer.estimators.scaling import Scale, raw_layer
from mlayer.estimators.series import SeriesPart
from mlayer.estimators.watch import Listener, suitable_threads
from mlayer.estimators.waves import WaveFit
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory
from mlayer.training.result import Record

Auto = Literal["auto"]

# The ridge of partial_fit, which has no held-out rows to choose it on.
_ALPHA_OF_A_STREAM = 1e-3


@contextmanager
def _numbers_wanted(names: str) -> Iterator[None]:
    """Turn numpy's error for things that are not numbers into one that names the argument."""
    try:
        yield
    except TypeError as error:
        raise ArgumentTypeError(
            names,
            "numbers in an array or a table",
            f"something else: {in_one_line(error).rstrip('.')}",
            "Use numpy.asarray(..., float).",
        ) from error
    except ValueError as error:
        if not str(error).startswith("could not convert string to float: "):
            raise
        raise ArgumentError(
            names,
            "numbers",
            f"text: {in_one_line(str(error).split(': ', 1)[1])}",
            "Encode text, such as by OneHotEncoder in a pipeline; mlayer.tables.fit_table takes raw tables.",
        ) from error


class MLayerEstimator(SeriesPart, BaseEstimator):  # type: ignore[misc]
    """The common part; use :class:`MLayerClassifier` or :class:`MLayerRegressor`."""

    _loss: str

    # Set by the subclasses' constructors.
    matrix_size: int | Auto
    embedding_size: int | Auto | None
    structure: str | torch.nn.Module
    init: Any
    alpha: float | Auto
    penalty: str
    activity_penalty: float
    solver: str
    max_iter: int
    learning_rate: float | Auto
    batch_size: int | Auto
    early_stopping: bool | Auto
    validation_fraction: float
    n_iter_no_change: int
    effort: str
    warm_start: bool
    random_state: Any
    verbose: bool

    # Set by a fit.
    alpha_: float
    history_: list[Record]
    n_iter_: int
    loss_: float
    periodic_: bool
    linear_: bool
    _layer: MLayer
    _inputs: Scale
    _outputs: Scale
    _optimizer: torch.optim.Optimizer | None

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Store the constructor's arguments unchanged under their names, as scikit-learn requires."""
        self.__dict__.update({name: value for name, value in arguments.items() if name != "self"})

    def __sklearn_tags__(self) -> Any:
        """The tags of scikit-learn: sparse input is accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # made dense
        return tags

    def to_mlayer(self) -> MLayer:
        """The model as one plain layer on raw inputs, in float64: what predictions come from.

        The standardization of inputs and targets is part of its weights, so that certificates, formulas
        and files refer to the inputs and outputs as they were given.
        """
        check_is_fitted(self)
        with torch.inference_mode(False):  # else it could never be trained or certified
            return raw_layer(self._layer, self._inputs, self._outputs)

    # ---- Fitting. --------------------------------------------------------------------------------

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A call that is refused, or interrupted, leaves the attributes as they were before it.

        Gradients are enabled inside, even under torch.inference_mode or torch.no_grad.
        """
        check_arguments(self)
        before = dict(self.__dict__)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _validated(self, *data: Any, **options: Any) -> Any:
        """X, or X and y, checked by scikit-learn; X dense, as all of its numbers are used in each step."""
        data = (dense(data[0]), *data[1:])
        # It adds up the values in search of NaN; near the largest of float64 that alone would warn.
        with np.errstate(invalid="ignore"), _numbers_wanted("X" if len(data) == 1 else "X and y"):
            return validate_data(self, *data, **options)

    def _sample_weight(self, X: Array, sample_weight: Any) -> Array:
        """One weight per row, checked by scikit-learn."""
        with _numbers_wanted("sample_weight"):
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return np.asarray(weight)

    def _fit(self, rows: Rows, outputs: Scale) -> None:
        """Train on ``rows`` and set every fitted attribute except those of the subclass."""
        again = self.warm_start and hasattr(self, "_layer")
        if again:
            self._check_same_shape(rows, len(outputs.mean))
        seed = seed_of(self.random_state)
        settled = plan(self, len(rows), rows.x.shape[1], len(outputs.mean), seed)
        recipe = settled.recipe
        if not again:
            self._inputs, self._outputs = Scale.of(rows.x, rows.weight, "X"), outputs
        dtype = torch.float64 if recipe.solver == "lbfgs" else torch.float32
        data = self._tensors(rows, self._layer.readout.dtype if again else dtype)
        if again:
            if settled.chooses_alpha:
                recipe = replace(recipe, alpha=self.alpha_)
            held = self._validation(data, recipe.seed, settled.hold_out)
            self._finish(self._train(self._layer, data, recipe, held), recipe.alpha)
            return

        def make() -> MLayer:
            return self._new_layer(settled, data, seed)

        watch = self._clock
        with suitable_threads(len(data), settled.matrix_size):
            text = "looking for waves" if getattr(self, "periodic", False) is not False else "preparing"
            with watch.part(0.0, 0.1, text, time_share=0.3):
                waves = self._waves(make, data, recipe)
            # With a handful of rows nothing can be held out.
            start: MLayer | None = None
            linear: LinearFit | None = None
            self._held_out: Array | None = None
            if waves is None and settled.chooses_alpha and len(data) >= 10:
                choice, linear = self._choice(make, data, recipe)
                recipe, start = replace(recipe, alpha=choice.alpha), choice.layer
                errors = None if choice.errors is None else choice.errors.double().numpy()
                errors = errors if linear is None or errors is None else linear.errors
                self._held_out = errors if errors is not None and np.isfinite(errors).all() else None
            self.linear_ = False
            if waves is not None:
                self._finish(waves, 0.0)
            else:
                with watch.part(0.6, 1.0, "training on all rows"):
                    fit = None
                    if linear is None:
                        held = self._validation(data, recipe.seed, settled.hold_out)
                        rival = self._rival_of_large(data, held) if settled.is_large else None
                        fit = self._train(start or make(), data, recipe, held)
                        if rival is not None and held is not None:
                            losses = class_losses(fit.layer, data.part(held)).double().numpy()
                            linear = rival if rival.is_as_good(losses) else None
                    self.linear_ = linear is not None
                    if linear is not None:
                        fit = self._solved(WaveFit.linear(linear.coefficients), data, self._loss)
                    assert fit is not None
                    self._finish(fit, recipe.alpha)
        self.periodic_ = waves is not None and bool(self.periods_)

    def _choice(
        self, make: selection.Maker, data: Tensors, recipe: Recipe
    ) -> tuple[selection.Choice, LinearFit | None]:
        """The ridge, by held-out rows; the final fit continues from the layer of the best trial.

        The linear model comes with it where it is no worse on the same rows.
        """
        count = selection.fold_count(len(data), self.effort)
        folds = selection.random_folds(data.y, count, torch.Generator().manual_seed(recipe.seed))
        classifies = self._loss != "squared_error"
        logistic = None
        if classifies and self._may_be_linear:
            logistic = best_logistic(data, folds, len(self._outputs.mean))
        to_beat = math.inf if logistic is None else logistic.loss
        with self._clock.part(0.1, 0.6, "choosing the strength of the ridge", time_share=0.5):
            choice = selection.choose_alpha(
                make, data, recipe, folds, effort=self.effort, watch=self._clock, to_beat=to_beat
            )
        if classifies or not self._may_be_linear:
            return choice, logistic if to_beat <= choice.loss else None
        linear = best_linear(data, folds)
        assert choice.errors is not None  # a quantity
        return choice, linear if linear.is_no_worse(choice.loss, choice.errors.numpy()) else None

    def _rival_of_large(self, data: Tensors, held: torch.Tensor | None) -> LinearFit | None:
        """Logistic regression, judged on the early-stopping rows."""
        if held is None or self._loss == "squared_error" or not self._may_be_linear:
            return None
        return best_logistic(data.double(), [held], len(self._outputs.mean))

    @property
    def _may_be_linear(self) -> bool:
        """Whether size, structure and penalty of the layer are all at their defaults."""
        free = is_auto(self.matrix_size) and is_auto(self.embedding_size) and not self.warm_start
        plain = isinstance(self.structure, str) and self.structure == "full" and not self.activity_penalty
        return bool(free and plain)

    @staticmethod
    def _validation(data: Tensors, seed: int, share: float) -> torch.Tensor | None:
        """The mask of the early-stopping rows; None without any."""
        if not share:
            return None
        generator = torch.Generator().manual_seed(seed)
        held = selection.random_folds(data.y, max(2, round(1 / share)), generator)[0]
        return held if 0 < int(held.sum()) < len(data) else None

    def _train(self, layer: MLayer, data: Tensors, recipe: Recipe, held: torch.Tensor | None) -> Fit:
        validation = None
        if held is not None:
            data, validation = data.part(~held), data.part(held)
        progress: bool | Listener = bool(self.verbose)
        if getattr(self, "_watch", None) is not None:
            progress = Listener(self._clock)
            if (left := self._clock.left) is not None and recipe.solver != "lbfgs":
                recipe = replace(recipe, max_iter=affordable_epochs(layer, data, recipe, left))
        return fit_layer(layer, data, recipe, validation=validation, progress=progress)

    def _partial_fit(self, rows: Rows, outputs: Scale) -> None:
        """One pass over ``rows`` from where the last call ended; the first call sets sizes and scales."""
        seed = seed_of(self.random_state)
        settled = plan(self, len(rows), rows.x.shape[1], len(outputs.mean), seed)
        if not hasattr(self, "_layer"):
            self._inputs, self._outputs = Scale.of(rows.x, rows.weight, "X"), outputs
            data = self._tensors(rows, torch.float64)
            self._layer = self._new_layer(settled, data, seed)
            self.periodic_ = self.linear_ = False
            self.history_, self.n_iter_ = [], 0
            self.alpha_ = _ALPHA_OF_A_STREAM if is_auto(self.alpha) else float(self.alpha)
        data = self._tensors(rows, self._layer.readout.dtype)
        before, count = self.history_, self.n_iter_
        solver = "adam" if settled.recipe.solver == "lbfgs" else settled.recipe.solver
        recipe = replace(settled.recipe, alpha=self.alpha_, max_iter=1, solver=solver, seed=seed + count)
        if getattr(self, "_optimizer", None) is None:
            self._optimizer = torch.optim.Adam(self._layer.parameters(), recipe.learning_rate)
        fit = fit_layer(self._layer, data, recipe, optimizer=self._optimizer)
        self._finish(fit, self.alpha_, keep_optimizer=True)
        self.history_ = [*before, *({**record, "epoch": count + 1} for record in self.history_)]
        self.n_iter_ = count + 1

    def _finish(self, fit: Fit, alpha: float, keep_optimizer: bool = False) -> None:
        self._layer = fit.layer
        if not keep_optimizer:
            self._optimizer = None
        self.alpha_ = alpha
        self.history_, self.n_iter_ = fit.result.history, fit.iterations
        self.loss_ = self.history_[-1]["loss"] if self.history_ else float("nan")
        if fit.result.stopped == "diverged":
            warnings.warn(
                f"training stopped: {fit.result.message} "
                "The best weights so far are kept; try a larger alpha or a smaller learning_rate.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _new_layer(self, settled: EstimatorPlan, data: Tensors, seed: int) -> MLayer:
        return MLayer(
            data.x.shape[1],
            len(self._outputs.mean),
            matrix_size=settled.matrix_size,
            embedding_size=settled.embedding_size,
            structure=self.structure,
            init=self.init,
            generator=torch.Generator().manual_seed(seed),
            dtype=data.x.dtype,
        )

    def _tensors(self, rows: Rows, dtype: torch.dtype) -> Tensors:
        y = rows.y
        targets = (
            in_torch_memory(self._outputs.apply(y.astype(np.float64))).to(dtype)
            if self._loss == "squared_error"
            else torch.from_numpy(y.astype(np.int64))
        )
        x = in_torch_memory(self._inputs.apply(rows.x)).to(dtype)
        for name, values in (("X", x), ("y", targets)):
            if not bool(values.isfinite().all()):
                column = int((~values.isfinite()).any(dim=0).int().argmax())
                raise ArgumentError(
                    f"column {column} of {name}",
                    f"within {torch.finfo(dtype).max:.2g} standard deviations, as the first rows had it",
                    "a number beyond",
                    "Remove such rows, or start over with a fit to all.",
                )
        weight = in_torch_memory(rows.weight).to(dtype)
        kept = weight > 0  # compared with the largest, float32 may have lost some
        return Tensors(x[kept], targets[kept], weight[kept])

    def _check_same_shape(self, rows: Rows, outputs: int) -> None:
        had = (self._layer.in_features, self._layer.out_features)
        got = (rows.x.shape[1], outputs)
        if had != got:
            raise ArgumentError(
                "X and y",
                f"of {had[0]} inputs and {had[1]} outputs, as in the fit before",
                f"{got[0]} and {got[1]}",
                "Set warm_start=False to start over.",
            )

    # ---- Predicting. -----------------------------------------------------------------------------

    def _raw_outputs(self, X: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Outputs in raw units, and which rows are finite; a warning if some are not."""
        # In float64 even after training in float32: else a row's prediction would depend on its neighbors.
        layer = self._layer
        if layer.readout.dtype != torch.float64:
            layer = copy.deepcopy(layer).double()
        standard = outputs_of(layer, in_torch_memory(self._inputs.apply(X))).numpy()
        outputs = self._outputs.undo(standard)
        near = np.asarray(np.isfinite(standard).all(axis=1))
        finite = np.asarray(np.isfinite(outputs).all(axis=1))
        if (beyond := near & ~finite).any():
            warnings.warn(
                f"{int(beyond.sum())} of {len(X)} predictions are beyond {np.finfo(np.float64).max:.2g}, the "
                f"largest number of float64; the first is that of row {int(beyond.argmax())}. Fit to y in "
                "larger units",
                RuntimeWarning,
                stacklevel=4,
            )
        if not near.all():
            warnings.warn(
                f"{int((~near).sum())} of {len(X)} rows lie so far from the training data that the "
                f"exponential overflows; the first is row {int((~near).argmax())}",
                RuntimeWarning,
                stacklevel=4,
            )
        return outputs, finite
