"""Samples of processor time by part, for benchmarks/expm_profile.py; needs Linux's perf and addr2line.

The kernel is compiled once more with line tables (the same sources and flags, single precision only) into
out/, so that functions that the compiler put into others have names. Line tables change no instruction.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlayer.exponential import build

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "out" / "expm_profile"

PRODUCTS, SUMS, LAYOUT, SCHEDULE = "products", "linear combinations", "layout", "norms and schedule"
AUTOGRAD, PYTHON, OTHER = "autograd", "Python", "other"
PARTS = (PRODUCTS, SUMS, LAYOUT, SCHEDULE, AUTOGRAD, PYTHON, OTHER)
# Functions of the kernel, the innermost first: the first that is listed names the part.
_FUNCTIONS = (
    (SUMS, r"::apply|::terms|mirror|add_identity|each_diagonal"),
    (PRODUCTS, r"accumulate|::tile|::panel|::part|::both|for_blocks|with_size"),
    (LAYOUT, r"LaneBlock|load_\w+|store_\w+|transpose|embed"),
    (
        SCHEDULE,
        r"norm|schedule|_plan|plan_of|nilpotent|triangular|is_real|not_finite|imbalanced|LaneEntries|\bany<",
    ),
    (SUMS, r"polynomial|squared|ordinary_block|one_matrix|complex_matrix|twofold|TwofoldProducts"),
)
_LIBRARIES = (
    (AUTOGRAD, r"torch|c10|_node"),
    (PYTHON, r"python"),
)


def build_with_lines() -> Path | None:
    """The kernel with line tables, kept until its sources change; None without a compiler."""
    program = build.compiler()
    digest = build.kernel_digest()
    if program is None or digest is None:
        return None
    target = FOLDER / digest[:16] / "_kernel.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)

    def compiled(name: str) -> str:
        text = (build.KERNEL / name).read_text()
        # What is not measured would take most of the time to compile.
        unused = r"\w+::engine<(float|double)>" if "portable" in name else r"\w+::engine<(double)>"
        source = target.with_name(name)
        source.write_text(re.sub(unused, r"Engine<\1>{}", text))
        flags = [*build.COMMON, "-g1", *build.instruction_flags(name), build.digest_flag(digest)]
        object_file = source.with_suffix(".o")
        command = [program, *flags, f"-I{build.KERNEL}", "-c", str(source), "-o", str(object_file)]
        subprocess.run(command, check=True)
        return str(object_file)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sorted(path.name for path in build.KERNEL.glob("*.cpp"))))
    partial = target.with_suffix(".partial")
    subprocess.run([program, "-shared", *objects, "-o", str(partial), "-pthread", "-ldl"], check=True)
    partial.replace(target)
    return target


def use_library(path: str) -> None:
    """Load this kernel instead of the installed one, in the process that is measured."""
    from mlayer.exponential import native

    ctypes.CDLL(path)  # an error here says more
    native.__file__ = str(Path(path).with_name("native.py"))
    if not native.available():
        sys.exit(f"{path}: {native.description()}")


def base_address(library: str) -> int:
    """The address at which this process has a library."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return min(int(line.split("-")[0], 16) for line in lines if line.endswith(library))


def record(pid: int, seconds: float, folder: str) -> str:
    """Sample a running process; the file."""
    data = str(Path(folder) / "perf.data")
    command = ["perf", "record", "-e", "cpu-clock:u", "-F", "999", "-o", data, "-p", str(pid)]
    subprocess.run([*command, "--", "sleep", str(seconds)], check=True, capture_output=True)
    return data


def read(data: str) -> list[tuple[int, str]]:
    """Samples of a file: address and library."""
    # Without names of functions, which perf would look up in all of torch.
    command = ["perf", "script", "-i", data, "-F", "ip,dso"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*([0-9a-f]+) .*?\(([^()]*)\)$", text, re.MULTILINE)
    return [(int(address, 16), library) for address, library in found]


def _chains(library: Path, addresses: list[int]) -> dict[int, list[str]]:
    """Address -> functions there, the innermost first; without line tables the outermost alone."""
    command = ["addr2line", "-a", "-i", "-f", "-C", "-e", str(library)]
    text = "\n".join(hex(address) for address in addresses)
    lines = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found: dict[int, list[str]] = {}
    chain: list[str] = []
    for line in lines:
        if re.fullmatch(r"0x[0-9a-f]+", line):
            chain = found.setdefault(int(line, 16), [])
        else:
            chain.append(line)
    return {address: chain[::2] for address, chain in found.items()}  # a place follows each function


def _short(function: str) -> str:
    """The name alone: that of a product has the function that called it among its arguments."""
    return re.sub(r"\(.*", "", re.sub(r"\{lambda.*", "", function))


def part_of(functions: list[str]) -> str:
    """The part of the kernel that these functions are, the innermost first."""
    for function in map(_short, functions):
        for part, pattern in _FUNCTIONS:
            if re.search(pattern, function):
                return part
    return OTHER


def shares(samples: list[tuple[int, str]], library: Path, base: int) -> dict[str, float]:
    """Part -> share of the samples."""
    counted: Counter[str] = Counter()
    inside = Counter(address - base for address, name in samples if name.endswith("_kernel.so"))
    chains = _chains(library, list(inside)) if inside else {}
    for address, count in inside.items():
        counted[part_of(chains.get(address, []))] += count
    for _, name in samples:
        if not name.endswith("_kernel.so"):
            counted[next((part for part, pattern in _LIBRARIES if re.search(pattern, name)), OTHER)] += 1
    return {part: counted[part] / max(1, len(samples)) for part in PARTS}
