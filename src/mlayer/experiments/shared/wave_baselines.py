"""Baselines of M-layers with a spectral start: linear least squares in given features.

    harmonics           the harmonics of the training window: what an FFT has
    features            random Fourier features and a ridge (Rahimi and Recht, NeurIPS 2007), its strength and
                        the features' bandwidth chosen on the last fifth of the window
    known_frequencies   least squares with the true frequencies: no method that must find them does better

and the Cramer-Rao bound: no unbiased estimate has a smaller variance, whatever it computes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlayer.numerics.arrays import Array

_BANDWIDTHS = (5.0, 10.0, 20.0, 40.0)  # standard deviation of the frequencies, radians per unit
_RIDGES = (1e-8, 1e-5, 1e-2, 1.0)
_FEATURES = 200


def harmonics(x: Array, y: Array, new: Array, highest: float = 12.0) -> Array:
    """All harmonics of the window up to ``highest`` cycles per unit, fitted to (x, y), at new places."""
    extent = x.max() - x.min() + (x.max() - x.min()) / (len(x) - 1)
    frequencies = 2 * np.pi * np.arange(1, int(highest * extent) + 1) / extent
    return _fitted(x, y, new, frequencies)


def known_frequencies(x: Array, y: Array, new: Array, frequencies: Sequence[float]) -> Array:
    """A constant and waves at the true frequencies, in cycles per unit."""
    return _fitted(x, y, new, 2 * np.pi * np.asarray(frequencies))


def features(x: Array, y: Array, new: Array, seed: int = 0) -> Array:
    """Random Fourier features and a ridge."""
    random = np.random.default_rng(seed)
    directions, phases = random.standard_normal(_FEATURES), random.uniform(0, 2 * np.pi, _FEATURES)

    def columns(at: Array, bandwidth: float) -> Array:
        return np.column_stack([np.ones(len(at)), np.cos(np.outer(at, bandwidth * directions) + phases)])

    def fit(at: Array, targets: Array, bandwidth: float, ridge: float) -> Array:
        F = columns(at, bandwidth)
        gram = F.T @ F + ridge * len(at) * np.eye(F.shape[1])
        return np.asarray(np.linalg.solve(gram, F.T @ targets))

    early = x < x.min() + 0.8 * np.ptp(x)
    options = [(bandwidth, ridge) for bandwidth in _BANDWIDTHS for ridge in _RIDGES]

    def error(option: tuple[float, float]) -> float:
        weights = fit(x[early], y[early], *option)
        return float(np.mean((columns(x[~early], option[0]) @ weights - y[~early]) ** 2))

    best = min(options, key=error)
    return np.asarray(columns(new, best[0]) @ fit(x, y, *best))


def _fitted(x: Array, y: Array, new: Array, frequencies: Array) -> Array:
    solution = np.linalg.lstsq(_columns(x, frequencies), y, rcond=1e-10)[0]
    return np.asarray(_columns(new, frequencies) @ solution)


def _columns(x: Array, frequencies: Array) -> Array:
    angles = np.outer(x, frequencies)
    return np.column_stack([np.ones(len(x)), np.cos(angles), np.sin(angles)])


def cramer_rao(
    x: Array,
    new: Array,
    *,
    frequencies: Sequence[float],
    amplitudes: Sequence[float],
    phases: Sequence[float],
    sigma: float,
) -> tuple[Array, float]:
    """Bounds for a constant and waves a cos(2 pi f x + p) in noise of deviation sigma.

    Returns:
        Standard deviations of the frequencies in cycles per unit, (waves,), and the root of the mean
        variance of the function's values at ``new``.
    """
    slopes, slopes_at_new = (_slopes(at, frequencies, amplitudes, phases) for at in (x, new))
    scale = np.sqrt((slopes**2).sum(0))
    covariance = sigma**2 * np.linalg.pinv((slopes / scale).T @ (slopes / scale), rcond=1e-14)
    covariance = covariance / np.outer(scale, scale)
    values = np.einsum("ij,jk,ik->i", slopes_at_new, covariance, slopes_at_new)
    count = len(frequencies)
    return np.sqrt(np.diag(covariance)[1 : 1 + count]), float(np.sqrt(values.mean()))


def _slopes(
    x: Array, frequencies: Sequence[float], amplitudes: Sequence[float], phases: Sequence[float]
) -> Array:
    """Derivatives by the constant, the frequencies, the cosines' and the sines' amplitudes."""
    f, a, p = (np.asarray(v, dtype=np.float64) for v in (frequencies, amplitudes, phases))
    angles = 2 * np.pi * np.outer(x, f)
    by_frequency = -2 * np.pi * x[:, None] * a * np.sin(angles + p)
    return np.column_stack([np.ones(len(x)), by_frequency, np.cos(angles), np.sin(angles)])
