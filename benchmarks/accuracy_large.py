"""Claim: beyond the kernel's sizes mlayer.expm is as accurate as SciPy's in double precision.

    python benchmarks/accuracy_large.py        two minutes; exit code 1 if the goal is missed; no file

One random real matrix of each kind of tests/random_gallery.py, at n = 200 and several norms; errors of the
value, normwise and relative, in units of the unit roundoff. The exact value is computed in long double, so
this needs one with 64 bits (x86). The rule: where our error exceeds 4 units, it is at most twice SciPy's.
"""

from __future__ import annotations

import math
import statistics
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.linalg
import torch
from measure import Target, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import mlayer
import random_gallery
from mlayer.numerics.arrays import AnyArray

SIZE, NORMS, SEED = 200, (3.0, 20.0, 100.0), 11
SMALL = 4.0
STEP = 0.25  # ||B^2||^(1/2) of the scaled matrix, for Taylor's polynomial of degree 28
DEGREE = 28


def in_long_double(a: AnyArray) -> AnyArray:
    """exp(A), rounded at 2^-64 in each of the squarings; the first three are made without the identity."""
    squarings = max(3, math.ceil(math.log2(np.linalg.norm(a @ a) ** 0.5 / STEP)))
    b = a.astype(np.longdouble) / np.longdouble(2) ** squarings
    powers = [b, b @ b]
    powers += [powers[1] @ b, powers[1] @ powers[1]]
    factorial = np.cumprod(np.arange(1, DEGREE + 1, dtype=np.longdouble))
    y = np.zeros_like(b)
    for k in range(DEGREE - 4, -1, -4):
        y = powers[3] @ y + sum(power / factorial[k + i] for i, power in enumerate(powers))
    for k in range(squarings):
        y = y @ y + (2 * y if k < 3 else 0)
        if k == 2:
            y += np.eye(len(y), dtype=np.longdouble)
    return np.asarray(y)


def units(computed: AnyArray, exact: AnyArray) -> float:
    error, size = (float(np.linalg.norm(x.astype(float))) for x in (computed - exact, exact))
    return error / size * 2**53


def main() -> int:
    if np.finfo(np.longdouble).nmant < 63:
        print("needs a long double of 64 bits")
        return 1
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pairs, broken = [], 0
    for norm in NORMS:
        for kind, make in random_gallery.KINDS.items():
            a = make(SIZE, norm, torch.Generator().manual_seed(SEED))
            exact = None if a.is_complex() else in_long_double(a.numpy())
            if exact is None or not np.isfinite(exact.astype(float)).all():
                continue
            ours, theirs = (units(x, exact) for x in (mlayer.expm(a).numpy(), scipy.linalg.expm(a.numpy())))
            pairs.append((ours, theirs))
            misses = ours > max(SMALL, 2 * theirs)
            broken += misses
            mark = "BROKEN" if misses else ""
            print(f"{norm:6g} {kind:28} ours {ours:9.3g}  SciPy {theirs:9.3g} {mark}", flush=True)
    reverse = sum(theirs > max(SMALL, 2 * ours) for ours, theirs in pairs)
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    print(f"{len(pairs)} matrices; medians: ours {medians[0]:.2g}, SciPy {medians[1]:.2g}; reverse {reverse}")
    return verdict([Target("cases that break the rule", 0, broken, at_most=True)])


if __name__ == "__main__":
    sys.exit(main())
