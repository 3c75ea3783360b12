"""The time of one forward + backward pass, part by part; needs Linux's perf.

    python benchmarks/expm_profile.py                   cells that miss 1.6 times the floors
    python benchmarks/expm_profile.py 12 2048 --isa avx2

Samples of processor time, one thread, by the function that was running: a busy machine makes them fewer
but leaves their shares as they are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CELLS = ((12, 32), (12, 2048), (24, 2048))
SECONDS = 4
LOOP = """
import sys
import torch
from expm_cells import matrices
import mlayer
torch.set_num_threads(1)
A, G = matrices(int(sys.argv[1]), int(sys.argv[2]), torch.float32)
A.requires_grad_()
count = 0
while True:
    torch.autograd.grad(mlayer.expm(A), A, G)
    count += 1
    if count == 3:
        print("ready", flush=True)
"""
# The first pattern that is found in "library symbol" names the part.
PARTS = (
    ("products", r"_kernel\S* .*(tile|part|panel|accumulate)"),
    ("layout, norms, schedule, combinations", r"_kernel"),
    ("autograd and torch", r"torch|c10|_node|libgomp|libstdc"),
    ("Python", r"python"),
    ("other", r""),
)


def shares(n: int, batch: int, isa: str) -> dict[str, float]:
    """Part -> share of the samples."""
    environment = os.environ | {
        "MLAYER_EXPM_ISA": isa,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", LOOP, str(n), str(batch)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child,
    ):
        try:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                sys.exit("the loop did not start")
            data = str(Path(folder) / "perf.data")
            record = ["perf", "record", "-e", "cpu-clock:u", "-F", "999", "-o", data, "-p", str(child.pid)]
            subprocess.run([*record, "--", "sleep", str(SECONDS)], check=True, capture_output=True)
        finally:
            child.kill()
        report = ["perf", "report", "-i", data, "--stdio", "--sort", "dso,symbol", "--percent-limit", "0"]
        lines = subprocess.run(report, check=True, capture_output=True, text=True).stdout.splitlines()
    found = dict.fromkeys((name for name, _ in PARTS), 0.0)
    for line in lines:
        if match := re.match(r"\s*([\d.]+)%\s+(\S+)\s+\[.\] (.*)", line):
            text = f"{match[2]} {match[3]}"
            part = next(name for name, pattern in PARTS if re.search(pattern, text))
            found[part] += float(match[1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cell", type=int, nargs="*", help="n and batch")
    parser.add_argument("--isa", choices=("avx512", "avx2", "portable"), action="append")
    options = parser.parse_args()
    if shutil.which("perf") is None:
        print("perf is not installed")
        return 1
    cells = [tuple(options.cell)] if options.cell else CELLS
    for isa in options.isa or ("avx512", "avx2"):
        for n, batch in cells:
            told = ", ".join(f"{part} {share:.0f} %" for part, share in shares(n, batch, isa).items())
            print(f"{isa} n = {n}, batch {batch}: {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
