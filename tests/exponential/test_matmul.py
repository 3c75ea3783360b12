"""The matmul path: few operations, one synchronization, full precision, whatever stands beside a matrix."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flint
import pytest
import torch
from test_accuracy import _derivative, _direction, _value, acceptable
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import mlayer
import oracle
from cases import GALLERY, Case, random_matrix
from mlayer.exponential import grouped, matmul, small, traced
from mlayer.exponential.precision import full_precision


@pytest.fixture(autouse=True)
def in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute as on a device: small matrices are not computed in NumPy."""
    monkeypatch.setattr(small, "takes", lambda matrices: False)


class Launches(TorchDispatchMode):
    """Counts operations that would launch a kernel: all but views and allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and name not in ("empty", "empty_like", "detach", "alias", "_unsafe_view"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def launches(run: Callable[[], object]) -> int:
    run()  # coefficients are uploaded once
    with Launches() as counted:
        run()
    return len(counted.names)


def batch(norms: list[float], n: int = 6, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.stack([random_matrix(n, norm, seed, dtype) for seed, norm in enumerate(norms)])


ONE_SCHEDULE, MANY_SCHEDULES = [3.0] * 32, [0.01 * 1000 ** (k / 31) for k in range(32)]


@pytest.mark.parametrize(
    ("norms", "forward", "backward"),
    [([1e-5] * 8, 12, 18), ([0.2] * 8, 16, 22), (ONE_SCHEDULE, 20, 30), (MANY_SCHEDULES, 36, 46)],
    ids=["degree_2", "degree_8", "one_schedule", "many_schedules"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_operations_are_few(norms: list[float], forward: int, backward: int, dtype: torch.dtype) -> None:
    a = batch(norms).to(dtype)
    g = torch.ones_like(a)
    _, plan = matmul.expm_with_plan(a)
    assert isinstance(plan, matmul.ProductsPlan)
    assert plan.value is not None
    assert launches(lambda: matmul.expm(a)) <= forward
    assert launches(lambda: matmul.frechet(a.mT, g, plan)) <= backward


def test_one_look_serves_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAYER_EXPM", "matmul")
    looks = []
    look = matmul._look

    def counted(powers: Tensor) -> matmul.ProductsPlan:
        looks.append(1)
        return look(powers)

    monkeypatch.setattr(matmul, "_look", counted)
    a = batch(MANY_SCHEDULES).requires_grad_()
    mlayer.expm(a).sum().backward()
    assert len(looks) == 1


@pytest.mark.parametrize("norms", [[1e-5] * 8, [0.2] * 8, ONE_SCHEDULE, MANY_SCHEDULES])
def test_nothing_but_the_look_waits_for_a_gpu(norms: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake CUDA tensors have no values: reading one, or mixing devices, raises."""
    real = batch(norms)
    _, plan = matmul.expm_with_plan(real)
    assert isinstance(plan, matmul.ProductsPlan)
    with FakeTensorMode():
        a = torch.empty(real.shape, device="cuda")
        faked = matmul.ProductsPlan(torch.empty(len(real), device="cuda"), plan.value, plan.derivative)
        monkeypatch.setattr(matmul, "_look", lambda powers: faked)
        assert matmul.expm(a).shape == a.shape
        assert matmul.frechet(a.mT, a, faked).device.type == "cuda"
        monkeypatch.undo()
        with pytest.raises(Exception, match="_local_scalar_dense"):
            matmul.expm(a)
    # And no fake coefficient is left behind.
    assert matmul.expm(real).isfinite().all()


_SMALL = [case for case in GALLERY if case.make(torch.float64).shape[0] <= 33]


# Alone, every case is in test_accuracy.py; in company, every fourth is enough for each run of the tests.
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[pytest.mark.slow] if k % 4 else []) for k, c in enumerate(_SMALL)],
    ids=str,
)
def test_a_large_neighbor_costs_no_accuracy(case: Case, dtype: torch.dtype) -> None:
    a = case.make(dtype)
    neighbor = random_matrix(len(a), 40.0, seed=9, dtype=dtype)
    pair, g = torch.stack([a, neighbor]), torch.stack([_direction(a), neighbor])
    value, plan = matmul.expm_with_plan(pair)
    assert acceptable(oracle.relative_error(value[0], _value(case.name, dtype)), case.name, dtype)
    gradient = matmul.frechet(pair.mT, g, plan)[0]
    assert acceptable(oracle.relative_error(gradient, _derivative(case.name, dtype)), case.name, dtype, 2)


@pytest.mark.parametrize("exponent", [-140, -60, 0, 60, 120])
def test_the_derivative_is_linear_at_every_scale(exponent: int) -> None:
    """Scaling by a power of two commutes with every operation unless something leaves the range."""
    a = batch(MANY_SCHEDULES)
    g = batch([1.0] * 32)
    plain = matmul.frechet(a, g)
    scaled = matmul.frechet(a, g * 2.0**exponent)
    lost = torch.finfo(torch.float32).smallest_normal if exponent < -100 else 0.0
    torch.testing.assert_close(scaled, plain * 2.0**exponent, rtol=0, atol=lost)


