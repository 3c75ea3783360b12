"""expm_action where the result overflows long before the last time: right, and in few products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flint
import pytest
import torch
from torch import Tensor

import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential import wide_exponents
from mlayer.exponential.action import wide_exponents as action_exponents
from mlayer.exponential.action.maps import Dense, Sparse
from mlayer.exponential.action.plan import ActionPlan

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")

KINDS: dict[str, Callable[[Tensor], Tensor]] = {"dense": lambda a: a, "csr": lambda a: a.to_sparse_csr()}


def block(n: int, k: int) -> Tensor:
    return torch.randn(n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("kind", KINDS)
def test_overflow_long_before_the_end_takes_few_products(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm of some 20,000 asks for 100,000 products, of which most come after the overflow."""
    counts = {"ordinary": 0, "wide": 0}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kw: Any) -> Any:
            counts[name] += 1
            return function(*args, **kw)

        return call

    for mapping in (Dense, Sparse):
        monkeypatch.setattr(mapping, "advance", counted("ordinary", mapping.advance))
    monkeypatch.setattr(wide_exponents, "_sum", counted("wide", wide_exponents._sum))
    monkeypatch.setattr(action_exponents.Entries, "apply", counted("wide", action_exponents.Entries.apply))
    a = torch.block_diag(random_matrix(10, 20.0, seed=1), random_matrix(2, 0.02, seed=2))
    v, t = block(12, 2), torch.tensor([0.01, 1000.0, -1000.0], dtype=torch.float64)
    got = mlayer.expm_action(KINDS[kind](a), v, t)
    assert counts["ordinary"] <= 20_000
    assert counts["wide"] <= 200
    for result, time in zip(got, t.tolist(), strict=True):
        with flint.ctx.workprec(512):
            vectors = oracle.to_arb(v)
            exact = (oracle.to_arb(a) * flint.arb(time)).exp() * vectors
        expected = torch.tensor([float(x.mid()) for x in exact.entries()], dtype=torch.float64).reshape(12, 2)
        assert torch.equal(result.isinf(), expected.isinf())
        assert torch.equal(result[:10].sign(), expected[:10].sign())
        # 15 squarings have doubled its rounding errors.
        torch.testing.assert_close(result[10:], expected[10:], rtol=1e-11, atol=0)


def test_steps_and_squarings_agree_where_it_overflows() -> None:
    """The two ways of the careful path, on a sparse matrix and times of both signs."""
    a = torch.block_diag(torch.tensor([[100.0]]), random_matrix(4, 3.0, seed=5, dtype=torch.float32))
    v, times = block(5, 3).float(), [0.3, 1.0]
    matrix, shift = Dense(a[None]).listed(0), 0.25 + 0.0j
    steps = action_exponents.careful_sweep(matrix, v, times, ActionPlan(26, 40), shift)
    formed = action_exponents.form_and_multiply(matrix, v, times, shift)
    assert formed[1, 0].isinf().all()
    torch.testing.assert_close(formed, steps, rtol=1e-6, atol=0)
    turned = action_exponents.form_and_multiply(matrix, v.to(torch.complex64), times, 0.25 + 2.0j)
    factor = torch.exp(2j * torch.tensor(times))[:, None, None]
    torch.testing.assert_close(turned[:, 1:], (steps * factor)[:, 1:], rtol=1e-5, atol=0)


def test_a_function_that_overflows_is_not_called_to_the_end() -> None:
    calls = []

    def double(x: Tensor) -> Tensor:
        calls.append(1)
        return 50.0 * x

    got = mlayer.expm_action(double, torch.ones(3), torch.tensor([0.1, 1000.0]), norm=50.0)
    assert len(calls) <= 2000
    torch.testing.assert_close(got[0], torch.full((3,), 5.0).exp())
    assert not got[1].isfinite().any()


@pytest.mark.parametrize("time", [1e14, 1e16, 1e20, 1e38, 1e300])
def test_times_whose_powers_of_two_are_no_machine_integers(time: float) -> None:
    """exp(t) at t = 1e20 is infinite, not an error of Python's integers."""
    V = torch.tensor([[1.0], [-2.0], [3.0]], dtype=torch.float64)
    for sign, expected in ((1, torch.sign(V) * math.inf), (-1, 0 * V)):
        result = mlayer.expm_action(torch.eye(3, dtype=torch.float64), V, sign * time)
        assert torch.equal(result, expected)


@pytest.mark.parametrize("kind", ["dense", "csr", "coo", "batch"])
@pytest.mark.parametrize("last", [2.0, 30.0])  # in the last step, and long before it
def test_gradients_of_a_column_that_overflows_are_nan(kind: str, last: float) -> None:
    """Gradients by t, at every time, as those by A and V; those of another matrix are right."""
    a = torch.tensor([[500.0, 250.0], [125.0, 500.0]], dtype=torch.float64)
    v = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    if kind == "batch":
        a, v = torch.stack([a, a * 2.0**-20]), torch.stack([v, v])
    elif kind != "dense":
        a = a.to_sparse() if kind == "coo" else a.to_sparse_csr()
    t = torch.tensor([-0.1, 0.1, last], dtype=torch.float64, requires_grad=True)
    result = mlayer.expm_action(a.requires_grad_(), v.requires_grad_(), t)
    assert (result[0] if kind == "batch" else result)[-1].isinf().all()
    by_a, by_v, by_t = torch.autograd.grad(result.sum(), (a, v, t))
    assert by_t.isnan().all()
    if kind != "batch":
        assert (by_a if kind == "dense" else by_a.values()).isnan().all()
        assert by_v.isnan().all()
    else:
        assert by_a[0].isnan().all()
        assert by_v[0].isnan().all()
        times = t.detach()[:, None, None]
        torch.testing.assert_close(by_v[1], mlayer.expm(times * a[1].detach()).sum((0, 1))[:, None])
        assert by_a[1].isfinite().all()


def test_times_of_a_function_that_overflows_have_no_gradient() -> None:
    t = torch.tensor([0.1, 20.0, 30.0], dtype=torch.float64, requires_grad=True)
    result = mlayer.expm_action(lambda x: 500.0 * x, torch.ones(2, dtype=torch.float64), t)
    assert result[1:].isnan().all()
    (by_t,) = torch.autograd.grad(result.sum(), t)
    assert by_t[1:].isnan().all()
