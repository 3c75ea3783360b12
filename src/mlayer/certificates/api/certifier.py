"""`Certifier` and `certify`: radii of rows, with the constants of the model computed once."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlayer.certificates.arguments import (
    as_inputs,
    as_labels,
    as_layer,
    as_radius,
    check_count,
    inside_box,
)
from mlayer.certificates.bounds.methods import STRATEGY, is_closed_form, names
from mlayer.certificates.modules import check_agreement, check_surroundings
from mlayer.certificates.problem.constants import compute, evaluate, owner_of, read_fitted
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.problem.model import Model
from mlayer.certificates.problem.region import Box, Norm, Region, make_region, regions_of_rows
from mlayer.certificates.problem.weights import float64_copy, weights_of, within_range
from mlayer.certificates.result import Certificates
from mlayer.certificates.solve.rows_batched import chunk_size, rows_together
from mlayer.certificates.solve.strategy import Answer, certified_at, radius_of
from mlayer.certificates.torch_state import own_conditions
from mlayer.checks import file_path, flag, one_of
from mlayer.errors import ArgumentError, ArgumentTypeError, MissingPackageError
from mlayer.nn.layer import MLayer

if TYPE_CHECKING:
    from mlayer.certificates.proofs import Prover

Progress = Callable[[int, int], None]

_INSTALL = "pip install 'mlayer[rigorous]'"
_MOST_STEPS = 100_000  # a limit on the time of a call
_FIT_STEPS = 250  # steps of the tuning, by default


class Certifier:
    """Certifies rows of one model; computes the model's constants once.

    Args:
        layer: an MLayer, or an estimator with ``to_mlayer()``.
        norm: "linf" or "l2".
        scale: unit of each feature: a radius eps lets feature i move by eps * scale_i. A number or a vector;
            0 holds a feature still.
        box: (low, high), where the data live, such as (0, 1): only steps that stay inside count.
            L-infinity only.
        references: typical inputs, (rows, in_features), at which the constants are tuned; any choice is
            sound. Without them the center of the box, or zero.
        fit_steps: of the tuning; 0 for none. The larger the model, the longer.
        constants: a file that :meth:`save` wrote for the same model, norm and scale.

    >>> import torch, mlayer
    >>> from mlayer.certificates import Certifier
    >>> layer = mlayer.MLayer(3, 2, matrix_size=3, embedding_size=None).double()
    >>> certifier = Certifier(layer, box=(0, 1), fit_steps=10)
    >>> x = torch.rand(5, 3).double()
    >>> certificates = certifier(x, layer(x).argmax(1))
    """

    @own_conditions()
    def __init__(
        self,
        layer: Any,
        *,
        norm: Norm = "linf",
        scale: Tensor | float | None = None,
        box: Box | None = None,
        references: Tensor | None = None,
        fit_steps: int = _FIT_STEPS,
        constants: str | os.PathLike[str] | None = None,
    ) -> None:
        self.layer = float64_copy(as_layer(layer))
        self.region = make_region(self.layer.in_features, norm, scale, box)
        hint = "0 skips the fit; a few hundred are enough."
        check_count("fit_steps", fit_steps, 0, _MOST_STEPS, hint)
        weights = weights_of(self.layer, self.region)
        within_range(weights)
        if constants is not None:
            path = file_path("constants", constants)
            fitted = read_fitted(path, weights, self.region.norm)
            self.constants, white = evaluate(weights, self.region.norm, fitted)
        else:
            self.constants, white = compute(
                weights, self.region.norm, self._references(references), fit_steps
            )
        self._model = Model(weights, self.region, self.constants, white)

    def _references(self, references: Tensor | None) -> np.ndarray[Any, np.dtype[np.float64]]:
        if references is not None:
            rows = as_inputs(self.layer, references, "references")
            if not len(rows):
                raise ArgumentError("references", "at least one row", "none", "Leave it out, or give inputs.")
            return rows.numpy()
        if self.region.low is not None and self.region.high is not None:
            return ((self.region.low + self.region.high) / 2)[None].numpy()
        return np.zeros((1, self.layer.in_features))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Store what was tuned, usually as ``.npz`` next to the model's file."""
        self.constants.save(file_path("path", path), owner_of(self._model.weights, self.region.norm))

    @own_conditions()
    def __call__(
        self,
        x: Tensor,
        labels: Tensor,
        *,
        eps: float | None = None,
        method: str = "best",
        box: Box | None = None,
        rigorous: bool = False,
        proof: bool = False,
        progress: Progress | None = None,
        workers: int = 1,
    ) -> Certificates:
        """Certify rows. They are taken in chunks; a row's result does not depend on the others.

        Args:
            x: (rows, in_features).
            labels: (rows,), the classes that should be kept.
            eps: decide only whether it is certified at eps, which is cheaper. None: the radius.
            method: "paper", "lipschitz", "first_order", "second_order", "third_order", "fourth_order" or
                "best".
            box: in place of the certifier's, whose constants serve for every box; an end of shape
                (rows, in_features) gives each row its own box. Without proofs.
            rigorous: every radius has a proof that `mlayer.certificates.checker` accepts, an independent
                program in ball arithmetic (needs python-flint); radii are lowered until they have one.
            proof: return these proofs too, as ``certificates.proof``; implies ``rigorous``.
            progress: called with (rows done, rows) after each row.
            workers: threads.
        """
        check_surroundings("layer")
        x, labels, radius, regions = _checked(
            self.layer,
            self.region,
            x,
            labels,
            eps=eps,
            method=method,
            box=box,
            rigorous=rigorous,
            proof=proof,
            progress=progress,
            workers=workers,
        )
        prover = self._prover() if rigorous or proof else None
        certify_row = partial(_row_result, method=method, eps=radius, prover=prover)
        size = chunk_size(self._model)
        answers: list[_RowResult] = []
        with ThreadPoolExecutor(workers) as pool:
            for begin in range(0, len(x), size):
                part = slice(begin, begin + size)
                rows = rows_together(
                    self._model,
                    x[part].numpy(),
                    labels[part].tolist(),
                    method,
                    radius,
                    regions=regions[part],
                )
                self._check_agreement(x[part], rows)
                source = map(certify_row, rows) if workers == 1 else pool.map(certify_row, rows)
                for answer in source:
                    answers.append(answer)
                    if progress is not None:
                        progress(len(answers), len(x))
        found = _collect(answers, self.region.norm, radius)
        if proof and prover is not None:
            found = replace(found, proof=prover.proof(tuple(answer.claims for answer in answers)))
        return found

    def _check_agreement(self, x: Tensor, rows: list[Row]) -> None:
        """The layer must compute at x what the bounds are about; said of rows that may get a certificate."""
        places = [k for k, row in enumerate(rows) if row.is_right and row.in_range]
        if not places:
            return
        with torch.no_grad():
            found = self.layer(x[places])
        S = self._model.weights.S.reshape(len(self._model.weights.S), -1)
        E = np.stack([rows[k].E.reshape(-1) for k in places])
        size = np.abs(E) @ np.abs(S).T + np.abs(self._model.weights.V)
        off = np.array([[rows[k].evaluation_error] for k in places]) * np.linalg.norm(S, axis=1)
        expected = np.stack([rows[k].outputs for k in places])
        check_agreement("layer", found, *map(torch.from_numpy, (expected, size, off)))

    def _prover(self) -> Prover:
        from mlayer.certificates.proofs import Prover

        return Prover(self._model)


