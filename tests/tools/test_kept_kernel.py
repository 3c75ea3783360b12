"""`setup.py build_ext --inplace` compiles the kernel where sources have changed, and not otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlayer.exponential.build import kernel_digest

pytest.importorskip("setuptools", reason="needs setuptools")

ROOT = Path(__file__).resolve().parents[2]
EXPONENTIAL = Path("src/mlayer/exponential")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the files that setup.py reads."""
    shutil.copytree(ROOT / EXPONENTIAL / "kernel", tmp_path / EXPONENTIAL / "kernel")
    version = "src/mlayer/version.py"
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE", version, EXPONENTIAL / "build.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    for folder in (EXPONENTIAL, EXPONENTIAL.parent):
        (tmp_path / folder / "__init__.py").touch()
    return tmp_path


def build(project: Path, *options: str) -> bytes | None:
    """The kernel in the tree after a build with a compiler that does nothing but fail."""
    no_compiler = {"CC": "/bin/false", "CXX": "/bin/false", "MLAYER_BUILD_NODE": "0"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", *options]
    subprocess.run(command, cwd=project, env=os.environ | no_compiler, check=True, capture_output=True)
    kernel = project / EXPONENTIAL / "_kernel.so"
    return kernel.read_bytes() if kernel.exists() else None


@pytest.mark.skipif(sys.platform == "win32", reason="another name there")
def test_a_kernel_of_the_present_sources_is_kept(project: Path) -> None:
    """Otherwise make test would compile for minutes what make demo has compiled."""
    digest = kernel_digest()
    assert digest is not None
    content = f"a library that says {digest}".encode()
    kernel = project / EXPONENTIAL / "_kernel.so"
    kernel.write_bytes(content)
    # A newer one of other sources, as the last build may have left it, does not take its place.
    left = project / "build" / "lib" / EXPONENTIAL.relative_to("src")
    left.mkdir(parents=True)
    (left / "_kernel.so").write_bytes(b"of other sources")
    os.utime(kernel, (1.0, 1.0))
    assert build(project, "--build-lib", "build/lib") == content


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="another name there")
@pytest.mark.parametrize("option", ["", "--force"], ids=["other sources", "--force"])
def test_others_are_compiled(project: Path, option: str) -> None:
    (project / EXPONENTIAL / "_kernel.so").write_bytes(str(kernel_digest()).encode())
    if not option:
        with (project / EXPONENTIAL / "kernel" / "chain.h").open("a") as stream:
            stream.write("// changed\n")
    assert build(project, *option.split()) is None  # the compiler failed, and nothing old stays
