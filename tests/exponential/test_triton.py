"""The Triton kernel without a GPU: compiled for three of them, executed as PTX, and interpreted.

    make test-triton

installs Triton (700 MB) into an environment of its own and runs these tests; without it they are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_accuracy import _derivative, _direction, _value, measure

import mlayer
import oracle
import ptx
from cases import GALLERY, Case, random_matrix
from mlayer.exponential import triton_path
from mlayer.exponential.schedule import exact_degree
from rounding import MULTIPLES

triton = pytest.importorskip("triton", reason="Triton is not installed: make test-triton")

CASES = [case for case in GALLERY if 1 < case.make(torch.float32).shape[0] <= triton_path.LARGEST_SIZE]
TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
# A little more than was measured with Triton 3.7.1.
MOST_REGISTERS = {
    ("sm_80", "expm"): 128,
    ("sm_80", "frechet"): 192,
    ("sm_90", "expm"): 128,
    ("sm_90", "frechet"): 192,
    ("gfx942", "expm"): 192,
    ("gfx942", "frechet"): 320,
}


@cache
def compiled(name: str, rows: int, architecture: str) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from mlayer.exponential import triton_kernel

    kernel = getattr(triton_kernel, f"{name}_kernel")
    pointers = {"A": "*fp32", "X": "*fp32", "E": "*fp32", "H": "*fp32", "FLAGS": "*i32", "N": "constexpr"}
    signature = {argument: pointers.get(argument, "i32") for argument in kernel.arg_names}
    target = GPUTarget(*TARGETS[architecture])
    source = ASTSource(fn=kernel, signature=signature, constexprs={"N": rows})
    return triton.compile(
        source, target=target, options={"num_warps": triton_path.WARPS[target.backend][rows]}
    )


def usage(program: Any, folder: Path) -> tuple[int, int]:
    """Registers of a thread, and what is spilled."""
    if "amdgcn" in program.asm:
        found = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count):\s*(\d+)", program.asm["amdgcn"]))
        return int(found["vgpr_count"]), int(found["vgpr_spill_count"])
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    (folder / "program.cubin").write_bytes(program.asm["cubin"])
    command = [str(tools / "cuobjdump"), "-res-usage", str(folder / "program.cubin")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text))
    return int(found["REG"]), int(found["STACK"]) + int(found["LOCAL"])


@pytest.mark.parametrize("architecture", TARGETS)
@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("name", ["expm", "frechet"])
def test_it_compiles_without_spills(name: str, rows: int, architecture: str, tmp_path: Path) -> None:
    program = compiled(name, rows, architecture)
    registers, spilled = usage(program, tmp_path)
    assert spilled == 0
    assert registers <= MOST_REGISTERS[architecture, name]
    text = program.asm.get("ptx") or program.asm["amdgcn"]
    assert "fma" in text
    assert "tf32" not in text
    assert "xf32" not in text


def execute(name: str, a: np.ndarray, *more: np.ndarray, adjoint: bool = False, text: str = "") -> np.ndarray:
    """Run the PTX for sm_80 on a batch; the flags must not be raised."""
    batch, n, _ = a.shape
    rows = 16 if n <= 16 else 32
    program = compiled(name, rows, "sm_80")
    out, flags = np.full_like(a, np.nan), np.full(batch, -1, dtype=np.int32)
    strides = (n * n, 1, n) if adjoint else (n * n, n, 1)
    exact = exact_degree(n - 1, name == "frechet") or 16
    arguments = [a, *more, out, flags, n, *strides, exact]
    ptx.run(text or program.asm["ptx"], arguments, batch, program.metadata.shared)
    return out if not flags.any() else np.full_like(a, np.inf)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx_gives_the_gallery(case: Case) -> None:
    """Value and gradient within the bound of the room, no access out of bounds, no race."""
    a = case.make(torch.float32)
    bound = MULTIPLES[torch.float32] * torch.finfo(torch.float32).eps * measure(case.name, torch.float32)
    value = torch.from_numpy(execute("expm", a.numpy()[None].copy())[0])
    assert oracle.relative_error(value, _value(case.name, torch.float32)) <= bound
    g = _direction(a).numpy()[None].copy()
    gradient = torch.from_numpy(execute("frechet", a.numpy()[None].copy(), g, adjoint=True)[0])
    assert oracle.relative_error(gradient, _derivative(case.name, torch.float32)) <= bound


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e20, 1e38])
@pytest.mark.parametrize("place", [(0, 0), (2, 4), (4, 1)])
def test_ptx_raises_its_flag(poison: float, place: tuple[int, int]) -> None:
    a = np.zeros((3, 5, 5), dtype=np.float32)
    a[1][place] = poison
    program = compiled("expm", 16, "sm_80")
    out, flags = np.zeros_like(a), np.zeros(3, dtype=np.int32)
    ptx.run(program.asm["ptx"], [a, out, flags, 5, 25, 5, 1, 16], 3, program.metadata.shared)
    assert flags.tolist() == [0, 1, 0]
    assert (out[[0, 2]] == np.eye(5)).all()


def spoilt() -> list[tuple[str, str]]:
    """The program without one of its barriers, or with one constant changed; with what was done."""
    lines = compiled("frechet", 16, "sm_80").asm["ptx"].splitlines()
    barriers = [k for k, line in enumerate(lines) if "bar.sync" in line]
    chosen = [("barrier", k) for k in barriers[::4]]
    sums = [k for k, line in enumerate(lines) if "fma.rn.f32" in line]
    chosen += [("product", k) for k in sums[:: len(sums) // 12]]
    result = []
    for kind, k in chosen:
        changed = (
            lines[k].replace("fma.rn.f32", "mul.f32").rsplit(",", 1)[0] + ";" if kind == "product" else ""
        )
        result.append((f"{kind} {k}", "\n".join([*lines[:k], changed, *lines[k + 1 :]])))
    return result


def test_spoilt_programs_are_noticed() -> None:
    """Most of them: some barriers separate nothing that another warp touches."""
    a = np.stack([random_matrix(16, norm, dtype=torch.float32).numpy() for norm in (1e-5, 0.02, 0.3, 6.0)])
    g = np.stack([random_matrix(16, 1.0, seed=5, dtype=torch.float32).numpy()] * 4)
    wanted = execute("frechet", a, g)
    noticed = {}
    for what, text in spoilt():
        try:
            result = execute("frechet", a, g, text=text)
            error = np.linalg.norm(result - wanted, axis=(1, 2)) / np.linalg.norm(wanted, axis=(1, 2))
            noticed[what] = not error.max() <= 1e-6
        except ptx.FaultError:
            noticed[what] = True
    assert np.mean(list(noticed.values())) >= 0.75, noticed


# ---- Through mlayer.expm, by Triton's interpreter. --------------------------------------------------

SCRIPT = """
import torch, mlayer
from cases import GALLERY
assert mlayer.expm_path(torch.zeros(2, 3, 3)).name == "triton"
assert mlayer.expm_path(torch.zeros(2, 3, 3, dtype=torch.float64)).name != "triton"
assert mlayer.expm_path(torch.zeros(2, 33, 33)).name != "triton"
results = {}
for case in GALLERY:
    a = case.make(torch.float32)
    if 1 < len(a) <= 32:
        batch = torch.stack([a, a.mT.contiguous()]).requires_grad_()
        g = torch.randn(a.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).float()
        value = mlayer.expm(batch)
        (gradient,) = torch.autograd.grad(value, batch, torch.stack([g, g.mT]))
        results[case.name] = (value.detach(), gradient)
