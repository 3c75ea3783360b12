"""The claims of schedule.py, recomputed: coefficients, thresholds, backward error, no overscaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import factorial, prod

import flint
import mpmath as mp
import pytest
import torch

from cases import random_matrix
from mlayer.exponential import grouped, matmul, schedule
from mlayer.exponential.arguments import HALVES
from mlayer.exponential.schedule import DEGREES, EIGHT, EXACT_DEGREES, FOUR, SIXTEEN, Schedule

Polynomial = list[Fraction]
Coefficients = Sequence[Fraction]
Function = Callable[[float], float]

ONE: Polynomial = [Fraction(1)]
A: Polynomial = [Fraction(0), Fraction(1)]
A2: Polynomial = [Fraction(0), Fraction(0), Fraction(1)]


def _times(p: Polynomial, q: Polynomial) -> Polynomial:
    result = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            result[i + j] += a * b
    return result


def _sum(*terms: tuple[Fraction, Polynomial]) -> Polynomial:
    length = max(len(p) for _, p in terms)
    return [sum((c * p[k] for c, p in terms if k < len(p)), Fraction(0)) for k in range(length)]


def _four(f: Coefficients) -> Polynomial:
    one = Fraction(1)
    return _sum((one, _times(A2, _sum((f[0], A2), (f[1], A)))), (Fraction(1, 2), A2), (one, A), (one, ONE))


def _eight(e: Coefficients) -> Polynomial:
    one = Fraction(1)
    y = _times(A2, _sum((e[0], A2), (e[1], A)))
    last = _times(_sum((one, y), (e[2], A2), (e[3], A)), _sum((one, y), (e[4], A2)))
    return _sum((one, last), (e[5], y), (Fraction(1, 2), A2), (one, A), (one, ONE))


def _sixteen(c: Coefficients) -> Polynomial:
    one = Fraction(1)
    y = _times(A2, _sum((c[0], A2), (c[1], A)))
    w = _times(_sum((one, y), (c[2], A2), (c[3], A)), _sum((one, y), (c[4], A2)))
    w = _sum((one, w), (c[5], y), (c[6], A2))
    last = _times(_sum((one, w), (c[7], A2), (c[8], A)), _sum((one, w), (c[9], y), (c[10], A)))
    return _sum((one, last), (c[11], w), (c[12], y), (c[13], A2), (c[14], A), (one, ONE))


_SCHEMES: list[tuple[Callable[[Coefficients], Polynomial], tuple[float, ...], int]] = [
    (_four, FOUR, 4),
    (_eight, EIGHT, 8),
    (_sixteen, SIXTEEN, 15),
]


@pytest.mark.parametrize(("scheme", "digits", "exact"), _SCHEMES, ids=["4", "8", "16"])
def test_coefficients_give_the_taylor_series(
    scheme: Callable[[Coefficients], Polynomial], digits: tuple[float, ...], exact: int
) -> None:
    """The series is compared in rational arithmetic, up to the rounding of the digits to double.

    Every coefficient enters a term at most four times, each time with a relative error of 2^-53, and the
    sizes of the terms are those of the same polynomial with all signs positive.
    """
    computed = scheme([Fraction(x) for x in digits])
    sizes = scheme([abs(Fraction(x)) for x in digits])
    assert computed[0] == 1
    for k in range(1, exact + 1):
        assert abs(computed[k] - Fraction(1, factorial(k))) <= 8 * Fraction(1, 2**53) * sizes[k]
        assert sizes[k] * factorial(k) < 1000, "cancellation among the terms would cost digits"


def test_last_coefficient_of_degree_16_is_what_the_comment_says() -> None:
    last = _sixteen([Fraction(x) for x in SIXTEEN])[16] * factorial(16)
    assert float(last) == pytest.approx(0.546, abs=5e-4)


def test_grouped_polynomials_are_these() -> None:
    """The first row of p(A) lists the coefficients of p where A is the shift matrix."""
    n = 17
    shift = grouped.GroupedJet(torch.ones(n - 1, dtype=torch.float64).diag(1)[None])
    square = shift @ shift
    for degree, exact in zip(DEGREES, EXACT_DEGREES, strict=True):
        row = grouped._POLYNOMIALS[degree](shift, square).plus_identity().x[0, 0]
        scaled = row * torch.tensor([float(factorial(k)) for k in range(n)], dtype=torch.float64)
        expected = torch.tensor([1.0] * (exact + 1) + [0.0] * (n - 1 - exact), dtype=torch.float64)
        if degree == 16:
            expected[16] = 0.5458
        torch.testing.assert_close(scaled, expected, rtol=0, atol=2e-4 if degree == 16 else 1e-12)
        torch.testing.assert_close(scaled[: exact + 1], expected[: exact + 1], rtol=0, atol=1e-10)


def _taylor(degree: int) -> list[flint.fmpq]:
    """The polynomial of this degree in exact arithmetic."""
    coefficients = [flint.fmpq(1, factorial(k)) for k in range(degree + 1)]
    if degree == 16:
        last = _sixteen([Fraction(x) for x in SIXTEEN])[16]
        coefficients[16] = flint.fmpq(last.numerator, last.denominator)
    return coefficients


def _backward_series(degree: int, terms: int = 100) -> list[float]:
    """|c_k| of log(exp(-x) T(x)) = sum c_k x^k, as a power series over the rationals."""
    previous = flint.ctx.cap
    flint.ctx.cap = terms
    try:
        series = flint.fmpq_series(_taylor(degree), prec=terms).log() - flint.fmpq_series([0, 1], prec=terms)
        return [abs(int(c.p) / int(c.q)) if c else 0.0 for c in (series[k] for k in range(terms))]
    finally:
        flint.ctx.cap = previous


_SCHEDULES = {
    "single": (schedule.SINGLE, 2.0**-24, False),
    "double": (schedule.DOUBLE, 2.0**-53, False),
    "single derivative": (schedule.SINGLE_DERIVATIVE, 2.0**-24, True),
    "double derivative": (schedule.DOUBLE_DERIVATIVE, 2.0**-53, True),
}


def _power_sum(
    degree: int, weight: Callable[[int], float], shift: int, parity: int | None = None
) -> Function:
    """x -> sum of |c_k| weight(k) x^(k - shift) over the k (of one parity) that the truncation leaves."""
    c = _backward_series(degree)
    first = EXACT_DEGREES[DEGREES.index(degree)] + 1
    terms = [k for k in range(first, len(c)) if parity is None or k % 2 == parity]
    return lambda x: sum(c[k] * weight(k) * x ** (k - shift) for k in terms)


def _is_largest(theta: float, conditions: list[tuple[Function, float]]) -> bool:
    """All conditions f(theta) <= bound hold, and at a little more than theta one does not."""
    holds = all(f(theta) <= bound * (1 + 1e-12) for f, bound in conditions)
    return holds and any(f(theta * (1 + 1e-8)) > bound for f, bound in conditions)


PRECISIONS = {
    "single": (schedule.SINGLE, schedule.SINGLE_DERIVATIVE, 2.0**-24),
    "double": (schedule.DOUBLE, schedule.DOUBLE_DERIVATIVE, 2.0**-53),
}


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("name", PRECISIONS)
def test_thresholds_of_the_value(name: str, degree: int) -> None:
    """sum |c_k| theta^(k - 1) <= u, and no larger theta."""
    thresholds, _, u = PRECISIONS[name]
    assert thresholds.unit_roundoff == u
    theta = thresholds.theta[DEGREES.index(degree)]
    assert _is_largest(theta, [(_power_sum(degree, lambda k: 1, 1), u)])


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("name", PRECISIONS)
def test_thresholds_of_the_derivative(name: str, degree: int) -> None:
    """B^i E B^j has norm up to d^(i + j), d^(i + j - 1) b or d^(i + j - 2) b^2 by the parities of i and j.

    The three kinds of error stay below 5u of the like terms E, (BE + EB) / 2 and BEB / 6 of the
    derivative itself; or b = ||B|| is below the classical threshold. No threshold exceeds the value's.
    """
    _, thresholds, u = PRECISIONS[name]
    at = DEGREES.index(degree)
    value = (_power_sum(degree, lambda k: 1, 1), u)
    assert _is_largest(thresholds.norm_theta[at], [(_power_sum(degree, float, 1), 5 * u), value])
    if degree == 2:
        assert not thresholds.theta[at] >= 0.0, "A^2 = 0 does not make A E A vanish"
        return
    kinds = [
        (_power_sum(degree, lambda k: (k + 1) / 2, 1, parity=1), 5 * u),
        (_power_sum(degree, float, 2, parity=0), 5 * u),
        (_power_sum(degree, lambda k: (k - 1) / 2, 3, parity=1), 5 * u / 6),
        value,
    ]
    assert _is_largest(thresholds.theta[at], kinds)


def test_backward_squares_no_more_than_forward_in_single_precision() -> None:
    assert schedule.SINGLE_DERIVATIVE.theta[-1] == schedule.SINGLE.theta[-1]


def _apply(coefficients: list[flint.fmpq], a: mp.matrix) -> mp.matrix:
    result = mp.zeros(a.rows)
    for c in reversed(coefficients):
        result = result * a + (mp.mpf(int(c.p)) / int(c.q)) * mp.eye(a.rows)
    return result


def _one_norm(a: mp.matrix) -> mp.mpf:
    return mp.mnorm(a, 1)


def _backward_error(a: mp.matrix, degree: int, squarings: int) -> mp.mpf:
    """||E||_1 / ||A||_1 with exp(A + E) = T(2^-s A)^(2^s), that is E = 2^s log(exp(-B) T(B)), B = 2^-s A."""
    b = a * mp.mpf(2) ** -squarings
    deviation = mp.expm(-b) * _apply(_taylor(degree), b) - mp.eye(a.rows)
    logarithm, power = mp.zeros(a.rows), mp.eye(a.rows)
    for k in range(1, 12):
        power = power * deviation
        logarithm += power * (mp.mpf(-1) ** (k + 1) / k)
    assert _one_norm(power) < mp.mpf(10) ** -40, "the series of the logarithm has converged"
    return _one_norm(logarithm) / _one_norm(b)


def _matrices() -> dict[str, torch.Tensor]:
    n = 4
    far_from_normal = random_matrix(n, 1.0).triu(1) * 300 + random_matrix(n, 0.02)
    return {
        "random": random_matrix(n, 1.0, seed=8),
        "positive": random_matrix(n, 1.0, seed=8).abs(),
        "negative identity": -torch.eye(n, dtype=torch.float64),
        "rotation": torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64),
        "overscaling": torch.tensor([[1.0, 1e6], [0.0, -1.0]], dtype=torch.float64),
        "far from normal": far_from_normal,
    }


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("name", _matrices())
def test_backward_error_is_below_unit_roundoff(name: str, precision: str) -> None:
    """Just within each threshold, and at sizes that need squarings, in 60-digit arithmetic."""
    thresholds = _SCHEDULES[precision][0]
    mp.mp.dps = 60
    a = mp.matrix(_matrices()[name].tolist())
    d = mp.sqrt(_one_norm(a * a))
    sizes = [0.999 * t for t in thresholds.theta] + [1.001 * t for t in thresholds.theta]
    sizes += [1.999 * thresholds.theta[-1], 2.001 * thresholds.theta[-1], 37.0]
    for size in sizes:
        scaled = a * (size / d)
        degree, squarings = thresholds.degree(size), thresholds.squarings(size)
        assert _backward_error(scaled, degree, squarings) <= thresholds.unit_roundoff
        if squarings:
            assert size * 2.0 ** (1 - squarings) > thresholds.theta[-1], "one squaring too many"


def test_matmul_polynomials_are_these() -> None:
    """The same less the identity, and the tangent along the matrix: it lists the coefficients of x p'(x)."""
    n = 17
    shift = torch.ones(n - 1, dtype=torch.float64).diag(1)[None]
    factorials = torch.tensor([float(factorial(k)) for k in range(n)], dtype=torch.float64)
    for degree, exact in zip(DEGREES, EXACT_DEGREES, strict=True):
        row, tangent = matmul._polynomial(matmul._start(shift, shift), degree)[0, 0].split(n)
        expected = torch.tensor([1.0] * (exact + 1) + [0.0] * (n - 1 - exact), dtype=torch.float64)
        if degree == 16:
            expected[16] = 0.5458
        without_identity = expected - torch.eye(n, dtype=torch.float64)[0]
        torch.testing.assert_close(row * factorials, without_identity, atol=2e-4, rtol=1e-10)
        torch.testing.assert_close(tangent * factorials, expected * torch.arange(n), atol=4e-3, rtol=1e-10)


