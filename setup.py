"""Builds the kernel with the machine's C++ compiler; without one the install goes on and says so."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/mlayer/exponential")
KERNEL = PACKAGE / "kernel"
# The flags, and the build of the autograd node: a file without imports from mlayer, run where it stands.
build_py: dict[str, Any] = runpy.run_path(str(PACKAGE / "build.py"))


class BuildKernel(build_ext):
    """A shared library with plain C entry points, its sources compiled with different flags."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the Python's tag: nothing of Python is called, so that one file serves all of them."""
        return str(Path(*fullname.split("."))) + (".pyd" if sys.platform == "win32" else ".so")

    def run(self) -> None:
        # `--inplace` is taken back while extensions are built.
        self.for_the_tree = bool(self.inplace) or self.editable_mode
        super().run()

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        # One that `build_ext --inplace` left in the tree, for make demo or while pip downloaded, is kept.
        built = PACKAGE / target.name
        digest = build_py["kernel_digest"]()
        if self.for_the_tree and not self.force and built.exists() and digest.encode() in built.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, target)  # not copy_file, which would keep a newer file of other sources
            print("mlayer: the kernel is up to date; --force compiles it all the same.", file=sys.stderr)
        elif not self.compile_kernel(ext, target, digest):
            return
        self.build_node(target.parent)

    def compile_kernel(self, ext: Extension, target: Path, digest: str) -> bool:
        """False, and no kernel, if it fails."""
        try:

            def compiled(source: str) -> list[str]:
                flags = [*build_py["COMMON"], *build_py["instruction_flags"](source)]
                flags.append(build_py["digest_flag"](digest))
                return self.compiler.compile(
                    [source], output_dir=self.build_temp, extra_postargs=flags, depends=ext.depends
                )

            with ThreadPoolExecutor() as pool:
                objects = [name for names in pool.map(compiled, ext.sources) for name in names]
            self.compiler.link_shared_object(
                objects,
                str(target),
                extra_postargs=["-pthread"],
                libraries=["dl"] if sys.platform == "linux" else [],
                target_lang="c++",
            )
        except Exception as error:
            # An older kernel must not stand in for the one that failed. (Editable: in the tree.)
            for folder in (target.parent, PACKAGE):
                for stale in folder.glob("_kernel.*"):
                    stale.unlink()
            print(f"mlayer: the kernel was not built ({error}).", file=sys.stderr)
            print("mlayer: everything works without it, slower; mlayer.expm_path() says so.", file=sys.stderr)
            return False
        return True

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        for ext in self.extensions:
            # The kernel was built there and has been copied; by now get_ext_fullpath leads to the sources.
            for node in Path(self.build_lib, *ext.name.split(".")[:-1]).glob("_node.*"):
                shutil.copy(node, PACKAGE)

    def build_node(self, folder: Path) -> None:
        """The autograd node, where the environment of the build has torch; ctypes serves without it."""
        for stale in folder.glob("_node.*"):
            stale.unlink()
        if os.environ.get("MLAYER_BUILD_NODE") == "0":
            written = max(
                source.stat().st_mtime for source in (KERNEL / "torch/node.cpp", KERNEL / "table.h")
            )
            for old in PACKAGE.glob("_node.*"):
                if old.stat().st_mtime < written:
                    old.unlink()
            return
        if find_spec("torch") is None:
            print("mlayer: no torch in this build, so no autograd node; build it later with", file=sys.stderr)
            print("mlayer:   python -m mlayer.exponential.compile", file=sys.stderr)
            return
        try:
            build_py["build_node"](folder)
        except Exception as error:
            print(f"mlayer: the autograd node was not built ({error}); ctypes serves.", file=sys.stderr)


class HonestWheel(bdist_wheel):
    """Named for what is in it: this platform if there is a kernel, any if there is none; any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        platform_tag = super().get_tag()[2]
        built = any(Path(self.bdist_dir).rglob("_kernel.*"))
        return "py3", "none", platform_tag if built else "any"


setup(
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": HonestWheel},
    ext_modules=[
        Extension(
            "mlayer.exponential._kernel",
            sources=[str(source) for source in sorted(KERNEL.glob("*.cpp"))],
            depends=[str(header) for header in sorted(KERNEL.glob("*.h"))],
            language="c++",
            optional=True,
        )
    ],
)
