"""Damped waves in evenly spaced samples by the matrix pencil method.

Source: Hua and Sarkar, IEEE Trans. Acoust. Speech Signal Process. 38 (1990). The rows of the Hankel matrix of
a sum of K damped waves span 2 K dimensions, and shifting them by one sample multiplies by the poles
e^((g + i w) step). Unlike a peak of the spectrum, poles are separated at any distance if the noise allows.
"""

from __future__ import annotations

import numpy as np

from mlayer.numerics.arrays import Array

# Columns of the Hankel matrix, at most: its cost grows with the cube.
_MOST_COLUMNS = 240
# Directions below this part of the strongest one are rounding.
_RANK = 1e-7


def poles(values: Array, step: float, most: int, rank: float = _RANK) -> tuple[Array, Array]:
    """Growth and frequency of at most ``most`` waves, the strongest first: two arrays (waves,).

    Directions below the part ``rank`` of the strongest one count as rounding.

    >>> t = np.arange(0, 2, 0.01)
    >>> growth, frequency = poles(np.exp(-0.3 * t) * np.cos(12 * t) + 2 * np.cos(12.8 * t + 1), 0.01, 2)
    >>> growth.round(6) + 0, frequency.round(6)
    (array([ 0. , -0.3]), array([12.8, 12. ]))
    """
    count = len(values)
    columns = min(_MOST_COLUMNS, count // 3)
    if columns < 2:
        return np.empty(0), np.empty(0)
    H = np.lib.stride_tricks.sliding_window_view(values, columns + 1)
    # The gram matrix would square the condition number; a QR factorization keeps the small directions.
    _, sizes, Vh = np.linalg.svd(np.linalg.qr(H, mode="r"), full_matrices=False)
    kept = max(1, min(int((sizes > rank * sizes[0]).sum()), 2 * most, columns - 1))
    V = Vh[:kept].T
    found = np.linalg.eigvals(np.linalg.pinv(V[:-1]) @ V[1:])
    found = found[np.abs(found) > 1e-6].astype(complex)
    rates = np.log(found) / step
    powers = np.exp(np.outer(np.arange(count), np.clip(rates.real * step, -1, 1) + 1j * rates.imag * step))
    amplitudes = np.linalg.lstsq(powers, values.astype(complex), rcond=None)[0]
    strength = np.abs(amplitudes) * np.sqrt((np.abs(powers) ** 2).mean(0))
    waves = np.flatnonzero(rates.imag > 0)
    order = waves[np.argsort(-strength[waves])][:most]
    return rates.real[order], rates.imag[order]
