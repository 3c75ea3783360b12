"""A sum of few waves for a layer that has no exact one: its own modes as the start, refined on the data.

    f(x) = c + sum_k e^(growth_k . x) (A_k cos(frequency_k . x) + B_k sin(frequency_k . x))

Where the matrix bias does not commute with the generators, exp(M(x)) is no such sum, but a trained layer
may come near one on its data. Its modes at the center of the data, and for one input the poles of its values
on a line (matrix pencil), propose the waves; `mlayer.numerics.waves` refines them; weak ones go.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from mlayer.nn import MLayer
from mlayer.numerics import pencil
from mlayer.numerics.arrays import Array, Flags
from mlayer.numerics.waves import WaveProblem, Waves, refine, solve, solve_again
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.parse.rationals import rational
from mlayer.symbolic.read.evaluate import values_at
from mlayer.symbolic.read.formula import Formula, evaluate, weights_of
from mlayer.symbolic.read.term_selection import near_fraction

_MOST_WAVES = 8
# Rates of all waves together: with more numbers nobody could read the formula, and the search takes long.
_MOST_RATES = 64
# Waves with huge opposite amplitudes need more digits than their noise leaves, if the error grows by this.
_ROUNDING = 1.1
_FLOOR = 1e-7
_MOST_ROWS = 3000
_PARTS_OF_PI = 12  # the largest denominator of a multiple of pi


def fitted_waves(
    layer: MLayer, points: Array, targets: Array, symbols: list[Any], tolerance: float | None
) -> Formula | None:
    """The sum of waves that fits the targets, or None if none was found."""
    expressions, squares = [], 0.0
    for m in range(layer.out_features):
        target = targets[:, m]
        floor = (tolerance or _FLOOR) * max(float(target.std()), 1e-300)
        problem = WaveProblem(points, target[:, None], np.ones((len(points), 1)), np.ones(len(points)))
        found = _search(_proposals(layer, points, m), problem, floor)
        if found is None:
            return None
        found = _snapped(found, problem, floor)
        noise = math.sqrt(found.squares / len(target))
        for digits_of in (noise, 0.0):
            expression = _expression(found, symbols, problem, digits_of)
            error = float(np.square(values_at(expression, symbols, points) - target).mean())
            if error <= (_ROUNDING * noise) ** 2 + floor**2:
                break
        squares += error
        expressions.append(expression)
    return Formula(tuple(expressions), tuple(symbols), "fit", math.sqrt(squares / layer.out_features))


def _proposals(layer: MLayer, points: Array, m: int) -> Array:
    """Growth and frequency of waves that may be there, the strongest first.  (waves, 2, inputs)"""
    weights = weights_of(layer)
    center = points.mean(0)
    M = weights.B + np.einsum("a,aij->ij", center, weights.T)
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
        growth, frequency = pencil.poles(values - values.mean(), line[1] - line[0], _MOST_WAVES)
        # In the order of their strength on the line, which is not that of the modes; these come first.
        first = max((s for _, s in found), default=0.0)
        found += [
            (np.array([complex(g, w)]), first + len(growth) - k)
            for k, (g, w) in enumerate(zip(growth, frequency, strict=True))
        ]
    found.sort(key=lambda pair: -pair[1])
    spread = np.maximum(points.max(0) - points.min(0), 1e-300)
    kept: list[Array] = []
    for rate, _ in found:
        one = np.stack([rate.real, np.abs(rate.imag) if len(rate) == 1 else rate.imag])
        first = next((w for w in one[1] if abs(w) > 1e-12), 0.0)
        if first < 0:
            one[1] *= -1
        # Less than a quarter of a period over the data is a curve, not a wave; so is growth by e^8.
        if (np.abs(one[1]) * spread).max() < 1.5 or (np.abs(one[0]) * spread).max() > 8:
            continue
        if all((np.abs(one - other) * spread).max() > 0.5 for other in kept):
            kept.append(one)
    inputs = points.shape[1]
    return np.array(kept[: min(_MOST_WAVES, _MOST_RATES // (2 * inputs))]).reshape(-1, 2, inputs)


def _search(proposals: Array, problem: WaveProblem, floor: float) -> Waves | None:
    """Start with all proposals, refine, drop the weakest, again; keep the best score."""
    if not len(proposals):
        return None
    count = len(problem.x)
    price = math.log(count)
    best: tuple[float, Waves] | None = None
    everything = np.ones(proposals[:, 0].shape, dtype=bool)
    waves = solve(problem, proposals[:, 0], proposals[:, 1], everything, everything)
    while True:
        waves = _refined(problem, waves)
        nothing = np.zeros_like(waves.free_growth)
        still = _refined(
            problem,
            solve(problem, 0 * waves.growth, waves.frequencies, nothing, waves.free_frequencies),
        )
        for one in (waves, still):
            numbers = int(one.free_growth.sum() + one.free_frequencies.sum()) + 1 + 2 * len(one)
            score = count * math.log(one.squares / count + floor**2) + price * numbers
            if best is None or score < best[0]:
                best = (score, one)
        if len(waves) == 1:
            return best[1] if best is not None else None
        cosine, sine = _parts(waves, problem.x)
        deviations = (cosine * waves.cosines[:, 0] + sine * waves.sines[:, 0]).std(0)
        waves = solve_again(problem, waves, np.arange(len(waves)) != int(np.argmin(deviations)))


def _parts(waves: Waves, points: Array) -> tuple[Array, Array]:
    """The cosines and the sines with their growth.  (count, waves) each"""
    size, angle = np.exp(np.clip(points @ waves.growth.T, -50, 50)), points @ waves.frequencies.T
    return size * np.cos(angle), size * np.sin(angle)


def _refined(problem: WaveProblem, waves: Waves) -> Waves:
    if len(problem.x) <= _MOST_ROWS:
        return refine(problem, waves)
    # Enough rows to aim with; the amplitudes are those of all rows.
    few = problem.take(np.random.default_rng(0).choice(len(problem.x), _MOST_ROWS, replace=False))
    return solve_again(problem, refine(few, solve_again(few, waves)))


def _snapped(waves: Waves, problem: WaveProblem, floor: float) -> Waves:
    """Rates moved to 0, simple fractions or multiples of pi where the fit allows, the rest refined."""
    count = len(problem.x)
    base = waves.squares / count + floor**2
    for part, k, a in np.argwhere(np.stack([waves.free_growth, waves.free_frequencies])):
        rate = float((waves.growth, waves.frequencies)[part][k, a])
        # How far the rate may move before the fit notices: 3 standard errors of this wave alone.
        lever = float(np.std(problem.x[:, a])) * float(waves.strength[k]) / math.sqrt(2) + 1e-300
        width = max(3 * math.sqrt(base / count) / lever, 1e-9 * abs(rate))
        options = [near_fraction(rate, width)]
        over_pi = near_fraction(rate / math.pi, width / math.pi)
        # Periods of days, weeks and months are such multiples; 21 pi / 22 is none.
        if over_pi is not None and Fraction(over_pi).limit_denominator(100).denominator <= _PARTS_OF_PI:
            options.append(over_pi * math.pi)
        for option in options:
            rates = [waves.growth.copy(), waves.frequencies.copy()]
            free: list[Flags] = [waves.free_growth.copy(), waves.free_frequencies.copy()]
            if option is None or not free[part][k, a]:
                continue
            rates[part][k, a], free[part][k, a] = option, False
            attempt = _refined(problem, solve(problem, rates[0], rates[1], free[0], free[1]))
            if count * math.log((attempt.squares / count + floor**2) / base) <= 9:
                waves = attempt
    return waves


def _expression(waves: Waves, symbols: list[Any], problem: WaveProblem, noise: float) -> Any:
    """The formula with the digits that errors of this size leave."""
    sympy = sympy_module()
    # Not below what rounding leaves of the data.
    least = 1e-10 * float(problem.y.std())
    terms = [_decimal(float(waves.linear[0, 0]), max(3 * noise, least))]
    cosines, sines = _parts(waves, problem.x)
    for k, (growth, frequency) in enumerate(zip(waves.growth, waves.frequencies, strict=True)):
        angle = sympy.Add(*(_rate(w) * s for w, s in zip(frequency, symbols, strict=True)))
        size = sympy.exp(sympy.Add(*(_rate(g) * s for g, s in zip(growth, symbols, strict=True))))
        pair = float(waves.cosines[k, 0]), float(waves.sines[k, 0])
        weakest = math.sqrt(min((cosines[:, k] ** 2).mean(), (sines[:, k] ** 2).mean()))
        error = max(3 * noise / max(weakest, 1e-300), least)
        cosine, sine = (_decimal(value, error) for value in pair)
        if cosine == 0 or sine == 0:
            terms.append(size * (cosine * sympy.cos(angle) + sine * sympy.sin(angle)))
        else:
            amplitude, phase = math.hypot(*pair), math.atan2(-pair[1], pair[0])
            shown = _decimal(phase, error / amplitude)
            terms.append(size * _decimal(amplitude, error) * sympy.cos(angle + shown))
    return sympy.Add(*terms)


def _rate(value: float) -> Any:
    sympy = sympy_module()
    for unit, symbol in ((1.0, sympy.Integer(1)), (math.pi, sympy.pi)):
        near = Fraction(value / unit).limit_denominator(100)
        if abs(float(near) * unit - value) <= 1e-14 * abs(value):
            return rational(near) * symbol
    return sympy.Float(f"{value:.7g}", 15)


def _decimal(value: float, error: float) -> Any:
    """A simple fraction within the error, or the digits that the error leaves."""
    near = near_fraction(value, error) if error > 0 else None
    if near is not None:
        return rational(Fraction(near).limit_denominator(100))
    digits = 12 if error <= 0 else max(2, min(12, math.ceil(math.log10(max(abs(value) / error, 1))) + 2))
    return sympy_module().Float(f"{value:.{digits}g}", 15)
