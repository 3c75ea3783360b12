"""How many waves there are in data, and which: the search on top of the parts in this package.

Waves are added one at a time at the highest peak of the spectrum of what is left over; after each, the rates
of all are refined together, which also separates most waves that are closer than the spectrum resolves
(docs/decisions/0010-numerics.md says what else was tried). Schwarz's criterion decides how many waves stay,
and whether they are damped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlayer.numerics import spectrum
from mlayer.numerics.arrays import Array
from mlayer.numerics.waves import WaveProblem, Waves, refine, solve

MOST_WAVES = 8
# Rows that the search looks at; the last refinement uses all.
_SEARCH_ROWS = 4_000
# A residual of this part of the signal is rounding.
_ROUNDING = 1e-10
# Beyond e^4 over the extent of the rows a damped wave is a jump or a spike at one end.
_LARGEST_GROWTH = 4.0


def find_waves(
    x: Array,
    y: Array,
    *,
    fixed: Array | None = None,
    weight: Array | None = None,
    most: int = MOST_WAVES,
    damped: bool = False,
    tell: Callable[[float], None] = lambda _: None,
) -> Waves | None:
    """The waves of y along single columns of x, or None if no wave pays for its parameters.

    Args:
        x: (rows, inputs), or (rows,) for one input.
        y: (rows, outputs), or (rows,).
        fixed: columns to be fitted along with the waves, (rows, columns); a constant and x itself if None.
        weight: of the rows; equal if None.
        most: waves.
        damped: whether waves may grow or decay; those that do not need to, do not.
        tell: called with the part of the search that is done, from 0 to 1; it may raise to end it.

    Returns:
        The waves, the strongest last to be dropped; `Waves.at` evaluates them anywhere.

    >>> t = np.sort(np.random.default_rng(0).uniform(0, 2, 300))
    >>> y = 1 + 0.5 * t + 2 * np.cos(21.7 * t + 1) + 0.7 * np.cos(40.1 * t)
    >>> np.sort(find_waves(t, y).frequencies[:, 0]).round(6)
    array([21.7, 40.1])
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (x, y))
    x, y = (v[:, None] if v.ndim == 1 else v for v in (x, y))
    rows = len(x)
    if fixed is None:
        fixed = np.column_stack([np.ones(rows), x])
    weight = np.ones(rows) if weight is None else weight / weight.mean()
    whole = WaveProblem(x, y, np.asarray(fixed, dtype=np.float64), weight)
    few = rows > _SEARCH_ROWS
    # A random choice of evenly spaced rows still tells fast waves from slow ones; every k-th would not.
    chosen = np.sort(np.random.default_rng(0).choice(rows, _SEARCH_ROWS, replace=False)) if few else None
    problem = whole if chosen is None else whole.take(chosen)
    most = min(most, (rows - whole.fixed.shape[1]) // 6)
    best = _search(problem, whole, most, damped, tell)
    if best is None or not few:
        return best
    start = solve(whole, best.growth, best.frequencies, best.free_growth, best.free_frequencies)
    return refine(whole, start)


def _search(
    problem: WaveProblem, whole: WaveProblem, most: int, damped: bool, tell: Callable[[float], None]
) -> Waves | None:
    highest = [spectrum.highest_frequency(column) for column in whole.x.T]
    empty = np.empty((0, problem.x.shape[1]))
    none = solve(problem, empty, empty)
    enough = _ROUNDING**2 * none.squares
    best = current = none
    in_vain = 0
    for step in range(most):
        tell(0.9 * step / most)
        if current.squares <= enough or in_vain == 2:
            break
        start = _with_peak(problem, current, highest)
        if start is None:
            break
        current = refine(problem, start)
        if damped:
            current = _with_growth(problem, current)
        in_vain = 0 if current.score < best.score else in_vain + 1
        best = min(best, current, key=lambda waves: waves.score)
    best = _thinned(problem, best, tell)
    return best if len(best) else None


def _with_peak(problem: WaveProblem, waves: Waves, highest: list[float | None]) -> Waves | None:
    """One wave more, at the highest peak of what is left over along any input."""
    residual = problem.y - waves.at(problem.x, problem.fixed)
    peak: tuple[float, int, float] | None = None
    for a, limit in enumerate(highest):
        if limit is None:
            continue
        frequencies, power = spectrum.power(problem.x[:, a], residual, problem.weight, limit)
        if len(power) and (peak is None or power.max() > peak[0]):
            peak = (float(power.max()), a, float(frequencies[power.argmax()]))
    if peak is None:
        return None
    _, a, w = peak
    new = np.zeros((1, problem.x.shape[1]))
    new[0, a] = w
    return solve(
        problem,
        np.concatenate([waves.growth, np.zeros_like(new)]),
        np.concatenate([waves.frequencies, new]),
        np.concatenate([waves.free_growth, np.zeros_like(new, dtype=bool)]),
        np.concatenate([waves.free_frequencies, new != 0]),
    )


def _with_growth(problem: WaveProblem, waves: Waves) -> Waves:
    """The same waves with growth or decay where that pays, along the input that each runs along."""
    free = waves.frequencies != 0
    start = solve(problem, waves.growth, waves.frequencies, free, free)
    moving = refine(problem, start)
    if (np.abs(moving.growth) * problem.extent).max(initial=0) > _LARGEST_GROWTH:
        return waves
    best = min(waves, moving, key=lambda each: each.score)
    for k in range(len(moving)):
        growth, free_growth = best.growth.copy(), best.free_growth.copy()
        if not free_growth[k].any():
            continue
        growth[k], free_growth[k] = 0, False
        start = solve(problem, growth, best.frequencies, free_growth, best.free_frequencies)
        best = min(best, refine(problem, start), key=lambda each: each.score)
    return best


def _thinned(problem: WaveProblem, waves: Waves, tell: Callable[[float], None]) -> Waves:
    """Without the waves that do not pay, the weakest tried first."""
    while len(waves):
        tell(0.9)
        options = []
        for k in np.argsort(_spread(problem, waves))[:2]:
            kept = np.arange(len(waves)) != k
            start = solve(
                problem,
                waves.growth[kept],
                waves.frequencies[kept],
                waves.free_growth[kept],
                waves.free_frequencies[kept],
            )
            options.append(refine(problem, start))
        better = min(options, key=lambda each: each.score)
        if better.score >= waves.score:
            break
        waves = better
    return waves


def _spread(problem: WaveProblem, waves: Waves) -> Array:
    """Root of the mean square of each wave over the rows."""
    size = np.exp(np.clip(problem.x @ waves.growth.T, -50, 50))
    return np.asarray(waves.strength * np.sqrt((size**2).mean(0)))
