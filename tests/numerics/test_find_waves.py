"""Finding frequencies: the optimum that a start from the truth reaches, on every kind of data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lombscargle

from mlayer.numerics import pencil, spectrum
from mlayer.numerics.find_waves import find_waves
from mlayer.numerics.waves import WaveProblem, Waves, refine, solve

Array = NDArray[np.float64]


def made(
    seed: int, waves: int, rows: int = 400, *, noise: float = 0.0, even: bool = True, damped: bool = False
) -> tuple[Array, Array, Waves]:
    """Rows of a random sum of waves with a trend, and the best fit from the true rates."""
    random = np.random.default_rng(seed)
    t = np.arange(rows) * 2 / rows if even else np.sort(random.uniform(0, 2, rows))
    w = 2 * np.pi * random.uniform(3, 9, waves)
    g = -random.uniform(0.3, 1.5, waves) if damped else np.zeros(waves)
    a, phase = random.uniform(1, 3, waves), random.uniform(0, 2 * np.pi, waves)
    y = (a * np.exp(np.outer(t, g)) * np.cos(np.outer(t, w) + phase)).sum(1) + 1 + 2 * t
    y = y + noise * y.std() * random.standard_normal(rows)
    return t, y, from_truth(t, y, g, w)


def from_truth(t: Array, y: Array, g: Array, w: Array) -> Waves:
    problem = WaveProblem(t[:, None], y[:, None], np.column_stack([np.ones_like(t), t]), np.ones(len(t)))
    free = np.ones((len(w), 1), dtype=bool)
    return refine(problem, solve(problem, g[:, None], w[:, None], free & (g != 0)[:, None], free))


def as_good(found: Waves | None, truth: Waves, y: Array) -> bool:
    """Whether a fit is as good by Schwarz's criterion, or down to rounding."""
    return found is not None and (found.score <= truth.score + 1 or found.squares < 1e-16 * float(y @ y))


@pytest.mark.parametrize("waves", [1, 2, 3, 5])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("damped", [False, True])
def test_the_fit_is_as_good_as_one_that_starts_from_the_truth(
    waves: int, noise: float, even: bool, damped: bool
) -> None:
    t, y, truth = made(waves, waves, noise=noise, even=even, damped=damped)
    assert as_good(find_waves(t, y, damped=damped), truth, y)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("even", [True, False])
def test_many_random_functions(seed: int, noise: float, even: bool) -> None:
    t, y, truth = made(100 + seed, 1 + seed % 5, noise=noise, even=even)
    assert as_good(find_waves(t, y), truth, y)


@pytest.mark.parametrize("even", [True, False])
def test_waves_closer_than_the_spectrum_resolves_are_told_apart(even: bool) -> None:
    """A twentieth of a cycle over the rows: one peak, at any resolution of the spectrum."""
    t = np.arange(400) / 200 if even else np.sort(np.random.default_rng(1).uniform(0, 2, 400))
    w = 2 * np.pi * np.array([5.3, 5.325])
    y = np.cos(w[0] * t + 0.3) + 0.6 * np.cos(w[1] * t + 1)
    found = find_waves(t, y)
    assert found is not None
    np.testing.assert_allclose(np.sort(found.frequencies[:, 0]), w, rtol=1e-6)


