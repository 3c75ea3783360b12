"""The strongest frequency in rows that need not be evenly spaced.

The power of a frequency is what a cosine and a sine of it take off the sum of squares (the least-squares
periodogram of Lomb, Astrophys. Space Sci. 39, 1976). Its sums over the rows are Fourier sums; here the rows
go into the cells of a fine grid and one FFT gives them all. A cell is an eighth of the shortest half period,
so a row is misplaced by at most a sixteenth of it: enough to find a peak, which is then refined on the rows.
Rows of a calendar (hours, days, weeks, with gaps) are at a multiple of one step, which is then a cell.
"""

from __future__ import annotations

import numpy as np

from mlayer.numerics.arrays import Array, Indices

# Cells for each half period of the highest frequency.
_CELLS = 8
# Frequencies for each one that the extent of the rows resolves.
_STEPS = 8
_MOST_CELLS = 2**22  # of the grid: 32 MB of float64
# With fewer different values an input is not searched for waves.
LEAST_VALUES = 20


def highest_frequency(column: Array) -> float | None:
    """Two rows per period, by the typical distance of neighbors; None if there are too few values."""
    values = np.unique(column)
    if len(values) < LEAST_VALUES:
        return None
    return float(np.pi / np.median(np.diff(values)))


def power(column: Array, residual: Array, weight: Array, highest: float) -> tuple[Array, Array]:
    """Frequencies from one period over the extent of an input up to ``highest``, and their power.

    They are in radians per unit of the column, (rows,); the residual, (rows, outputs), is left to explain.
    """
    from scipy.fft import next_fast_len

    start, extent = float(column.min()), float(np.ptp(column))
    halves = (column - start) * (highest / np.pi)  # half periods of the highest frequency
    if np.abs(halves - np.rint(halves)).max() <= 1 / (2 * _CELLS) and halves.max() < _MOST_CELLS // _STEPS:
        place = np.rint(halves).astype(np.int64)
        cells, width = int(place.max()) + 1, float(np.pi / highest)
    else:
        cells = next_fast_len(min(_MOST_CELLS // _STEPS, int(_CELLS * highest * extent / np.pi) + 2), True)
        width = extent / (cells - 1)
        place = np.rint((column - start) / width).astype(np.int64)
    length = _STEPS * next_fast_len(cells, True)

    def sums(values: Array, at: Indices) -> Array:
        half = np.fft.rfft(np.bincount(place, values, length))
        # Of real values: the second half of the transform is the first one mirrored.
        mirrored = at > length // 2
        found = half[np.where(mirrored, length - at, at)]
        return np.asarray(np.where(mirrored, found.conj(), found))

    unit = 2 * np.pi / (length * width)
    last = min(int(highest / unit), (length - 1) // 2)
    index = np.arange(-(-length // cells), last + 1)
    if not len(index):
        return np.empty(0), np.empty(0)
    # Sums of w cos^2, w sin^2 and w cos sin are in the weights' own sums at twice the frequency.
    total, twice = weight.sum(), sums(weight, 2 * index)
    cc, ss, cs = (total + twice.real) / 2, (total - twice.real) / 2, -twice.imag / 2
    determinant = np.maximum(cc * ss - cs * cs, 1e-6 * total**2)
    found = np.zeros(len(index))
    for column_of_residual in residual.T:
        sum_ = sums(weight * column_of_residual, index)
        yc, ys = sum_.real, -sum_.imag
        found += (ss * yc * yc - 2 * cs * yc * ys + cc * ys * ys) / determinant
    return np.asarray(unit * index, dtype=np.float64), found
