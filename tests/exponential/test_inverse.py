"""logm and sqrtm: values against mpmath, exp(log A) = A over the gallery, derivatives, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jacfwd, jacrev, jvp, vmap

import mlayer
import oracle
from cases import GALLERY, Case, random_matrix
from invalid_arguments import Cases, names_of, says_what_is_wrong
from mlayer.errors import ArgumentError
from mlayer.exponential.arguments import HALVES
from mlayer.exponential.inverse.logarithm import NEAR, ORDER, QUADRATURE

# Forward mode makes torch load its own decompositions, which it still compiles with torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

EPS = 2.0**-52
Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, tuple[Function, Callable[[mpmath.mpf], mpmath.mpf]]] = {
    "sqrtm": (mlayer.sqrtm, mpmath.sqrt),
    "logm": (mlayer.logm, mpmath.log),
}


def orthogonal(n: int) -> Tensor:
    q: Tensor = torch.linalg.qr(random_matrix(n, 1.0, seed=9)).Q
    return q


def definite(n: int, condition: float) -> Tensor:
    q = orthogonal(n)
    a = (q * torch.logspace(0, -math.log10(condition), n, dtype=torch.float64)) @ q.mT
    return (a + a.mT) / 2


def shifted(n: int, seed: int) -> Tensor:
    return random_matrix(n, 1.0, seed=seed) + 1.2 * torch.eye(n, dtype=torch.float64)


DIAGONALIZABLE: dict[str, Tensor] = {
    "one by one": torch.tensor([[2.5]], dtype=torch.float64),
    "near the identity": torch.eye(4, dtype=torch.float64) + random_matrix(4, 1e-9),
    "random 3": shifted(3, 1),
    "random 6": shifted(6, 2),
    "rotation": torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64),
    "nearly half a turn": torch.tensor([[-1.0, 1e-6], [-1e-6, -1.0]], dtype=torch.float64),
    "stochastic": torch.softmax(random_matrix(5, 3.0) + 3 * torch.eye(5, dtype=torch.float64), 1),
    "triangular": torch.tensor([[1.0, 2, 3], [0, 1e-3, 4], [0, 0, 50]], dtype=torch.float64),
    "far from normal": torch.tensor([[1.0, 1e6], [0.0, 2.0]], dtype=torch.float64),
    "definite 1e4": definite(5, 1e4),
    "definite 1e8": definite(5, 1e8),
    "definite 1e12": definite(5, 1e12),
    "hilbert": torch.tensor(scipy.linalg.hilbert(6)),
    "pascal": torch.tensor(scipy.linalg.pascal(6), dtype=torch.float64),
    "tiny": shifted(3, 1) * 1e-150,
    "huge": shifted(3, 1) * 1e150,
    "complex": torch.complex(shifted(4, 3), random_matrix(4, 2.0, seed=4)),
    "complex, eigenvalues with negative real parts": torch.diag(
        torch.tensor([-1 + 0.1j, -2 - 0.3j, 1j], dtype=torch.complex128)
    ),
}


def exact(a: Tensor, f: Callable[[mpmath.mpf], mpmath.mpf]) -> Tensor:
    """The function by eigenvalues, in 80 digits."""
    with mpmath.workdps(80):
        values, vectors = mpmath.eig(mpmath.matrix(a.tolist()))
        result = vectors * mpmath.diag([f(x) for x in values]) * vectors**-1
        entries = [[complex(result[i, j]) for j in range(result.cols)] for i in range(result.rows)]
    found = torch.tensor(entries, dtype=torch.complex128)
    return found if a.is_complex() else found.real


def condition(name: str, a: Tensor, x: Tensor) -> float:
    """The relative condition number of the function at A, from the derivative of its inverse."""
    n, dtype = len(a), x.to(torch.complex128).numpy()
    if name == "sqrtm":
        derivative = np.kron(np.eye(n), dtype) + np.kron(dtype.T, np.eye(n))
    else:
        basis = np.eye(n * n).reshape(n * n, n, n)
        columns = [scipy.linalg.expm_frechet(dtype, e, compute_expm=False).ravel() for e in basis]
        derivative = np.stack(columns, 1)
    smallest = np.linalg.svd(derivative, compute_uv=False)[-1]
    return max(1.0, float(np.linalg.norm(a.numpy()) / np.linalg.norm(dtype) / smallest))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", DIAGONALIZABLE)
def test_value_against_mpmath(name: str, function: str) -> None:
    a = DIAGONALIZABLE[name]
    ours, f = FUNCTIONS[function]
    expected = exact(a, f)
    got = ours(a)
    assert got.dtype == a.dtype
    error = float((got - expected).norm() / expected.norm())
    assert error <= 16 * EPS * condition(function, a, expected)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_jordan_blocks_against_their_series(n: int) -> None:
    """log(I + N) = N - N^2 / 2 + ..., (I + N)^(1/2) by the binomial series; seen from another basis too."""
    nilpotent = torch.ones(n - 1, dtype=torch.float64).diag(1)
    powers = [torch.linalg.matrix_power(nilpotent, k) for k in range(n)]
    series = {
        "logm": [0.0, *((-1) ** (k + 1) / k for k in range(1, n))],
        "sqrtm": [float(mpmath.binomial(0.5, k)) for k in range(n)],
    }
    q = orthogonal(n)
    for name, coefficients in series.items():
        expected = sum(
            (c * p for c, p in zip(coefficients, powers, strict=True)), torch.zeros_like(powers[0])
        )
        block = powers[0] + nilpotent
        torch.testing.assert_close(FUNCTIONS[name][0](block), expected, rtol=1e-13, atol=1e-14)
        turned = FUNCTIONS[name][0](q @ block @ q.mT)
        torch.testing.assert_close(turned, q @ expected @ q.mT, rtol=1e-11, atol=1e-11)


def has_principal_value(a: Tensor) -> bool:
    """Clearly: by eigenvalues that are further from the axis than rounding moves them."""
    size = float(a.norm())
    values = torch.linalg.eigvals(a)
    triangular = bool((a.tril(-1) == 0).all() or (a.triu(1) == 0).all())
    clearance = 0.0 if triangular else 1e-9 * size
    near = (values.real <= clearance) & (values.imag.abs() <= clearance)
    return size > 0 and not bool(near.any())


SMALL = [c for c in GALLERY if len(c.make(torch.float64)) <= 33]


def with_principal_value(case: Case) -> Tensor:
    """The matrix of the gallery, moved away from the negative axis if it must be."""
    a = case.make(torch.float64)
    if has_principal_value(a):
        return a
    return a + (1.1 * max(1e-3, float(torch.linalg.matrix_norm(a, 2)))) * torch.eye(len(a), dtype=a.dtype)


def test_many_of_the_gallery_stay_as_they_are() -> None:
    assert sum(has_principal_value(c.make(torch.float64)) for c in SMALL) >= 20


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_exp_of_log_over_the_gallery(case: Case) -> None:
    a = with_principal_value(case)
    x = mlayer.logm(a)
    bound = 32 * EPS * max(1.0, float(x.abs().sum(0).max()))
    error = float((mlayer.expm(x) - a).norm() / a.norm())
    if error > bound:  # no algorithm does better than the condition of exp at log A
        bound = 32 * EPS * oracle.condition_number(x)
    assert error <= bound


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_square_of_root_over_the_gallery(case: Case) -> None:
    a = with_principal_value(case)
    x = mlayer.sqrtm(a)
    assert (x @ x - a).norm() <= 32 * EPS * x.norm() ** 2
    triangular = bool((a.tril(-1) == 0).all() or (a.triu(1) == 0).all())
    assert triangular or (x @ x - a).norm() <= 1e-8 * a.norm()
    values = x.diagonal() if triangular else torch.linalg.eigvals(x).real
    assert (values > 0).all()


MILD = [c for c in SMALL if float(c.make(torch.float64).abs().sum(0).max()) < 3.0]


@pytest.mark.parametrize("case", MILD, ids=str)
def test_log_of_exp_over_the_gallery(case: Case) -> None:
    """The A of the gallery that are small enough to be the principal logarithm of exp(A)."""
    a = case.make(torch.float64)
    norm = float(a.abs().sum(0).max())
    assert float((mlayer.logm(mlayer.expm(a)) - a).norm()) <= 64 * EPS * max(1.0, math.exp(2 * norm))


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.01, 2.5))
def test_powers_of_a_root(seed: int, n: int, norm: float) -> None:
    a = mlayer.expm(random_matrix(n, norm, seed=seed))
    x = mlayer.sqrtm(a)
    torch.testing.assert_close(x @ x, a, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(2 * mlayer.logm(x), mlayer.logm(a), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_lower_precisions_are_right_to_their_rounding(function: str) -> None:
    ours = FUNCTIONS[function][0]
    for a in (shifted(6, 2), definite(5, 1e4), DIAGONALIZABLE["complex"]):
        for real in (torch.float32, *HALVES):
            dtype = torch.complex64 if a.is_complex() else real
            got = ours(a.to(dtype))
            assert got.dtype == dtype
            expected = ours(a.to(dtype).to(a.dtype))
            assert (got.to(a.dtype) - expected).norm() <= torch.finfo(dtype).eps * expected.norm()


def exact_quadrature(order: int) -> list[tuple[Any, Any]]:
    """Nodes and weights of Gauss and Legendre on [-1, 1]: Newton's method in mpmath's precision."""
    found = []
    for start in np.polynomial.legendre.leggauss(order)[0].tolist():
        t = mpmath.mpf(start)
        for _ in range(3):
            value, before = mpmath.legendre(order, t), mpmath.legendre(order - 1, t)
            slope = order * (t * value - before) / (t**2 - 1)
            t -= value / slope
        found.append((t, 2 / ((1 - t**2) * slope**2)))
    return found


# Eigenvalues so far apart that scaling by one of them would make another underflow, or a root singular.
@pytest.mark.parametrize("values", [[1e-200, 1.0, 1e200], [1e-300, 1e300], [1e-320, 1.0], [1e-30, 2.0, 1e9]])
@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_wide_spectra_of_triangular_matrices(function: str, lower: bool, values: list[float]) -> None:
    """The diagonal is that of the scalar function, the corner its divided difference."""
    ours, scalar = FUNCTIONS[function]
    a = torch.diag(torch.tensor(values, dtype=torch.float64))
    a[0, -1] = 1.0  # the only coupling, so that f(A) has f[a_0, a_n] there
    a = (a.mT.contiguous() if lower else a).requires_grad_()
    x = ours(a)
    with mpmath.workdps(700):
        exact = [mpmath.mpf(value) for value in values]
        difference = (scalar(exact[0]) - scalar(exact[-1])) / (exact[0] - exact[-1])
        wanted = [float(scalar(value)) for value in exact]
        slope = [float(1 / value if function == "logm" else 1 / (2 * scalar(value))) for value in exact[:-1]]
    size = max(abs(value) for value in wanted)
    np.testing.assert_allclose(x.detach().diagonal(), wanted, rtol=0, atol=1e-15 * size)
    corner = x[-1, 0] if lower else x[0, -1]
    np.testing.assert_allclose(corner.item(), float(difference), rtol=1e-12)
    if math.isinf(slope[0]):  # the logarithm at 1e-320
        with pytest.raises(ArgumentError, match="derivative that double precision can hold"):
            torch.autograd.grad(x.diagonal()[:-1].sum(), a)
        return
    (gradient,) = torch.autograd.grad(x.diagonal()[:-1].sum(), a)
    np.testing.assert_allclose(gradient.diagonal()[:-1], slope, rtol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_at_every_scale(function: str) -> None:
    """f'(4^k A) is 2^-k f'(A) for the root, 4^-k f'(A) for the logarithm, and linear in the direction."""
    ours, step = FUNCTIONS[function][0], 1 if function == "sqrtm" else 2
    a = torch.linalg.matrix_exp(random_matrix(3, 2.0, seed=1))
    g = random_matrix(3, 1.0, seed=2)

    def gradient(scale: float, weight: float) -> Tensor:
        leaf = (a * scale).requires_grad_()
        return torch.autograd.grad(ours(leaf), leaf, g * weight)[0]

    at_one = gradient(1.0, 1.0)
    for k, e in ((-500, 0), (-450, -300), (-300, 300), (-100, 700), (100, 900), (450, -100), (500, 0)):
        wanted = torch.ldexp(torch.ldexp(at_one, torch.tensor(e)), torch.tensor(-step * k))
        torch.testing.assert_close(gradient(4.0**k, 2.0**e), wanted, rtol=1e-11, atol=0)


