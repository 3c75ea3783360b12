"""Sums of waves on top of given columns, fitted by least squares.

    y = F c + sum_k e^(g_k . x) (p_k cos(w_k . x) + q_k sin(w_k . x))

F holds the columns of the caller (a constant and a trend, regressors, groups). For given rates g and w the
other numbers are a linear least-squares problem, so the error is a function of the rates alone (variable
projection: Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973). Its Jacobian is taken without the term that
vanishes with the residual (Kaufman, BIT 15, 1975): near the solution the step is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mlayer.errors import MissingPackageError
from mlayer.numerics.arrays import Array, Flags, Indices
from mlayer.numerics.cosine_sine import cosine_sine

# Directions of the columns below this part of the strongest one are not fitted: two waves of nearly equal
# frequency would get huge amplitudes of opposite sign.
_RANK = 1e-9
# Of Schwarz's criterion: what a loose refinement leaves.
_HARDLY = 2e-3
_LARGEST_EXPONENT = 50.0
# Larger ones overflow; a trial step of the refinement may ask for them.
_LARGEST_SHIFT = 600.0


@dataclass(frozen=True)
class WaveProblem:
    """The data of a fit of waves."""

    x: Array  # the inputs, (rows, inputs)
    y: Array  # the targets, (rows, outputs)
    fixed: Array  # columns that are fitted along with the waves, (rows, columns)
    weight: Array  # of the rows, (rows,), mean 1
    center: Array = field(init=False)
    extent: Array = field(init=False)

    def __post_init__(self) -> None:
        # Phases are taken at the center: there they do not depend on the frequency.
        object.__setattr__(self, "center", (self.x.max(0) + self.x.min(0)) / 2)
        object.__setattr__(self, "extent", np.maximum(np.ptp(self.x, axis=0), 1e-300))

    def take(self, rows: Indices) -> WaveProblem:
        """The problem with some of the rows."""
        return WaveProblem(self.x[rows], self.y[rows], self.fixed[rows], self.weight[rows])


@dataclass(frozen=True)
class Waves:
    """Waves and the linear numbers that go with them."""

    growth: Array  # g, (waves, inputs)
    frequencies: Array  # w, radians per unit of the input, (waves, inputs)
    free_growth: Flags  # which entries of g may differ from 0 or from what was given
    free_frequencies: Flags  # the same for w
    linear: Array  # coefficients of the fixed columns, (columns, outputs)
    cosines: Array  # p, (waves, outputs)
    sines: Array  # q, (waves, outputs)
    squares: float  # weighted sum of the squared residuals
    score: float  # Schwarz's criterion, lower is better

    def __len__(self) -> int:
        return len(self.frequencies)

    def at(self, x: Array, fixed: Array) -> Array:
        """Values for inputs (rows, inputs) and the fixed columns that belong to them: (rows, outputs)."""
        size = np.exp(np.clip(x @ self.growth.T, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
        angle = x @ self.frequencies.T
        values: Array = (
            fixed @ self.linear + (size * np.cos(angle)) @ self.cosines + (size * np.sin(angle)) @ self.sines
        )
        return values

    @property
    def strength(self) -> Array:
        """Amplitude of each wave at the origin over all outputs, (waves,)."""
        return np.sqrt((self.cosines**2 + self.sines**2).sum(1))


def solve(
    problem: WaveProblem,
    growth: Array,
    frequencies: Array,
    free_growth: Flags | None = None,
    free_frequencies: Flags | None = None,
) -> Waves:
    """Amplitudes for given rates, by weighted least squares."""
    if free_growth is None:
        free_growth = growth != 0
    if free_frequencies is None:
        free_frequencies = frequencies != 0
    columns = _columns(problem, growth, frequencies)
    root = np.sqrt(problem.weight)[:, None]
    scale = np.maximum(np.sqrt((columns**2).mean(0)), 1e-300)
    solution = np.linalg.lstsq(columns / scale * root, problem.y * root, rcond=_RANK)[0] / scale[:, None]
    residual = problem.y - columns @ solution
    squares = float((problem.weight @ residual**2).sum())
    count, first = len(frequencies), problem.fixed.shape[1]
    p, q = solution[first : first + count], solution[first + count :]
    # From the center, where they were fitted, to the origin.
    turn = frequencies @ problem.center
    size = np.exp(np.clip(-growth @ problem.center, -_LARGEST_SHIFT, _LARGEST_SHIFT))
    c, s = (size * np.cos(turn))[:, None], (size * np.sin(turn))[:, None]
    parameters = solution.size + 3 * int(free_growth.sum()) + 3 * int(free_frequencies.sum())
    return Waves(
        growth,
        frequencies,
        free_growth,
        free_frequencies,
        solution[:first],
        c * p - s * q,
        s * p + c * q,
        squares,
        schwarz(squares, problem.y.size, parameters),
    )


def solve_again(problem: WaveProblem, waves: Waves, kept: Flags | slice = slice(None)) -> Waves:
    """The same waves, or some of them, with the amplitudes that suit the rows of ``problem``."""
    rates = waves.growth[kept], waves.frequencies[kept]
    return solve(problem, *rates, waves.free_growth[kept], waves.free_frequencies[kept])


def refine(problem: WaveProblem, waves: Waves, most: int = 60, *, loosely: bool = False) -> Waves:
    """All free rates together to the nearest minimum of the squared error; never worse than the start.

    The error is evaluated ``most`` times. ``loosely`` ends at steps that hardly change Schwarz's criterion:
    for waves that are refined again.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError as missing:
        raise MissingPackageError("finding frequencies", "scipy", "pip install scipy") from missing
    places = np.argwhere(np.stack([waves.free_growth, waves.free_frequencies]))
    if not len(places) or problem.y.size < len(places):
        return waves
    unit = problem.extent[places[:, 2]]
    error = _Error(problem, waves, places, unit)
    solution = least_squares(
        error.residual,
        np.zeros(len(places)),
        jac=error.jacobian,
        method="lm",
        xtol=1e-12,
        ftol=_HARDLY / problem.y.size if loosely else 1e-12,
        gtol=1e-15,
        max_nfev=most,
    )
    growth, frequencies = error.rates(solution.x)
    refined = solve(problem, growth, frequencies, waves.free_growth, waves.free_frequencies)
    return refined if refined.squares < waves.squares else waves


