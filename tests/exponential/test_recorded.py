"""The functions of matrices where torch records operations, and results that the user changes in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import mlayer
from cases import random_matrix

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "expm": partial(mlayer.expm, path=None),  # make_fx would take a keyword of the signature for an argument
    "logm": mlayer.logm,
    "sqrtm": mlayer.sqrtm,
    "expm_action": lambda a: mlayer.expm_action(a, torch.ones(a.shape[-1], 2, dtype=a.dtype)),
}
Mode = Literal["real", "fake", "symbolic"]


def positive(n: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A matrix near the identity, which has a logarithm and a root."""
    return (torch.eye(n) + random_matrix(n, 0.5, seed)).to(dtype)


def gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def of(a: Tensor) -> Tensor:
        leaf = a.detach().requires_grad_()
        return torch.autograd.grad(function(leaf).abs().square().sum(), leaf)[0]

    return of


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_recorded_graph_computes_and_holds_no_constant(name: str, mode: Mode, path: str) -> None:
    """The kernel computed real tensors unseen, and the graph returned the numbers of the example."""
    example, other = positive(4, seed=1), positive(4, seed=2)
    for function in (FUNCTIONS[name], gradient(FUNCTIONS[name])):
        graph = make_fx(function, tracing_mode=mode)(example)
        assert torch.allclose(graph(other), function(other), rtol=1e-12)


class Watch(TorchDispatchMode):
    """Collects the names of the operators of mlayer that torch calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "mlayer":
            self.seen.append(func._opname)
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_value_and_derivative(path: str) -> None:
    """Counters and loggers of operations saw nothing of an exponential of ordinary tensors."""
    a = positive(3, seed=1)
    expected = gradient(mlayer.expm)(a)
    with Watch() as watch:
        found = gradient(mlayer.expm)(a)
    assert watch.seen == ["expm", "frechet"]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_a_selective_checkpoint_can_keep_the_exponential(path: str) -> None:
    """It was computed again in the backward pass, whatever the policy said."""

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = operator is torch.ops.mlayer.expm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    def block(x: Tensor) -> Tensor:
        return mlayer.expm(x.sin()).cos()

    a = positive(3, seed=2).requires_grad_()
    (expected,) = torch.autograd.grad(block(a).sum(), a)
    contexts = partial(create_selective_checkpoint_contexts, policy)
    value = checkpoint(block, a, use_reentrant=False, context_fn=contexts)
    with Watch() as watch:
        (found,) = torch.autograd.grad(value.sum(), a)
    assert watch.seen == ["frechet"]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


CASES = [
    (3, (), torch.float64),
    (3, (2,), torch.complex128),
    (3, (0,), torch.float32),
    (40, (), torch.float64),
    (40, (1, 2), torch.complex64),
]


@pytest.mark.parametrize(("n", "batch", "dtype"), CASES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_may_be_changed_in_place(
    name: str, n: int, batch: tuple[int, ...], dtype: torch.dtype, path: str
) -> None:
    """Torch refuses that of a view that a function of ours returned."""
    function = FUNCTIONS[name]
    a = positive(n, seed=4, dtype=dtype).expand(*batch, n, n).clone().requires_grad_()
    x = function(a)
    assert (
        not x._is_view() or name == "expm_action"
    )  # made of torch's own operations, whose views may be changed
    x *= 2
    x[..., 0, :] += 1
    (got,) = torch.autograd.grad(x.abs().sum(), a)
    y = 2 * function(a)
    y = torch.cat([y[..., :1, :] + 1, y[..., 1:, :]], -2)
    (expected,) = torch.autograd.grad(y.abs().sum(), a)
    assert torch.allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo], ids=str)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_action_in_compiled_code(layout: torch.layout) -> None:
    """One graph for a dense matrix, whatever its norm; of a sparse one nothing but what follows is compiled.

    Without that every step was compiled, and compiled again.
    """
    torch.compiler.reset()
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    def between(a: Tensor, v: Tensor) -> Tensor:
        return mlayer.expm_action(a, v * 2, 0.5).sin()

    compiled = torch.compile(between, backend=keep, fullgraph=layout == torch.strided)
    for norm in (0.1, 3.0, 30.0):
        v = torch.ones(4, dtype=torch.float64, requires_grad=True)
        a = (
            random_matrix(4, norm, seed=3).to_sparse(layout=layout)
            if layout != torch.strided
            else (random_matrix(4, norm, seed=3))
        )
        assert torch.allclose(compiled(a, v), between(a, v))
        got, expected = (torch.autograd.grad(f(a, v).sum(), v)[0] for f in (compiled, between))
        assert torch.allclose(got, expected)
    assert len(graphs) <= 1


@pytest.mark.parametrize("form", ["matrix", "batch", "sparse", "vector", "function"])
def test_action_without_values(form: str) -> None:
    """The shape of the result is known on meta, as those of the other functions are."""
    a, v, t = torch.ones(2, 3, 3), torch.ones(3, 2), torch.ones(4)
    if form in ("matrix", "sparse", "vector"):
        a = a[0]
    if form == "vector":
        v = v[:, 0]
    matrix = a.to_sparse() if form == "sparse" else a

    def of(matrix: Tensor, v: Tensor) -> Tensor:
        return mlayer.expm_action((lambda x: 2 * x) if form == "function" else matrix, v, t)

    shape_only = of(matrix.to("meta"), v.to("meta").requires_grad_())
    expected = of(matrix, v)
    assert shape_only.is_meta
    assert (shape_only.shape, shape_only.dtype) == (expected.shape, expected.dtype)
    assert shape_only.requires_grad