poisoned = torch.zeros(3, 4, 4); poisoned[1, 0, 0] = 200.0; poisoned[2, 1, 1] = float("nan")
value = mlayer.expm(poisoned)
assert torch.equal(value[0], torch.eye(4)) and value[1, 0, 0].isinf() and value[1, 1, 1] == 1
assert value[2].isnan().all()
assert torch.autograd.gradgradcheck(mlayer.expm, torch.eye(3, dtype=torch.float64).requires_grad_())
assert mlayer.expm(torch.zeros(0, 3, 3)).shape == (0, 3, 3)
torch.save(results, "results.pt")
"""


def test_the_interpreter_gives_the_gallery_through_the_front_door(tmp_path: Path) -> None:
    folders = [str(Path(mlayer.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = os.environ | {
        "MLAYER_EXPM": "triton",
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]),
    }
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, cwd=tmp_path, check=True)
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    assert len(results) == len(CASES)
    for name, (value, gradient) in results.items():
        bound = MULTIPLES[torch.float32] * torch.finfo(torch.float32).eps * measure(name, torch.float32)
        for computed, exact in (
            (value[0], _value(name, torch.float32)),
            (value[1].mT.contiguous(), _value(name, torch.float32)),
            (gradient[0], _derivative(name, torch.float32)),
            (gradient[1].mT.contiguous(), _derivative(name, torch.float32)),
        ):
            assert oracle.relative_error(computed, exact) <= bound, name
