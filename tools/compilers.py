"""The kernel and its tests with each C++ compiler of this machine: make test-compilers.

The sources are copied to .cache/compilers/NAME, kernel and autograd node are built there with that compiler,
and the tests of the exponential and of the layer run with them, a few cases of every function.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

COMPILERS = ("g++", "clang++")
FOLDER = Path(".cache/compilers")
PARTS = ("src", "setup.py", "pyproject.toml", "README.md", "LICENSE")
CHECK = """
import sys
from mlayer.exponential import native, node
print(native.description(), "with the node" if node.available() else node.description(), sep=", ")
sys.exit(not (native.available() and node.available()))
"""


def build(compiler: str, folder: Path) -> str | None:
    """Build kernel and node in a copy of the sources; a message if that fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part in PARTS:
        if Path(part).is_dir():
            shutil.copytree(part, folder / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(part, folder)
    environment = {**os.environ, "CC": compiler, "CXX": compiler, "PYTHONPATH": "src"}
    with (folder / "build.log").open("w") as log:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    check = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(check.stdout, end="", flush=True)
    return f"FAILED to build ({folder / 'build.log'})" if check.returncode else None


def run_tests(folder: Path) -> str:
    """Run the tests that call the kernel."""
    paths = os.pathsep.join(str(part.resolve()) for part in (folder / "src", Path("tests")))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "progress", "--at-most", "4"]
    command += ["-n", "auto", "--dist", "worksteal", "tests/exponential", "tests/nn"]
    done = subprocess.run(command, env=environment, check=False)
    return "passed" if done.returncode == 0 else "FAILED"


def main(wanted: list[str]) -> int:
    lines = []
    for compiler in wanted or COMPILERS:
        if shutil.which(compiler) is None:
            lines.append(f"{compiler:<12}skipped: not on this machine")
            continue
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        print(f"--- {version.splitlines()[0]}", flush=True)
        begun, folder = time.monotonic(), FOLDER / compiler
        words = build(compiler, folder) or run_tests(folder)
        lines.append(f"{compiler:<12}{words}, {version.splitlines()[0]}, {time.monotonic() - begun:.0f} s")
    print("", *lines, sep="\n")
    return int(any("FAILED" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
