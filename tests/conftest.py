"""For the whole suite: every implementation of the exponential, and nothing that depends on chance."""

from __future__ import annotations

import gc
import os
import random
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import settings

from mlayer.exponential import native, node
from mlayer.exponential.paths import VARIABLE

settings.register_profile("deterministic", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("deterministic")

Case = TypeVar("Case")
TESTS = Path(__file__).parent
INSTRUCTION_SETS = ("avx512", "avx2", "portable")


def _current_instruction_set() -> str:
    return native.description().removeprefix("compiled kernel, ").removesuffix(" instructions")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--at-most",
        type=int,
        metavar="N",
        help="run N cases of each test function, spread evenly (make test-machines)",
    )


def pytest_configure(config: pytest.Config) -> None:
    for name in ("no_proxy", "NO_PROXY"):  # the servers of the tests are here, whatever proxy the user has
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):  # what tests print goes to no terminal
        os.environ.pop(name, None)
    held = os.environ.get("MLAYER_TEST_KERNEL")
    if held and not native.use_instruction_set(held):
        raise pytest.UsageError(f"MLAYER_TEST_KERNEL={held}: this machine or this build has no such kernel")
    if os.environ.get("MLAYER_TEST_STRICT"):  # with the pinned versions: what is deprecated must go
        for category in ("DeprecationWarning", "FutureWarning"):
            config.addinivalue_line("filterwarnings", f"error::{category}:mlayer")
        # NumPy's, in the name of a library that was given a tensor in place of an array, by a page or by us.
        config.addinivalue_line("filterwarnings", "error:__array__ implementation:DeprecationWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:  # no addresses in the names of tests: parallel workers must agree on them
        if "0x" in item.nodeid:
            item._nodeid = re.sub(r"0x[0-9a-f]+", "0x", item.nodeid)  # type: ignore[attr-defined]
    most = config.getoption("--at-most")
    if most:
        cases: dict[str, list[pytest.Item]] = {}
        for item in items:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        kept = {id(item) for group in cases.values() for item in spread(group, most)}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]


def spread(cases: list[Case], most: int) -> list[Case]:
    """So many of them, evenly; all of them if there are no more."""
    return [cases[k] for k in sorted({k * len(cases) // most for k in range(most)})]


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Make no tests that --at-most would leave out: there are ten thousand of them."""
    yield
    most, calls = metafunc.config.getoption("--at-most"), getattr(metafunc, "_calls", [])
    if most and len(calls) > most:
        metafunc._calls = spread(calls, most)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No examples are looked for in the docstrings of the tests; there are none."""
    found = yield
    return [part for part in found if type(part) is pytest.Module or TESTS not in file_path.parents]


def pytest_collection() -> None:
    gc.disable()  # nothing of what is collected becomes garbage


def pytest_collection_finish() -> None:
    gc.freeze()  # ten thousand tests, which the garbage collector need not look through time and again
    gc.enable()


def _seed(name: str) -> None:
    """The shared generators: as the name says, whatever ran in this process before."""
    number = zlib.crc32(name.encode())
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _seed(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Shared fixtures are the same whichever test comes first, and do not show in the others."""
    if fixturedef.scope == "function":
        return (yield)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    _seed(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]")
    try:
        return (yield)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])


@pytest.fixture(params=[*INSTRUCTION_SETS, "matmul"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set of the kernel that this machine can run, and the matmul path."""
    yield from _using(request.param, monkeypatch)


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set of the kernel that this machine can run."""
    yield from _using(request.param, monkeypatch)


@pytest.fixture(params=["native", "ctypes", "matmul"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The best kernel of this machine, with and without the autograd node, and the matmul path."""
    name = str(request.param)
    if name != "matmul" and not native.available():
        pytest.skip(native.description())
    if name == "ctypes" and not node.available():
        pytest.skip("native goes through ctypes here")
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


@pytest.fixture
def flushing() -> Iterator[Callable[[], None]]:
    """torch.set_flush_denormal(True) within a test, by a call."""

    def on() -> None:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor keeps denormal numbers")

    yield on
    torch.set_flush_denormal(False)
