"""make test-machines does what it says: each variation is seen from inside a test that runs under it."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from urllib.request import getproxies

import numpy as np
import pytest
import threadpoolctl
import torch

import mlayer
from mlayer.exponential import native

ROOT = Path(__file__).resolve().parents[2]


def machines() -> ModuleType:
    spec = importlib.util.spec_from_file_location("machines", ROOT / "tools/machines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def another_blas() -> bool:
    """Sums in another order, and vectors of another sign."""
    a = torch.tensor([[1.0, 1e-16, 1e-16, -1.0]] * 5, dtype=torch.float64)
    ones = torch.ones(4, 1, dtype=torch.float64)
    in_some_order = {float(row) for count in range(1, 6) for row in a[:count] @ ones}
    vectors = [
        torch.linalg.eigh(torch.diag(torch.arange(3.0)))[1].numpy(),
        np.linalg.eigh(np.diag([0, 1, 2]))[1],
    ]
    return len(in_some_order) > 1 and all((v.sum(0) < 0).any() for v in vectors)


def without_vector_instructions() -> bool:
    blas = {pool["architecture"] for pool in threadpoolctl.threadpool_info() if "architecture" in pool}
    return torch.backends.cpu.get_cpu_capability() == "DEFAULT" and blas == {"Nehalem"}


def another_user() -> bool:
    """The umask, the time zone, the folder for temporary files and the proxy."""
    before = os.umask(0o077)
    os.umask(before)
    place = time.strftime("%z") == "+0545" and " ü" in tempfile.gettempdir()
    return before == 0o077 and place and getproxies().get("http") == "http://127.0.0.1:9"


def kernel_is(name: str) -> bool:
    return mlayer.expm_path().name == "native" and f" {name} " in native.description()


IN_FORCE: dict[str, Callable[[], bool]] = {
    "another BLAS": another_blas,
    "no vector instructions": lambda: without_vector_instructions() and kernel_is("portable"),
    "four threads": lambda: torch.get_num_threads() == 4,
    "kernel: AVX2": lambda: kernel_is("avx2"),
    "no kernel": lambda: mlayer.expm_path().name == "matmul",
    "another user": another_user,
    "another BLAS, other packages": another_blas,
    "sums in random order": another_blas,
}


def test_the_variation_is_in_force() -> None:
    name = os.environ.get("MLAYER_TEST_MACHINE")
    if name is None:
        pytest.skip("this is not make test-machines")
    assert IN_FORCE[name](), f"{name!r} was asked for, and the tests run without it"


def test_every_variation_is_looked_at() -> None:
    assert {*machines().VARIATIONS, *machines().ON_REQUEST} == set(IN_FORCE)
    assert (ROOT / machines().CHECK).resolve() == Path(__file__).resolve()


@pytest.mark.skipif("MLAYER_TEST_MACHINE" in os.environ, reason="make test-machines: one of them is in force")
def test_an_ordinary_run_is_another() -> None:
    """So that the check can fail."""
    assert not another_blas()
    assert not another_user()
    assert sum(IN_FORCE[name]() for name in ("kernel: AVX2", "no vector instructions", "no kernel")) <= 1


def test_what_is_left_out_exists() -> None:
    """A file that was renamed would come back unnoticed, or be run by nobody who names it."""
    module = machines()
    named = [*module.READERS, *module.NO_EXPONENTIAL, *module.ROOMS, *module.OTHER_ROOMS, *module.USERS]
    assert [name for name in named if not (ROOT / name).exists()] == []