@pytest.mark.parametrize(
    ("frequencies", "growth", "even"),
    [
        ((0.71, 1.38, 2.21, 3.29), (0, 0, 0, 0), True),
        ((0.81, 1.39, 2.15, 3.22, 3.91), (0, 0, 0, 0, 0), True),
        ((1.29, 1.68, 2.88, 3.27, 3.67), (-0.3, -1.1, -0.6, -1.9, -0.2), True),
        ((1.2, 2.1, 2.9, 3.8), (0, 0, 0, 0), False),
    ],
)
def test_many_waves_of_few_periods(
    frequencies: tuple[float, ...], growth: tuple[float, ...], even: bool
) -> None:
    """Peaks of the spectrum that hide each other: adding one wave at a time ends in a wrong minimum."""
    random = np.random.default_rng(7)
    t = np.arange(200) / 200 if even else np.sort(random.uniform(0, 1, 200))
    w, g = 2 * np.pi * np.array(frequencies), np.array(growth)
    a, phase = random.uniform(0.5, 3, len(w)), random.uniform(0, 2 * np.pi, len(w))

    def values(at: Array) -> Array:
        return 2 - at + np.asarray((a * np.exp(np.outer(at, g)) * np.cos(np.outer(at, w) + phase)).sum(1))

    found = find_waves(t, values(t), damped=bool(g.any()))
    assert found is not None
    new = 1 + np.arange(200) / 200
    forecast = found.at(new[:, None], np.column_stack([np.ones(200), new]))[:, 0]
    np.testing.assert_allclose(forecast, values(new), atol=1e-4)


def test_growth_is_refined_from_a_start_without_it() -> None:
    """Readers of formulas ask for it: the rates that are free move, also from 0."""
    t = np.arange(500) / 250
    y = np.exp(-0.8 * t) * np.cos(30 * t) + 0.02 * np.random.default_rng(0).standard_normal(500)
    problem = WaveProblem(t[:, None], y[:, None], np.ones((500, 1)), np.ones(500))
    free: NDArray[np.bool_] = np.ones((1, 1), dtype=bool)
    found = refine(problem, solve(problem, np.zeros((1, 1)), np.array([[29.5]]), free, free))
    assert found.growth[0, 0] == pytest.approx(-0.8, abs=0.05)
    assert found.frequencies[0, 0] == pytest.approx(30, abs=0.05)


def test_growth_is_found_where_it_is_and_nowhere_else() -> None:
    t = np.arange(500) / 250
    noise = 0.02 * np.random.default_rng(0).standard_normal(500)
    y = np.exp(-0.8 * t) * np.cos(30 * t) + np.cos(45 * t + 1) + noise
    found = find_waves(t, y, damped=True)
    assert found is not None
    order = np.argsort(found.frequencies[:, 0])
    growth = found.growth[order, 0]
    assert growth[0] == pytest.approx(-0.8, abs=0.05)
    assert growth[1] == 0
    assert not found.free_growth[order[1], 0]


def test_noise_alone_holds_no_wave() -> None:
    for seed in range(10):
        random = np.random.default_rng(seed)
        assert find_waves(np.arange(300.0), random.standard_normal(300)) is None


def test_frequency_errors_are_near_the_cramer_rao_bound() -> None:
    """For one wave in the middle of the band the bound has a closed form: 12 sigma^2 / (n a^2 / 2) / T^2."""
    rows, sigma, a, w = 500, 0.2, 1.0, 33.3
    t = np.arange(rows) * 2 / rows
    errors = []
    for seed in range(25):
        y = a * np.cos(w * t + 1) + sigma * np.random.default_rng(seed).standard_normal(rows)
        found = find_waves(t, y)
        assert found is not None
        assert len(found) == 1
        errors.append(found.frequencies[0, 0] - w)
    bound = np.sqrt(12 * sigma**2 / (rows * a**2 / 2)) / 2
    ratio = np.sqrt(np.mean(np.square(errors))) / bound
    assert 0.55 < ratio < 1.45  # 25 draws: the spread of the ratio is 0.14


def test_far_from_the_origin_and_in_other_units() -> None:
    """Days since 1970 as seconds: phases there are useless, values are not."""
    day = np.arange(1000.0)
    t = 1.6e9 + 86400 * day
    y = 20 + 5 * np.cos(2 * np.pi * day / 365.25) + 2 * np.cos(2 * np.pi * day / 7 + 1)
    found = find_waves(t, y)
    assert found is not None
    periods = np.sort(2 * np.pi / found.frequencies[:, 0] / 86400)
    np.testing.assert_allclose(periods, [7, 365.25], rtol=1e-6)


