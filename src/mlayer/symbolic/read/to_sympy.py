"""`to_sympy`: a layer in, formulas out."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mlayer.checks import between, brief, flag, one_of
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.read.exact import WaveBlock, acyclic_board, polynomials_of_board, term, wave_blocks
from mlayer.symbolic.read.fit_laws import fitted_law, fitted_power_law
from mlayer.symbolic.read.fit_polynomial import LARGEST, fitted_polynomial
from mlayer.symbolic.read.fit_waves import fitted_waves
from mlayer.symbolic.read.formula import (
    Formula,
    LayerWeights,
    default_tolerance,
    evaluate,
    number,
    rms,
    symbols_for,
    weights_of,
)
from mlayer.symbolic.read.parameters import numbers_in

# Gaps of eigenvalues below which they count as equal, tried from wide to narrow: the first that agrees with
# the layer gives the fewest terms.
_GAPS = (0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
_PROBES = 200
_NO_WORSE = 1.1
# The part of another formula's error from which on a law need not have fewer numbers.
_MUCH_NEARER = 0.5
METHODS = ("auto", "exact", "taylor", "fit")


def to_sympy(
    layer: MLayer,
    variables: Any = None,
    *,
    data: Any = None,
    method: str = "auto",
    degree: int | None = None,
    tolerance: float | None = None,
    factor: bool = False,
) -> Any:
    """The formula of a layer: a sympy expression, or a list of them for several outputs.

    Exact where M is nilpotent (a polynomial), and where it is a sum of waves times nilpotent blocks, as with
    one input and no matrix bias (polynomials times exponentials and cosines). Other layers need ``data``, the
    points where the formula should hold.

    Args:
        layer: the layer.
        variables: names of the inputs; x, or x0, x1, ... if None.
        data: points (count, inputs), or a pair (points, targets): then the coefficients are refitted to
            the targets.
        method: "auto", "exact" (an error if there is no exact formula), "taylor" (a polynomial) or "fit"
            (waves).
        degree: of a polynomial read-out; found by trial if None.
        tolerance: relative to the largest coefficient; smaller terms are dropped and numbers within it
            become simple fractions. By default 1e-9 for float64, 1e-5 for float32.
        factor: factored instead of expanded polynomials.

    >>> from mlayer.symbolic import from_polynomial
    >>> to_sympy(from_polynomial("x*y/3 + 2", "x y"), "x y")
    x*y/3 + 2
    """
    formula = read_formula(
        layer, variables, data=data, method=method, degree=degree, tolerance=tolerance, factor=factor
    )
    return formula.expressions[0] if len(formula.expressions) == 1 else list(formula.expressions)


def read_formula(
    layer: MLayer,
    variables: Any = None,
    *,
    data: Any = None,
    method: str = "auto",
    degree: int | None = None,
    tolerance: float | None = None,
    factor: bool = False,
) -> Formula:
    """The formula of :func:`to_sympy`, with how it was found and what rounding changed."""
    symbols = symbols_for(layer, variables)
    one_of("method", method, METHODS, "Use 'auto'.")
    if tolerance is not None:
        between("tolerance", tolerance, 0, 1, "For example 1e-6.")
    flag("factor", factor)
    if degree is not None and (isinstance(degree, bool) or not isinstance(degree, int) or degree < 0):
        raise ArgumentError("degree", "an integer, 0 or more", brief(degree), "For example 3.")
    points, targets = split_data(layer, data)
    small = default_tolerance(layer) if tolerance is None else tolerance
    weights = weights_of(layer)
    formula = None
    if method in ("auto", "exact") and degree is None:
        formula = _exact(layer, weights, symbols, small, points)
        if formula is None and method == "exact":
            raise ArgumentError(
                "method",
                "'taylor' or 'fit' for a layer without an exact formula",
                "'exact'",
                "M is neither nilpotent nor a sum of waves times nilpotent blocks.",
            )
    trained = method == "auto" and points is not None and targets is not None
    x, y = cast(Array, points), cast(Array, targets)
    if formula is not None and formula.method == "waves" and trained:
        # A trained layer keeps traces of what it did not need; the data decide which waves count.
        fewer = fitted_waves(layer, x, y, symbols, tolerance)
        own = rms(formula(x) - y)
        if fewer is not None and fewer.residual <= 1.05 * own + 1e-7 * float(np.std(y)):
            formula = fewer
        # Slow waves of huge amplitudes can describe a power over the range of the data, and nothing beyond.
        law = fitted_power_law(x, y, symbols)
        if law is not None and law.residual <= _NO_WORSE * own:
            formula = law
    if formula is None:
        formula = _approximate(layer, weights, symbols, points, targets, method, degree, tolerance)
    if trained and degree is None and formula.method not in ("polynomial", "power law"):
        if formula.method in ("waves", "fit") and (x != x[0]).any():
            rival = fitted_polynomial(layer, weights, x, y, symbols, None, tolerance)
            formula = _simpler(rival, formula, x, y)
        law = fitted_law(x, y, symbols)
        formula = formula if law is None else _simpler(law, formula, x, y)
    if factor:
        sympy = sympy_module()
        formula = replace(formula, expressions=tuple(sympy.factor(one) for one in formula.expressions))
    return formula


def split_data(layer: MLayer, data: Any) -> tuple[Array | None, Array | None]:
    """Points, and targets if there are any, as arrays (count, inputs) and (count, outputs)."""
    if data is None:
        return None, None
    points, targets = data if _is_pair(data, layer.in_features) else (data, None)
    x = _array(points)
    if x.ndim == 1 and layer.in_features == 1:
        x = x[:, None]
    y = None if targets is None else _array(targets)
    if y is not None and y.ndim == 1:
        y = y[:, None]
    # Shapes first: what is stretched from one number to many takes no memory before it is copied.
    if x.ndim != 2 or x.shape[1] != layer.in_features or not len(x):
        raise ArgumentError(
            "data",
            f"points of shape (count, {layer.in_features})",
            f"shape {x.shape}",
            "Or a pair (points, targets).",
        )
    if y is not None and y.shape != (len(x), layer.out_features):
        raise ArgumentError(
            "data",
            f"a pair with targets of shape ({len(x)}, {layer.out_features})",
            f"shape {y.shape}",
            "One row per point.",
        )
    x, y = x.astype(np.float64), None if y is None else y.astype(np.float64)
    if not np.isfinite(x).all() or (y is not None and not np.isfinite(y).all()):
        raise ArgumentError("data", "finite", "nan or infinity", "Drop such rows.")
    return x, y


def _is_pair(data: Any, inputs: int) -> bool:
    """Whether it is (points, targets); a list of two rows of numbers is two points."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    rows = all(isinstance(row, list | tuple) and len(row) == inputs for row in data)
    return (
        isinstance(data, tuple) or not rows or any(isinstance(x, list | tuple) for row in data for x in row)
    )


