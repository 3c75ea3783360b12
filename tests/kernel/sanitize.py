"""Builds the kernel with driver.cpp under sanitizers and runs it: make sanitize.

Address and undefined behavior in one build, threads in another. A few minutes.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from mlayer.exponential.build import instruction_flags
from mlayer.exponential.native import KernelTable
from mlayer.exponential.schedule import schedule_for

HERE = Path(__file__).resolve().parent
KERNEL = HERE.parents[1] / "src/mlayer/exponential/kernel"
SANITIZERS = {
    "address,undefined": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}


def tables() -> str:
    """The tables that native.py hands to the kernel, as text."""
    numbers: list[float] = []
    for dtype in (torch.float32, torch.float64):
        for derivative in (False, True):
            table = KernelTable.of(schedule_for(dtype, derivative))
            count = ctypes.sizeof(table) // ctypes.sizeof(ctypes.c_double)
            numbers += (ctypes.c_double * count).from_buffer_copy(table)
    return " ".join(repr(number) for number in numbers)


def main() -> int:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        print("no C++ compiler: nothing to sanitize")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for name, sanitizer in SANITIZERS.items():
            builds = []
            for source in [*sorted(KERNEL.glob("*.cpp")), HERE / "driver.cpp"]:
                out = Path(folder) / f"{name[0]}_{source.stem}.o"
                flags = [
                    "-std=c++17",
                    "-O1",
                    "-g",
                    "-fno-math-errno",
                    *sanitizer,
                    *instruction_flags(source),
                ]
                command = [compiler, *flags, f"-I{KERNEL}", "-c", str(source), "-o", str(out)]
                builds.append((out, subprocess.Popen(command)))
            if any(build.wait() for _, build in builds):
                return 1
            program = Path(folder) / f"{name[0]}_driver"
            objects = [str(out) for out, _ in builds]
            subprocess.run(
                [compiler, *sanitizer, *objects, "-o", str(program), "-ldl", "-pthread"], check=True
            )
            print(f"--- {name}", flush=True)
            run = subprocess.run([str(program)], input=tables(), text=True, check=False)
            if run.returncode:
                print(f"{name}: failed with exit code {run.returncode}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
