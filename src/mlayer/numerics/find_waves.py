"""The search for the number of waves in data and their frequencies, on top of the parts in this package.

Waves are added one at a time at the highest peak of the spectrum of the residual; after each, the rates
of all are refined together, which also separates most waves that are closer than the spectrum resolves.
Four and more waves of few periods each can end in a wrong minimum that way; so the poles of a matrix pencil
are a second start, unless the spectrum separates all waves that were found in noise
(docs/decisions/0010-numerics.md). Schwarz's criterion decides between the two, how many waves stay, and
whether they are damped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mlayer.numerics import pencil, spectrum
from mlayer.numerics.arrays import Array
from mlayer.numerics.waves import WaveProblem, Waves, refine, solve, solve_again

MOST_WAVES = 8
# Rows that the search looks at; the last refinement uses all.
_SEARCH_ROWS = 4_000
# A residual of this part of the signal is rounding.
_ROUNDING = 1e-10
# Where more than this part is left over, the digits of a refinement from another start do not count.
_NOISE = 1e-4
# Beyond e^4 over the extent of the rows a damped wave is a jump or a spike at one end.
_LARGEST_GROWTH = 4.0
# A slower wave than half a period over the rows is a trend.
_FEWEST_RADIANS = np.pi
# Directions of the matrix pencil below this part of the strongest one are rounding.
_POLES = 1e-12
# The spectrum separates waves whose numbers of cycles over the rows differ by this.
_RESOLVED = 2.0
# Evenly spaced places for the matrix pencil; more where the waves are fast.
_GRID = 300


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
        tell: called with the fraction of the search that is done; it may raise to end the search.

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
    # A random choice of evenly spaced rows still separates fast waves from slow ones; every k-th would not.
    chosen = np.sort(np.random.default_rng(0).choice(rows, _SEARCH_ROWS, replace=False)) if few else None
    problem = whole if chosen is None else whole.take(chosen)
    most = min(most, (rows - whole.fixed.shape[1]) // 6)
    best = _search(problem, whole, most, damped, tell)
    if best is None or not few:
        return best
    return refine(whole, solve_again(whole, best))


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
        current = refine(problem, start, loosely=not damped)
        if damped:
            current = _with_growth(problem, current)
        in_vain = 0 if current.score < best.score else in_vain + 1
        best = min(best, current, key=lambda waves: waves.score)
    if best.squares > enough:
        noisy = not damped and best.squares > _NOISE * none.squares
        if not (noisy and _is_resolved(problem, best)):
            options = [best, *_from_poles(problem, best, most, damped, loosely=noisy)]
            best = min(options, key=lambda waves: waves.score)
    best = _thinned(problem, best, tell, loosely=not damped)
    if not damped:
        best = refine(problem, best)
    return best if len(best) else None


def _is_resolved(problem: WaveProblem, waves: Waves) -> bool:
    """Whether the spectrum separates each wave from the others and from a trend."""
    for extent, frequencies in zip(problem.extent, waves.frequencies.T, strict=True):
        cycles = np.sort(frequencies[frequencies != 0]) * extent / (2 * np.pi)
        if (np.diff(cycles, prepend=0.0) < _RESOLVED).any():
            return False
    return True


def _from_poles(problem: WaveProblem, best: Waves, most: int, damped: bool, loosely: bool) -> Iterator[Waves]:
    """Fits that start from the poles of a matrix pencil; none if there are several inputs."""
    if problem.x.shape[1] != 1 or not len(best) or spectrum.highest_frequency(problem.x[:, 0]) is None:
        return
    grid, values = _on_a_grid(problem, best)
    # Two poles more than waves: a constant and a slope that the best fit has not got right.
    growth, frequencies = pencil.poles(values, grid[1] - grid[0], most + 1, _POLES)
    kept = frequencies * problem.extent[0] > _FEWEST_RADIANS
    growth = np.clip(growth[kept], *(np.array([-1, 1]) * _LARGEST_GROWTH / problem.extent[0]))[:, None]
    frequencies = frequencies[kept][:, None]
    for count in sorted({len(best), len(best) + 1, min(most, len(frequencies))}):
        if not 0 < count <= min(most, len(frequencies)):
            continue
        w = frequencies[:count]
        start = solve(problem, np.zeros_like(w), w)
        yield refine(problem, start, loosely=loosely)
        if damped:
            g = growth[:count]
            free = np.ones_like(g, dtype=bool)
            moving = refine(problem, solve(problem, g, w, free, free))
            if not _jumps(problem, moving):
                yield _with_growth(problem, moving)


def _on_a_grid(problem: WaveProblem, waves: Waves) -> tuple[Array, Array]:
    """Evenly spaced places along the one input, and values there without what the fixed columns explain.

    Evenly spaced rows are taken as they are, others come from the fit and its interpolated residual.
    """
    order = np.argsort(problem.x[:, 0], kind="stable")
    x = problem.x[order, 0]
    output = int(np.argmax(problem.y.var(0)))
    known = (problem.fixed @ waves.linear)[order, output]
    known = known - _line(x, known)  # stays: with slow waves a slope may be far off
    steps = np.diff(x)
    fastest = 2 * float(waves.frequencies.max())
    if np.ptp(steps) < 1e-6 * steps.mean():
        stride = max(1, min(len(x) // _GRID, int(np.pi / (fastest * steps.mean()))))
        return x[::stride], (problem.y[order, output] - known)[::stride]
    count = int(np.clip(2 * fastest * problem.extent[0] / np.pi, _GRID, max(_GRID, len(x))))
    grid = np.linspace(x[0], x[-1], count)
    none = np.zeros((count, problem.fixed.shape[1]))
    fitted = waves.at(problem.x, problem.fixed)[order, output]
    left_over = np.interp(grid, x, problem.y[order, output] - fitted)
    return grid, waves.at(grid[:, None], none)[:, output] + left_over


def _line(x: Array, values: Array) -> Array:
    """The straight line through the values."""
    columns = np.column_stack([np.ones_like(x), x - x.mean()])
    return np.asarray(columns @ np.linalg.lstsq(columns, values, rcond=None)[0])


def _with_peak(problem: WaveProblem, waves: Waves, highest: list[float | None]) -> Waves | None:
    """One more wave, at the highest peak of the residual along any input."""
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
    if _jumps(problem, moving):
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


def _jumps(problem: WaveProblem, waves: Waves) -> bool:
    """Whether a wave grows or decays so fast that it is a jump or a spike."""
    return bool((np.abs(waves.growth) * problem.extent).max(initial=0) > _LARGEST_GROWTH)


def _thinned(problem: WaveProblem, waves: Waves, tell: Callable[[float], None], loosely: bool) -> Waves:
    """The fit without the waves that do not pay, the weakest tried first."""
    while len(waves):
        tell(0.9)
        options = []
        for k in np.argsort(_spread(problem, waves))[:2]:
            start = solve_again(problem, waves, np.arange(len(waves)) != k)
            options.append(refine(problem, start, loosely=loosely))
        better = min(options, key=lambda each: each.score)
        if better.score >= waves.score:
            break
        waves = better
    return waves


def _spread(problem: WaveProblem, waves: Waves) -> Array:
    """Root of the mean square of each wave over the rows."""
    size = np.exp(np.clip(problem.x @ waves.growth.T, -50, 50))
    return np.asarray(waves.strength * np.sqrt((size**2).mean(0)))
