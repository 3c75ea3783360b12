"""The result of reading a layer: formulas, how they were found, and their distance from the layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.nn.layer import check_layer
from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.expressions import read_variables, sympy_module
from mlayer.symbolic.parse.rationals import rational
from mlayer.symbolic.read.evaluate import values_at

_LARGEST_DENOMINATOR = 1000


@dataclass(frozen=True)
class Formula:
    """Formulas of a layer, one per output.

    Attributes:
        expressions: sympy expressions.
        variables: sympy symbols, the inputs in order.
        method: how they were read: "polynomial" and "waves" are exact up to rounding, "taylor", "fit"
            (waves), "power law" and "law" hold where they were fitted.
        residual: largest change of a number by rounding and leaving out small terms (exact methods), or
            the root mean square difference from the target of the fit.
    """

    expressions: tuple[Any, ...]
    variables: tuple[Any, ...]
    method: str
    residual: float

    @property
    def exact(self) -> bool:
        """Whether the formula holds everywhere, up to rounding."""
        return self.method in ("polynomial", "waves")

    def __call__(self, x: Any) -> Array:
        """The formulas at points (count, variables), in double precision.  (count, outputs)"""
        points = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != len(self.variables):
            must_be = f"of shape (count, {len(self.variables)})"
            raise ArgumentError("x", must_be, f"shape {points.shape}", "Give a row for each point.")
        return np.stack([values_at(one, self.variables, points) for one in self.expressions], 1)


def symbols_for(layer: MLayer, variables: Any) -> list[Any]:
    """The user's names of the inputs, or x (one input) or x0, x1, ..."""
    check_layer(layer)
    if variables is None:
        count = layer.in_features
        variables = ["x"] if count == 1 else [f"x{k}" for k in range(count)]
    symbols = read_variables(variables)
    if len(symbols) != layer.in_features:
        raise ArgumentError(
            "variables",
            f"{layer.in_features} names, one per input",
            f"{len(symbols)}",
            "Leave it out for x0, x1, ...",
        )
    return symbols


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer in double precision, its embedding multiplied in."""

    T: Array  # (inputs, n, n)
    B: Array  # (n, n)
    S: Array  # (outputs, n, n)
    V: Array  # (outputs,)


@torch.no_grad()
def weights_of(layer: MLayer) -> LayerWeights:
    """M(x) = B + sum over inputs x_a T_a, whatever the embedding."""
    T = layer.generators.double()
    n = layer.matrix_size
    B = (
        torch.zeros(n, n, dtype=torch.float64)
        if layer.matrix_bias is None
        else layer.matrix_bias.double().cpu()
    )
    T = T.cpu()
    if layer.embedding_bias is not None:
        B = B + torch.einsum("a,aij->ij", layer.embedding_bias.double().cpu(), T)
    if layer.embedding is not None:
        T = torch.einsum("ab,aij->bij", layer.embedding.double().cpu(), T)
    V = torch.zeros(layer.out_features, dtype=torch.float64)
    if layer.output_bias is not None:
        V = layer.output_bias.double().cpu()
    arrays = [t.numpy().copy() for t in (T, B, layer.readout.double().cpu(), V)]
    if not all(np.isfinite(array).all() for array in arrays):
        raise ArgumentError("layer", "one with finite weights", "nan or infinity", "Train it again.")
    return LayerWeights(*arrays)


@torch.no_grad()
def evaluate(layer: MLayer, x: Array) -> Array:
    """The layer at points, a chunk at a time.  (count, inputs) -> (count, outputs)"""
    points = torch.as_tensor(x, dtype=layer.readout.dtype, device=layer.readout.device)
    return np.concatenate([layer(chunk).double().cpu().numpy() for chunk in points.split(4096)])


def rms(difference: Array) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(difference**2)))


def default_tolerance(layer: MLayer) -> float:
    """Relative size of what rounding may have changed: the weights' precision with a margin."""
    return 1e-5 if layer.readout.dtype != torch.float64 else 1e-9


def simplest(value: float, tolerance: float) -> Fraction:
    """The fraction with the smallest denominator within the tolerance.

    >>> simplest(0.33333, 1e-4), simplest(-2.0000001, 1e-5)
    (Fraction(1, 3), Fraction(-2, 1))
    """
    exact, width = Fraction(value), Fraction(tolerance)
    low, high = exact - width, exact + width
    if low <= 0 <= high:
        return Fraction(0)
    if high < 0:
        return -_between(-high, -low)
    return _between(low, high)


def _between(low: Fraction, high: Fraction) -> Fraction:
    """The simplest fraction in a positive interval (Stern and Brocot)."""
    whole = math.floor(low)
    if whole == low:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / _between(1 / (high - whole), 1 / (low - whole))


def number(value: float, tolerance: float) -> Any:
    """A number for people: a simple fraction if one is near, else a decimal of as many digits as count."""
    sympy = sympy_module()
    near = simplest(value, tolerance)
    # A fraction that any number would find says nothing: it must be much simpler than its precision.
    telling = tolerance * near.denominator**2 < 0.1 or near.denominator == 1
    if near and near.denominator <= _LARGEST_DENOMINATOR and telling:
        return rational(near)
    if not near:
        return sympy.Integer(0)
    digits = max(1, min(17, math.ceil(math.log10(abs(value) / tolerance)))) if tolerance > 0 else 17
    return sympy.Float(f"{value:.{digits}g}", max(15, digits))