def test_approximant_near_the_identity() -> None:
    """||r(X) - log(I + X)|| <= |r(-x) - log(1 - x)| at x = ||X|| (Kenney and Laub)."""
    with mpmath.workdps(40):
        x, exact = mpmath.mpf(NEAR), exact_quadrature(ORDER)
        for quadrature in (exact, QUADRATURE):
            terms = [mpmath.mpf(w) / 2 * -x / (1 - (mpmath.mpf(t) + 1) / 2 * x) for t, w in quadrature]
            assert abs(mpmath.fsum(terms) - mpmath.log(1 - x)) <= 2 * EPS * x
        assert tuple((float(t), float(w)) for t, w in exact) == QUADRATURE, "correctly rounded"


# ---- Derivatives. ----------------------------------------------------------------------------------

CHECKED = {
    "one": torch.tensor([[0.7]], dtype=torch.float64),
    "two": torch.tensor([[2.0, 1.0], [0.5, 3.0]], dtype=torch.float64),
    "identity": torch.eye(2, dtype=torch.float64),
    "jordan": torch.tensor([[2.0, 1.0], [0.0, 2.0]], dtype=torch.float64),
    "rotation": 3 * torch.tensor([[-0.6, -0.8], [0.8, -0.6]], dtype=torch.float64),
    "batch": torch.stack([shifted(3, 1), shifted(3, 2) * 7]),
    "complex": torch.complex(shifted(2, 3), random_matrix(2, 2.0, seed=4)),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck(name: str, function: str) -> None:
    a = CHECKED[name].clone().requires_grad_()
    ours = FUNCTIONS[function][0]
    fast = name in ("batch", "complex")
    assert gradcheck(ours, a, check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(ours, a, fast_mode=fast)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e12])
