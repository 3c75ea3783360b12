"""Each piece of the bounds against something independent."""

from __future__ import annotations

from itertools import product

import flint
import mpmath
import numpy as np
import pytest
import torch

from certificate_layers import random_layer
from mlayer.certificates import Certifier, certify
from mlayer.certificates.bounds.cubic_norm import flat_norm, symmetric_norm
from mlayer.certificates.bounds.first_order import FirstOrder, first_order_lower
from mlayer.certificates.bounds.fourth_order import FourthOrder
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.bounds.paper import lambert_w
from mlayer.certificates.bounds.quadratic_terms import BallQuadratic, BoxQuadratic
from mlayer.certificates.bounds.remainder import (
    ReadoutRemainder,
    _cells,
    exponential_tail,
    norm_remainder,
    readout_remainders,
    set_coarse,
)
from mlayer.certificates.bounds.second_order import SecondOrder
from mlayer.certificates.bounds.second_order_together import QuickSecondOrder, quadratic_term_apart
from mlayer.certificates.bounds.third_order import ThirdOrder
from mlayer.certificates.derivatives.divided_differences import differences
from mlayer.certificates.derivatives.jets import JetPath
from mlayer.certificates.derivatives.spectral import SpectralPath, symmetrized, usable_eigenvectors
from mlayer.certificates.linalg import norms_by_powers, proves_positive
from mlayer.certificates.problem.expansion import Pair, Row
from mlayer.certificates.solve.rows_batched import rows_together


def rows_of(kind: str, seed: int, **kwargs: object) -> list[Row]:
    layer, x, labels = random_layer(kind, seed)
    certifier = Certifier(layer, fit_steps=10, **kwargs)  # type: ignore[arg-type]
    return [Row(certifier._model, row, int(label)) for row, label in zip(x.numpy(), labels, strict=True)][:3]


def taylor(M: np.ndarray, N: np.ndarray, W: np.ndarray) -> list[float]:
    """Coefficients of W : exp(M + t N) up to the third order, by Arb on the block matrix."""
    n = len(M)
    block = np.kron(np.eye(4), M) + np.kron(np.diag(np.ones(3), 1), N)
    E = flint.arb_mat(block.tolist()).exp()
    return [
        sum(W[r, c] * float(E[r, k * n + c].mid()) for r, c in product(range(n), repeat=2)) for k in range(4)
    ]


@pytest.mark.parametrize("kind", ["full", "skew", "nilpotent", "jordan", "large"])
def test_derivatives_against_balls(kind: str) -> None:
    random = np.random.default_rng(0)
    for row in rows_of(kind, 7)[:2]:
        pair = row.pair((row.label + 1) % len(row.outputs))
        T = row.model.white.T
        y = random.standard_normal(len(T))
        expected = taylor(row.M, np.tensordot(y, T, 1), pair.W)
        found = (pair.first @ y, y @ pair.second @ y, np.einsum("abc,a,b,c", pair.third, y, y, y))
        np.testing.assert_allclose(found, expected[1:], rtol=1e-8, atol=1e-10)


