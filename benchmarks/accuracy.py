"""Claim: in double precision mlayer.expm is as accurate as SciPy's everywhere, and fails far less often.

    python benchmarks/accuracy.py            writes results/accuracy.json; exit code 1 if a goal is missed
    python benchmarks/accuracy.py --random 50 --seed 3      other random matrices, 50 of each kind; no file

Value and derivative of every matrix of tests/gallery.py, which were chosen, and of random matrices of the
kinds of tests/random_gallery.py, which nobody tuned to, against Arb, compared with SciPy's expm and
expm_frechet. Errors are normwise and relative, in units of the unit roundoff. The rule: where our error
exceeds 4 units, it is at most twice SciPy's. A failure, counted on the gallery, is an error of more than 10
units times the condition number of the exponential there (or 1, if that is larger), or a result that is not
finite.
"""

from __future__ import annotations

import math
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import scipy
import scipy.linalg
import torch
from measure import Target, argument_parser, circumstances, save, verdict
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import gallery
import mlayer
import oracle
import random_gallery
from mlayer.exponential.schedule import one_norm, root_of_square_norm, schedule_for

UNIT_ROUNDOFF = 2.0**-53
SMALL, FAILURE = 4.0, 10.0
OF_EACH_KIND = 40


def real_form(a: Tensor) -> Tensor:
    """Arb's side of complex matrices."""
    if not a.is_complex():
        return a
    return torch.cat([torch.cat([a.real, -a.imag], 1), torch.cat([a.imag, a.real], 1)])


def direction(a: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(a.shape, dtype=a.dtype, generator=generator)


def ours(a: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """exp(A), and L(A, E) as the gradient at the adjoint, which is what users differentiate."""
    leaf = a.mH.resolve_conj().contiguous().requires_grad_()
    return mlayer.expm(a), torch.autograd.grad(mlayer.expm(leaf), leaf, e)[0]


def scipys(a: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = scipy.linalg.expm(a.numpy())
        derivative = scipy.linalg.expm_frechet(a.numpy(), e.numpy(), compute_expm=False)
    return torch.from_numpy(value), torch.from_numpy(derivative)


def measure(name: str, a: Tensor) -> dict[str, Any]:
    e = direction(a)
    exact = oracle.exact_exp(oracle.to_arb(real_form(a)))
    exact_derivative = oracle.exact_frechet(oracle.to_arb(real_form(a)), oracle.to_arb(real_form(e)))
    row: dict[str, Any] = {"name": name}
    for who, (value, derivative) in {"mlayer": ours(a, e), "scipy": scipys(a, e)}.items():
        errors = (
            oracle.relative_error(real_form(value), exact),
            oracle.relative_error(real_form(derivative), exact_derivative),
        )
        row[who] = [error / UNIT_ROUNDOFF for error in errors]
    return row


def condition(a: Tensor) -> float:
    return max(1.0, oracle.condition_number(real_form(a)))


def squarings(a: Tensor) -> int:
    """The number of squarings for the norm of A^2, some of which balancing may save."""
    d = float(root_of_square_norm((a @ a)[None]).minimum(one_norm(a[None])))
    return schedule_for(a.dtype).squarings(d)


def broken(row: dict[str, Any], who: str = "mlayer", other: str = "scipy") -> list[str]:
    """The cases in which the rule does not hold."""
    return [
        what for k, what in enumerate(("value", "derivative")) if row[who][k] > max(SMALL, 2 * row[other][k])
    ]


def failures(rows: list[dict[str, Any]], who: str) -> int:
    return sum(not row[who][k] <= FAILURE * row["condition"] for row in rows for k in range(2))


def show(row: dict[str, Any]) -> None:
    marks = " ".join(f"BROKEN: {what}" for what in broken(row))
    mine, theirs = row["mlayer"], row["scipy"]
    print(
        f"{row['name']:44} condition {row['condition']:8.2g}  value {mine[0]:8.2g} / {theirs[0]:8.2g}  "
        f"derivative {mine[1]:8.2g} / {theirs[1]:8.2g} {marks}",
        flush=True,
    )


def of_gallery() -> list[dict[str, Any]]:
    rows = []
    for name, a in gallery.MATRICES.items():
        rows.append(measure(name, a) | {"condition": condition(a)})
        show(rows[-1])
    return rows


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=1000, method="inclusive")
    places = {"median": 499, "95 %": 949, "99 %": 989, "99.9 %": 998}
    return {name: cuts[place] for name, place in places.items()} | {"largest": max(values)}


def of_random(count: int, seed: int) -> dict[str, Any]:
    """The distribution of the errors, and the cases that break the rule, ours and SciPy's."""
    rows, missed = [], []
    for kind, name, a in random_gallery.matrices(count, seed):
        row = measure(name, a) | {"kind": kind}
        if broken(row):
            row |= {"condition": condition(a), "squarings": squarings(a)}
            missed.append(row)
            show(row)
        rows.append(row)
    whose = {"mlayer": "scipy", "scipy": "mlayer"}
    return {
        "seed": seed,
        "of_each_kind": count,
        "kinds": len(random_gallery.KINDS),
        "cases": 2 * len(rows),
        "errors": {who: quantiles([x for row in rows for x in row[who]]) for who in whose},
        "beyond_4": {who: sum(x > SMALL for row in rows for x in row[who]) for who in whose},
        "broken": {who: sum(len(broken(row, who, other)) for row in rows) for who, other in whose.items()},
        "broken_by_kind": {
            kind: [
                sum(len(broken(row, who, other)) for row in rows if row["kind"] == kind)
                for who, other in whose.items()
            ]
            for kind in random_gallery.KINDS
        },
        "broken_by_squarings": {
            s: sum(len(broken(row)) for row in missed if row["squarings"] == s)
            for s in sorted({row["squarings"] for row in missed})
        },
        "rows": missed,
    }


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--random", type=int, metavar="COUNT", help="only random ones, this many of a kind")
    parser.add_argument("--seed", type=int, default=1, help="of the random matrices")
    options = parser.parse_args()
    rows = [] if options.random else of_gallery()
    random = of_random(options.random or OF_EACH_KIND, options.seed)
    ratios = [row["mlayer"][k] / max(row["scipy"][k], SMALL / 2) for row in rows for k in range(2)]
    targets = [
        Target("cases that break the rule", 0, sum(len(broken(row)) for row in rows), at_most=True),
        Target(
            "failures, ours over SciPy's",
            0.5,
            failures(rows, "mlayer") / max(1, failures(rows, "scipy")),
            at_most=True,
        ),
        Target("largest ratio to SciPy's error", 2, max(ratios, default=math.nan), at_most=True),
    ]
    if options.random:
        targets = []
    targets.append(
        Target("random matrices: cases that break the rule", 0, random["broken"]["mlayer"], at_most=True)
    )
    print({name: random[name] for name in ("cases", "errors", "beyond_4", "broken", "broken_by_squarings")})
    content = {
        "circumstances": circumstances() | {"others": {"scipy": scipy.__version__}},
        "matrices": len(rows),
        "failures": {who: failures(rows, who) for who in ("mlayer", "scipy")},
        "rows": rows,
        "random": random,
        "targets": [target.record for target in targets],
    }
    if not options.random:
        save("accuracy", content)
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())
