"""Builds the kernel with the machine's C++ compiler; without one the install goes on and says so."""

from __future__ import annotations

import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNEL = Path("src/mlayer/exponential/kernel")
COMMON = ["-std=c++17", "-O3", "-g0", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
# Each instruction set is a file of its own, compiled for it alone; entry.cpp chooses at run time.
INSTRUCTIONS = {
    "isa_avx512.cpp": [
        "-mavx512f",
        "-mavx512dq",
        "-mavx512bw",
        "-mavx512vl",
        "-mfma",
        "-mprefer-vector-width=512",
    ],
    "isa_avx2.cpp": ["-mavx2", "-mfma"],
}


class BuildKernel(build_ext):
    """A shared library with plain C entry points, its sources compiled with different flags."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the Python's tag: nothing of Python is called, so that one file serves all of them."""
        return str(Path(*fullname.split("."))) + (".pyd" if sys.platform == "win32" else ".so")

    def build_extension(self, ext: Extension) -> None:
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        try:

            def compiled(source: str) -> list[str]:
                flags = COMMON + (INSTRUCTIONS.get(Path(source).name, []) if x86 else [])
                return self.compiler.compile(
                    [source], output_dir=self.build_temp, extra_postargs=flags, depends=ext.depends
                )

            with ThreadPoolExecutor() as pool:
                objects = [name for names in pool.map(compiled, ext.sources) for name in names]
            self.compiler.link_shared_object(
                objects,
                self.get_ext_fullpath(ext.name),
                extra_postargs=["-pthread"],
                libraries=["dl"] if sys.platform == "linux" else [],
                target_lang="c++",
            )
        except Exception as error:
            # An older kernel must not stand in for the one that failed. (Editable: in the tree.)
            target = Path(self.get_ext_fullpath(ext.name))
            for folder in (target.parent, KERNEL.parent):
                for stale in folder.glob("_kernel.*"):
                    stale.unlink()
            print(f"mlayer: the kernel was not built ({error}).", file=sys.stderr)
            print("mlayer: everything works without it, slower; mlayer.expm_path() says so.", file=sys.stderr)


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