class _CheckedCall(NamedTuple):
    x: Tensor  # (rows, in_features), float64
    labels: Tensor  # (rows,), int64
    radius: float | None  # that is asked about
    regions: list[Region]  # of each row


def _checked(
    layer: MLayer,
    region: Region,
    x: Tensor,
    labels: Tensor,
    *,
    eps: float | None,
    method: str,
    box: Box | None,
    rigorous: bool,
    proof: bool,
    progress: Progress | None,
    workers: int,
) -> _CheckedCall:
    """The arguments of a call of a certifier for ``layer`` and ``region``."""
    one_of("method", method, names(region.norm), f"For {region.norm}; 'best' is the default.")
    flag("rigorous", rigorous)
    flag("proof", proof)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ArgumentError("workers", "an integer >= 1", repr(workers), "For example 2.")
    if progress is not None and not callable(progress):
        raise ArgumentTypeError(
            "progress", "callable with (done, total)", type(progress).__name__, "Or None."
        )
    x = as_inputs(layer, x)
    labels = as_labels(layer, labels, len(x))
    if box is not None and (rigorous or proof):
        raise ArgumentError("box", "None with proofs", "a box", "Give it to Certifier instead.")
    regions = [region] * len(x) if box is None else regions_of_rows(region, box, len(x))
    for row, its in zip(x, regions, strict=True):
        inside_box(row, its.low, its.high)
    radius = None if eps is None else as_radius(eps)
    if rigorous or proof:
        try:
            import flint  # noqa: F401
        except ImportError:
            raise MissingPackageError("rigorous=True", "python-flint", _INSTALL) from None
    return _CheckedCall(x, labels, radius, regions)


class _RowResult(NamedTuple):
    answer: Answer
    margin: float
    runner_up: int
    checked: bool  # by the independent program
    claims: dict[str, Any] | None = None  # of the proof


def _row_result(row: Row, method: str, eps: float | None, prover: Prover | None) -> _RowResult:
    with np.errstate(all="ignore"):  # a thread has its own
        result = _settled(row, method, eps, prover)
    row.forget()  # the other rows of the chunk wait
    return result


