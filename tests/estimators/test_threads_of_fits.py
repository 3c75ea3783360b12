"""Small fits use one thread, in torch and in the BLAS of NumPy and SciPy; the process gets its own back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest
import scipy.linalg  # noqa: F401  (brings a BLAS of its own)
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from mlayer.estimators.watch import suitable_threads


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    numpy.ones((4, 4)) @ numpy.ones((4, 4))
    with threadpool_limits(limits=2, user_api="blas"):
        torch.set_num_threads(2)
        yield
        torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_small_fit_uses_one_thread() -> None:
    before = blas_threads()
    with suitable_threads(rows=500, matrix_size=8):
        assert torch.get_num_threads() == 1
        assert blas_threads() == {1}
    assert torch.get_num_threads() == 2
    assert blas_threads() == before


@pytest.mark.usefixtures("two_threads")
def test_a_large_fit_keeps_the_threads_of_the_process() -> None:
    before = blas_threads()
    with suitable_threads(rows=1_000_000, matrix_size=30):
        assert torch.get_num_threads() == 2
        assert blas_threads() == before


@pytest.mark.usefixtures("two_threads")
def test_threads_come_back_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(RuntimeError, match="stopped"), suitable_threads(rows=500, matrix_size=8):
        raise RuntimeError("stopped")
    assert (torch.get_num_threads(), blas_threads()) == (2, before)
