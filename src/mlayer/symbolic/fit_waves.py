"""A sum of few waves for a layer that has no exact one: its own modes as the start, refined on the data.

    f(x) = c + sum_k e^(growth_k . x) (A_k cos(frequency_k . x) + B_k sin(frequency_k . x))

Where the matrix bias does not commute with the generators, exp(M(x)) is no such sum, but a trained layer
may come near one on its data. Its modes at the centre of the data, and for one input the poles of its values
on a line (matrix pencil), propose the waves; Levenberg and Marquardt refine them; weak ones go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlayer.nn import MLayer
from mlayer.symbolic.formula import Array, Formula, combined, evaluate, weights_of
from mlayer.symbolic.reading import sympy_module
from mlayer.symbolic.selection import near_fraction

_MOST_WAVES = 8
_STEPS = 80
_FLOOR = 1e-7
_MOST_ROWS = 3000


@dataclass(frozen=True)
class _Waves:
    """Waves with the linear numbers solved for.

    Attributes:
        rates: (waves, 2, inputs): growth and frequency; masked entries stay 0.
        free: which of them may move.
        values: constant, then a cosine and a sine each.
        square: mean square of what is left.
    """

    rates: Array
    free: NDArray[np.bool_]
    values: Array
    square: float


def fitted_waves(
    layer: MLayer, points: Array, targets: Array, symbols: list[Any], tolerance: float | None
) -> Formula | None:
    """The sum of waves that fits the targets, or None if none was found."""
    expressions, total = [], 0.0
    for m in range(layer.out_features):
        target = targets[:, m]
        floor = (tolerance or _FLOOR) * max(float(target.std()), 1e-300)
        found = _search(_proposals(layer, points, m), points, target, floor)
        if found is None:
            return None
        found = _snapped(found, points, target, floor)
        total += found.square
        expressions.append(_expression(found, symbols, points, target))
    return Formula(tuple(expressions), tuple(symbols), "fit", math.sqrt(total / layer.out_features))


def _proposals(layer: MLayer, points: Array, m: int) -> Array:
    """Growth and frequency of waves that may be there, the strongest first.  (waves, 2, inputs)"""
    weights = weights_of(layer)
    centre = points.mean(0)
    M = weights.B + np.einsum("a,aij->ij", centre, weights.T)
    _, vectors = np.linalg.eig(M)
    found = []
    if np.linalg.cond(vectors) < 1e10:
        inverse = np.linalg.inv(vectors)
        rates = np.einsum("ki,aij,jk->ka", inverse, weights.T, vectors)
        strength = np.abs(np.einsum("ij,ik,kj->k", weights.S[m], vectors, inverse))
        found += [(rate, float(s)) for rate, s in zip(rates, strength, strict=True)]
    if points.shape[1] == 1:
        low, high = float(points.min()), float(points.max())
        line = np.linspace(low, high, 400)
        values = evaluate(layer, line[:, None])[:, m]
        found += [(np.array([rate]), s) for rate, s in _pencil(values - values.mean(), line[1] - line[0])]
    found.sort(key=lambda pair: -pair[1])
    spread = np.maximum(points.max(0) - points.min(0), 1e-300)
    kept: list[Array] = []
    for rate, _ in found:
        one = np.stack([rate.real, np.abs(rate.imag) if len(rate) == 1 else rate.imag])
        first = next((w for w in one[1] if abs(w) > 1e-12), 0.0)
        if first < 0:
            one[1] *= -1
        # A turn of less than a quarter over the data is no wave but a curve; growth by e^8 is none either.
        if (np.abs(one[1]) * spread).max() < 1.5 or (np.abs(one[0]) * spread).max() > 8:
            continue
        if all((np.abs(one - other) * spread).max() > 0.5 for other in kept):
            kept.append(one)
    return np.array(kept[:_MOST_WAVES]).reshape(-1, 2, points.shape[1])


def _pencil(values: Array, step: float) -> list[tuple[complex, float]]:
    """Poles of equally spaced values (Hua and Sarkar's matrix pencil), with their strengths."""
    count = len(values)
    half = count // 3
    H = np.lib.stride_tricks.sliding_window_view(values, half + 1)
    _, sizes, Vh = np.linalg.svd(H, full_matrices=False)
    rank = int((sizes > 1e-4 * sizes[0]).sum())
    rank = max(1, min(rank, 2 * _MOST_WAVES))
    V = Vh[:rank].T
    poles = np.linalg.eigvals(np.linalg.pinv(V[:-1]) @ V[1:])
    poles = poles[np.abs(poles) > 1e-6]
    powers = poles[None, :] ** np.arange(count)[:, None]
    amplitudes = np.linalg.lstsq(powers, values.astype(complex), rcond=None)[0]
    strength = np.abs(amplitudes) * np.sqrt((np.abs(powers) ** 2).mean(0))
    rates = np.log(poles.astype(complex)) / step
    return [(complex(rate), float(s)) for rate, s in zip(rates, strength, strict=True)]


def _search(proposals: Array, points: Array, target: Array, floor: float) -> _Waves | None:
    """Start with all proposals, refine, drop the weakest, again; keep the best score."""
    if not len(proposals):
        return None
    count = len(target)
    price = math.log(count)
    best: tuple[float, _Waves] | None = None
    waves = _solved(proposals, np.ones(proposals.shape, dtype=bool), points, target)
    while True:
        waves = _refined(waves, points, target)
        still = replace(waves, rates=waves.rates.copy(), free=waves.free.copy())
        still.rates[:, 0], still.free[:, 0] = 0, False
        still = _refined(_solved(still.rates, still.free, points, target), points, target)
        for one in (waves, still):
            score = count * math.log(one.square + floor**2) + price * (int(one.free.sum()) + len(one.values))
            if best is None or score < best[0]:
                best = (score, one)
        if len(waves.rates) == 1:
            return best[1] if best is not None else None
        basis = _basis(waves.rates, points)
        strength = [
            float(np.std(basis[:, 1 + 2 * k : 3 + 2 * k] @ waves.values[1 + 2 * k : 3 + 2 * k]))
            for k in range(len(waves.rates))
        ]
        keep = [k for k in range(len(waves.rates)) if k != int(np.argmin(strength))]
        waves = _solved(waves.rates[keep], waves.free[keep], points, target)


def _basis(rates: Array, points: Array) -> Array:
    """1, and a cosine and a sine each.  (count, 1 + 2 waves)"""
    columns = [np.ones(len(points))]
    for growth, frequency in rates:
        size, angle = np.exp(np.clip(points @ growth, -50, 50)), points @ frequency
        columns += [size * np.cos(angle), size * np.sin(angle)]
    return np.stack(columns, 1)


def _solved(rates: Array, free: NDArray[np.bool_], points: Array, target: Array) -> _Waves:
    basis = _basis(rates, points)
    values: Array = np.asarray(np.linalg.lstsq(basis, target, rcond=1e-10)[0], dtype=np.float64)
    return _Waves(rates, free, values, float(((target - basis @ values) ** 2).mean()))


def _refined(waves: _Waves, points: Array, target: Array) -> _Waves:
    """Levenberg and Marquardt on all numbers; the linear ones are solved for after each step."""
    if len(target) > _MOST_ROWS:  # enough to aim with; the numbers below use all rows
        rows = np.random.default_rng(0).choice(len(target), _MOST_ROWS, replace=False)
        few = _refined(
            _solved(waves.rates, waves.free, points[rows], target[rows]), points[rows], target[rows]
        )
        return _solved(few.rates, few.free, points, target)
    damping = 1e-3
    places = np.argwhere(waves.free)
    for _ in range(_STEPS):
        basis = _basis(waves.rates, points)
        rest = target - basis @ waves.values
        slopes = []
        for k, part, a in places:
            c, s = basis[:, 1 + 2 * k], basis[:, 2 + 2 * k]
            A, B = waves.values[1 + 2 * k], waves.values[2 + 2 * k]
            slopes.append(points[:, a] * ((A * c + B * s) if part == 0 else (B * c - A * s)))
        J = np.column_stack([basis, *slopes])
        scale = np.sqrt((J**2).sum(0)) + 1e-300
        J = J / scale
        gram, right = J.T @ J, J.T @ rest
        for _ in range(12):
            step = np.linalg.solve(gram + damping * np.eye(len(gram)), right) / scale
            rates = waves.rates.copy()
            for (k, part, a), change in zip(places, step[basis.shape[1] :], strict=True):
                rates[k, part, a] += change
            attempt = _solved(rates, waves.free, points, target)
            if attempt.square < waves.square:
                damping = max(damping / 5, 1e-12)
                break
            damping *= 4
        else:
            return waves
        gain = 1 - attempt.square / max(waves.square, 1e-300)
        waves = attempt
        if gain < 1e-9:
            return waves
    return waves


def _snapped(waves: _Waves, points: Array, target: Array, floor: float) -> _Waves:
    """Rates moved to 0, simple fractions or multiples of pi where the fit allows, the rest refined."""
    count = len(target)
    base = waves.square + floor**2
    for k, part, a in np.argwhere(waves.free):
        rate = float(waves.rates[k, part, a])
        # How far the rate may move before the fit notices: 3 standard errors of this wave alone.
        size = math.hypot(*waves.values[1 + 2 * k : 3 + 2 * k])
        lever = float(np.std(points[:, a])) * size / math.sqrt(2) + 1e-300
        width = max(3 * math.sqrt(base / count) / lever, 1e-9 * abs(rate))
        options = [near_fraction(rate, width)]
        over_pi = near_fraction(rate / math.pi, width / math.pi)
        options.append(None if over_pi is None else over_pi * math.pi)
        for option in options:
            if option is None or not waves.free[k, part, a]:
                continue
            rates, free = waves.rates.copy(), waves.free.copy()
            rates[k, part, a], free[k, part, a] = option, False
            attempt = _refined(_solved(rates, free, points, target), points, target)
            if count * math.log((attempt.square + floor**2) / base) <= 9:
                waves = attempt
    return waves


def _expression(waves: _Waves, symbols: list[Any], points: Array, target: Array) -> Any:
    sympy = sympy_module()
    basis = _basis(waves.rates, points)
    noise = math.sqrt(waves.square / len(target))
    # Not below what rounding leaves of the data.
    errors = np.maximum(3 * noise / np.sqrt((basis**2).mean(0)), 1e-10 * float(target.std()))
    terms = [_decimal(float(waves.values[0]), float(errors[0]))]
    for k, (growth, frequency) in enumerate(waves.rates):
        angle = combined([_rate(w) * s for w, s in zip(frequency, symbols, strict=True)])
        size = sympy.exp(combined([_rate(g) * s for g, s in zip(growth, symbols, strict=True)]))
        pair = waves.values[1 + 2 * k : 3 + 2 * k]
        error = float(errors[1 + 2 * k : 3 + 2 * k].max())
        cosine, sine = (_decimal(float(value), error) for value in pair)
        if cosine == 0 or sine == 0:
            terms.append(size * (cosine * sympy.cos(angle) + sine * sympy.sin(angle)))
        else:
            amplitude, phase = math.hypot(*pair), math.atan2(-pair[1], pair[0])
            shown = _decimal(phase, error / amplitude)
            terms.append(size * _decimal(amplitude, error) * sympy.cos(angle + shown))
    return combined(terms)


def _rate(value: float) -> Any:
    from fractions import Fraction

    sympy = sympy_module()
    for unit, symbol in ((1.0, sympy.Integer(1)), (math.pi, sympy.pi)):
        near = Fraction(value / unit).limit_denominator(100)
        if abs(float(near) * unit - value) <= 1e-14 * abs(value):
            return sympy.Rational(near.numerator, near.denominator) * symbol
    return sympy.Float(f"{value:.7g}", 15)


def _decimal(value: float, error: float) -> Any:
    """A simple fraction within the error, or the digits that the error leaves."""
    sympy = sympy_module()
    near = near_fraction(value, error) if error > 0 else None
    if near is not None:
        from fractions import Fraction

        fraction = Fraction(near).limit_denominator(100)
        return sympy.Rational(fraction.numerator, fraction.denominator)
    digits = 12 if error <= 0 else max(2, min(12, math.ceil(math.log10(max(abs(value) / error, 1))) + 2))
    return sympy.Float(f"{value:.{digits}g}", 15)