def test_a_direction_of_zero_and_one_that_is_not_finite() -> None:
    a = batch([1.0, 2.0, 3.0])
    g = torch.zeros_like(a)
    g[1, 0, 0] = torch.inf
    result = matmul.frechet(a, g)
    assert (result[[0, 2]] == 0).all()
    assert not result[1].isfinite().all()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1e30])
def test_what_the_bound_cannot_vouch_for_goes_to_the_grouped_path(
    poison: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = batch([1.0, 2.0])
    a[1, 0, 0] = poison
    torch.testing.assert_close(matmul.expm(a), grouped.expm(a), rtol=0, atol=0, equal_nan=True)
    _, plan = matmul.expm_with_plan(a)
    assert isinstance(plan, matmul.ProductsPlan)
    assert plan.value is None
    assert plan.derivative is None


# ---- Precision of the products. -------------------------------------------------------------------


class Precisions(TorchDispatchMode):
    """The reduced precisions that float32 products may have, recorded at each product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("bmm", "baddbmm", "mm"):
            self.seen.add(torch.get_float32_matmul_precision())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def reduced() -> Any:
    """The user allows TF32 for their own network."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize("norms", [ONE_SCHEDULE, [0.5, torch.inf]], ids=["batched", "grouped"])
def test_products_are_not_reduced(norms: list[float]) -> None:
    a = batch(norms)
    with Precisions() as precisions:
        matmul.frechet(a, a)
        matmul.expm(a)
    assert precisions.seen == {"highest"}


@pytest.mark.usefixtures("reduced")
def test_an_error_inside_restores_the_setting() -> None:
    with pytest.raises(ZeroDivisionError), full_precision(torch.zeros(1)):
        1 / 0  # noqa: B018 - the error is the point


@pytest.mark.usefixtures("reduced")
def test_threads_share_the_switch() -> None:
    """A thread that leaves early must not switch reduced products on under one that still computes."""

    def work(seed: int) -> set[str]:
        a = batch([3.0] * (1 + 40 * (seed % 3)), n=8)
        with Precisions() as precisions:
            for _ in range(20):
                matmul.expm(a)
        return precisions.seen

    with ThreadPoolExecutor(4) as pool:
        assert all(seen == {"highest"} for seen in pool.map(work, range(12)))


def _small_value(a: Tensor) -> Tensor:
    value = small.expm(a)[0]
    assert value is not None
    return value


def _small_derivative(a: Tensor, e: Tensor) -> Tensor:
    tangent = small.frechet(a, e)
    assert tangent is not None
    return tangent


_WAYS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor] | None]] = {
    "torch": (matmul.expm, matmul.frechet),
    "numpy": (_small_value, _small_derivative),
    "grouped": (grouped.expm, grouped.frechet),
    "exported": (traced.expm_traced, None),
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.slow] if way == "exported" else []) for way in _WAYS],  # compiles
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_squarings_in_double_precision_lose_few_units(way: str, dtype: torch.dtype) -> None:
    """Four squarings of I + Y lose 6 units in the median; 2 Y + Y^2 twice instead of X^2 leaves 2."""
    g = torch.Generator().manual_seed(3)
    a = torch.randn(16, 6, 6, dtype=dtype, generator=g)
    a *= 9.0 / torch.linalg.matrix_norm(a, 2)[:, None, None]
    e = torch.randn(16, 6, 6, dtype=dtype, generator=g)
    value, derivative = _WAYS[way]

    def median(computed: Tensor, exact: Callable[[int], Any]) -> float:
        errors = [oracle.relative_error(_real(x), exact(k)) for k, x in enumerate(computed)]
        return sorted(errors)[len(errors) // 2] / 2.0**-53

    exacts = [oracle.to_arb(_real(x)) for x in a]
    assert median(value(a), lambda k: oracle.exact_exp(exacts[k])) <= 3.5
    if derivative is not None:
        directions = [oracle.to_arb(_real(x)) for x in e]
        assert median(derivative(a, e), lambda k: oracle.exact_frechet(exacts[k], directions[k])) <= 3.5


@pytest.mark.parametrize("way", [way for way in _WAYS if way != "exported"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_one_by_one_matrices_lose_nothing(way: str, dtype: torch.dtype) -> None:
    """They were squared like others: exp(-60) lost 50 units in double precision."""
    a = torch.tensor([-60.3, -7.7, -1e-9, 0.0, 0.7, 5.3, 70.1], dtype=torch.float64).to(dtype).view(-1, 1, 1)
    a = a * (1 + 0.3j) if dtype.is_complex else a
    e = torch.full_like(a, 3.0)
    value, derivative = _WAYS[way]
    assert derivative is not None
    with flint.ctx.workprec(256):
        for x, y, h in zip(a, value(a), derivative(a, e), strict=True):
            exact = flint.acb(complex(x)).exp()
            for computed, true in ((y, exact), (h, 3 * exact)):
                error = abs(flint.acb(complex(computed)) - true) / abs(true)
                assert float(error.mid()) <= 2 * torch.finfo(dtype).eps


def _real(a: Tensor) -> Tensor:
    if not a.is_complex():
        return a
    return torch.cat([torch.cat([a.real, -a.imag], 1), torch.cat([a.imag, a.real], 1)])