def test_gradient_of_the_root_against_sylvester(condition: float) -> None:
    """X S + S X = G for the gradient S at a real symmetric A."""
    a = definite(5, condition).requires_grad_()
    g = random_matrix(5, 1.0, seed=3)
    x = mlayer.sqrtm(a)
    (got,) = torch.autograd.grad(x, a, g)
    root = x.detach().numpy()
    expected = torch.tensor(scipy.linalg.solve_sylvester(root.T, root.T, g.numpy()))
    assert (got - expected).norm() <= 1e-14 * condition**0.5 * expected.norm()


def test_gradient_of_the_logarithm_inverts_that_of_the_exponential() -> None:
    x = random_matrix(5, 2.0)
    direction = random_matrix(5, 1.0, seed=3)
    along = jvp(mlayer.expm, (x,), (direction,))[1]
    back = jvp(mlayer.logm, (mlayer.expm(x),), (along,))[1]
    torch.testing.assert_close(back, direction, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_func_transforms(function: str) -> None:
    ours = FUNCTIONS[function][0]
    a = torch.stack([shifted(3, seed) for seed in range(4)])
    torch.testing.assert_close(vmap(ours)(a), ours(a))
    torch.testing.assert_close(vmap(ours, in_dims=2)(a.movedim(0, 2)), ours(a))
    reverse, forward = vmap(jacrev(ours))(a), vmap(jacfwd(ours))(a)
    torch.testing.assert_close(reverse, forward)


def test_float32_gradient() -> None:
    a = shifted(5, 1).float().requires_grad_()
    g = random_matrix(5, 1.0, seed=3)
    for ours, _ in FUNCTIONS.values():
        (got,) = torch.autograd.grad(ours(a), a, g.float())
        wide = a.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(ours(wide), wide, g.float().double())
        assert got.dtype == torch.float32
        assert (got.double() - expected).norm() <= 2.0**-23 * expected.norm()


# ---- Shapes, special values, errors. ---------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (1, 1), (2, 1, 3, 3)])
def test_shapes(function: str, shape: tuple[int, ...]) -> None:
    n = shape[-1]
    a = torch.eye(n, dtype=torch.float64).expand(shape) * 2
    got = FUNCTIONS[function][0](a)
    assert got.shape == shape
    factor = {"sqrtm": 2**0.5, "logm": math.log(2)}[function]
    torch.testing.assert_close(got, factor * torch.eye(n, dtype=torch.float64).expand(shape))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_matrix(function: str, bad: float) -> None:
    clean = shifted(3, 1)
    a = torch.stack([clean] * 3)
    a[1, 0, 0] = bad
    a.requires_grad_()
    ours, f = FUNCTIONS[function]
    got, expected = ours(a), exact(clean, f)
    assert got[1].isnan().all()
    for other in (got[0], got[2]):
        error = float((other.detach() - expected).norm() / expected.norm())
        assert error <= 16 * EPS * condition(function, clean, expected)
    (gradient,) = torch.autograd.grad(got.sum(), a)
    assert gradient[1].isnan().all()
    assert gradient[0].isfinite().all()


def test_a_matrix_beside_others_gets_the_same_value() -> None:
    easy, hard = shifted(4, 1), definite(4, 1e10)
    for ours, _ in FUNCTIONS.values():
        together = ours(torch.stack([easy, hard]))
        torch.testing.assert_close(together[0], ours(easy), rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(together[1], ours(hard), rtol=1e-6, atol=1e-9)


EYE = torch.eye(2, dtype=torch.float64)
Q = orthogonal(3)
NO = "must be without eigenvalues on the closed negative real axis; got the eigenvalue "
WRONG: Cases = [
    (lambda: mlayer.sqrtm(-EYE), f"A {NO}-1, negative. There is no principal square root."),
    (lambda: mlayer.logm(-EYE), f"A {NO}-1, negative. There is no principal logarithm."),
    (lambda: mlayer.logm(torch.zeros(2, 2)), f"A {NO}0, 0 to rounding."),
    (lambda: mlayer.sqrtm(torch.ones(3, 3)), f"A {NO}"),
    (lambda: mlayer.logm(Q @ torch.diag(Q.new_tensor([1.0, 2.0, -3.0])) @ Q.mT), f"A {NO}-3, negative."),
    (lambda: mlayer.logm(Q @ torch.diag(Q.new_tensor([1.0, 2.0, 0.0])) @ Q.mT), f"A {NO}"),
    (lambda: mlayer.logm(torch.stack([EYE, -EYE])), f"A[1] {NO}-1"),
    (lambda: mlayer.logm(torch.stack([EYE, -EYE])[:, None]), f"A[1, 0] {NO}-1"),
    (lambda: mlayer.sqrtm(torch.diag(torch.tensor([1j, -2 + 0j]))), f"A {NO}-2, negative."),
    (lambda: mlayer.sqrtm(EYE.new_tensor([[-1.0, 1.0], [0.0, -1.0]])), f"A {NO}-1, negative."),
    (
        lambda: mlayer.sqrtm(Q @ (torch.eye(3) * -1.0 + torch.ones(2).diag(1)).double() @ Q.mT),
        "A must be ",
    ),
    (lambda: mlayer.logm([[1.0]]), "A must be a torch.Tensor; got list"),  # type: ignore[arg-type]
    (lambda: mlayer.sqrtm(torch.ones(2, 3)), "A must be a square matrix"),
    (
        lambda: mlayer.sqrtm(torch.ones(2, 2, dtype=torch.int64)),
        "A must be of floating point or complex dtype",
    ),
    (lambda: vmap(mlayer.logm)(torch.stack([EYE, -EYE])), f"A[1] {NO}-1"),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=names_of(WRONG))
def test_invalid_arguments(call: Callable[[], object], words: str) -> None:
    says_what_is_wrong(call, words)
