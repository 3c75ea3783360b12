"""The kernel on ARM: cross-compiled, run by an emulator, compared with this machine's results: make test-arm.

    apt install g++-aarch64-linux-gnu qemu-user

Values and derivatives of matrices of many sizes and norms go into a file, and a small program with the kernel
in it (tests/kernel/answers.cpp) computes them as an ARM machine would. Each must agree with every instruction
set of this machine to within rounding, the bound of the tests; how many agree to the bit is counted.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cases import random_matrix
from mlayer.exponential import native
from mlayer.exponential.build import COMMON, KERNEL
from mlayer.exponential.schedule import schedule_for
from rounding import MULTIPLES

COMPILER, EMULATORS = "aarch64-linux-gnu-g++", ("qemu-aarch64", "qemu-aarch64-static")
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 20, 24, 28, 29, 32, 33, 40, 48, 65)
NORMS = (0.0, 1e-7, 1e-4, 0.01, 0.1, 0.4, 0.7, 1.0, 2.1, 4.0, 9.0, 20.0, 40.0, 80.0)

Question = tuple[Tensor, Tensor | None]


def questions() -> list[Question]:
    """Batches of every size: value, and derivative in a direction."""
    found: list[Question] = []
    for dtype in (torch.float32, torch.float64):
        for n in SIZES:
            a = torch.stack([random_matrix(n, norm, seed=k, dtype=dtype) for k, norm in enumerate(NORMS)])
            a = torch.cat([a, a[-4:].triu(1)])  # nilpotent ones too
            e = torch.stack([random_matrix(n, 1.0, seed=99 + k, dtype=dtype) for k in range(len(a))])
            found += [(a, None), (a, e)]
    return found


def as_bytes(question: Question) -> bytes:
    """The matrices as answers.cpp reads them."""
    a, e = question
    head = np.array([a.element_size(), a.shape[-1], len(a), e is not None], dtype=np.int32)
    table = native.KernelTable.of(schedule_for(a.dtype, e is not None))
    return b"".join([head.tobytes(), bytes(table), *(t.numpy().tobytes() for t in (a, e) if t is not None)])


def on_arm(asked: list[Question], compiler: str, emulator: str) -> list[Tensor]:
    """The answers of the emulated machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [*sorted(KERNEL.glob("*.cpp")), Path("tests/kernel/answers.cpp")]
        objects = [folder / f"{source.stem}.o" for source in sources]
        for source, target in zip(sources, objects, strict=True):
            command = [compiler, *COMMON, f"-I{KERNEL}", "-c", str(source), "-o", str(target)]
            subprocess.run(command, check=True)
        program = folder / "answers"
        link = [compiler, "-static", *map(str, objects), "-o", str(program), "-ldl", "-pthread"]
        # A warning of the linker about dlopen in a static program: it is not called here.
        linked = subprocess.run(link, capture_output=True, text=True, check=False)
        if linked.returncode:
            raise SystemExit(f"mlayer: the program for ARM could not be linked:\n{linked.stderr}")
        (folder / "questions").write_bytes(b"".join(map(as_bytes, asked)))
        subprocess.run(
            [emulator, str(program), str(folder / "questions"), str(folder / "answers.bin")], check=True
        )
        data = bytearray((folder / "answers.bin").read_bytes())
    answers, start = [], 0
    for a, _ in asked:
        answers.append(torch.frombuffer(data, dtype=a.dtype, count=a.numel(), offset=start).view_as(a))
        start += a.numel() * a.element_size()
    return answers


def compare(asked: list[Question], there: list[Tensor], here: list[Tensor]) -> tuple[int, int, float]:
    """The number of matrices, of those equal to the bit, and the largest difference in units of the bound."""
    count = same = 0
    worst = 0.0
    for (a, e), x, y in zip(asked, there, here, strict=True):
        for one, other, matrix in zip(x, y, a, strict=True):
            count += 1
            same += int(torch.equal(one, other))
            size = max(1.0, float(matrix.double().abs().sum(0).max()))
            bound = 2 * MULTIPLES[a.dtype] * torch.finfo(a.dtype).eps * size * (1 if e is None else 2)
            difference = (one.double() - other.double()).norm() / other.double().norm().clamp_min(1e-300)
            worst = max(worst, float(difference) / bound)
    return count, same, worst


def main() -> int:
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if shutil.which(COMPILER) is None or emulator is None:
        print(f"mlayer: test-arm skipped: it needs {COMPILER} and {EMULATORS[0]}")
        print("mlayer:   apt install g++-aarch64-linux-gnu qemu-user")
        return 0
    asked = questions()
    there = on_arm(asked, COMPILER, emulator)
    failed = False
    for name in ("avx512", "avx2", "portable"):
        if not native.use_instruction_set(name):
            print(f"ARM compared with {name:<10}skipped: not on this machine")
            continue
        here = [native.expm(a) if e is None else native.frechet(a, e) for a, e in asked]
        count, same, worst = compare(asked, there, here)
        failed |= not worst <= 1
        words = "passed" if worst <= 1 else "FAILED"
        bits = f"{same:,} of {count:,} matrices to the bit"
        print(f"ARM compared with {name:<10}{words}: {bits}, the others within {worst:.2f} of the bound")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