@pytest.mark.parametrize("thresholds", [s for s, _, _ in _SCHEDULES.values()], ids=list(_SCHEDULES))
def test_schedule_of_the_grouped_path_is_the_table(thresholds: Schedule) -> None:
    name = next(k for k, (s, _, _) in _SCHEDULES.items() if s is thresholds)
    dtype = torch.float32 if name.startswith("single") else torch.float64
    generator = torch.Generator().manual_seed(0)
    for d in torch.logspace(-10, 6, 200, dtype=torch.float64).tolist():
        a = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q[None] * d
        a = a.to(dtype)
        square = a @ a
        size = float(schedule.root_of_square_norm(square))
        norm = float(schedule.one_norm(a))
        squarings = 0 if norm <= thresholds.norm_theta[-1] else thresholds.squarings(size)
        plan = grouped._plan(a, square, derivative=name.endswith("derivative"))
        assert plan.tolist() == [[thresholds.degree(size, norm), squarings]]


def test_no_overscaling() -> None:
    """||A^2||^(1/2) = 1 whatever s is: the same degree and at most one squaring."""
    for s in (1e3, 1e6, 1e12):
        for dtype, squarings in ((torch.float32, 0), (torch.float64, 1)):
            a = torch.tensor([[[1.0, s], [0.0, -1.0]]], dtype=dtype)
            assert grouped._plan(a, a @ a, derivative=False).tolist() == [[16, squarings]]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the matrix products of the grouped path."""
    monkeypatch.setenv("MLAYER_EXPM", "matmul")
    count = [0]
    original = grouped.GroupedJet.__matmul__

    def counted(left: grouped.GroupedJet, right: grouped.GroupedJet) -> grouped.GroupedJet:
        count[0] += 1
        return original(left, right)

    monkeypatch.setattr(grouped.GroupedJet, "__matmul__", counted)
    return count


@pytest.mark.parametrize(("size", "most"), [(1e-9, 1), (1e-2, 2), (0.5, 3), (2.0, 4), (4.0, 5), (70.0, 9)])
def test_cost_in_products(size: float, most: int, products: list[int]) -> None:
    grouped.expm(size * torch.eye(3))
    assert products[0] == most


@pytest.mark.parametrize(("n", "most"), [(2, 1), (3, 1), (5, 2), (9, 3)])
def test_strictly_triangular_needs_no_squarings(n: int, most: int, products: list[int]) -> None:
    """The finite series is right to the last bit or so where entries are powers of two."""
    shift = 4 * torch.ones(n - 1, dtype=torch.float64).diag(1)
    for a in (shift, shift.mT):
        products[0] = 0
        value = grouped.expm(a)
        assert products[0] <= most
        for k in range(n):
            entry = value[0, k] if a is shift else value[k, 0]
            assert float(entry) == pytest.approx(4.0**k / prod(range(1, k + 1)), rel=2e-15)


def test_half_precisions_use_the_thresholds_of_single() -> None:
    for dtype in (*HALVES, torch.float32, torch.complex64):
        assert schedule.schedule_for(dtype) is schedule.SINGLE
        assert schedule.schedule_for(dtype, derivative=True) is schedule.SINGLE_DERIVATIVE
    for dtype in (torch.float64, torch.complex128):
        assert schedule.schedule_for(dtype) is schedule.DOUBLE
        assert schedule.schedule_for(dtype, derivative=True) is schedule.DOUBLE_DERIVATIVE