class _Error:
    """Residual and Jacobian as functions of the free rates, in units of one over the input's extent."""

    def __init__(self, problem: WaveProblem, waves: Waves, places: Indices, unit: Array) -> None:
        self.problem, self.waves, self.places, self.unit = problem, waves, places, unit
        self.root = np.sqrt(problem.weight)[:, None]
        self._known: tuple[bytes, Array, Array, Array, Array] | None = None

    def rates(self, step: Array) -> tuple[Array, Array]:
        both = np.stack([self.waves.growth, self.waves.frequencies])
        both[tuple(self.places.T)] += step / self.unit
        return both[0], both[1]

    def residual(self, step: Array) -> Array:
        return self._at(step)[2].ravel()

    def jacobian(self, step: Array) -> Array:
        basis, Q, residual, solution = self._at(step)
        problem, first, count = self.problem, self.problem.fixed.shape[1], len(self.waves)
        slopes = np.empty((*residual.shape, len(self.places)))
        for place, (kind, k, a) in enumerate(self.places):
            cosine, sine = basis[:, first + k], basis[:, first + count + k]
            p, q = solution[first + k], solution[first + count + k]
            lever = (problem.x[:, a] - problem.center[a]) / self.unit[place]
            grows = kind == 0
            change = np.outer(cosine, p if grows else q) + np.outer(sine, q if grows else -p)
            slopes[..., place] = -lever[:, None] * change
        flat = slopes.reshape(len(residual), -1)
        return (flat - Q @ (Q.T @ flat)).reshape(residual.size, len(self.places))

    def _at(self, step: Array) -> tuple[Array, Array, Array, Array]:
        """Weighted columns, an orthonormal basis of them, the weighted residual, the linear solution."""
        key = step.tobytes()
        if self._known is None or self._known[0] != key:
            columns = _columns(self.problem, *self.rates(step)) * self.root
            scale = np.maximum(np.sqrt((columns**2).mean(0)), 1e-300)
            Q, inverse = _orthonormal(columns / scale)
            target = self.problem.y * self.root
            onto = Q.T @ target
            self._known = (key, columns, Q, target - Q @ onto, inverse @ onto / scale[:, None])
        return self._known[1:]


def _orthonormal(columns: Array) -> tuple[Array, Array]:
    """A basis Q of what the columns span, and the matrix that solves least squares from Q^T y."""
    if len(columns) >= columns.shape[1]:
        Q, R = np.linalg.qr(columns)
        sizes = np.abs(np.diag(R))
        if sizes.min() > 1e-6 * sizes.max():
            return Q, np.linalg.inv(R)
    Q, sizes, Vh = np.linalg.svd(columns, full_matrices=False)  # slower; finds dependent columns
    kept = sizes > _RANK * sizes[0]
    return Q[:, kept], Vh[kept].T / sizes[kept]


def schwarz(squares: float, count: int, parameters: int) -> float:
    """Schwarz's criterion. A rate counts three times, because the likelihood is that much more sharply
    peaked in it (Djuric, IEEE Transactions on Signal Processing 44, 1996).
    """
    return float(count * np.log(max(squares / count, 1e-300)) + parameters * np.log(count))


def _columns(problem: WaveProblem, growth: Array, frequencies: Array) -> Array:
    """The fixed columns, the cosines, the sines.  (rows, columns + 2 waves)"""
    shifted = problem.x - problem.center
    size = np.exp(np.clip(shifted @ growth.T, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    cosine, sine = cosine_sine(shifted @ frequencies.T)
    return np.concatenate([problem.fixed, size * cosine, size * sine], axis=1)