def _array(values: Any) -> NDArray[Any]:
    """Numbers of any kind, as they are."""
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu().to_dense()
        if not (isinstance(values, list | tuple) or hasattr(values, "__array__")) or _has_sympy(values):
            raise TypeError("not an array of numbers")
        array = np.asarray(values)
        # Python's numbers only: converting a sympy expression may take forever.
        if array.dtype == object and all(isinstance(one, Real | Decimal) for one in array.flat):
            return array.astype(np.float64)
        if array.dtype.kind not in "biuf":
            raise TypeError("not numbers")
        return array
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentTypeError(
            "data",
            "points as numbers, or a pair (points, targets)",
            f"{brief(values)} ({in_one_line(error)})",
            "Use an array.",
        ) from None


def _has_sympy(values: Any) -> bool:
    """Whether it is or holds objects of sympy: a matrix of 10^10 zeros takes no memory there."""
    if isinstance(values, list | tuple):
        return any(_has_sympy(one) for one in values)
    return type(values).__module__.startswith("sympy.")


def _approximate(  # noqa: PLR0917 - one caller
    layer: MLayer,
    weights: LayerWeights,
    symbols: list[Any],
    points: Array | None,
    targets: Array | None,
    method: str,
    degree: int | None,
    tolerance: float | None,
) -> Formula:
    if points is None:
        raise ArgumentError(
            "data",
            "given for a layer that has no exact formula",
            "None",
            "Give the points where the formula should hold, for example the training inputs.",
        )
    if (points == points[0]).all():
        raise ArgumentError(
            "data",
            "two different points or more, for a layer that has no exact formula",
            "one point" if len(points) == 1 else f"{len(points)} times the same point",
            "Give points spread over the region where the formula should hold.",
        )
    wanted = evaluate(layer, points) if targets is None else targets
    bad = int((~(np.abs(wanted) < LARGEST)).any(1).sum())
    if bad or not (np.abs(points) < LARGEST).all():
        came = f"numbers up to {np.abs(points).max():.3g}, with outputs beyond it in {bad} rows"
        hint = "Leave out rows that are far from the others, or rescale the inputs."
        raise ArgumentError("data", f"where inputs and outputs are below {LARGEST:g}", came, hint)
    if method == "fit":
        found = fitted_waves(layer, points, wanted, symbols, tolerance)
        if found is None:
            raise ArgumentError(
                "method", "'taylor' for this layer", "'fit'", "Its outputs are not a sum of few waves."
            )
        return found
    formula = fitted_polynomial(
        layer, weights, points, wanted, symbols, degree, tolerance, own=targets is None
    )
    if method == "auto" and degree is None:
        law = fitted_power_law(points, wanted, symbols)
        # A product of powers has a number or two where a polynomial has many: it need not be nearer.
        if law is not None and law.residual <= _NO_WORSE * formula.residual:
            return law
        waves = fitted_waves(layer, points, wanted, symbols, tolerance)
        # The polynomial stays unless waves are much nearer: it is the simpler claim.
        if waves is not None and waves.residual < 0.7 * formula.residual:
            return waves
        if waves is not None and targets is not None:
            return _simpler(waves, formula, points, targets)
    return formula


