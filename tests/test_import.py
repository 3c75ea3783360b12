"""`import mlayer` loads nothing heavier than torch, prints nothing and writes nothing. In a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("scipy", "sympy", "matplotlib", "sklearn", "pandas", "polars", "pyarrow", "numba", "joblib"),
    *("onnx", "onnxruntime", "onnxscript", "safetensors", "jax", "tensorflow", "torchvision"),
    *("click", "typer", "rich", "mpmath", "flint", "hypothesis", "pytest"),
}

SCRIPT = """
import json, sys
import {module}
print(json.dumps(sorted(sys.modules)))
"""


def _loaded(module: str, folder: Path) -> set[str]:
    script = SCRIPT.format(module=module)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        check=True,
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1, "the library prints nothing"
    names: list[str] = json.loads(done.stdout)
    return set(names)


@pytest.fixture(scope="module")
def extra(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What `import mlayer` loads that `import torch` does not."""
    folder = tmp_path_factory.mktemp("empty")
    difference = _loaded("mlayer", folder) - _loaded("torch", folder)
    assert not list(folder.iterdir()), "the library writes no file"
    return difference


@pytest.mark.parametrize("name", sorted(HEAVY))
def test_nothing_heavy(name: str, extra: set[str]) -> None:
    assert not {module for module in extra if module.split(".")[0] == name}


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


def test_importing_seeds_no_generator(tmp_path: Path) -> None:
    script = (
        "import random, torch\n"
        "states = lambda: (torch.get_rng_state().tolist(), random.getstate(), torch.get_default_dtype())\n"
        "before = states()\n"
        "threads = torch.get_num_threads()\n"
        "import mlayer\n"
        "mlayer.expm(torch.ones(3, 4, 4))\n"
        "assert before == states()\n"
        "assert threads == torch.get_num_threads()\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=900, cwd=tmp_path, check=True)


def test_the_exponential_alone_loads_torch_only(tmp_path: Path) -> None:
    difference = _loaded("mlayer.exponential", tmp_path) - _loaded("torch", tmp_path)
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
