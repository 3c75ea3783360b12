"""Trend, regressors, groups and waves as one M-layer, fitted by least squares.

    y = c + b . x + sum of d_ij x_i x_j + sum_k (p_k(x) cos(w_k t_k) + q_k(x) sin(w_k t_k))

t_k is the input that the wave k runs along. The products x_i x_j and the amplitudes p_k, q_k let a group have
its own level, trend and seasons: a group is an input of two values, and p_k(x) = p_k0 + sum_g p_kg x_g over
those that pay. The same with t_k in place of a group's input gives seasons that grow. That is an M-layer
exactly (docs/theory/waves.md): small nilpotent blocks whose exponentials hold the trend and the products, and
for each wave a rotation, twice, with its amplitude above the diagonal.

The frequencies come from :mod:`mlayer.numerics`; which groups matter is decided by Schwarz's criterion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from mlayer.estimators.rows import Rows
from mlayer.nn import BlockDiagonal, MLayer
from mlayer.numerics import find_waves as search
from mlayer.numerics.arrays import Array, Indices
from mlayer.numerics.cosine_sine import cosine_sine
from mlayer.numerics.normal_equations import NormalEquations
from mlayer.numerics.spectrum import LEAST_VALUES
from mlayer.numerics.torch_memory import in_torch_memory
from mlayer.numerics.waves import schwarz

_MOST_WAVES = 20
# Rows of less than this part of the mean weight are left out of the search.
_NO_WEIGHT = 1e-6
# A group needs this many rows to show separate waves.
_ROWS_OF_A_GROUP = 40
# Of an input with more values than these the effect may bend, and it may change the size of a season.
_FEW_VALUES = 5
_MOST_GROUPS = 60
# Up to this many groups are judged one by one and searched for separate waves; more are judged together.
_FEW_GROUPS = 6
# Directions of the inputs below this part of the strongest one depend on the others.
_INDEPENDENT = 1e-7
# Two frequencies closer than this part of what the extent of the rows resolves are one.
_APART = 0.75
# Waves may swing by this many times the range of the targets among the rows, and by that many as far as half
# of the rows' extent beyond them. Slow waves that imitate a jump cancel among the rows and explode beyond.
_SWING_INSIDE, _SWING_BEYOND = 1.2, 2.0
_BEYOND = 0.5
# The swing is measured on this many rows at most.
_ROWS_OF_SWINGS = 1500
# The distribution of times differs from a uniform one by this at most.
_UNEVEN = 0.15
# The part of the rows whose level the simplest forecast continues.
_LAST = 0.1
# Beyond this many inputs a group gets its own trend and waves, but not its own effect of every other input.
_INPUTS_WITH_PRODUCTS = 12


@dataclass(frozen=True)
class WaveFit:
    """A model of waves in standardized units."""

    frequencies: Array  # radians per unit of the input, (waves,)
    inputs: Indices  # which input each wave runs along, (waves,)
    # inputs that the amplitudes depend on: those of two values, quantities, and time where seasons grow
    groups: tuple[int, ...] = ()
    products: tuple[tuple[int, int], ...] = ()  # pairs of inputs whose product has a coefficient
    # in the order of :meth:`columns`, (columns, outputs)
    coefficients: Array = field(default_factory=lambda: np.empty((0, 0)))
    score: float = np.inf  # Schwarz's criterion, lower is better

    @classmethod
    def linear(cls, coefficients: Array) -> WaveFit:
        """The model without waves: a constant and the inputs."""
        return cls(np.empty(0), np.empty(0, dtype=np.int64), coefficients=coefficients)

    def columns(self, x: Array) -> Array:
        """1, x, the products, then for each wave cosine and sine, alone and times each group's input."""
        first = 1 + x.shape[1] + len(self.products)
        result = np.empty((len(x), first + 2 * len(self.frequencies) * (1 + len(self.groups))))
        result[:, 0], result[:, 1 : 1 + x.shape[1]] = 1.0, x
        for place, (i, j) in enumerate(self.products, start=1 + x.shape[1]):
            np.multiply(x[:, i], x[:, j], out=result[:, place])
        # (rows, waves, levels, cosine and sine): a view of the last columns
        waves = result[:, first:].reshape(len(x), len(self.frequencies), 1 + len(self.groups), 2)
        waves[:, :, 0, 0], waves[:, :, 0, 1] = cosine_sine(x[:, self.inputs] * self.frequencies)
        for level, g in enumerate(self.groups, start=1):
            np.multiply(waves[:, :, 0], x[:, g, None, None], out=waves[:, :, level])
        return result

    def loss(self, data: Rows) -> float:
        """The weighted mean of the squared errors."""
        errors = np.square(self.columns(data.x) @ self.coefficients - data.y).mean(axis=1)
        return float(data.weight @ errors / data.weight.sum())

    def parameters(self, outputs: int, inputs: int) -> int:
        """The count of Schwarz's criterion, a frequency three times (see `numerics.waves.schwarz`)."""
        linear = 1 + inputs + len(self.products) + 2 * len(self.frequencies) * (1 + len(self.groups))
        return linear * outputs + 3 * len(self.frequencies)


