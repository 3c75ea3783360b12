"""Several Python threads at once, and torch's thread count: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor

import mlayer
from rounding import agree

THREADS = 8
Work = list[tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True)
def thread_count() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _work(seed: int) -> Work:
    """Values and gradients of random sizes, batches, scales and precisions, each with its matrices."""
    generator = torch.Generator().manual_seed(seed)
    results = []
    for _ in range(3):
        n = int(torch.randint(1, 40, (), generator=generator))
        batch = int(torch.randint(1, 60, (), generator=generator))
        dtype = torch.float32 if torch.rand((), generator=generator) < 0.5 else torch.float64
        scale = 4.0 ** float(torch.randint(-6, 4, (), generator=generator)) / n
        a = (torch.randn(batch, n, n, generator=generator, dtype=dtype) * scale).requires_grad_()
        value = mlayer.expm(a)
        (gradient,) = torch.autograd.grad(value, a, torch.ones_like(value))
        results += [(value.detach(), a.detach()), (gradient, a.detach())]
    return results


def _equal(left: Work, right: Work) -> bool:
    return all(
        torch.equal(x.nan_to_num(), y.nan_to_num()) for (x, _), (y, _) in zip(left, right, strict=True)
    )


def _all_agree(left: Work, right: Work) -> None:
    for (x, a), (y, _) in zip(left, right, strict=True):
        agree(x, y, a)


@pytest.mark.parametrize("torch_threads", [1, 2])
def test_from_many_python_threads(torch_threads: int, path: str) -> None:
    torch.set_num_threads(torch_threads)
    serial = [_work(seed) for seed in range(2 * THREADS)]
    barrier = Barrier(THREADS)

    def together(seed: int) -> Work:
        if seed < THREADS:
            barrier.wait()
        return _work(seed)

    with ThreadPoolExecutor(THREADS) as pool:
        parallel = list(pool.map(together, range(2 * THREADS)))
    tolerance_free = path == "native"
    for one, other in zip(serial, parallel, strict=True):
        if tolerance_free:
            assert _equal(one, other)
        else:  # torch's products may split a batch otherwise under load
            _all_agree(one, other)


@pytest.mark.parametrize("n", [2, 6, 12, 17, 30, 64])
def test_torch_thread_count_does_not_change_a_bit(n: int, dtype: torch.dtype, instruction_set: str) -> None:
    a = torch.randn(203, n, n, generator=torch.Generator().manual_seed(n), dtype=dtype)
    a = (a * torch.logspace(-5, 1, 203, dtype=dtype)[:, None, None]).requires_grad_()
    results = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        value = mlayer.expm(a)
        gradient = torch.autograd.grad(value, a, torch.ones_like(value))[0]
        results.append([(value.detach(), a.detach()), (gradient, a.detach())])
    for other in results[1:]:
        assert _equal(results[0], other)


def test_thread_count_set_inside_threads(path: str) -> None:
    torch.set_num_threads(1)
    serial = [_work(seed) for seed in range(4)]

    def one(seed: int) -> Work:
        torch.set_num_threads(1 + seed % 3)
        return _work(seed)

    with ThreadPoolExecutor(4) as pool:
        parallel = list(pool.map(one, range(4)))
    for left, right in zip(serial, parallel, strict=True):
        _all_agree(left, right)


def test_backward_in_another_thread(path: str) -> None:
    a = torch.randn(5, 6, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    value = mlayer.expm(a)
    (expected,) = torch.autograd.grad(value.sum(), a, retain_graph=True)
    with ThreadPoolExecutor(1) as pool:
        (got,) = pool.submit(torch.autograd.grad, value.sum(), a).result()
    agree(got, expected, a)
