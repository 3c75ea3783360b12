"""The compilation of the C++: every flag, and the build of the autograd node for the installed torch.

setup.py builds the kernel with these flags at install, and the node too where torch can be imported then
(``pip install --no-build-isolation``, ``make``). The command of compile.py builds the node later, into the
installed package; without it `expm` goes through ctypes, which costs some microseconds per call.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

KERNEL = Path(__file__).parent / "kernel"
NODE_SOURCE = KERNEL / "torch" / "node.cpp"

COMMON = ("-std=c++17", "-O3", "-g0", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
# Each instruction set is one file, compiled for it alone; entry.cpp chooses at run time.
INSTRUCTIONS = {
    "isa_avx512.cpp": (
        "-mavx512f",
        "-mavx512dq",
        "-mavx512bw",
        "-mavx512vl",
        "-mfma",
        "-mprefer-vector-width=512",
    ),
    "isa_avx2.cpp": ("-mavx2", "-mfma"),
    # For x86 processors without AVX2: compiled in two thirds of the time, up to a tenth slower in float32.
    "isa_portable.cpp": ("-O2",),
}
NODE = ("-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w")


def _digest(sources: list[Path], flags: object) -> str:
    """Digest of names, contents and flags, which a library is compared with before it is used."""
    digest = hashlib.sha256(repr(flags).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


def kernel_digest(folder: Path = KERNEL) -> str | None:
    """Digest of the kernel's sources and flags; None where there are none, as in an installed wheel."""
    sources = sorted(file for file in folder.glob("*") if file.suffix in {".cpp", ".h"})
    if not any(source.name == "entry.cpp" for source in sources):
        return None
    return _digest(sources, (COMMON, sorted(INSTRUCTIONS.items())))


def node_digest(folder: Path = KERNEL) -> str:
    """Digest of the node's sources and flags, which every installation has."""
    return _digest([folder / "table.h", folder / "torch" / "node.cpp"], NODE)


def digest_flag(digest: str | None) -> str:
    """For the compiler: the digest that the library will carry."""
    return f'-DMLAYER_SOURCE_DIGEST="{digest or ""}"'


def instruction_flags(source: str | Path) -> list[str]:
    """The flags of a source file of the kernel on this machine, in addition to `COMMON`."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return list(INSTRUCTIONS.get(Path(source).name, ())) if x86 else []


def compiler() -> str | None:
    """The C++ compiler: $CXX, or the first of the usual names."""
    wanted = os.environ.get("CXX")
    names = [wanted.split()[0]] if wanted else ["g++", "clang++", "c++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def node_name(torch_version: str) -> str:
    """File name of the node: for one torch and one Python, because it calls into both."""
    return f"_node.torch-{torch_version}{sysconfig.get_config_var('EXT_SUFFIX')}"


def build_node(folder: Path) -> Path:
    """Compile the node against the torch of this Python; RuntimeError says what went wrong."""
    import torch

    program = compiler()
    if program is None or sys.platform == "win32":
        raise RuntimeError("there is no C++ compiler")
    home = Path(torch.__file__).parent
    include = [home / "include", home / "include/torch/csrc/api/include", sysconfig.get_path("include")]
    target = folder / node_name(torch.__version__)
    partial = target.with_suffix(f".{os.getpid()}.partial")
    command = [
        program,
        *NODE,
        digest_flag(node_digest()),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(f"-I{path}" for path in include),
        str(NODE_SOURCE),
        "-shared",
        *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()),
        f"-L{home / 'lib'}",
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
        *("-o", str(partial)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stderr[-2000:]}")
        partial.replace(target)  # whole or not at all
    except OSError as error:
        raise RuntimeError(str(error)) from error
    finally:
        partial.unlink(missing_ok=True)
    return target
