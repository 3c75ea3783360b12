"""Fixtures for the whole suite: every implementation of the exponential, and a deterministic Hypothesis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from mlayer.exponential import native
from mlayer.exponential.paths import VARIABLE

settings.register_profile("deterministic", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("deterministic")

INSTRUCTION_SETS = ("avx512", "avx2", "portable")


def _current_instruction_set() -> str:
    return native.description().removeprefix("compiled kernel, ").removesuffix(" instructions")


@pytest.fixture(params=[*INSTRUCTION_SETS, "matmul"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set of the kernel that this machine can run, and the matmul path."""
    yield from _using(request.param, monkeypatch)


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set of the kernel that this machine can run."""
    yield from _using(request.param, monkeypatch)


@pytest.fixture(params=["native", "matmul"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The best kernel of this machine, and the matmul path."""
    name = str(request.param)
    if name == "native" and not native.available():
        pytest.skip(native.description())
    monkeypatch.setenv(VARIABLE, name)
    return name


def _using(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if name == "matmul":
        monkeypatch.setenv(VARIABLE, "matmul")
        yield name
        return
    if not native.available():
        pytest.skip(native.description())
    before = _current_instruction_set()
    if not native.use_instruction_set(name):
        pytest.skip(f"this machine has no {name}")
    monkeypatch.setenv(VARIABLE, "native")
    yield name
    assert native.use_instruction_set(before)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The two precisions of the kernel."""
    result: torch.dtype = request.param
    return result


@pytest.fixture
def real_data() -> Path:
    """A folder with the real data sets, for tests that may skip without it."""
    folder = os.environ.get("MLAYER_DATA")
    if not folder:
        pytest.skip("needs the real data sets: $MLAYER_DATA is not set")
    return Path(folder)
