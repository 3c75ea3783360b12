"""Trend, regressors, groups and waves as one M-layer, fitted by least squares.

    y = c + b . x + sum of d_ij x_i x_j + sum_k (p_k(x) cos(w_k t_k) + q_k(x) sin(w_k t_k))

t_k is the input that the wave k runs along. The products x_i x_j and the amplitudes p_k, q_k let a group have
its own level, trend and seasons: a group is an input of two values, and p_k(x) = p_k0 + sum_g p_kg x_g over
those that pay. That is an M-layer exactly (docs/theory/waves.md): a nilpotent block whose exponential holds x
and half the products, and for each wave a rotation repeated once per group, with the group's input above the
diagonal.

The frequencies come from :mod:`mlayer.numerics`; which groups matter is decided by Schwarz's criterion.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from mlayer.nn import BlockDiagonal, MLayer
from mlayer.numerics import find_waves as search
from mlayer.numerics.arrays import Array, Indices
from mlayer.numerics.spectrum import LEAST_VALUES
from mlayer.numerics.waves import schwarz

_MOST_WAVES = 8  # along one input
# Rows of less than this part of the mean weight are left out of the search.
_NO_WEIGHT = 1e-6
# Groups need enough rows to show their own waves.
_ROWS_OF_A_GROUP = 60
_MOST_GROUPS = 12
# Two frequencies closer than this part of what the extent of the rows resolves are one.
_APART = 0.75
# Beyond this many inputs a group gets its own trend and waves, but not its own effect of every other input.
_INPUTS_WITH_PRODUCTS = 12


@dataclass(frozen=True)
class _WaveRows:
    """Standardized rows: x (rows, inputs), y (rows, outputs), weight (rows,)."""

    x: Array
    y: Array
    weight: Array


@dataclass(frozen=True)
class WaveFit:
    """A model of waves in standardized units.

    Attributes:
        frequencies: radians per unit of the input, (waves,).
        inputs: which input each wave runs along, (waves,).
        groups: inputs of two values that have their own waves.
        products: pairs of inputs whose product has a coefficient.
        coefficients: in the order of :meth:`columns`, (columns, outputs).
        score: Schwarz's criterion, lower is better.
    """

    frequencies: Array
    inputs: Indices
    groups: tuple[int, ...] = ()
    products: tuple[tuple[int, int], ...] = ()
    coefficients: Array = field(default_factory=lambda: np.empty((0, 0)))
    score: float = np.inf

    def columns(self, x: Array) -> Array:
        """1, x, the products, then for each wave cosine and sine, alone and times each group's input."""
        parts = [np.ones((len(x), 1)), x]
        parts += [x[:, [i]] * x[:, [j]] for i, j in self.products]
        levels = [np.ones(len(x)), *(x[:, g] for g in self.groups)]
        for w, a in zip(self.frequencies, self.inputs, strict=True):
            angle = w * x[:, a]
            parts += [np.stack([v * np.cos(angle), v * np.sin(angle)], axis=1) for v in levels]
        return np.concatenate(parts, axis=1)

    def parameters(self, outputs: int, inputs: int) -> int:
        """What Schwarz's criterion counts; a frequency three times (see `numerics.waves.schwarz`)."""
        linear = 1 + inputs + len(self.products) + 2 * len(self.frequencies) * (1 + len(self.groups))
        return linear * outputs + 3 * len(self.frequencies)


def time_like(column: Array) -> bool:
    """Whether values are spaced as moments are: many, and mostly at one distance, with gaps."""
    values = np.unique(column)
    if len(values) < 2 * LEAST_VALUES:
        return False
    steps = np.diff(values)
    middle = np.median(steps)
    return bool(np.mean(np.abs(steps - middle) <= 0.01 * middle) > 0.8)


