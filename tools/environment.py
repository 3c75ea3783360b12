"""Makes the virtual environment that make demo and make test run in, and says in one line what went wrong.

    python3 tools/environment.py .venv demo              what `mlayer demo` needs
    python3 tools/environment.py .venv test,lint,bench   what tests, linters and benchmarks need

pip's output goes to install.log in the environment; what is shown is what takes time. The kernel compiles
while pip downloads, without its autograd node, which would wait for torch and which the demo does not need
(make builds it for the tests). Whether this Python is new enough was asked before, by old_python.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from typing import TextIO

LARGE_MEGABYTES = 10  # a download of this size is worth a line
LARGE = r"\s*(?:Downloading|Using cached|Processing) (?:.*/)?(\S+) \(([0-9.]+) MB\)"
# What the demo imports, and matplotlib's list of fonts: Python's compiled modules are made while pip is busy.
FIRST_IMPORTS = "import torch, sympy, scipy.optimize, matplotlib.font_manager, matplotlib.figure, rich.table"
CAUSES = (
    (
        "NewConnectionError|NameResolutionError|name resolution|Network is unreachable|Connection refused"
        "|ConnectTimeout|ReadTimeout|ProxyError|Max retries exceeded|from versions: none",
        "packages could not be downloaded; is this machine offline, or behind a proxy unknown to pip?",
    ),
    ("No space left on device", "the disk is full; the environment takes 2 to 3 GB"),
    (
        "ensurepip is not available|No module named '?(venv|ensurepip)",
        "this Python came without venv; on Debian or Ubuntu: apt install python3-venv",
    ),
)


def main(arguments: list[str]) -> int:
    folder, extras, *pip_flags = arguments
    os.makedirs(folder, exist_ok=True)
    begun = time.time()
    log_name = os.path.join(folder, "install.log")
    with open(log_name, "w", encoding="utf-8", errors="replace") as log:
        failed = install(folder, extras, pip_flags, log)
    if failed:
        say(explanation(log_name))
        return 1
    say(f"ready after {time.time() - begun:.0f} s: {kernel_in_use(folder)}")
    return 0


def install(folder: str, extras: str, pip_flags: list[str], log: TextIO) -> bool:
    """True if something failed."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        say(f"making {folder}; torch and others are a few hundred megabytes to download")
        if run([sys.executable, "-m", "venv", folder], log):
            return True
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    pip += ["--no-compile", "--retries=2", "-c", "constraints.txt", *pip_flags]
    if run([*pip, "setuptools>=77"], log):
        return True
    os.environ["MLAYER_BUILD_NODE"] = "0"
    # setup.py leaves the kernel in the tree, where the editable install finds it newer than its sources.
    build = [python, "setup.py", "-q", "build_ext", "--inplace"]
    kernel = threading.Thread(target=run, args=(build, log, False))
    kernel.start()
    failed = run([*pip, *requirements(extras)], log)
    imports = threading.Thread(target=run, args=([python, "-c", FIRST_IMPORTS], log, False))
    imports.start()
    if kernel.is_alive():
        say("compiling the kernel")
    kernel.join()
    failed = failed or run([*pip, "--no-build-isolation", "--no-deps", "-e", "."], log)
    imports.join()
    return failed


def requirements(extras: str) -> list[str]:
    """The dependencies of the package with these extras, from pyproject.toml."""
    import tomllib

    with open("pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    found: list[str] = list(project["dependencies"])
    left = extras.split(",")
    while left:
        for line in project["optional-dependencies"][left.pop()]:
            inner = re.fullmatch(r"mlayer\[(.*)\]", line)
            if inner:
                left += inner.group(1).split(",")
            elif line not in found:
                found.append(line)
    return found


def run(command: list[str], log: TextIO, shown: bool = True) -> bool:
    """Run it with its output in the log; True if it failed."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            large = re.match(LARGE, line)
            if shown and large and float(large.group(2)) >= LARGE_MEGABYTES:
                say(f"fetching {'-'.join(large.group(1).split('-')[:2])}, {large.group(2)} MB")
            elif shown and line.startswith("Installing collected packages") and line.count(",") > 5:
                say(f"unpacking {line.count(',') + 1} packages")
    return process.returncode != 0


def explanation(log_name: str) -> str:
    """One line about what the log ends with."""
    with open(log_name, encoding="utf-8", errors="replace") as file:
        text = file.read()
    for pattern, words in CAUSES:
        if re.search(pattern, text):
            return f"{words} (pip's output: {log_name})"
    errors = [line.strip() for line in text.splitlines() if "error" in line.lower()]
    last = errors[-1] if errors else "no reason given"
    return f"the installation failed: {last} (pip's output: {log_name})"


def kernel_in_use(folder: str) -> str:
    """The implementation that computes exponentials there, and what to do if it is not the kernel."""
    code = "import mlayer; path = mlayer.expm_path(); print(path.name, path.reason, sep='|')"
    out = subprocess.run(
        [os.path.join(folder, "bin", "python"), "-c", code], stdout=subprocess.PIPE, text=True, check=False
    )
    name, _, reason = out.stdout.strip().partition("|")
    if name == "native":
        return reason
    return f"{reason}; everything works, slower. With g++ or clang++ on the machine: make clean, then again"


def say(words: str) -> None:
    print(f"mlayer: {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
