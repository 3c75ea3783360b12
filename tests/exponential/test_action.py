"""expm_action: value against Arb and SciPy, dense, sparse and a function; shapes, times, special values.

The bound of the value is normwise: eps ||exp(A)|| ||V|| times the measure that the case names (cases.py).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache, partial

import flint
import numpy as np
import pytest
import torch
from scipy.sparse.linalg import expm_multiply
from torch import Tensor

import mlayer
import oracle
from cases import GALLERY, Case, random_matrix
from mlayer.exponential.action import plan, sweep
from mlayer.exponential.arguments import HALVES

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")

MULTIPLE = 2.0  # 1.3 is the largest seen over the gallery
LARGEST = 33
QUICK = 9

KINDS: dict[str, Callable[[Tensor], Tensor | Callable[[Tensor], Tensor]]] = {
    "dense": lambda a: a,
    "coo": lambda a: a.to_sparse_coo(),
    "csr": lambda a: a.to_sparse_csr(),
    "function": lambda a: lambda x: a @ x,
}


def block(n: int, k: int, dtype: torch.dtype = torch.float64, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, dtype=torch.float64, generator=generator).to(dtype)


def relative(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


@cache
def exact(name: str, dtype: torch.dtype) -> tuple[flint.arb_mat, float]:
    """Exp(A) V, and ||exp(A)|| ||V||."""
    case = next(c for c in GALLERY if c.name == name)
    a = case.make(dtype)
    exponential = oracle.exact_exp(oracle.to_arb(a))
    v = block(len(a), 3, dtype)
    size = float(oracle._norm(exponential)) * float(v.double().norm())
    return exponential * oracle.to_arb(v), size


def holds(case: Case, kind: str, dtype: torch.dtype) -> None:
    a = case.make(dtype)
    got = mlayer.expm_action(KINDS[kind](a), block(len(a), 3, dtype))
    expected, size = exact(case.name, dtype)
    error = float(oracle._norm(oracle.to_arb(got) - expected))
    norm = max(1.0, float(a.double().abs().sum(0).max()))
    unit = MULTIPLE * torch.finfo(dtype).eps * size
    assert oracle.acceptable(error, unit, norm, a if case.measure != "norm" else None)


def cases(most: int) -> list[Case]:
    return [c for c in GALLERY if c.make(torch.float64).shape[0] <= most]


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("case", cases(QUICK), ids=str)
def test_value_against_arb(case: Case, kind: str, dtype: torch.dtype) -> None:
    holds(case, kind, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", cases(LARGEST), ids=str)
def test_value_of_the_whole_gallery_against_arb(case: Case, kind: str, dtype: torch.dtype) -> None:
    holds(case, kind, dtype)


@pytest.mark.parametrize("norm", [0.0, 1e-9, 0.1, 3.0, 40.0])
def test_complex_against_arb(norm: float) -> None:
    a = torch.complex(random_matrix(6, norm), random_matrix(6, norm, seed=1))
    v = torch.complex(block(6, 2), block(6, 2, seed=4))
    exponential = flint.acb_mat([[flint.acb(z.real, z.imag) for z in row] for row in a.tolist()]).exp()
    value = exponential * flint.acb_mat([[flint.acb(z.real, z.imag) for z in row] for row in v.tolist()])
    expected = torch.tensor([[complex(z) for z in row] for row in value.tolist()], dtype=torch.complex128)
    for kind, make in KINDS.items():
        assert relative(mlayer.expm_action(make(a), v), expected) <= 20 * 2.0**-52 * max(1.0, 2 * norm), kind


def chain(n: int, seed: int = 0) -> Tensor:
    """The generator of a Markov chain with some four ways out of every state; columns sum to zero."""
    generator = torch.Generator().manual_seed(seed)
    rates = torch.rand(4 * n, dtype=torch.float64, generator=generator)
    ways = torch.randint(0, n, (2, 4 * n), generator=generator)
    dense = torch.zeros(n, n, dtype=torch.float64).index_put_(tuple(ways), rates, accumulate=True)
    return dense - dense.sum(0).diag()


@pytest.mark.parametrize("t", [0.01, 1.0, -0.5, 25.0])
@pytest.mark.parametrize("kind", KINDS)
def test_against_scipy_on_a_large_sparse_matrix(kind: str, t: float) -> None:
    a, v = chain(300), block(300, 5).abs()
    expected = torch.from_numpy(expm_multiply(t * a.numpy(), v.numpy(), traceA=t * float(a.trace())))
    assert relative(mlayer.expm_action(KINDS[kind](a), v, t), expected) <= 1e-13 * max(1.0, abs(t))


def test_probability_is_kept() -> None:
    p = torch.full((500,), 1 / 500, dtype=torch.float64)
    states = mlayer.expm_action(chain(500).to_sparse_csr(), p, torch.linspace(0, 50, 7, dtype=torch.float64))
    assert (states.sum(-1) - 1).abs().max() < 1e-13
    assert states.min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_long_rotation_keeps_its_length(dtype: torch.dtype) -> None:
    """Terms that cancel: with the longest steps that the truncation allows, a thousand times more is lost."""
    a = random_matrix(12, 1.0, dtype=dtype)
    a = (a - a.mT) * 100
    v = block(12, 2, dtype)
    got = mlayer.expm_action(a, v)
    loss = (got.double().norm(dim=0) / v.double().norm(dim=0) - 1).abs().max()
    assert loss <= 4 * torch.finfo(dtype).eps * float(a.abs().sum(0).max())


def test_long_steps_are_taken_where_nothing_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[bool] = []
    original = sweep.SweepProblem.plan

    def watched(
        self: sweep.SweepProblem, length: float, columns: int, *, cautious: bool
    ) -> tuple[plan.ActionPlan, int]:
        lengths.append(cautious)
        return original(self, length, columns, cautious=cautious)

    monkeypatch.setattr(sweep.SweepProblem, "plan", watched)
    mlayer.expm_action(chain(60), block(60, 2).abs(), 20.0)
    assert lengths == [True, False]
    lengths.clear()
    a = random_matrix(12, 100.0)
    mlayer.expm_action(a - a.mT, block(12, 2))
    assert lengths == [True, False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_many_times_at_once(kind: str) -> None:
    a, v = random_matrix(7, 9.0), block(7, 2)
    t = torch.tensor([[0.0, 1.0, -0.3, 0.5], [2.0, -1.5, 1.0, 1e-8]], dtype=torch.float64)
    got = mlayer.expm_action(KINDS[kind](a), v, t)
    expected = mlayer.expm(t[..., None, None] * a) @ v
    assert got.shape == (2, 4, 7, 2)
    for i, j in np.ndindex(2, 4):
        assert relative(got[i, j], expected[i, j]) < 1e-13
    assert torch.equal(got[0, 0], v)  # exact: exp(0) v is v, without arithmetic


def test_many_times_share_their_products() -> None:
    calls = [0]
    a = random_matrix(7, 9.0)

    def count(x: Tensor) -> Tensor:
        calls[0] += 1
        return a @ x

    v = block(7, 2)
    mlayer.expm_action(count, v, 1.0, norm=9.0)
    alone, calls[0] = calls[0], 0
    mlayer.expm_action(count, v, torch.linspace(0, 1, 100, dtype=torch.float64), norm=9.0)
    assert calls[0] <= 1.5 * alone


SHAPES = [
    ((5, 5), (5,), (), (5,)),
    ((5, 5), (5,), (3,), (3, 5)),
    ((5, 5), (5, 2), (), (5, 2)),
    ((5, 5), (4, 3, 5, 2), (7,), (4, 3, 7, 5, 2)),
    ((3, 5, 5), (5,), (2,), (3, 2, 5)),
    ((3, 5, 5), (5, 2), (), (3, 5, 2)),
    ((4, 1, 5, 5), (3, 5, 2), (2, 2), (4, 3, 2, 2, 5, 2)),
    ((0, 5, 5), (5, 2), (), (0, 5, 2)),
    ((0, 0), (0, 2), (), (0, 2)),
    ((5, 5), (5, 0), (2,), (2, 5, 0)),
    ((5, 5), (5, 2), (0,), (0, 5, 2)),
    ((1, 1), (1, 1), (), (1, 1)),
]


@pytest.mark.parametrize(("a", "v", "t", "result"), SHAPES)
def test_shapes(a: tuple[int, ...], v: tuple[int, ...], t: tuple[int, ...], result: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    A, V = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in (a, v))
    times = torch.rand(t, dtype=torch.float64, generator=generator)
    got = mlayer.expm_action(A, V, times)
    assert got.shape == result
    columns = V[:, None] if len(v) == 1 else V
    whole = mlayer.expm(A[..., *(None,) * len(t), :, :] * times[..., None, None])
    expected = whole @ columns[..., *(None,) * len(t), :, :]
    expected = expected.squeeze(-1) if len(v) == 1 else expected
    torch.testing.assert_close(got, expected.expand(result), rtol=1e-12, atol=1e-12)


def test_dtypes() -> None:
    a, v = random_matrix(4, 2.0), block(4, 2)
    expected = mlayer.expm_action(a, v)
    for dtype in (*HALVES, torch.float32):
        got = mlayer.expm_action(a.to(dtype), v.to(dtype))
        assert got.dtype == dtype
        assert relative(got.double(), expected) < 4 * torch.finfo(dtype).eps
    assert mlayer.expm_action(a.float(), v).dtype == torch.float64
    assert mlayer.expm_action(a, v.to(torch.complex64)).dtype == torch.complex128
    assert mlayer.expm_action(a, v, torch.tensor(1)).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mlayer.expm_action(a.float(), v.float()), mlayer.expm_action(a, v).float()) or (
            relative(mlayer.expm_action(a.float(), v.float()).double(), expected) < 1e-6
        )


def test_functions_of_any_shape() -> None:
    """The heat equation on a square, as a convolution that knows no columns."""
    kernel = torch.tensor([[[[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]]], dtype=torch.float64)

    def laplacian(x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x[None, None], kernel, padding=1)[0, 0]

    heat = torch.zeros(6, 5, dtype=torch.float64)
    heat[2, 2] = 1.0
    matrix = torch.stack(
        [laplacian(e.reshape(6, 5)).flatten() for e in torch.eye(30, dtype=torch.float64)], 1
    )
    expected = (mlayer.expm(2.0 * matrix) @ heat.flatten()).reshape(6, 5)
    assert relative(mlayer.expm_action(laplacian, heat, 2.0), expected) < 1e-14
    given = mlayer.expm_action(laplacian, heat, 2.0, adjoint=laplacian, norm=8.0)
    assert relative(given, expected) < 1e-14


def test_the_same_every_time_and_no_generator_moves() -> None:
    a, v = random_matrix(30, 500.0), block(30, 3)
    state, python = torch.get_rng_state(), random.getstate()
    first = mlayer.expm_action(a - 30 * torch.eye(30), v)
    torch.manual_seed(7)
    assert torch.equal(mlayer.expm_action(a - 30 * torch.eye(30), v), first)
    torch.set_rng_state(state)
    mlayer.expm_action(a, v)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python


@pytest.mark.parametrize("power", [1, 2, 5])
def test_norm_estimates(power: int) -> None:
    """A lower bound, nearly always exact."""
    from mlayer.exponential.action.norms import estimate_norm, probes

    a = torch.stack([random_matrix(20, 3.0, seed=seed) for seed in range(40)])
    norms = torch.linalg.matrix_power(a, power).abs().sum(1).amax(1)
    found = estimate_norm(lambda x: a @ x, lambda x: a.mT @ x, power, probes(40, 20, a))
    ratios = found / norms
    assert (ratios <= 1 + 1e-12).all()
    assert (ratios >= 0.3).all()
    assert (ratios > 1 - 1e-12).float().mean() > 0.6


def test_thresholds_against_the_published_ones() -> None:
    """Al-Mohy and Higham 2011, table 3.1: two digits."""
    from mlayer.exponential.action.thresholds import DOUBLE, SINGLE

    published = {
        5: (1.3e-1, 2.4e-3), 10: (1.0, 1.4e-1), 15: (2.2, 6.4e-1), 20: (3.6, 1.4), 25: (4.9, 2.4),
        30: (6.3, 3.5), 35: (7.7, 4.7), 40: (9.1, 6.0), 45: (11.0, 7.2), 50: (12.0, 8.5), 55: (13.0, 9.9),
    }  # fmt: skip
    for m, (single, double) in published.items():
        assert abs(SINGLE.theta[m - 1] / single - 1) < 0.05
        assert abs(DOUBLE.theta[m - 1] / double - 1) < 0.05


# ---- Special values. -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "coo", "csr"])
def test_overflow_is_infinite_and_its_neighbors_are_right(kind: str) -> None:
    a = torch.tensor([[100.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, -3.0]])
    v = torch.tensor([[1.0], [1.0], [1.0]])
    t = torch.tensor([1.0, 0.5, -1.0])
    got = mlayer.expm_action(KINDS[kind](a), v, t)
    exact = (mlayer.expm(t[:, None, None] * a[1:, 1:]).double() @ v[1:].double()).float()
    torch.testing.assert_close(got[:, 1:], exact, rtol=1e-5, atol=0)
    assert got[0, 0, 0] == torch.inf
    torch.testing.assert_close(got[1, 0, 0].log(), torch.tensor(50.0))


def test_overflow_of_the_exponential_alone() -> None:
    """Exp(A) is infinite, exp(A) V is not."""
    a = torch.tensor([[100.0, 1.0], [0.0, 99.0]])
    v = torch.tensor([[1e-30], [1e-30]])
    got = mlayer.expm_action(a, v)
    expected = mlayer.expm(a.double()) @ v.double()
    assert relative(got.double(), expected) < 100 * 2.0**-23


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_where_it_is(bad: float) -> None:
    a = torch.stack([random_matrix(3, 2.0)] * 3)
    a[1, 0, 2] = bad
    v = block(3, 4).expand(3, 3, 4).clone()
    v[2, 1, 3] = bad
    got = mlayer.expm_action(a, v, 0.7)
    assert got[1].isnan().all()
    assert got[2, :, 3].isnan().all()
    expected = mlayer.expm(0.7 * a[0]) @ v[0]
    torch.testing.assert_close(got[0], expected)
    torch.testing.assert_close(got[2, :, :3], expected[:, :3])
    sparse = a[1].to_sparse_csr()
    assert mlayer.expm_action(sparse, v[0]).isnan().all()
    v = torch.tensor([1.0, bad])
    assert mlayer.expm_action(lambda x: x, v, norm=1.0).isnan().all()


def test_sparse_entries_given_twice_add_up() -> None:
    rows, columns = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 2, 0])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    dense = torch.zeros(3, 3, dtype=torch.float64).index_put_((rows, columns), values, accumulate=True)
    v = block(3, 2)
    expected = mlayer.expm(dense) @ v
    starts = torch.tensor([0, 2, 3, 4])
    coo = torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (3, 3), check_invariants=True)
    csr = torch.sparse_csr_tensor(starts, columns, values, (3, 3), check_invariants=False)
    torch.testing.assert_close(mlayer.expm_action(coo, v), expected)
    torch.testing.assert_close(mlayer.expm_action(csr, v), expected)


def test_far_from_normal() -> None:
    for s in (1e3, 1e8, 1e15):
        a = torch.tensor([[1.0, s], [0.0, -1.0]], dtype=torch.float64)
        e = torch.e
        expected = torch.tensor([[e + s * (e - 1 / e) / 2], [1 / e]], dtype=torch.float64)
        assert relative(mlayer.expm_action(a, torch.ones(2, 1, dtype=torch.float64)), expected) < 1e-15


def test_functions_that_are_linear_to_rounding_are_taken() -> None:
    """Products in half precision, a function that is zero but for rounding, the 2-norm as the norm."""
    a, v = torch.randn(6, 6, generator=torch.Generator().manual_seed(5)), torch.ones(6)
    in_half = mlayer.expm_action(lambda x: (a.bfloat16() @ x.bfloat16()).float(), v, 0.1)
    torch.testing.assert_close(in_half, torch.matrix_exp(0.1 * a) @ v, rtol=0.02, atol=0.02)
    cancels = mlayer.expm_action(lambda x: (a @ x) * 3 - (3 * a) @ x, v)
    torch.testing.assert_close(cancels, v, rtol=1e-4, atol=0)
    skew = a - a.mT
    turned = mlayer.expm_action(
        lambda x: skew @ x, v, adjoint=lambda x: skew.mT @ x, norm=float(torch.linalg.matrix_norm(skew, 2))
    )
    torch.testing.assert_close(turned, torch.matrix_exp(skew) @ v, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["dense", "csr", "function"])
def test_norms_of_few_entries_are_not_taken_for_0(kind: str) -> None:
    """A x = 0 for x of equal entries, and of signs for every second A: the series ended after one term."""
    columns = torch.eye(5, dtype=torch.float64)
    for i, j in itertools.permutations(range(5), 2):
        for loops in (False, True):
            a = torch.zeros(5, 5, dtype=torch.float64)
            a[i, i], a[i, j] = -20.0, 20.0
            if loops:
                a[j, j], a[j, i] = -20.0, 20.0
            product: Callable[[torch.Tensor], torch.Tensor] = partial(torch.matmul, a)
            given = product if kind == "function" else a.to_sparse_csr() if kind == "csr" else a
            got = mlayer.expm_action(given, columns, 3.0)
            torch.testing.assert_close(got, mlayer.expm(3.0 * a), rtol=0, atol=1e-12)


def test_estimates_of_powers_that_are_too_low_are_raised_by_higher_ones() -> None:
    """||B^6||^(1/6) is no larger than ||B^2||^(1/2) and ||B^3||^(1/3), whatever their estimates say."""
    growth = plan.Growth(10.0, lambda p: {2: 0.0, 3: 1.0}.get(p, 2.0**p))
    growth.look_closer()
    assert growth.roots == pytest.approx(dict.fromkeys(range(2, 10), 2.0))