def _simpler(rival: Formula, formula: Formula, points: Array, targets: Array) -> Formula:
    """The rival if it is no worse with fewer numbers, or much nearer to the targets; else the formula."""
    own, theirs = (rms(each(points) - targets) for each in (formula, rival))
    floor = 1e-7 * float(targets.std())
    if theirs <= max(_MUCH_NEARER * own, floor) < own:
        return rival
    if not theirs <= _NO_WORSE * own + floor:
        return formula
    fewer = numbers_in(rival, points) < numbers_in(formula, points)
    return rival if fewer else formula


# ---- Exact. ------------------------------------------------------------------------------------------


def _exact(
    layer: MLayer, weights: LayerWeights, symbols: list[Any], small: float, points: Array | None
) -> Formula | None:
    board = acyclic_board(weights)
    if board is not None:
        polynomials = polynomials_of_board(board, weights)
        expressions, residual = [], 0.0
        for polynomial in polynomials:
            scale = max((abs(float(c)) for c in polynomial.values()), default=0.0)
            terms = []
            for powers, coefficient in sorted(polynomial.items(), reverse=True):
                rounded = number(float(coefficient), small * scale)
                residual = max(residual, abs(float(Fraction(str(rounded)) - coefficient)))
                terms.append(rounded * term(powers, symbols))
            expressions.append(sympy_module().Add(*terms))
        return Formula(tuple(expressions), tuple(symbols), "polynomial", residual)
    return _waves(layer, weights, symbols, small, points)


