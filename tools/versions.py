"""The tests under other versions of Python and of the libraries: make test-versions.

Three environments below .venv-versions/, made by uv, which can take the oldest versions that pyproject.toml
allows and finds or downloads other Pythons. Of every test function one case is run; make test runs them all,
with the versions of constraints.txt. What uv must know about the place goes into its own variables, for
example UV_TORCH_BACKEND=cpu for a torch without the gigabytes of CUDA packages.

    python tools/versions.py              all three
    python tools/versions.py oldest       one of them
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(".venv-versions")
SHOWN = ("torch", "numpy", "scipy", "scikit-learn", "pandas")

# What it is called: Python, options of `uv pip install`.
ENVIRONMENTS: dict[str, tuple[str, list[str]]] = {
    "oldest": ("3.11", ["--resolution", "lowest-direct"]),
    "pinned": ("3.12", ["--constraints", "constraints.txt"]),
    "newest": ("3.13", ["--upgrade"]),
}

FACTS = f"""
import platform
from importlib.metadata import version
print("Python", platform.python_version(), *(f"{{name}} {{version(name)}}" for name in {SHOWN!r}), sep=", ")
"""


def interpreter(version: str, uv: list[str]) -> str | None:
    """A Python of this version: one that uv finds, one of pyenv's, one that uv downloads."""
    find = [*uv, "python", "find", "--no-python-downloads", version]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for command in (find, None, [*uv, "python", "install", "--quiet", version], find):
        if command is None:
            there = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
            if there:
                return str(there[-1])
            continue
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if command is find and done.returncode == 0:
            return done.stdout.strip()
    return None


def make(name: str, uv: list[str], log: Path) -> str | None:
    """Make the environment; a message if that fails."""
    version, options = ENVIRONMENTS[name]
    python = interpreter(version, uv)
    if python is None:
        return f"skipped: no Python {version} here, and none can be downloaded"
    folder = FOLDER / name
    venv = [*uv, "venv", "--quiet", "--allow-existing", "--python", python, str(folder)]
    install = [*uv, "pip", "install", "--python", str(folder / "bin/python"), *options]
    with log.open("w") as stream:
        for command in (venv, [*install, "-r", "pyproject.toml", "--extra", "test"]):
            if subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode:
                return f"FAILED to install ({log})"
    return None


def run_tests(name: str, log: Path) -> str:
    """Run the tests on this tree's package: one kernel for every Python, an autograd node for each."""
    python = str(FOLDER / name / "bin/python")
    paths = os.pathsep.join(str(Path(part).resolve()) for part in ("src", "tests"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "pytest", "-q", "-p", "progress", "-n", "auto", "--dist", "worksteal"]
    with log.open("a") as stream:
        subprocess.run(
            [python, "-m", "mlayer.exponential.compile"],
            env=environment,
            stdout=stream,
            stderr=stream,
            check=False,
        )
    done = subprocess.Popen(
        [*command, "--at-most", "1", "--ignore=tests/packaging"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout is not None
    last = ""
    with log.open("a") as stream:
        for line in done.stdout:
            stream.write(line)
            print(line, end="", flush=True)
            last = line.strip() or last
    code = done.wait()
    counts = re.sub(r" in [\d.]+s.*", "", last.strip("= "))
    return counts if code == 0 else f"FAILED, {counts} ({log})"


def main(wanted: list[str]) -> int:
    tools = FOLDER / "tools"
    if not (tools / "bin/uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
        quiet = ["--quiet", "--disable-pip-version-check"]
        if subprocess.run([str(tools / "bin/pip"), "install", *quiet, "uv"], check=False).returncode:
            print("mlayer: uv, which makes the environments, could not be downloaded; offline?")
            return 1
    uv = [str(tools / "bin/uv")]
    lines = []
    for name in wanted or ENVIRONMENTS:
        print(f"--- {name}", flush=True)
        begun, log = time.monotonic(), FOLDER / f"{name}.log"
        problem = make(name, uv, log)
        if problem is None:
            facts = subprocess.run(
                [str(FOLDER / name / "bin/python"), "-c", FACTS], capture_output=True, text=True, check=True
            ).stdout.strip()
            words = f"{facts.replace('Python, ', 'Python ')}: {run_tests(name, log)}"
        else:
            words = problem
        lines.append(f"{name:<8}{words}; {time.monotonic() - begun:.0f} s")
    print("", *lines, sep="\n")
    return int(any("FAILED" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
