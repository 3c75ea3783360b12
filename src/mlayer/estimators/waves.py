"""A start from the data's own frequencies: waves along single inputs, on top of a linear trend.

    y = c + b . x + sum_k (p_k cos(w_k x_j(k)) + q_k sin(w_k x_j(k)))

is an M-layer exactly: a nilpotent block whose exponential holds x, and one rotation block a wave, whose
generator is w_k [[0, -1], [1, 0]]. The frequencies come from a periodogram of what is left over, one wave at
a time; after each, all are refined together by least squares, the amplitudes eliminated (variable projection:
Golub and Pereyra, 1973). Waves are added while Schwarz's criterion falls, a frequency counted as three
parameters because its likelihood peaks that much more sharply (Djuric, IEEE Transactions on Signal
Processing 44, 1996).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.nn import BlockDiagonal, MLayer

Array = NDArray[np.float64]

_MOST_WAVES = 8
_MOST_FREQUENCIES = 4000
# Fewer different values of an input than this hold no wave worth the name.
_LEAST_VALUES = 20


@dataclass(frozen=True)
class Waves:
    """Frequencies found in data.

    Attributes:
        frequencies: radians a unit of the input, (waves,).
        inputs: which input each runs along, (waves,).
        coefficients: of 1, the inputs, the cosines, the sines, for each output:
            (1 + inputs + 2 waves, outputs).
    """

    frequencies: Array
    inputs: NDArray[np.int64]
    coefficients: Array


def find_waves(x: Array, y: Array, weight: Array) -> Waves | None:
    """The waves of y along the columns of x, or None if there are none.

    Args:
        x: (rows, inputs), standardised.
        y: (rows, outputs), standardised.
        weight: (rows,), mean 1.
    """
    grids = {j: grid for j in range(x.shape[1]) if (grid := _grid(x[:, j])) is not None}
    rows, outputs = y.shape
    frequencies, inputs = np.empty(0), np.empty(0, dtype=np.int64)
    best = _solve(x, y, weight, frequencies, inputs)
    best_score = _bic(best[1], rows * outputs, (x.shape[1] + 1) * outputs)
    found = None
    most = min(_MOST_WAVES, (rows - x.shape[1] - 1) // 6)
    for count in range(1, most + 1):
        peak = _highest_peak(x, best[2], weight, grids)
        if peak is None:
            break
        j, w = peak
        inputs = np.append(inputs, j)
        frequencies = _refine(x, y, weight, np.append(frequencies, w), inputs)
        best = _solve(x, y, weight, frequencies, inputs)
        # A wave has two amplitudes an output, and a frequency that counts three times.
        score = _bic(best[1], rows * outputs, (x.shape[1] + 1 + 2 * count) * outputs + 3 * count)
        if score < best_score:
            best_score, found = score, Waves(frequencies.copy(), inputs.copy(), best[0])
        elif found is None or count > len(found.frequencies) + 1:
            break  # two additions in vain
    return found


def wave_layer(waves: Waves, in_features: int) -> MLayer:
    """The M-layer that computes the sum of trend and waves, in float64."""
    count, outputs = len(waves.frequencies), waves.coefficients.shape[1]
    trend = in_features + 1
    n = trend + 2 * count
    T = torch.zeros(in_features, n, n, dtype=torch.float64)
    S = torch.zeros(outputs, n, n, dtype=torch.float64)
    coefficients = torch.from_numpy(waves.coefficients)
    for j in range(in_features):
        T[j, 0, 1 + j] = 1.0
        S[:, 0, 1 + j] = coefficients[1 + j]
    for k, (w, j) in enumerate(zip(waves.frequencies, waves.inputs, strict=True)):
        i = trend + 2 * k
        T[j, i + 1, i], T[j, i, i + 1] = w, -w
        S[:, i, i] = coefficients[trend + k]
        S[:, i + 1, i] = coefficients[trend + count + k]
    return MLayer.from_weights(
        T,
        S,
        matrix_bias=torch.zeros(n, n, dtype=torch.float64),
        output_bias=coefficients[0].clone(),
        structure=BlockDiagonal([trend, *[2] * count]),
    )


def _grid(column: Array) -> Array | None:
    """Frequencies from one period over the range up to two rows a period, eight steps a cycle."""
    values = np.unique(column)
    if len(values) < _LEAST_VALUES:
        return None
    extent = values[-1] - values[0]
    lowest = 2 * np.pi / extent
    highest = np.pi / np.median(np.diff(values))
    count = int(min(_MOST_FREQUENCIES, 8 * (highest / lowest - 1) + 1))
    return lowest * (1 + np.arange(count) / 8) if count > 0 else None


def _columns(x: Array, frequencies: Array, inputs: NDArray[np.int64]) -> Array:
    angles = x[:, inputs] * frequencies
    return np.column_stack([np.ones(len(x)), x, np.cos(angles), np.sin(angles)])


def _solve(
    x: Array, y: Array, weight: Array, frequencies: Array, inputs: NDArray[np.int64]
) -> tuple[Array, float, Array]:
    """Coefficients, weighted sum of squares, what is left over."""
    root = np.sqrt(weight)[:, None]
    columns = _columns(x, frequencies, inputs)
    # Nearly equal frequencies would get huge opposite amplitudes; singular values below 1e-6 are dropped.
    coefficients: Array = np.asarray(
        np.linalg.lstsq(columns * root, y * root, rcond=1e-6)[0], dtype=np.float64
    )
    left = y - columns @ coefficients
    return coefficients, float((weight @ np.square(left)).sum()), left


def _highest_peak(x: Array, left: Array, weight: Array, grids: dict[int, Array]) -> tuple[int, float] | None:
    """Input and frequency of the wave that takes most off what is left over, over all outputs."""
    best: tuple[float, int, float] | None = None
    target = left * weight[:, None]
    for j, grid in grids.items():
        for part in np.array_split(grid, max(1, len(grid) * len(x) // 2_000_000)):
            angles = np.outer(x[:, j], part)
            c, s = np.cos(angles), np.sin(angles)
            # Least squares of two columns in closed form, for every frequency at once.
            cc, ss, cs = weight @ (c * c), weight @ (s * s), weight @ (c * s)
            determinant = np.maximum(cc * ss - cs * cs, 1e-9 * len(x) ** 2)
            yc, ys = target.T @ c, target.T @ s
            power = ((ss * yc * yc - 2 * cs * yc * ys + cc * ys * ys) / determinant).sum(axis=0)
            top = int(power.argmax())
            if best is None or power[top] > best[0]:
                best = (float(power[top]), j, float(part[top]))
    return None if best is None else best[1:]


def _refine(x: Array, y: Array, weight: Array, frequencies: Array, inputs: NDArray[np.int64]) -> Array:
    """All frequencies together to the nearest minimum of the squared error."""
    from scipy.optimize import least_squares

    root = np.sqrt(weight)[:, None]

    def left_over(candidate: Array) -> Array:
        return (_solve(x, y, weight, candidate, inputs)[2] * root).ravel()

    # Half a step of the grid is the farthest that the peak can be off.
    extent = np.ptp(x, axis=0)[inputs]
    solution = least_squares(left_over, frequencies, x_scale=1 / extent, max_nfev=20)
    return np.asarray(np.abs(solution.x))


def _bic(squares: float, count: int, parameters: int) -> float:
    return count * np.log(max(squares / count, 1e-30)) + parameters * np.log(count)
