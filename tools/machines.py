"""The numeric tests as other machines would run them: make test-machines.

Each variation changes what differs between machines and must not matter: the order in which a BLAS sums, the
vector instructions of the libraries, the number of threads, the instruction set of our kernel, or that there
is none. A test looks whether the variation is in force. make test is the variation of one thread.
One case or two of every test function are run (`--at-most`); make test runs them all. Files are left out
whose tests read text, bytes or formulas and compute nothing that a variation could change, and, where only
the kernel differs, those that compute without an exponential. tests/exponential has every instruction set in
make test.

    python tools/machines.py                             all of them, but for those of ON_REQUEST
    python tools/machines.py "another user"              one of them
    python tools/machines.py "sums in random order"      one of ON_REQUEST
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from mlayer.exponential import native


def _without(files: list[str]) -> list[str]:
    return [f"--ignore={file}" for file in files]


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
OTHER_ROOMS = [
    f"tests/{name}" for name in ("numerics", "training", "datasets", "report", "experiments", "cli")
]
# What meets a user's settings: text, files, the terminal.
USERS = [
    "tests/files",
    *(f"tests/tables/test_{name}.py" for name in ("reader", "dialect", "dates", "amounts", "target")),
    *(f"tests/cli/test_{name}.py" for name in ("terminal", "outputs", "odd_tables", "start")),
    "tests/cli/test_reproduce_download.py",
    "tests/datasets",
    "tests/test_words.py",
    "tests/test_architecture.py",
]
# Files below these folders that read and compute no number in floating point.
READERS = [
    *(f"tests/tables/test_{name}.py" for name in ("amounts", "dates", "dialect", "reader", "target")),
    *(f"tests/files/test_{name}.py" for name in ("hostile_files", "disk", "notes")),
    *(f"tests/symbolic/test_{name}.py" for name in ("hostile", "hostile_objects")),
]
# Files that compute no exponential: a checker in whole numbers, formulas, columns, ONNX's own operators.
NO_EXPONENTIAL = [
    *(
        f"tests/certificates/test_{name}.py"
        for name in ("checker", "false_certificates", "mutations", "gauss")
    ),
    *("tests/tables/test_columns.py", "tests/tables/test_metrics.py", "tests/files/test_onnx_export.py"),
]
# torch's own loops, its MKL, the OpenBLAS of numpy and scipy, and our kernel, as on a processor of 2008.
OLD_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Nehalem",
    "MLAYER_TEST_KERNEL": "portable",
}
# Another language's letters and time, a home that is not there, a narrow terminal without colors, and a proxy
# that knows nothing of servers on this machine.
ANOTHER_USER = {
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
    "HOME": f"{os.devnull}/home",  # cannot be made, not even by root
    "PYTHONHASHSEED": "4242",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "COLUMNS": "40",
    "http_proxy": "http://127.0.0.1:9",
    "MLAYER_TEST_ORDER": "5",
}

# What it is called: environment, further options of pytest, folders.
VARIATIONS: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "another BLAS": ({}, ["--at-most=2", "-p", "other_bits", *_without(READERS)], ROOMS),
    "no vector instructions": (OLD_PROCESSOR, ["--at-most=1", *_without(READERS)], ROOMS),
    # MKL, which torch asks, would give no more than there are cores.
    "four threads": (
        {"OMP_NUM_THREADS": "4", "MKL_DYNAMIC": "FALSE"},
        ["--at-most=2"],
        [*EXPONENTIAL, "tests/nn"],
    ),
    "kernel: AVX2": (
        {"MLAYER_TEST_KERNEL": "avx2"},
        ["--at-most=1", *_without(READERS + NO_EXPONENTIAL)],
        ABOVE,
    ),
    "no kernel": ({"MLAYER_EXPM": "matmul"}, ["--at-most=1", *_without(READERS + NO_EXPONENTIAL)], ABOVE),
    "another user": (ANOTHER_USER, ["--at-most=1", "-p", "other_order"], USERS),
}
# Run when they are named: they take as long as all the others. Processes that tests start have the usual
# BLAS.
ON_REQUEST: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "another BLAS, other packages": ({}, ["--at-most=1", "-p", "other_bits", "--other-loops"], OTHER_ROOMS),
    "sums in random order": (
        {},
        ["--at-most=1", "-p", "other_bits", "--other-loops", "--sums=shape", *_without(READERS)],
        ROOMS + OTHER_ROOMS,
    ),
}


def available(environment: dict[str, str]) -> bool:
    """Whether this machine runs the requested instruction set."""
    held = environment.get("MLAYER_TEST_KERNEL")
    return held is None or native.use_instruction_set(held)


def main(wanted: list[str]) -> int:
    results = []
    chosen = {name: (VARIATIONS | ON_REQUEST)[name] for name in wanted or VARIATIONS}
    for name, (environment, options, folders) in chosen.items():
        if not available(environment):
            results.append((name, "skipped: not on this machine", 0.0))
            continue
        print(f"--- {name}", flush=True)
        begun = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "progress", *options]
        command += ["-n", "auto", "--dist", "worksteal", CHECK, *folders]
        path = os.pathsep.join(["tests", *filter(None, [os.environ.get("PYTHONPATH")])])
        settings = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MLAYER_TEST_MACHINE": name}
        settings.update(environment)
        with tempfile.TemporaryDirectory(suffix=" ü") as folder:
            if environment is ANOTHER_USER:
                settings["TMPDIR"] = folder
            umask = 0o077 if environment is ANOTHER_USER else -1
            code = subprocess.run(
                command, env=settings, stdin=subprocess.DEVNULL, umask=umask, check=False
            ).returncode
        results.append((name, "passed" if code == 0 else "FAILED", time.monotonic() - begun))
    print()
    for name, result, seconds in results:
        print(f"{name:<40}{result:<30}{seconds:5.0f} s")
    return int(any(result == "FAILED" for _, result, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