def test_both_paths_agree() -> None:
    random = np.random.default_rng(1)
    M, T, W = (random.standard_normal(s) for s in ((6, 6), (4, 6, 6), (6, 6)))
    found = usable_eigenvectors(M)
    assert found is not None
    spectral, jets = SpectralPath(M, T, *found), JetPath(M, T)
    np.testing.assert_allclose(spectral.second(W), jets.second(W), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(symmetrized(spectral.third(W)), jets.third(W), rtol=1e-9, atol=1e-9)


def test_defective_matrices_have_no_usable_eigenvectors() -> None:
    assert usable_eigenvectors(np.diag(np.ones(4), 1)) is None


def test_divided_differences_against_mpmath() -> None:
    nodes = np.array([0.3, 0.3, -2.0 + 1j, -2.0 - 1j, 4.0])
    f = differences(nodes, order=4).four
    assert f is not None
    for index in ((0, 1, 2, 4), (0, 0, 0, 0), (2, 2, 3, 4), (4, 3, 2, 1)):
        with mpmath.workdps(40):
            Z = mpmath.zeros(4)
            for k in range(4):
                Z[k, k] = mpmath.mpmathify(complex(nodes[index[k]]))
                if k < 3:
                    Z[k, k + 1] = 1
            expected = complex(mpmath.expm(Z, method="taylor")[0, 3])
        assert abs(f[index] - expected) <= 1e-13 * max(1.0, abs(expected))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", ["full", "nilpotent", "large"])
def test_remainders_hold(kind: str, norm: str) -> None:
    """The series cut at order K is off by at most R_K, at random points of the region."""
    random = np.random.default_rng(0)
    for row in rows_of(kind, 11, norm=norm):
        model = row.model
        pair = row.pair((row.label + 1) % len(row.outputs))
        set_coarse([pair])
        readout, coarse = ReadoutRemainder(pair), ReadoutRemainder(pair, pair.coarse)
        for eps in (0.02, 0.3, 1.0):
            for _ in range(3):
                step = random.choice([-1.0, 1.0], len(row.x))
                if norm == "l2":
                    step = random.standard_normal(len(row.x))
                    step /= np.linalg.norm(step)
                y = model.white.rows.T @ (eps * step)
                assert np.linalg.norm(y) <= eps * (1 + 1e-9)
                N = np.tensordot(y, model.white.T, 1)
                gauge = model.constants.P @ N @ model.constants.P_inverse
                assert np.linalg.norm(gauge) <= eps * model.constants.delta_F
                assert np.linalg.norm(gauge, 2) <= eps * model.constants.delta_2
                E = torch.linalg.matrix_exp(torch.from_numpy(row.M + N)).numpy()
                true = float((pair.W * E).sum())
                terms = taylor(row.M, N, pair.W)
                size = 1e-12 * max(1.0, abs(true), *map(abs, terms))
                assert abs(true - sum(terms[:2])) <= norm_remainder(pair, eps, 2) + size
                for K in (3, 4):
                    rest = abs(true - sum(terms[:K]))
                    assert rest <= norm_remainder(pair, eps, K) + size
                    assert rest <= readout(eps, K) + size
                    assert rest <= coarse(eps, K) + size


def test_remainders_of_several_rivals_are_those_of_each() -> None:
    for row in rows_of("full", 11):
        pairs = [row.pair(k) for k in range(len(row.outputs)) if k != row.label]
        for pair, found in zip(pairs, readout_remainders(pairs), strict=True):
            np.testing.assert_allclose(found.coefficients, ReadoutRemainder(pair).coefficients, rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_norms_by_powers_are_above_singular_values_and_near(size: float) -> None:
    random = np.random.default_rng(2)
    A = random.standard_normal((6, 7, 7))
    A[0] = np.eye(7)  # all singular values alike: the largest distance
    A[1] = np.diag(np.ones(6), 1)  # its powers vanish
    A[2] = A[2] @ A[2].T
    A[3] = 0.0
    true = np.linalg.svd(A, compute_uv=False)[:, 0]
    for squarings in (0, 1, 4, 7):
        found = norms_by_powers(A * size, squarings) / size
        assert (true <= found).all()
        assert (found <= true * 7 ** (0.5 / 2**squarings) * (1 + 1e-8)).all()
    A[4, 0, 0], A[5, 1, 2] = np.inf, np.nan
    found = norms_by_powers(A, 4)
    assert np.isinf(found[4:]).all()
    assert np.isfinite(found[:4]).all()


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_cells_hold_a_function_of_known_curvature(count: int) -> None:
    """Sin(3 s) on [0, 1], whose second derivative is at most 9 in size."""
    nodes = np.linspace(0.0, 1.0, 6)
    h = nodes[1]
    found = _cells(np.sin(3 * nodes)[None], np.full((1, 5), h * h / 8 * 9), count)[0]
    assert found.shape == (5 * count,)
    fine = np.sin(3 * np.linspace(0.0, 1.0, 5 * count * 20 + 1))
    for k, bound in enumerate(found):
        true = fine[20 * k : 20 * k + 21].max()
        assert true <= bound <= true + h * h / 8 * 9 + 3 * h / count


def test_charges_of_an_order_end_with_its_rest() -> None:
    """Each one holds, the cheapest first; the last one is the order's own."""
    for row in rows_of("full", 11):
        bounds = Bounds(row.pair((row.label + 1) % len(row.outputs)))
        for eps in (0.02, 0.3, 1.0):
            for order in (bounds.second, ThirdOrder(SecondOrder(bounds.pair)), FourthOrder(bounds.third)):
                charges = list(order.rests(row.radius(eps)))
                assert charges[-1] == order.rest(row.radius(eps))
                assert len(charges) >= 2
            assert bounds.second.plain_level(eps) <= bounds.pair.margin


def test_a_wrong_eigenvalue_is_no_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit guesses eigenvalues by LAPACK; what it keeps is proved, or computed in another way."""
    eigh = np.linalg.eigh
    for row in rows_of("full", 11):
        pair = row.pair((row.label + 1) % len(row.outputs))
        low, high = -np.ones(len(row.x)), np.ones(len(row.x))
        rows = row.model.white.rows
        for lie in (1.0, 0.5, 0.0):
            monkeypatch.setattr(np.linalg, "eigh", lambda A, lie=lie: (eigh(A)[0] * lie, eigh(A)[1]))
            shift = BoxQuadratic(pair, low, high).shift
            monkeypatch.undo()
            form = rows @ pair.second @ rows.T + np.diag(shift)
            assert np.linalg.eigvalsh(form)[0] >= -1e-12 * np.abs(form).max()


def test_quadratic_bounds_hold_and_are_near() -> None:
    random = np.random.default_rng(0)
    for seed in range(6):
        for norm in ("linf", "l2"):
            row = rows_of("full", seed, norm=norm)[0]
            pair = row.pair((row.label + 1) % len(row.outputs))
            eps, m = 0.5, len(row.x)
            if norm == "linf":
                points = np.concatenate(
                    [np.array(list(product((-1.0, 1.0), repeat=m))), random.uniform(-1, 1, (500, m))]
                )
                low, high = np.full(m, -eps), np.full(m, eps)
                bound = BoxQuadratic(pair, low, high).lower(low, high)
            else:
                points = random.standard_normal((4000, m))
                points /= np.linalg.norm(points, axis=1, keepdims=True)
                points = np.concatenate([points, points * random.random((4000, 1))])
                bound = BallQuadratic(pair).lower(eps)
            y = eps * points @ row.model.white.rows
            values = eps * points @ pair.slopes + np.einsum("pa,ab,pb->p", y, pair.second, y)
            assert bound <= values.min() + 1e-12
            assert bound >= values.min() - 0.35 * abs(values.min()) - 1e-9


def test_planes_are_tangents_of_the_convexified_terms() -> None:
    row = rows_of("full", 3)[0]
    for rival in range(len(row.outputs)):
        if rival == row.label:
            continue
        pair = row.pair(rival)
        low, high = row.interval(0.3)
        box = BoxQuadratic(pair, low, high)
        rows, H, d = row.model.white.rows, pair.second, box.shift
        slopes = pair.slopes - d * (low + high)
        for tilt in (0.0, 0.25, 0.5):
            point, gradient, form = box._descended(low, high, tilt)
            expected = slopes + 2 * rows @ (H @ (rows.T @ point)) + 2 * d * point
            np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
            assert form == pytest.approx((rows.T @ point) @ H @ (rows.T @ point) + d @ point**2, rel=1e-9)
            plane = box.minorant(low, high, tilt)
            value = slopes @ point + form + d @ (low * high)
            assert plane.constant + plane.slopes @ point == pytest.approx(value, rel=1e-9)
        box._form = np.full_like(H, np.nan)
        assert np.isnan(box.minorant(low, high).constant)  # no point was better than none: nothing is proved


@pytest.mark.parametrize("box", [None, (0.0, 1.0)])
@pytest.mark.parametrize("kind", ["full", "skew", "nilpotent", "jordan", "large"])
def test_all_rivals_at_once(kind: str, box: tuple[float, float] | None) -> None:
    """The arrays hold the numbers of each pair, and their bounds lie below the margin in corners."""
    layer, x, labels = random_layer(kind, 7)
    certifier = Certifier(layer, fit_steps=10, box=box)
    x = x.clamp(0, 1) if box else x
    rows = [
        row for row in rows_together(certifier._model, x.numpy(), labels.tolist(), "best", None) if row.rivals
    ]
    for row in rows:
        margins = row.rivals
        assert margins is not None
        pairs = [Pair(row, int(rival)) for rival in margins.classes]
        H = np.stack([pair.second for pair in pairs])
        falls = np.array([pair.fall for pair in pairs])
        for eps in (1e-3, 0.05, 0.4, 5.0):
            first = first_order_lower(margins, margins.linear_term(eps), eps)
            np.testing.assert_allclose(
                first, [FirstOrder(pair).lower(eps) for pair in pairs], rtol=1e-9, atol=1e-13
            )
            slack = np.array([pair.tensor_slack(row.radius(eps), 2) for pair in pairs])
            apart = quadratic_term_apart(margins, falls, slack, eps)
            rests = slack + [norm_remainder(pair, row.radius(eps), 3) for pair in pairs]
            levels = [
                pair.margin + pair.linear_term(eps) - pair.fall * row.radius(eps) ** 2 - pair.value_slack(eps)
                for pair in pairs
            ]
            np.testing.assert_allclose(apart, levels - rests, rtol=1e-9, atol=1e-13)
            quick = QuickSecondOrder(margins, H, slack, eps)
            second, terms = quick.lower(falls)
            some = np.arange(1, len(pairs))
            for whole, part in zip((second, terms), quick.lower(falls[some], some), strict=True):
                np.testing.assert_allclose(part, whole[some], rtol=1e-9, atol=1e-13)
            low, high = row.interval(eps)
            random = np.random.default_rng(0)
            points = np.where(random.random((12, len(low))) < 0.5, low, high)
            points[: len(pairs)] = [np.where(pair.slopes > 0, low, high) for pair in pairs][:12]
            many = np.where(random.random((200, len(low))) < 0.5, low, high)
            y = many @ row.model.white.rows
            for k, pair in enumerate(pairs):
                quadratic = pair.margin + many @ pair.slopes + ((y @ H[k]) * y).sum(1)
                assert terms[k] <= quadratic.min() + 1e-12 * np.abs(quadratic).max()
            values = layer.double()(torch.from_numpy(row.x + points)).detach().numpy()
            for k, rival in enumerate(margins.classes):
                true = (values[:, row.label] - values[:, rival]).min()
                assert max(first[k], second[k], apart[k]) <= true + 1e-12 * np.abs(values).max()


def test_asymmetric_boxes() -> None:
    random = np.random.default_rng(0)
    row = rows_of("full", 2)[0]
    pair = row.pair((row.label + 1) % len(row.outputs))
    m = len(row.x)
    low, high = -random.random(m), random.random(m) * 0.2
    bound = BoxQuadratic(pair, low, high).lower(low, high)
    points = low + (high - low) * random.integers(0, 2, (300, m))
    y = points @ row.model.white.rows
    values = points @ pair.slopes + np.einsum("pa,ab,pb->p", y, pair.second, y)
    assert bound <= values.min() + 1e-12


def test_cubic_norms_hold() -> None:
    random = np.random.default_rng(0)
    C = symmetrized(random.standard_normal((6, 6, 6)))
    y = random.standard_normal((3000, 6))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    for _ in range(30):  # climb to local maxima of |C[y, y, y]|
        y = np.einsum("abc,pb,pc->pa", C, y, y)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
    largest = np.abs(np.einsum("abc,pa,pb,pc->p", C, y, y, y)).max()
    assert largest <= symmetric_norm(C) <= flat_norm(C) <= 3 * largest


def test_positive_definite_claims() -> None:
    A = np.array([[2.0, 1.0], [1.0, 0.5]])  # singular
    assert not proves_positive(A)
    assert not proves_positive(A - 1e-9 * np.eye(2))
    assert proves_positive(A + 1e-9 * np.eye(2))


def test_tail_and_lambert() -> None:
    with mpmath.workdps(40):
        for q in (1e-8, 0.3, 5.0, 80.0):
            for K in (2, 4, 15):
                exact = float(mpmath.exp(q) * mpmath.gammainc(K, 0, q, regularized=True))
                assert exact <= exponential_tail(q, K) <= exact * (1 + 1e-8)
        for t in (1e-9, 0.5, 3.0, 1e200):
            exact = float(mpmath.lambertw(t))
            assert exact * (1 - 1e-11) <= lambert_w(t) <= exact


@pytest.mark.parametrize("method", ["first_order", "second_order", "third_order", "best"])
def test_rigorous(method: str) -> None:
    for kind in ("full", "nilpotent"):
        layer, x, labels = random_layer(kind, 7)
        plain = certify(layer, x[:2], labels[:2], method=method, fit_steps=5)
        found = certify(layer, x[:2], labels[:2], method=method, fit_steps=5, rigorous=True)
        assert bool(found.rounding_checked.all())
        # Constants are fitted for each: the same to rounding.
        assert bool((found.radius <= plain.radius * (1 + 1e-12)).all())
        assert bool((found.radius >= plain.radius * 0.99).all())