def _settled(row: Row, method: str, eps: float | None, prover: Prover | None) -> _RowResult:
    runner_up, margin = row.runner_up, row.output_margin
    if margin <= 0:
        answer = Answer(0.0, runner_up, "misclassified", False)
        return _RowResult(answer, margin, runner_up, prover is not None)
    if not (margin > 0 and row.in_range):
        return _RowResult(Answer(0.0, runner_up, "out of range", False), margin, runner_up, False)
    answer = radius_of(row, method) if eps is None else certified_at(row, method, eps)
    if prover is None:
        return _RowResult(answer, margin, runner_up, False)
    fixed, claims = eps is not None, None
    if answer.certified:
        radius, claims = prover.confirmed(row, answer.radius, fixed)
        certified = claims is not None and (fixed or radius > 0)
        answer = Answer(radius, answer.rival, answer.method, certified)
    return _RowResult(answer, margin, runner_up, True, claims)


def _collect(results: list[_RowResult], norm: Norm, eps: float | None) -> Certificates:
    def floats(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    margin = floats([r.margin for r in results])
    return Certificates(
        radius=floats([r.answer.radius for r in results]),
        margin=margin,
        runner_up=torch.tensor([r.runner_up for r in results], dtype=torch.int64),
        rival=torch.tensor([r.answer.rival for r in results], dtype=torch.int64),
        correct=margin > 0,
        certified=torch.tensor([r.answer.certified for r in results], dtype=torch.bool),
        method=tuple(r.answer.method for r in results),
        rounding_checked=torch.tensor([r.checked for r in results], dtype=torch.bool),
        norm=norm,
        eps=eps,
    )


@own_conditions()
def certify(
    layer: Any,
    x: Tensor,
    labels: Tensor,
    norm: Norm = "linf",
    method: str = "best",
    *,
    eps: float | None = None,
    scale: Tensor | float | None = None,
    box: Box | None = None,
    rigorous: bool = False,
    proof: bool = False,
    references: Tensor | None = None,
    fit_steps: int = _FIT_STEPS,
    progress: Progress | None = None,
    workers: int = 1,
) -> Certificates:
    """Prove how far each row may move without changing its class.

    ``layer`` may also be a `torch.nn.Sequential` that ends in an MLayer; in front of it Linear, Conv2d, ReLU,
    average and max pooling, BatchNorm, Flatten and Dropout, all in evaluation mode. x then has the shape that
    the model takes, and ``scale`` and the ends of ``box`` are numbers or have as many entries.

    A model's constants are computed again at every call; for several calls build a :class:`Certifier`, whose
    arguments and call these are.

    >>> import torch, mlayer
    >>> from mlayer.certificates import certify
    >>> layer = mlayer.MLayer(3, 2, matrix_size=3, embedding_size=None).double()
    >>> x = torch.rand(2, 3).double()
    >>> certificates = certify(layer, x, layer(x).argmax(1), fit_steps=10)
    >>> certificates.radius.shape
    torch.Size([2])
    """
    if isinstance(layer, nn.Sequential):
        one_of("norm", norm, ("linf",), "Networks are certified in L-infinity.")
        one_of("method", method, (STRATEGY,), "Networks have one method.")
        for name, wanted in (("rigorous", rigorous), ("proof", proof)):
            if wanted:
                raise ArgumentError(name, "False for a network", "True", "The checker knows single layers.")
        return _certify_network(layer, x, labels, eps, scale, box, progress)
    exact = float64_copy(as_layer(layer))
    call: dict[str, Any] = {"eps": eps, "method": method, "rigorous": rigorous, "proof": proof}
    call |= {"progress": progress, "workers": workers}
    # Before the constants, which take seconds to minutes.
    _checked(exact, make_region(exact.in_features, norm, scale, box), x, labels, box=None, **call)
    steps = 0 if isinstance(method, str) and is_closed_form(method) else fit_steps
    certifier = Certifier(layer, norm=norm, scale=scale, box=box, references=references, fit_steps=steps)
    return certifier(x, labels, **call)


def _certify_network(  # noqa: PLR0917
    model: nn.Sequential,
    x: Tensor,
    labels: Tensor,
    eps: float | None,
    scale: Tensor | float | None,
    box: Box | None,
    progress: Progress | None,
) -> Certificates:
    from mlayer.certificates.networks.certifier import NetworkCertifier
    from mlayer.certificates.networks.network import as_network, flat_ends

    network, flat = as_network(model, x)
    region = make_region(network.in_features, "linf", flat_ends(scale), flat_ends(box))
    return NetworkCertifier(network, region)(flat, labels, eps, progress)
