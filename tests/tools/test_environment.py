"""The messages of make during its set-up: one line where a Python, a network or a compiler is missing."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / "tools/environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def old_python(version: tuple[int, int]) -> subprocess.CompletedProcess[str]:
    """The check as a Python of this version would see it."""
    script = (
        "import runpy, sys\n"
        f"sys.version_info, sys.version = {version!r}, '{version[0]}.{version[1]}.1 (main)'\n"
        f"runpy.run_path({str(ROOT / 'tools/old_python.py')!r})\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_an_old_python_is_told_so_in_one_line() -> None:
    done = old_python((3, 8))
    assert done.returncode == 1
    assert done.stderr == (
        "mlayer: Python 3.8.1 is too old, 3.11 or newer is needed; try: make PYTHON=python3.12 ...\n"
    )


def test_the_oldest_that_is_allowed_is_the_one_of_the_package() -> None:
    assert old_python((3, 11)).returncode == 0
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_every_python_can_read_the_check() -> None:
    """No annotation, no f-string, no keyword of later years."""
    code = ast.parse((ROOT / "tools/old_python.py").read_text(), feature_version=(3, 4))
    names = {type(node).__name__ for node in ast.walk(code)}
    assert not names & {"JoinedStr", "AnnAssign", "NamedExpr", "FunctionDef", "ImportFrom"}


def test_make_asks_first() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    (install,) = (line for line in lines if line.startswith("INSTALL :="))
    assert install.index("tools/old_python.py") < install.index("tools/environment.py")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_compiled_modules_are_kept_in_the_environment() -> None:
    """Otherwise, without bytecode, each of hundreds of processes would compile torch again."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE"))}
    show = subprocess.run(
        ["make", "-s", "--eval", "show: ; @env", "show", "VENV=elsewhere"],
        cwd=ROOT,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONOPTIMIZE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = dict(line.split("=", 1) for line in show.stdout.splitlines() if line.startswith("PYTHON"))
    assert "PYTHONDONTWRITEBYTECODE" not in seen
    assert "PYTHONOPTIMIZE" not in seen  # nor is a test without its assert statements
    assert seen["PYTHONPYCACHEPREFIX"] == str(ROOT / "elsewhere/bytecode")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_the_path_of_a_checkout_may_have_spaces(tmp_path: Path) -> None:
    letter = "u" if sys.getfilesystemencoding() == "ascii" else "ü"  # no such name can be made there
    folder = tmp_path / f"my {letter} folder"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    show = subprocess.run(
        ["make", "-s", "--eval", "show: ; @$(CACHE) env", "show"],
        cwd=folder,
        env=inherited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert show.returncode == 0, show.stderr
    assert f"XDG_CACHE_HOME={folder}/.venv/cache" in show.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("WARNING: Retrying ... NewConnectionError('... [Errno 101] Network is unreachable')", "offline"),
        (
            "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
            "offline",
        ),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("Error: ensurepip is not available", "apt install python3-venv"),
        ("ERROR: something of its own", "the installation failed: ERROR: something of its own"),
        ("", "no reason given"),
    ],
)
def test_one_line_about_what_went_wrong(
    words: str, said: str, environment: ModuleType, tmp_path: Path
) -> None:
    log = tmp_path / "install.log"
    log.write_text(f"Looking in indexes: https://example.org/simple\n{words}\n")
    line = environment.explanation(str(log))
    assert said in line
    assert str(log) in line
    assert "\n" not in line


def test_pips_words_go_to_the_log_and_large_downloads_are_shown(
    environment: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pip = (
        "print('Looking in indexes: a')\n"
        "print(\"WARNING: Location 'file:///x' is ignored: it is neither a file nor a directory.\")\n"
        "print('  Downloading https://x/torch-2.13.0-cp311.whl (190.5 MB)')\n"
        "print('  Downloading small-1.0-py3.whl (0.5 MB)')\n"
        "print('Installing collected packages: a, b, c, d, e, f, g, h')\n"
        "raise SystemExit(3)\n"
    )
    log = tmp_path / "install.log"
    with log.open("w") as stream:
        assert environment.run([sys.executable, "-c", pip], stream), "the failure is returned"
    assert (
        capsys.readouterr().out == "mlayer: fetching torch-2.13.0, 190.5 MB\nmlayer: unpacking 8 packages\n"
    )
    assert "WARNING: Location" in log.read_text()


def test_extras_are_resolved_as_in_pyproject(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names = {line.split(">=")[0] for line in environment.requirements("demo")}
    assert {"torch", "numpy", "scikit-learn", "matplotlib", "click", "rich"} <= names
    assert not names & {"ray", "pandas", "onnx", "pytest", "ruff"}, "the demo installs only what it needs"
    assert {"pytest", "ray", "onnx", "pandas"} <= {
        line.split(">=")[0] for line in environment.requirements("test")
    }


def test_without_a_kernel_it_says_what_to_do(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object, **__: Any) -> Any:
        return subprocess.CompletedProcess([], 0, stdout="matmul|no kernel was built (no C++ compiler)\n")

    monkeypatch.setattr(environment.subprocess, "run", without)
    said = environment.kernel_in_use("anywhere")
    assert said.startswith("no kernel was built (no C++ compiler); everything works, slower.")
    assert "make clean" in said
