"""The sdist and the wheel: built, looked into, installed into empty environments and tried there (slow)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import mlayer

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
KERNEL = ROOT / "src" / "mlayer" / "exponential" / "kernel"
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
LARGEST_WHEEL = 3_000_000
LARGEST_SDIST = 2_000_000

DOWNSTREAM = """
import torch
import mlayer

layer = mlayer.MLayer(3, 2, matrix_size=4)
reveal_type(layer(torch.zeros(1, 3)))
reveal_type(mlayer.certify)
radius: str = mlayer.expm(torch.zeros(2, 2))
mlayer.MLayer("three", 2)
"""


def test_the_version_is_the_changelogs() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == mlayer.__version__


def test_every_extra_is_in_the_docs() -> None:
    described = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(PROJECT["project"]["optional-dependencies"])


def test_what_messages_tell_to_install_exists() -> None:
    named = {
        extra
        for file in (ROOT / "src").rglob("*.py")
        for extra in re.findall(r"pip install '?mlayer\[([a-z-]+)\]", file.read_text())
    }
    assert named
    assert named <= set(PROJECT["project"]["optional-dependencies"])


@pytest.fixture(scope="module")
def clean_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project without what building and testing has left in it."""
    left = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", "out", "site", "*.egg-info", "__pycache__", "*.so", ".*_cache"
    )
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("copy") / "mlayer", ignore=left))


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MLAYER_EXPM")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def _built(project: Path, out: Path, environment: dict[str, str] | None = None) -> tuple[Path, Path]:
    pytest.importorskip("build", reason="needs the package build")
    _run([sys.executable, "-m", "build", "--outdir", str(out), str(project)], out.parent, environment)
    [sdist], [wheel] = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def built(clean_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was made from it."""
    return _built(clean_copy, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def built_without_compiler(clean_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return _built(clean_copy, tmp_path_factory.mktemp("dist-without"), NO_COMPILER)


@pytest.mark.slow
def test_the_sdist_holds_what_it_takes_to_build_and_to_test(built: tuple[Path, Path]) -> None:
    sdist = built[0]
    assert sdist.name == f"mlayer-{mlayer.__version__}.tar.gz"
    assert sdist.stat().st_size < LARGEST_SDIST
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "Makefile", "constraints.txt", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff"}
    wanted |= {str(file.relative_to(ROOT)) for file in KERNEL.rglob("*.*")}
    for folder in ("src", "tests", "docs", "examples", "benchmarks"):
        for suffix in ("*.py", "*.md", "*.cpp", "*.h"):
            wanted |= {str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob(suffix)}
    wanted |= {str(file.relative_to(ROOT)) for file in (ROOT / "results").glob("*.json")}
    assert not wanted - names
    junk = re.compile(
        r"\.(so|pyc|o|html)$|__pycache__|^(build|dist|out|\.venv|\.git)/|_cache/|^results/.*\.png$"
    )
    assert not {name for name in names if junk.search(name)}


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    wheel = built[1]
    assert wheel.name.startswith(f"mlayer-{mlayer.__version__}-py3-none-")
    assert not wheel.name.endswith("-any.whl"), "was there no compiler?"
    assert wheel.stat().st_size < LARGEST_WHEEL
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.py")}
    node = {"mlayer/exponential/kernel/table.h", "mlayer/exponential/kernel/torch/node.cpp"}
    assert names == sources | node | {"mlayer/py.typed", "mlayer/exponential/_kernel.so"}


@pytest.mark.slow
def test_a_wheel_without_a_kernel_is_for_any_platform(built_without_compiler: tuple[Path, Path]) -> None:
    wheel = built_without_compiler[1]
    assert wheel.name == f"mlayer-{mlayer.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "_kernel" in name]


def _environment(folder: Path, requirement: str, environment: dict[str, str]) -> Path:
    """A new virtual environment with the requirement and all it needs, from nothing."""
    _run([sys.executable, "-m", "venv", str(folder)], folder.parent)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-c", str(ROOT / "constraints.txt"), requirement], folder.parent, environment)
    return python


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "extra", "compiler", "path"),
    [
        pytest.param("wheel", "[cli]", False, "native", id="wheel"),  # a wheel is built already
        pytest.param("sdist", "", True, "native", id="sdist"),
        pytest.param("sdist", "[cli]", False, "matmul", id="sdist without compiler"),
    ],
)
def test_it_works_in_an_empty_environment(  # noqa: PLR0917 - pytest gives them by name
    which: str, extra: str, compiler: bool, path: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    # A place of its own: pip keeps the wheels that it makes of an sdist, by the place that it came from.
    file = Path(shutil.copy(built[which == "wheel"], tmp_path))
    environment = {} if compiler else NO_COMPILER
    python = _environment(tmp_path / "environment", f"mlayer{extra} @ {file.as_uri()}", environment)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    smoke = str(Path(__file__).with_name("smoke.py"))
    _run([str(python), smoke, path], elsewhere, environment | {"HOME": str(elsewhere)})
    _run([str(python), "-m", "pip", "check"], elsewhere)
    if which == "wheel":
        check_types(python, elsewhere)


def check_types(python: Path, folder: Path) -> None:
    """Somebody else's mypy sees our types."""
    pytest.importorskip("mypy", reason="needs mypy")
    (folder / "downstream.py").write_text(DOWNSTREAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "downstream.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout
    assert 'Revealed type is "torch._tensor.Tensor"' in said, said
    assert "def (layer: " in said, said
    assert 'has type "Tensor", variable has type "str"' in said, said
    assert 'Argument 1 to "MLayer" has incompatible type "str"; expected "int"' in said, said
    assert "Found 2 errors" in said, said
