"""`import mlayer` loads nothing heavier than torch, prints nothing and writes nothing. In a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    *("scipy", "sympy", "matplotlib", "sklearn", "pandas", "polars", "pyarrow", "numba", "joblib"),
    *("onnx", "onnxruntime", "onnxscript", "safetensors", "jax", "tensorflow", "torchvision"),
    *("click", "typer", "rich", "mpmath", "flint", "hypothesis", "pytest"),
}

# One process for all: starting torch is what takes long.
SCRIPT = """
import json, random, sys
import torch
states = lambda: [torch.get_rng_state().tolist(), repr(random.getstate()), repr(torch.get_default_dtype())]
before, threads, modules = states(), torch.get_num_threads(), [set(sys.modules)]
import mlayer
modules.append(set(sys.modules))
import mlayer.exponential
modules.append(set(sys.modules))
mlayer.expm(torch.ones(3, 4, 4))
unchanged = before == states() and threads == torch.get_num_threads()
print(json.dumps([unchanged, *(sorted(after - modules[0]) for after in modules[1:])]))
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[bool, set[str], set[str]]:
    """Whether nothing was seeded; what mlayer loads that torch does not, and what its exponential loads."""
    folder = tmp_path_factory.mktemp("empty")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        check=True,
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1, "the library prints nothing"
    assert not list(folder.iterdir()), "the library writes no file"
    unchanged, package, exponential = json.loads(done.stdout)
    return unchanged, set(package), set(exponential)


@pytest.fixture
def extra(fresh: tuple[bool, set[str], set[str]]) -> set[str]:
    return fresh[1]


def test_nothing_heavy(extra: set[str]) -> None:
    assert {module for module in extra if module.split(".")[0] in HEAVY} == set()


def test_only_torch_and_the_standard_library(extra: set[str]) -> None:
    allowed = {"mlayer", "torch", "numpy", *sys.stdlib_module_names}
    assert {module.split(".")[0] for module in extra} <= allowed


def test_torch_parts_that_are_heavy_stay_out(extra: set[str]) -> None:
    for name in (
        "torch._inductor",
        "torch._dynamo",
        "torch.onnx._internal.exporter",
        "torch.distributed.rpc",
    ):
        assert not {module for module in extra if module == name or module.startswith(name + ".")}


def test_importing_seeds_no_generator(fresh: tuple[bool, set[str], set[str]]) -> None:
    assert fresh[0]


def test_the_exponential_alone_loads_torch_only(fresh: tuple[bool, set[str], set[str]]) -> None:
    difference = fresh[2]
    # The command that builds the node is not loaded, or python -m would begin with a warning.
    assert "mlayer.exponential.build" in difference
    assert "mlayer.exponential.compile" not in difference
    assert {module.split(".")[0] for module in difference} <= {
        "mlayer",
        "torch",
        "numpy",
        *sys.stdlib_module_names,
    }
    rooms = {module.split(".")[1] for module in difference if module.startswith("mlayer.")}
    assert rooms <= {"checks", "errors", "exponential", "version"}