def time_like(column: Array) -> bool:
    """Whether values are spaced like times: many, mostly at one distance, with gaps, and all about as often.

    Measured quantities that were rounded have one distance too, but gather in the middle.
    """
    values = np.unique(column)
    if len(values) < 2 * LEAST_VALUES:
        return False
    steps = np.diff(values)
    middle = np.median(steps)
    if not np.mean(np.abs(steps - middle) <= 0.01 * middle) > 0.8:
        return False
    parts = np.linspace(0.0, 1.0, 21)
    places = (np.quantile(column, parts) - values[0]) / (values[-1] - values[0])
    return bool(np.abs(places - parts).max() < _UNEVEN)


def last_level_loss(before: Rows, after: Rows, along: list[int]) -> float:
    """The error of the simplest forecast: the other inputs linearly, on the level of the last tenth of rows.

    A wandering series has waves that fit its past well and its future worse than this does.
    """
    others = [j for j in range(before.x.shape[1]) if j not in along]
    columns, later = (np.column_stack([np.ones(len(part)), part.x[:, others]]) for part in (before, after))
    found = np.linalg.lstsq(columns, before.y, rcond=None)[0]
    left = before.y - columns @ found
    time = before.x[:, along[0]]
    last = time >= np.quantile(time, 1 - _LAST)
    errors = np.square(after.y - later @ found - left[last].mean(axis=0)).mean(axis=1)
    return float(after.weight @ errors / after.weight.sum())


