"""The modules of the operators imported again, as notebooks that reload modules do."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys, torch, mlayer
from torch.func import hessian

a = torch.tensor([[0.5, 1.0], [-0.3, 0.2]], dtype=torch.float64)
expected = hessian(lambda x: torch.linalg.matrix_exp(x).square().sum())(a)

def check():
    import mlayer
    found = hessian(lambda x: mlayer.expm(x).square().sum())(a)
    assert torch.allclose(found, expected)
    assert torch.allclose(mlayer.logm(mlayer.expm(a)), a)

check()
for name in ("define_operator", "primary_function", "operator", "expm_function", "inverse.logm_and_sqrtm"):
    importlib.reload(sys.modules[f"mlayer.exponential.{name}"])
check()
for name in [name for name in sys.modules if name.startswith("mlayer")]:
    del sys.modules[name]
check()
"""


@pytest.mark.slow
def test_operators_may_be_defined_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
