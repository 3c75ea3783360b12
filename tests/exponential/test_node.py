"""The autograd node in C++: the bits of ctypes, ordinary tensors only, never opened for another torch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import mlayer
from cases import random_matrix
from mlayer.exponential import native, node
from mlayer.exponential.build import node_name

needs_node = pytest.mark.skipif(not node.available(), reason=node.description())


def _batch(n: int, dtype: torch.dtype = torch.float64, count: int = 5) -> Tensor:
    return torch.stack([random_matrix(n, 0.7 * k, seed=k, dtype=dtype) for k in range(count)])


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda a: a,
    "one matrix": lambda a: a[0],
    "empty": lambda a: a[:0],
    "transposed": lambda a: a.mT,
    "expanded": lambda a: a[1:2].expand(4, -1, -1),
    "every second": lambda a: a[::2, 1:, 1:],
    "four dimensions": lambda a: a[:4].reshape(2, 2, *a.shape[1:]),
}


@needs_node
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_same_bits_as_through_ctypes(
    view: str, n: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if view == "every second" and n <= 2:
        n = 3
    results = []
    for wish in ("native", "ctypes"):
        monkeypatch.setenv("MLAYER_EXPM", wish)
        leaf = _batch(n, dtype).requires_grad_()
        value = mlayer.expm(VIEWS[view](leaf))
        (gradient,) = torch.autograd.grad(value, leaf, torch.ones_like(value).cumsum(-1))
        (broadcast,) = torch.autograd.grad(mlayer.expm(VIEWS[view](leaf)).sum(), leaf)
        results.append((value, gradient, broadcast, mlayer.expm(VIEWS[view](leaf.detach()))))
    for through_node, through_ctypes in zip(*results, strict=True):
        assert through_node.is_contiguous() == through_ctypes.is_contiguous()
        assert torch.equal(through_node, through_ctypes)


class Subclass(torch.Tensor):
    pass


OTHERS: dict[str, Callable[[], object]] = {
    "no tensor": lambda: [[1.0]],
    "one dimension": lambda: torch.zeros(3),
    "not square": lambda: torch.zeros(2, 3),
    "too large": lambda: torch.eye(native.LARGEST_SIZE + 1),
    "half": lambda: torch.eye(3, dtype=torch.float16),
    "too large, complex": lambda: torch.eye(native.LARGEST_SIZE // 2 + 1, dtype=torch.complex64),
    "conjugate view": lambda: torch.eye(3, dtype=torch.complex64).conj(),
    "integers": lambda: torch.eye(3, dtype=torch.int64),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.empty(3, 3, device="meta"),
    "subclass": lambda: torch.eye(3).as_subclass(Subclass),
    "negative view": lambda: torch.eye(3, dtype=torch.complex64).conj().imag,
    "zero tensor": lambda: torch._efficientzerotensor((3, 3)),
}


@needs_node
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_ordinary_is_left_to_python(name: str) -> None:
    assert node.expm()(OTHERS[name]()) is None
    for ordinary in (torch.nn.Parameter(torch.eye(3)), torch.zeros(2, 1, 1)):
        assert node.expm()(ordinary) is not None


# torch's first use of forward mode imports modules that warn about their own deprecations.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@needs_node
def test_modes_and_transforms_are_left_to_python() -> None:
    a = torch.eye(3)
    seen: list[object] = []

    def look(x: Tensor) -> Tensor:
        seen.append(node.expm()(a))
        return x

    torch.func.vmap(look)(torch.zeros(2))
    torch.func.jvp(look, (a,), (a,))
    with FakeTensorMode():
        look(a)
    with forward_ad.dual_level():
        seen.append(node.expm()(forward_ad.make_dual(a, a)))
    assert seen == [None] * 4


@needs_node
@pytest.mark.parametrize("wish", ["ctypes", "matmul", "nonsense"])
def test_other_wishes_are_left_to_python(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAYER_EXPM", wish)
    assert node.expm()(torch.eye(3)) is None


def test_backward_twice_and_changes_in_between_are_errors(path: str) -> None:
    a = _batch(3).requires_grad_()
    value = mlayer.expm(a).sum()
    value.backward(retain_graph=True)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()
    b = a.detach().clone().requires_grad_()
    c = b * 1.0
    value = mlayer.expm(c).sum()
    c += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_hooks_see_the_matrices_and_nothing_else(path: str) -> None:
    a = _batch(4).requires_grad_()
    kept: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        value = mlayer.expm(a)
    assert [x.data_ptr() for x in kept] == [a.data_ptr()]
    (gradient,) = torch.autograd.grad(value.sum(), a)
    (expected,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    assert torch.equal(gradient, expected)


def test_batched_cotangents_and_higher_orders(path: str) -> None:
    a = random_matrix(3, 1.0).requires_grad_()
    value = mlayer.expm(a)
    g = torch.stack([random_matrix(3, 1.0, seed=k) for k in range(4)])
    (together,) = torch.autograd.grad(value, a, g, is_grads_batched=True, retain_graph=True)
    for cotangent, row in zip(g, together, strict=True):
        torch.testing.assert_close(torch.autograd.grad(value, a, cotangent, retain_graph=True)[0], row)
    assert torch.autograd.gradgradcheck(mlayer.expm, a)
    third = torch.autograd.functional.hvp(lambda x: mlayer.expm(x).square().sum(), a, g[0])[1]
    expected = torch.autograd.functional.hvp(lambda x: torch.linalg.matrix_exp(x).square().sum(), a, g[0])[1]
    torch.testing.assert_close(third, expected)


def test_errors_of_the_pullback_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in Python, called from C++, called from Python."""
    from mlayer.exponential import operator

    def fail(*_: object) -> Tensor:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(operator, "frechet_op", fail)
    a = random_matrix(3, 1.0).requires_grad_()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        torch.autograd.grad(mlayer.expm(a).sum(), a, create_graph=True)


def _copy_of_the_node(name: str, folder: Path) -> None:
    shutil.copy(Path(node.__file__).with_name(node_name(torch.__version__)), folder / name)


@needs_node
def test_a_node_for_another_torch_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = node_name("2.0.0")
    _copy_of_the_node(other, tmp_path)
    module, why = node._open(tmp_path)
    assert module is None
    assert why == (
        f"the autograd node is {other}, this needs {node_name(torch.__version__)}: "
        "python -m mlayer.exponential.compile"
    )
    monkeypatch.setattr(node, "_load", lambda: (None, why))
    node.expm.cache_clear()
    try:
        monkeypatch.delenv("MLAYER_EXPM", raising=False)
        assert mlayer.expm_path().reason.endswith(f"instructions, through ctypes ({why})")
        a = _batch(3).requires_grad_()
        assert torch.autograd.gradcheck(mlayer.expm, a)
    finally:
        node.expm.cache_clear()


@needs_node
def test_a_node_that_does_not_load_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node._open(tmp_path) == (
        None,
        "the autograd node was not built: python -m mlayer.exponential.compile",
    )
    (tmp_path / node_name(torch.__version__)).write_bytes(b"no library")
    module, why = node._open(tmp_path)
    assert module is None
    assert re.match("the autograd node _node.* does not load: ", why)
    _copy_of_the_node(node_name(torch.__version__), tmp_path)
    monkeypatch.setattr(native, "KERNEL_VERSION", 999)
    assert node._open(tmp_path) == (
        None,
        "the autograd node is of another version of the kernel: python -m mlayer.exponential.compile",
    )
