"""A kernel or a node that was built from other sources than the present ones is not used, and says so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from mlayer.exponential import build, native, node
from mlayer.exponential.build import KERNEL, kernel_digest, node_digest, node_name

needs_kernel = pytest.mark.skipif(not native.available(), reason=native.description())
needs_node = pytest.mark.skipif(not node.available(), reason=node.description())


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(KERNEL, tmp_path / "kernel"))


def test_every_source_and_every_flag_counts(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_digest(sources) == kernel_digest()
    assert node_digest(sources) == node_digest()
    (sources / "README.md").write_text("not compiled")
    assert kernel_digest(sources) == kernel_digest()
    files = [file for file in sorted(sources.rglob("*")) if file.suffix in {".cpp", ".h"}]
    assert len(files) >= 15
    for file in files:
        before = file.read_bytes()
        file.write_bytes(before + b"// another line\n")
        assert (kernel_digest(sources) != kernel_digest()) == (file.parent == sources)
        assert (node_digest(sources) != node_digest()) == (file.name in {"table.h", "node.cpp"})
        file.write_bytes(before)
    (sources / "chain.h").rename(sources / "links.h")
    assert kernel_digest(sources) != kernel_digest()
    built_with = kernel_digest(), node_digest()
    monkeypatch.setattr(build, "COMMON", (*build.COMMON, "-ffast-math"))
    monkeypatch.setattr(build, "NODE", (*build.NODE, "-O0"))
    assert kernel_digest() != built_with[0]
    assert node_digest() != built_with[1]


@needs_kernel
def test_a_kernel_of_other_sources_is_refused(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernel_digest", lambda: kernel_digest(sources))
    assert native._load.__wrapped__()[0] is not None
    with (sources / "twofold.h").open("a") as stream:
        stream.write("// changed after the library was built\n")
    words = (
        r"the kernel _kernel\S* was built from other sources than the present ones: "
        r"python setup.py build_ext --inplace"
    )
    with pytest.warns(UserWarning, match=words + r"\. Until then torch's own products are used, slower\."):
        library, why = native._load.__wrapped__()
    assert library is None
    assert re.fullmatch(words, why)


@needs_kernel
def test_an_installed_wheel_has_no_sources_to_compare_with(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's sources are the only ones that are installed, as pyproject.toml says."""
    for file in sources.glob("*.*"):
        if file.name != "table.h":
            file.unlink()
    assert kernel_digest(sources) is None
    assert node_digest(sources) == node_digest()
    monkeypatch.setattr(native, "kernel_digest", lambda: kernel_digest(sources))
    assert native._load.__wrapped__()[0] is not None


@needs_kernel
def test_the_library_carries_its_digest_where_setup_looks_for_it() -> None:
    wanted = kernel_digest()
    assert wanted is not None
    (library,) = Path(native.__file__).parent.glob("_kernel.*")
    assert wanted.encode() in library.read_bytes()


@needs_node
def test_a_node_of_other_sources_is_refused(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "node_digest", lambda: node_digest(sources))
    folder = Path(node.__file__).parent
    assert node._open(folder)[0] is not None
    assert (folder / node_name(torch.__version__)).exists()
    with (sources / "table.h").open("a") as stream:
        stream.write("// changed after the node was built\n")
    words = (
        "the autograd node was built from other sources than the present ones: "
        "python -m mlayer.exponential.compile"
    )
    with pytest.warns(
        UserWarning, match=re.escape(words) + r"\. Until then ctypes is used, a little slower\."
    ):
        assert node._open(folder) == (None, words)
