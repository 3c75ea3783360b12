"""The numeric tests as other machines would run them: make test-machines.

Each variation changes what differs between machines and must not matter: the order in which a BLAS sums, the
vector instructions of the libraries, the number of threads, the instruction set of our kernel, or that there
is none. A test looks whether the variation is in force.
Of every test function a few cases are run (`--at-most`); make test runs them all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from mlayer.exponential import native

# Says whether the variation is in force, and fails if it is not.
CHECK = "tests/tools/test_machine_in_force.py"
EXPONENTIAL = ["tests/exponential"]
ABOVE = [
    "tests/nn",
    "tests/certificates",
    "tests/symbolic",
    "tests/estimators",
    "tests/tables",
    "tests/files",
]
ROOMS = EXPONENTIAL + ABOVE
# torch's own loops, its MKL, and the OpenBLAS of numpy and scipy, as on a processor of 2008.
OLD_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Nehalem",
}

# What it is called: environment, further options of pytest, folders.
VARIATIONS: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    # Not tests/training: it compares to the bit with runs in other processes, which have the usual BLAS.
    "another BLAS": ({}, ["-p", "other_bits"], ROOMS),
    "libraries without vector instructions": (OLD_PROCESSOR, [], ROOMS),
    "one thread": ({"OMP_NUM_THREADS": "1"}, [], EXPONENTIAL),
    # MKL, which torch asks, would give no more than there are cores.
    "four threads": ({"OMP_NUM_THREADS": "4", "MKL_DYNAMIC": "FALSE"}, [], [*EXPONENTIAL, "tests/nn"]),
    "kernel: AVX2": ({"MLAYER_TEST_KERNEL": "avx2"}, [], ABOVE),
    "kernel: portable": ({"MLAYER_TEST_KERNEL": "portable"}, [], ABOVE),
    "no kernel": ({"MLAYER_EXPM": "matmul"}, [], ABOVE),
}


def available(environment: dict[str, str]) -> bool:
    """Whether this machine runs the requested instruction set."""
    held = environment.get("MLAYER_TEST_KERNEL")
    return held is None or native.use_instruction_set(held)


def main(wanted: list[str]) -> int:
    results = []
    chosen = {name: VARIATIONS[name] for name in wanted or VARIATIONS}
    for name, (environment, options, folders) in chosen.items():
        if not available(environment):
            results.append((name, "skipped: not on this machine", 0.0))
            continue
        print(f"--- {name}", flush=True)
        begun = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "progress", *options, "--at-most", "2"]
        command += ["-n", "auto", "--dist", "worksteal", CHECK, *folders]
        path = os.pathsep.join(["tests", *filter(None, [os.environ.get("PYTHONPATH")])])
        settings = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MLAYER_TEST_MACHINE": name}
        settings.update(environment)
        code = subprocess.run(command, env=settings, check=False).returncode
        results.append((name, "passed" if code == 0 else "FAILED", time.monotonic() - begun))
    print()
    for name, result, seconds in results:
        print(f"{name:<40}{result:<30}{seconds:5.0f} s")
    return int(any(result == "FAILED" for _, result, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