def find_waves(
    data: Rows, along: list[int], tell: Callable[[float], None] = lambda _: None
) -> WaveFit | None:
    """The model of waves along these inputs of standardized rows, or None if there are no waves.

    ``tell`` is called with the part of the search that is done, from 0 to 1; it may raise to end it.
    """
    # Rows that hardly count must not suggest that faster waves could be distinguished from slow ones.
    counts = data.weight > _NO_WEIGHT * data.weight.mean()
    data = Rows(data.x[counts], data.y[counts], data.weight[counts])
    groups = _groups(data.x, along)
    found = _frequencies(data, along, _MOST_WAVES, lambda part: tell(0.5 * part))
    for place, g in enumerate(groups[:_FEW_GROUPS]):
        tell(0.5 + 0.2 * place / _FEW_GROUPS)
        rows = data.x[:, g] == data.x[:, g].max()
        part = Rows(data.x[rows], data.y[rows], data.weight[rows])
        own = _frequencies(part, along, _MOST_WAVES // 2, lambda _: tell(0.5))
        found += [wave for wave in own if _is_new(wave, found, data.x)]
    if not found:
        return None
    tell(0.7)
    best = solved(WaveFit(np.array([w for w, _ in found]), np.array([a for _, a in found])), data)
    best = _with_quantities(_with_groups(best, data, groups, along, tell), data, along)
    tell(0.8)
    if best.groups:
        best = _refined(best, data, tell)
    best = _thinned(best, data, tell)
    return best if len(best.frequencies) else None


def _groups(x: Array, along: list[int]) -> list[int]:
    """Inputs of two values with enough rows of each."""
    result = []
    for j in range(x.shape[1]):
        values, counts = np.unique(x[:, j], return_counts=True)
        if j not in along and len(values) == 2 and counts.min() >= _ROWS_OF_A_GROUP:
            result.append(j)
    return result[:_MOST_GROUPS]


def _frequencies(
    data: Rows, along: list[int], most: int, tell: Callable[[float], None]
) -> list[tuple[float, int]]:
    """Pairs (frequency, input), the strongest first."""
    # Categories add up to the constant: a basis of the columns spares a decomposition in each step.
    U, sizes, _ = np.linalg.svd(np.column_stack([np.ones(len(data.x)), data.x]), full_matrices=False)
    fixed = np.sqrt(len(U)) * U[:, sizes > _INDEPENDENT * sizes[0]]
    waves = search.find_waves(data.x[:, along], data.y, fixed=fixed, weight=data.weight, most=most, tell=tell)
    if waves is None:
        return []
    order = np.argsort(-waves.strength)
    places = np.abs(waves.frequencies).argmax(axis=1)
    return [(float(abs(waves.frequencies[k, places[k]])), along[int(places[k])]) for k in order]


def _is_new(wave: tuple[float, int], found: list[tuple[float, int]], x: Array) -> bool:
    resolved = 2 * np.pi / np.ptp(x[:, wave[1]])
    return all(a != wave[1] or abs(w - wave[0]) > _APART * resolved for w, a in found)


def solved(model: WaveFit, data: Rows, columns: Array | None = None) -> WaveFit:
    """The model with its coefficients and Schwarz's criterion; its ``columns`` of the rows, if known."""
    columns = model.columns(data.x) if columns is None else columns
    return _scored(model, data, *NormalEquations.of(columns, data.y, data.weight).solved()[:2])


def _scored(model: WaveFit, data: Rows, coefficients: Array, squares: float) -> WaveFit:
    count = model.parameters(data.y.shape[1], data.x.shape[1])
    return replace(model, coefficients=coefficients, score=schwarz(squares, data.y.size, count))


def _with_groups(
    best: WaveFit, data: Rows, groups: list[int], along: list[int], tell: Callable[[float], None]
) -> WaveFit:
    """Groups with a separate trend and waves: few are added one at a time while that pays, many at once."""
    inputs = data.x.shape[1]
    partners = list(range(inputs)) if inputs <= _INPUTS_WITH_PRODUCTS else along
    rest: list[tuple[int, ...]] = [(g,) for g in groups] if len(groups) <= _FEW_GROUPS else [tuple(groups)]
    while rest:
        trials = []
        for new in rest:
            tell(0.7)
            pairs = [(j, g) for g in new for j in partners if j != g and (g, j) not in best.products]
            # Separate seasons, or a separate trend and other effects on top of the common seasons.
            for own in ((*best.groups, *new), best.groups):
                for products in ((*best.products, *pairs), best.products):
                    trial = replace(best, groups=own, products=products)
                    if trial.parameters(data.y.shape[1], inputs) < data.y.size // 3:
                        trials.append((solved(trial, data), new))
        if not trials:
            break
        model, new = min(trials, key=lambda each: each[0].score)
        if model.score >= best.score:
            break
        best = model
        rest.remove(new)
    return best


def _quantities(x: Array, along: list[int]) -> list[int]:
    """Inputs of many values that no wave runs along: prices, temperatures."""
    count = x.shape[1]
    if count > _INPUTS_WITH_PRODUCTS:
        return []
    return [j for j in range(count) if j not in along and len(np.unique(x[:, j])) > _FEW_VALUES]


def _with_quantities(best: WaveFit, data: Rows, along: list[int]) -> WaveFit:
    """The fit with seasons that change linearly with time or a quantity, and its square, where that pays.

    Clouds dim the day; both heat and cold need power.
    """
    quantities = _quantities(data.x, along)
    for j in [*along, *quantities]:
        best = _better(best, replace(best, groups=(*best.groups, j)), data)
    for j in quantities:
        best = _better(best, replace(best, products=(*best.products, (j, j))), data)
    return best


def _better(best: WaveFit, trial: WaveFit, data: Rows) -> WaveFit:
    """The one with the lower criterion, if the rows are enough for the other."""
    if trial.parameters(data.y.shape[1], data.x.shape[1]) >= data.y.size // 3:
        return best
    return min(best, solved(trial, data), key=lambda each: each.score)


def _refined(best: WaveFit, data: Rows, tell: Callable[[float], None]) -> WaveFit:
    """All frequencies together to the nearest minimum, with the amplitudes of the groups.

    Variable projection with Kaufman's Jacobian, as in :mod:`mlayer.numerics.waves`.
    """
    from scipy.optimize import least_squares

    root = np.sqrt(data.weight)[:, None]
    unit = 1 / np.ptp(data.x, axis=0)[best.inputs]
    copies, first = 1 + len(best.groups), 1 + data.x.shape[1] + len(best.products)

    def moved(step: Array) -> WaveFit:
        return replace(best, frequencies=np.abs(best.frequencies + step * unit))

    def left_over(step: Array) -> Array:
        tell(0.85)
        columns = moved(step).columns(data.x)
        found = NormalEquations.of(columns, data.y, data.weight).solved()[0]
        return np.asarray(((data.y - columns @ found) * root).ravel())

    def slopes(step: Array) -> Array:
        columns = moved(step).columns(data.x)
        found, _, factor = NormalEquations.of(columns, data.y, data.weight).solved()
        result = np.empty((data.y.size, len(step)))
        for k, a in enumerate(best.inputs):
            places = first + 2 * copies * k + 2 * np.arange(copies)
            change = columns[:, places] @ found[places + 1] - columns[:, places + 1] @ found[places]
            change = -unit[k] * data.x[:, [a]] * change * root
            basis = columns * root
            result[:, k] = (change - basis @ (factor @ (factor.T @ (basis.T @ change)))).ravel()
        return result

    solution = least_squares(left_over, np.zeros(len(unit)), jac=slopes, max_nfev=8)
    return min(best, solved(moved(solution.x), data), key=lambda each: each.score)


def _thinned(best: WaveFit, data: Rows, tell: Callable[[float], None]) -> WaveFit:
    """The fit without the waves that do not pay, and with at most the largest number."""
    first, width = 1 + data.x.shape[1] + len(best.products), 2 * (1 + len(best.groups))
    while count := len(best.frequencies):
        tell(0.9)
        equations = NormalEquations.of(best.columns(data.x), data.y, data.weight)
        trials = []
        for k in range(count):
            kept = np.arange(count) != k
            trial = replace(best, frequencies=best.frequencies[kept], inputs=best.inputs[kept])
            places = np.concatenate([np.ones(first, dtype=bool), np.repeat(kept, width)])
            trials.append(_scored(trial, data, *equations.solved(places)[:2]))
        model = min(trials, key=lambda each: each.score)
        if model.score >= best.score and count <= _MOST_WAVES:
            break
        best = model
    return best


def bounded(best: WaveFit, data: Rows, along: list[int]) -> WaveFit:
    """The fit without those waves that leave the range of the targets beyond the rows."""
    target_range, x = np.ptp(data.y, axis=0), data.x
    if len(x) > _ROWS_OF_SWINGS:  # a random choice, which does not keep step with any wave
        x = x[np.random.default_rng(0).choice(len(x), _ROWS_OF_SWINGS, replace=False)]
    places = [(x, _SWING_INSIDE)]
    for a in along:
        far = np.zeros(x.shape[1])
        far[a] = _BEYOND * np.ptp(data.x[:, a])
        places += [(x + far, _SWING_BEYOND), (x - far, _SWING_BEYOND)]
    while len(best.frequencies):
        width = 2 * (1 + len(best.groups))
        first = len(best.coefficients) - width * len(best.frequencies)
        strongest, swings = np.zeros(len(best.frequencies)), 0.0
        for there, limit in places:
            columns = best.columns(there)[:, first:].reshape(len(there), len(strongest), width)
            amounts = best.coefficients[first:].reshape(len(strongest), width, -1)
            each = np.einsum("rwk,wko->rwo", columns, amounts)  # (rows, waves, outputs)
            swings = max(swings, float((np.ptp(each.sum(axis=1), axis=0) / (limit * target_range)).max()))
            strongest = np.maximum(strongest, np.ptp(each, axis=0).max(axis=1))
        if swings <= 1:
            break
        kept = np.arange(len(strongest)) != strongest.argmax()
        fewer = replace(best, frequencies=best.frequencies[kept], inputs=best.inputs[kept])
        best = _thinned(solved(fewer, data), data, lambda _: None)
    return best


def wave_layer(waves: WaveFit, in_features: int) -> MLayer:
    """The M-layer that computes the model, in float64, in small blocks; see docs/theory/waves.md."""
    outputs = waves.coefficients.shape[1]
    coefficients = in_torch_memory(waves.coefficients)
    linear = coefficients[1 : 1 + in_features]  # (inputs, outputs)
    seconds = list(dict.fromkeys(j for _, j in waves.products))
    sizes = [1 + outputs, *[2 + outputs] * len(seconds), *[2 + 2 * outputs] * len(waves.frequencies)]
    n = sum(sizes)
    starts = [0, *np.cumsum(sizes).tolist()]
    T = torch.zeros(in_features, n, n, dtype=torch.float64)
    S = torch.zeros(outputs, n, n, dtype=torch.float64)
    T[:, 0, 1 : 1 + outputs] = linear
    _read_ones(S, 0, 1)
    for start, j in zip(starts[1:], seconds, strict=False):
        # Along the path start -> start + 1 -> node the square of M holds x_j sum_i d_ij x_i.
        T[j, start, start + 1] = 1.0
        for k, (i, other) in enumerate(waves.products):
            if other == j:
                T[i, start + 1, start + 2 : start + 2 + outputs] += 2 * coefficients[1 + in_features + k]
        _read_ones(S, start, start + 2)
    place = 1 + in_features + len(waves.products)
    for start, w, a in zip(starts[1 + len(seconds) :], waves.frequencies, waves.inputs, strict=False):
        for i in range(start, start + 2 + 2 * outputs, 2):
            T[a, i + 1, i], T[a, i, i + 1] = w, -w
        S[:, start, start], S[:, start + 1, start] = coefficients[place], coefficients[place + 1]
        place += 2
        for g in waves.groups:
            # x_g (p I - q J), which commutes with the rotation, in the first row of blocks.
            p, q = coefficients[place], coefficients[place + 1]
            for o in range(outputs):
                i = start + 2 + 2 * o
                T[g, start, i] = T[g, start + 1, i + 1] = p[o]
                T[g, start, i + 1], T[g, start + 1, i] = q[o], -q[o]
            place += 2
        for o in range(outputs):
            S[o, start, start + 2 + 2 * o] = 1.0
    return MLayer.from_weights(
        T,
        S,
        matrix_bias=torch.zeros(n, n, dtype=torch.float64),
        output_bias=coefficients[0].clone(),
        structure=BlockDiagonal(sizes),
    )


def _read_ones(S: torch.Tensor, row: int, column: int) -> None:
    """Each output reads one entry of a row, one after the other."""
    for o in range(len(S)):
        S[o, row, column + o] = 1.0