def test_waves_along_several_inputs_and_outputs_with_columns_of_the_caller() -> None:
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (600, 2))
    group = random.integers(0, 2, 600).astype(float)
    first = np.cos(20 * x[:, 0] + 1)
    second = 0.5 * np.sin(31 * x[:, 1]) + 3 * group
    y = np.column_stack([first + second, 2 * first]) + 0.01 * random.standard_normal((600, 2))
    fixed = np.column_stack([np.ones(600), x, group])
    found = find_waves(x, y, fixed=fixed)
    assert found is not None
    order = np.argsort(np.abs(found.frequencies).max(1))
    np.testing.assert_allclose(found.frequencies[order], [[20, 0], [0, 31]], atol=0.02)
    np.testing.assert_allclose(found.linear[3], [3, 0], atol=0.01)
    new = random.uniform(-3, 3, (50, 2))
    values = found.at(new, np.column_stack([np.ones(50), new, np.zeros(50)]))
    np.testing.assert_allclose(values[:, 1], 2 * np.cos(20 * new[:, 0] + 1), atol=0.1)


def test_weights_count() -> None:
    t = np.arange(400) / 200
    y = np.cos(30 * t)
    y[200:] = 7 * np.cos(50 * t[200:])
    found = find_waves(t, y, weight=np.where(t < 1, 1.0, 1e-12), most=1)
    assert found is not None
    assert found.frequencies[0, 0] == pytest.approx(30, abs=1e-3)


def test_many_rows_are_searched_by_a_part_of_them_and_fitted_by_all() -> None:
    t = np.arange(20_000) / 10_000
    y = np.cos(40 * t + 1) + 0.3 * np.random.default_rng(0).standard_normal(len(t))
    found = find_waves(t, y)
    assert found is not None
    truth = from_truth(t, y, np.zeros(1), np.array([40.0]))
    assert found.frequencies[0, 0] == pytest.approx(truth.frequencies[0, 0], abs=1e-7)


def test_the_power_is_the_periodogram_of_lomb() -> None:
    """Against scipy's, up to what the cells of the grid misplace."""
    random = np.random.default_rng(2)
    t = np.sort(random.uniform(0, 10, 300))
    y = random.standard_normal(300)
    frequencies, power = spectrum.power(t, y[:, None], np.ones(300), 60.0)
    direct = 2 * lombscargle(t, y, frequencies)
    assert np.abs(power - direct).max() < 0.12 * direct.max()
    slow = frequencies < 10
    assert np.abs(power - direct)[slow].max() < 0.03 * direct.max()


def test_poles_of_few_samples() -> None:
    assert [len(part) for part in pencil.poles(np.ones(4), 1.0, 2)] == [0, 0]


def test_too_few_rows_or_values_hold_no_wave() -> None:
    assert find_waves(np.arange(8.0), np.arange(8.0) ** 2) is None
    assert find_waves(np.repeat(np.arange(5.0), 40), np.random.default_rng(0).standard_normal(200)) is None


def test_refining_never_makes_a_fit_worse() -> None:
    t, y, _ = made(7, 3, noise=0.2, even=False)
    problem = WaveProblem(t[:, None], y[:, None], np.ones((len(t), 1)), np.ones(len(t)))
    for seed in range(10):
        w = np.random.default_rng(seed).uniform(1, 80, (4, 1))
        start = solve(problem, np.zeros((4, 1)), w)
        assert refine(problem, start, most=5).squares <= start.squares


def test_the_solution_is_least_squares_of_numpy() -> None:
    """Coefficients are at the origin, whatever center the fit used."""
    t, y, truth = made(5, 2, damped=True)
    g, w = truth.growth[:, 0], truth.frequencies[:, 0]
    size = np.exp(np.outer(t, g))
    columns = np.column_stack(
        [np.ones_like(t), t, size * np.cos(np.outer(t, w)), size * np.sin(np.outer(t, w))]
    )
    expected = np.linalg.lstsq(columns, y, rcond=None)[0]
    got = np.concatenate([truth.linear[:, 0], truth.cosines[:, 0], truth.sines[:, 0]])
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(truth.at(t[:, None], columns[:, :2])[:, 0], columns @ expected, atol=1e-8)