def find_waves(x: Array, y: Array, weight: Array, along: list[int] | None = None) -> WaveFit | None:
    """The model of waves of y along the columns ``along`` of x, or None if there are no waves.

    Args:
        x: (rows, inputs), standardized.
        y: (rows, outputs), standardized.
        weight: (rows,), mean 1.
        along: inputs that waves may run along; all if None.
    """
    along = list(range(x.shape[1])) if along is None else along
    if not along:
        return None
    # Rows that hardly count must not suggest that faster waves could be told from slow ones.
    counts = weight > _NO_WEIGHT * weight.mean()
    data = _WaveRows(x[counts], y[counts], weight[counts])
    groups = _groups(data.x, along)
    found = _frequencies(data, along, _MOST_WAVES)
    for g in groups:
        rows = data.x[:, g] == data.x[:, g].max()
        own = _frequencies(_WaveRows(data.x[rows], data.y[rows], data.weight[rows]), along, _MOST_WAVES // 2)
        found += [wave for wave in own if _is_new(wave, found, data.x)]
    if not found:
        return None
    best = _solved(WaveFit(np.array([w for w, _ in found]), np.array([a for _, a in found])), data)
    best = _with_groups(best, data, groups, along)
    if best.groups:
        best = _refined(best, data)
    best = _thinned(best, data)
    return best if len(best.frequencies) else None


def _groups(x: Array, along: list[int]) -> list[int]:
    """Inputs of two values with enough rows of each."""
    result = []
    for j in range(x.shape[1]):
        values, counts = np.unique(x[:, j], return_counts=True)
        if j not in along and len(values) == 2 and counts.min() >= _ROWS_OF_A_GROUP:
            result.append(j)
    return result[:_MOST_GROUPS]


def _frequencies(data: _WaveRows, along: list[int], most: int) -> list[tuple[float, int]]:
    """Pairs (frequency, input), the strongest first."""
    fixed = np.column_stack([np.ones(len(data.x)), data.x])
    waves = search.find_waves(data.x[:, along], data.y, fixed=fixed, weight=data.weight, most=most)
    if waves is None:
        return []
    order = np.argsort(-waves.strength)
    places = np.abs(waves.frequencies).argmax(axis=1)
    return [(float(abs(waves.frequencies[k, places[k]])), along[int(places[k])]) for k in order]


def _is_new(wave: tuple[float, int], found: list[tuple[float, int]], x: Array) -> bool:
    resolved = 2 * np.pi / np.ptp(x[:, wave[1]])
    return all(a != wave[1] or abs(w - wave[0]) > _APART * resolved for w, a in found)


def _solved(model: WaveFit, data: _WaveRows) -> WaveFit:
    """The model with its coefficients and Schwarz's criterion."""
    root = np.sqrt(data.weight)[:, None]
    columns = model.columns(data.x)
    # Nearly equal frequencies would get huge opposite amplitudes; singular values below 1e-6 are dropped.
    found = np.linalg.lstsq(columns * root, data.y * root, rcond=1e-6)[0]
    squares = float((data.weight @ np.square(data.y - columns @ found)).sum())
    count = model.parameters(data.y.shape[1], data.x.shape[1])
    score = schwarz(squares, data.y.size, count)
    return replace(model, coefficients=np.asarray(found, dtype=np.float64), score=score)


def _with_groups(best: WaveFit, data: _WaveRows, groups: list[int], along: list[int]) -> WaveFit:
    """Groups with their own trend and waves, added one at a time while that pays."""
    inputs = data.x.shape[1]
    partners = list(range(inputs)) if inputs <= _INPUTS_WITH_PRODUCTS else along
    rest = list(groups)
    while rest:
        trials = []
        for g in rest:
            pairs = [(j, g) for j in partners if j != g and (g, j) not in best.products]
            # Its own seasons, or its own trend and other effects on top of the common seasons.
            for own in ((*best.groups, g), best.groups):
                trial = replace(best, groups=own, products=(*best.products, *pairs))
                if trial.parameters(data.y.shape[1], inputs) < data.y.size // 3:
                    trials.append((_solved(trial, data), g))
        if not trials:
            break
        model, g = min(trials, key=lambda each: each[0].score)
        if model.score >= best.score:
            break
        best = model
        rest.remove(g)
    return best


def _refined(best: WaveFit, data: _WaveRows) -> WaveFit:
    """All frequencies together to the nearest minimum, with the amplitudes of the groups."""
    from scipy.optimize import least_squares

    root = np.sqrt(data.weight)[:, None]
    unit = 1 / np.ptp(data.x, axis=0)[best.inputs]

    def moved(step: Array) -> WaveFit:
        return _solved(replace(best, frequencies=np.abs(best.frequencies + step * unit)), data)

    def left_over(step: Array) -> Array:
        trial = moved(step)
        return np.asarray(((data.y - trial.columns(data.x) @ trial.coefficients) * root).ravel())

    solution = least_squares(left_over, np.zeros(len(unit)), max_nfev=8)
    return min(best, moved(solution.x), key=lambda each: each.score)


def _thinned(best: WaveFit, data: _WaveRows) -> WaveFit:
    """Without the waves that do not pay, and no more than the most."""
    while len(best.frequencies):
        trials = []
        for k in range(len(best.frequencies)):
            kept = np.arange(len(best.frequencies)) != k
            trial = replace(best, frequencies=best.frequencies[kept], inputs=best.inputs[kept])
            trials.append(_solved(trial, data))
        model = min(trials, key=lambda each: each.score)
        if model.score >= best.score and len(best.frequencies) <= _MOST_WAVES:
            break
        best = model
    return best


def wave_layer(waves: WaveFit, in_features: int) -> MLayer:
    """The M-layer that computes the model, in float64; see docs/theory/waves.md."""
    count, outputs = len(waves.frequencies), waves.coefficients.shape[1]
    copies = 1 + len(waves.groups)
    trend = 1 + in_features + len(waves.products)
    n = trend + 2 * copies * count
    T = torch.zeros(in_features, n, n, dtype=torch.float64)
    S = torch.zeros(outputs, n, n, dtype=torch.float64)
    coefficients = torch.from_numpy(waves.coefficients)
    for j in range(in_features):
        T[j, 0, 1 + j] = 1.0
        S[:, 0, 1 + j] = coefficients[1 + j]
    for k, (i, j) in enumerate(waves.products):
        # Along the path 0 -> 1 + i -> node the square of M holds x_i x_j, its exponential half of that.
        node = 1 + in_features + k
        T[j, 1 + i, node] = 1.0
        S[:, 0, node] = 2 * coefficients[node]
    place = trend
    for w, a in zip(waves.frequencies, waves.inputs, strict=True):
        for c in range(copies):
            i = place + 2 * c
            T[a, i + 1, i], T[a, i, i + 1] = w, -w
            if c:  # the group's input times the identity, in the first row of blocks
                T[waves.groups[c - 1], place, i] = T[waves.groups[c - 1], place + 1, i + 1] = 1.0
            S[:, place, i] = coefficients[place + 2 * c]
            S[:, place + 1, i] = coefficients[place + 2 * c + 1]
        place += 2 * copies
    return MLayer.from_weights(
        T,
        S,
        matrix_bias=torch.zeros(n, n, dtype=torch.float64),
        output_bias=coefficients[0].clone(),
        structure=BlockDiagonal([trend, *[2 * copies] * count]),
    )
