"""expm_action under torch.func and forward mode, dense and sparse; against the exponential and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import scipy.sparse.linalg
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import mlayer
from mlayer.errors import ArgumentError

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.(script|trace)` is deprecated:DeprecationWarning"),
]
Action = Callable[..., Tensor]
N, COLUMNS = 4, 2


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


A, V = drawn(N, N, seed=0), drawn(N, COLUMNS, seed=1)
T = torch.tensor([0.3, -0.7, 0.0], dtype=torch.float64)
ARGUMENTS = (A, V, T)
WEIGHTS = drawn(3, N, COLUMNS, seed=2)


def formed(a: Tensor, v: Tensor, t: Tensor) -> Tensor:
    """The same by the exponentials."""
    flat = torch.stack([mlayer.expm(x * a) @ v for x in t.reshape(-1)], -3)
    return flat.reshape(*flat.shape[:-3], *t.shape, *flat.shape[-2:])


def loss(action: Action) -> Action:
    return lambda *x: (action(*x) * WEIGHTS).sum().sin()


TRANSFORMS: dict[str, Callable[[Action, int], Any]] = {
    "grad": lambda f, k: grad(loss(f), argnums=k)(*ARGUMENTS),
    "jacrev": lambda f, k: jacrev(f, argnums=k)(*ARGUMENTS),
    "jacfwd": lambda f, k: jacfwd(f, argnums=k)(*ARGUMENTS),
    "hessian": lambda f, k: hessian(loss(f), argnums=k)(*ARGUMENTS),
    "reverse twice": lambda f, k: jacrev(jacrev(loss(f), argnums=k), argnums=k)(*ARGUMENTS),
    "forward twice": lambda f, k: jacfwd(jacfwd(loss(f), argnums=k), argnums=k)(*ARGUMENTS),
}


@pytest.mark.parametrize("argument", [0, 1, 2], ids=["A", "V", "t"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_derivatives(name: str, argument: int) -> None:
    run = TRANSFORMS[name]
    torch.testing.assert_close(
        run(mlayer.expm_action, argument), run(formed, argument), rtol=1e-11, atol=1e-11
    )


def test_mixed_derivatives() -> None:
    """All three arguments move at once, in forward over reverse mode."""
    tangents = (A.mT, V.flip(0), T + 1)
    cotangent = WEIGHTS

    def of(action: Action) -> Any:
        return jvp(lambda *x: vjp(action, *x)[1](cotangent), ARGUMENTS, tangents)

    torch.testing.assert_close(of(mlayer.expm_action), of(formed), rtol=1e-11, atol=1e-11)


def test_third_order_in_every_nesting() -> None:
    """Against the same in reverse mode alone; three nested forward modes too."""

    a, v, t = A[:2, :2], V[:2, :1], T[:1]

    def moved(s: Tensor) -> Tensor:
        return mlayer.expm_action(a + s * a.mT, v * (1 + s), t * (1 + s)).sum()

    def forward(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda s: jvp(f, (s,), (torch.ones_like(s),))[1]

    start = torch.tensor(0.1, dtype=torch.float64)
    expected = grad(grad(grad(moved)))(start)
    for first in (grad, forward):
        for second in (grad, forward):
            got = forward(second(first(moved)))(start)
            torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


BATCHES = [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, None), (None, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("dims", BATCHES, ids=str)
def test_vmap_of_values_and_of_gradients(dims: tuple[int | None, ...]) -> None:
    """Times may differ between the examples."""
    many = (drawn(3, N, N, seed=3), drawn(3, N, COLUMNS, seed=4), drawn(3, 3, seed=5))
    given = [m if d == 0 else x for m, x, d in zip(many, ARGUMENTS, dims, strict=True)]
    for transform in (lambda f: f, lambda f: grad(loss(f), argnums=(0, 1, 2))):
        got, expected = (vmap(transform(f), dims)(*given) for f in (mlayer.expm_action, formed))
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def test_vmap_in_vmap_and_of_nothing() -> None:
    many = drawn(2, N, N, seed=6), drawn(3, N, COLUMNS, seed=7)
    both = vmap(vmap(mlayer.expm_action, (None, 0, None)), (0, None, None))(*many, T)
    torch.testing.assert_close(both, formed(many[0][:, None], many[1], T), rtol=1e-12, atol=1e-12)
    last = vmap(mlayer.expm_action, (-1, None, None), -1)(many[0].movedim(0, -1), V, T)
    torch.testing.assert_close(last, formed(many[0], V, T).movedim(0, -1))
    assert vmap(mlayer.expm_action, (0, None, None))(A.expand(0, N, N), V, T).shape == (0, 3, N, COLUMNS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_forward_mode_of_autograd(dtype: torch.dtype) -> None:
    a, v = (drawn(*s, seed=8, dtype=dtype).requires_grad_() for s in ((3, 3), (3, 1)))
    t = torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True)
    assert gradcheck(
        mlayer.expm_action, (a, v, t), check_forward_ad=True, check_batched_grad=True, fast_mode=True
    )


@pytest.mark.slow
def test_forward_over_reverse_mode_of_autograd() -> None:
    a, v = (drawn(*s, seed=8).requires_grad_() for s in ((3, 3), (3, 1)))
    t = torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(mlayer.expm_action, (a, v, t), check_fwd_over_rev=True)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_sparse(layout: torch.layout) -> None:
    """Derivatives in V and t, and batches of both; in the entries of A in reverse mode."""
    dense = torch.where(A.abs() > 0.5, A, 0.0)
    sparse = dense.to_sparse(layout=layout)
    directions = (V.flip(0), T + 1)
    for run in (
        lambda m: grad(lambda v, t: loss(mlayer.expm_action)(m, v, t), argnums=(0, 1))(V, T),
        lambda m: jvp(lambda v, t: mlayer.expm_action(m, v, t), (V, T), directions),
        lambda m: vmap(lambda v: mlayer.expm_action(m, v, T))(V.mT),
        lambda m: vmap(lambda t: mlayer.expm_action(m, V, t))(T),
        lambda m: vmap(lambda t: mlayer.expm_action(m, V, t))(T[:0]),
    ):
        torch.testing.assert_close(run(sparse), run(dense), rtol=1e-12, atol=1e-12)
    places = dense.nonzero().T
    entries = dense[tuple(places)]

    def of_entries(x: Tensor) -> Tensor:
        return loss(mlayer.expm_action)(torch.sparse_coo_tensor(places, x, (N, N)), V, T)

    def of_entries_formed(x: Tensor) -> Tensor:
        return loss(formed)(torch.zeros_like(A).index_put(tuple(places), x), V, T)

    torch.testing.assert_close(
        grad(of_entries)(entries), grad(of_entries_formed)(entries), rtol=1e-11, atol=1e-11
    )


def test_values_against_scipy() -> None:
    """Many examples at once, by vmap, each against expm_multiply."""
    many, times = drawn(5, 8, 8, seed=9), torch.linspace(-1.0, 2.0, 4, dtype=torch.float64)
    v = drawn(5, 8, seed=10)
    got = vmap(mlayer.expm_action, (0, 0, None))(many, v, times)
    for a, x, y in zip(many, v, got, strict=True):
        for t, state in zip(times, y, strict=True):
            expected = scipy.sparse.linalg.expm_multiply(float(t) * a.numpy(), x.numpy())
            torch.testing.assert_close(state, torch.from_numpy(expected), rtol=1e-11, atol=1e-11)


def test_special_values_and_limits_under_transforms() -> None:
    """NaN stays in its example, an overflow is infinite, and errors about values come all the same."""
    a = torch.stack([A, A * torch.nan, 1e3 * torch.eye(N, dtype=torch.float64)])
    got = vmap(mlayer.expm_action, (0, None))(a, V)
    assert torch.allclose(got[0], mlayer.expm(A) @ V, rtol=1e-12)
    assert got[1].isnan().all()
    assert torch.equal(got[2], V.sign() * torch.inf)  # exact: infinities
    with pytest.raises(ArgumentError, match="t must be finite"):
        grad(lambda t: mlayer.expm_action(A, V, t).sum())(T * torch.nan)
    with pytest.raises(ArgumentError, match="max_products, 1, are enough"):
        grad(lambda v: mlayer.expm_action(A, v, max_products=1).sum())(V)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_keeps_no_number_of_steps() -> None:
    """The steps of the example were too few for other matrices: no digit was correct."""
    traced = torch.jit.trace(mlayer.expm_action, (1e-2 * A[None].expand(3, N, N), V, T))
    for a, v, t in ((30 * drawn(3, N, N, seed=3), V, T), (drawn(2, N, N, seed=4), 2 * V, -T)):
        torch.testing.assert_close(traced(a, v, t), formed(a, v, t), rtol=1e-11, atol=1e-11)
    many = drawn(3, N, N, seed=5).requires_grad_()
    got, expected = (torch.autograd.grad(f(many, V, T).sum(), many) for f in (traced, formed))
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def _in_forward_mode() -> None:
    with forward_ad.dual_level():
        mlayer.expm_action(lambda x: A @ x, forward_ad.make_dual(V, V))


INSIDE: dict[str, Callable[[], object]] = {
    "torch.func": lambda: grad(lambda v: mlayer.expm_action(lambda x: A @ x, v).sum())(V),
    "dual_level": _in_forward_mode,
    "torch.jit.trace": lambda: torch.jit.trace(lambda v: mlayer.expm_action(lambda x: A @ x, v), (V,)),
}


@pytest.mark.parametrize("inside", INSIDE)
def test_functions_are_refused_in_words(inside: str) -> None:
    words = (
        "^expm_action of a function A must be called outside torch.* give A as a (matrix, dense|dense tensor)"
    )
    with pytest.raises(ArgumentError, match=words):
        INSIDE[inside]()


def test_the_batches_of_autograd_functional_are_refused_in_words() -> None:
    """Torch had no rule for them, and said so with the name of the operator only."""
    jacobian = torch.autograd.functional.jacobian
    with pytest.raises(ArgumentError, match=r"Use torch.func.jacfwd"):
        jacobian(lambda a: mlayer.expm_action(a, V), A, vectorize=True, strategy="forward-mode")
    found = jacobian(lambda a: mlayer.expm_action(a, V), A, vectorize=True)
    torch.testing.assert_close(found, jacfwd(lambda a: mlayer.expm_action(a, V))(A), rtol=1e-11, atol=1e-11)