def _waves(
    layer: MLayer, weights: LayerWeights, symbols: list[Any], small: float, points: Array | None
) -> Formula | None:
    probes = points
    if probes is None:
        probes = np.random.default_rng(0).uniform(-1, 1, (_PROBES, layer.in_features))
    probes = probes[:_PROBES]
    wanted = evaluate(layer, probes)
    scale = float(np.abs(wanted).max()) or 1.0
    allowed = math.sqrt(small) * 0.03 * scale  # 1e-6 for float64, 1e-4 for float32
    speed = max(float(np.linalg.norm(T, 2)) for T in weights.T)
    for gap in _GAPS:
        blocks = wave_blocks(weights, gap)
        # The blocks of most layers do not give the layer. Their polynomials, which may have many thousands of
        # terms, are expanded only for those that do.
        if blocks is None or not _give(blocks, weights, probes, wanted, allowed):
            continue
        terms = [(block.rates, block.bias, block.polynomials) for block in blocks]
        expressions = [
            _wave_sum(terms, m, symbols, small, speed) + number(float(weights.V[m]), small * scale)
            for m in range(layer.out_features)
        ]
        formula = Formula(tuple(expressions), tuple(symbols), "waves", 0.0)
        error = float(np.abs(formula(probes) - wanted).max())
        if error <= allowed:
            return replace(formula, residual=error)
    return None


def _give(
    blocks: list[WaveBlock], weights: LayerWeights, points: Array, wanted: Array, allowed: float
) -> bool:
    """Whether the blocks together have the outputs that are wanted at the points."""
    with np.errstate(all="ignore"):
        values = np.sum([block.values(points) for block in blocks], axis=0).real + weights.V
        return bool(np.abs(values - wanted).max() <= 2 * allowed)  # the rounding of numbers may help or harm


def _wave_sum(blocks: Any, m: int, symbols: list[Any], small: float, speed: float) -> Any:
    """The real expression of output m; a block and its conjugate stand together."""
    sympy = sympy_module()
    scale = max(
        (abs(value) * abs(np.exp(b)) for _, b, outputs in blocks for value in outputs[m].values()),
        default=0.0,
    )
    total: dict[tuple[Any, ...], Any] = {}
    for k, b, outputs in blocks:
        turning = np.where(np.abs(k.imag) > max(small, 1e-7) * speed, k.imag, 0.0)
        first = next((w for w in turning if w), 0.0)
        if first < 0:
            continue
        growth = sympy.Add(*(number(g, small * speed) * s for g, s in zip(k.real, symbols, strict=True)))
        phase = sympy.Add(*(number(w, small * speed) * s for w, s in zip(turning, symbols, strict=True)))
        for powers, value in outputs[m].items():
            amplitude = value * np.exp(b) * (2 if first else 1)
            if abs(amplitude) <= small * scale:
                continue
            factor = term(powers, symbols) * sympy.exp(growth)
            key = (factor, phase)
            total[key] = total.get(key, 0) + amplitude
    terms = []
    for (factor, phase), amplitude in total.items():
        if phase == 0:
            terms.append(number(amplitude.real, small * scale) * factor)
        else:
            terms.append(factor * cosine(amplitude, phase, small * scale))
    return sympy.Add(*terms)


def cosine(amplitude: complex, phase: Any, tolerance: float) -> Any:
    """Re(amplitude e^(i phase)) with numbers rounded: a cos, a sin, or a cos with a phase."""
    sympy = sympy_module()
    size, angle = abs(amplitude), math.atan2(amplitude.imag, amplitude.real)
    for quarter, function, sign in (
        (0.0, sympy.cos, 1),
        (math.pi, sympy.cos, -1),
        (math.pi / 2, sympy.sin, -1),
        (-math.pi / 2, sympy.sin, 1),
        (-math.pi, sympy.cos, -1),
    ):
        if abs(angle - quarter) * size <= tolerance:
            return sign * number(size, tolerance) * function(phase)
    return number(size, tolerance) * sympy.cos(phase + number(angle, tolerance / size))
