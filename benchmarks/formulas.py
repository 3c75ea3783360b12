"""Claim: a trained M-layer can be read back as the formula that made its data.

    python benchmarks/formulas.py                 half an hour on one core; writes results/formulas.json
    python benchmarks/formulas.py --laws falling  only some; the others stay in the file
    python benchmarks/formulas.py --quick         a few steps of two laws, to see that it runs; no file

Laws of physics and mathematics, polynomial and periodic, with and without noise (Gaussian, given as a share
of the spread of the target). A full M-layer (no structure, no hint of the terms) is trained with Adam and
L-BFGS from some starts, the best on held-out data is read with `mlayer.symbolic.read_formula`, given the
training data. Compared with what a user would pick instead: PolynomialFeatures and LassoCV, the degree by
cross-validation; and gplearn's symbolic regression where it is installed. "recovered": the same terms and no
other, every number within 1 % of the largest; "exact": to 1e-9. The outcome is reported; nothing is
asserted.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch
from measure import argument_parser, circumstances
from torch import Tensor

import mlayer
from mlayer.symbolic import read_formula
from mlayer.symbolic.compile.wave_terms import Wave, growth_and_frequency, waves_of
from mlayer.symbolic.parse.expressions import parse

RESULT = Path(__file__).resolve().parents[1] / "results" / "formulas.json"
NOISES = (0.0, 0.01)
COUNT, HELD_OUT = 1200, 300


@dataclass(frozen=True)
class Law:
    """A formula, its variables and the box of the data."""

    formula: str
    variables: str
    low: float
    high: float
    matrix_size: int = 8
    turning: bool = False  # starts with turning generators


LAWS = {
    "determinant 3 x 3": Law("a*e*i - a*f*h - b*d*i + b*f*g + c*d*h - c*e*g", "a b c d e f g h i", -1, 1, 9),
    "kinetic energy": Law("m*(u**2 + v**2 + w**2)/2", "m u v w", -2, 2),
    "dot product": Law("a*x + b*y + c*z", "a b c x y z", -2, 2),
    "potential energy": Law("m*g*z", "m g z", 0, 2),
    "field energy density": Law("k*E1**2/2", "k E1", 0, 2),
    "oscillator energy": Law("m*(v**2 + s**2)*x**2/4", "m v s x", -1.5, 1.5, 10),
    "falling body": Law("h + v*t - 4.9*t**2", "h v t", 0, 2),
    "gas energy": Law("1.5*p*V", "p V", 0, 2),
    "two cosines": Law("2*cos(3*t) + 0.7*cos(7*t + 0.5)", "t", 0, 4, 6, True),
    "damped oscillation": Law("exp(-0.4*t)*cos(5*t)", "t", 0, 4, 4, True),
    "beat": Law("cos(6*t)*cos(t)", "t", 0, 5, 6, True),
    "Rabi probability": Law("sin(2*t)**2", "t", 0, 4, 4, True),
    "traveling wave": Law("1.5*sin(2*x - 3*t)", "x t", -1.5, 1.5, 6, True),
    "Lorentz force": Law("q*(E1 + v*sin(s))", "q E1 v s", -2, 2, 10),
}


def turning(layer: mlayer.MLayer, generator: torch.Generator | None) -> None:
    """Start with rotations of random speed, so that a periodic law need not be found from a plateau."""
    n = layer.matrix_size
    for parameter in layer.parameters():
        parameter.normal_(0, 0.05, generator=generator)
    for a in range(layer.generator_count):
        for k in range(0, n - 1, 2):
            speed = 8 * torch.rand((), generator=generator).item()
            layer.free_generators[a, k, k + 1] += speed
            layer.free_generators[a, k + 1, k] -= speed
    layer.readout.normal_(0, 0.3, generator=generator)


def train(law: Law, x: Tensor, y: Tensor, seed: int, steps: int) -> tuple[mlayer.MLayer, float]:
    """A layer and its error on the held-out rows."""
    layer = mlayer.MLayer(
        x.shape[1],
        1,
        matrix_size=law.matrix_size,
        embedding_size=None,
        matrix_bias=not law.turning or x.shape[1] > 1,
        init=turning if law.turning else "balanced",
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    )
    split = len(x) - HELD_OUT
    optimizer = torch.optim.Adam(layer.parameters(), 0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rows = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(0, split, (128,), generator=rows)
        loss = (layer(x[batch]) - y[batch]).square().mean()
        if not loss.isfinite():
            return layer, math.inf
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    polish = torch.optim.LBFGS(layer.parameters(), max_iter=steps // 4, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        polish.zero_grad()
        loss = (layer(x[:split]) - y[:split]).square().mean()
        loss.backward()
        return loss

    polish.step(closure)
    with torch.no_grad():
        error = (layer(x[split:]) - y[split:]).square().mean().sqrt().item()
    return layer, error if math.isfinite(error) else math.inf


def judge(found: Any, law: Law) -> str:
    """Whether a formula is the law: exact, recovered or no."""
    symbols = sympy.symbols(law.variables.split())
    truth = parse(law.formula, {s.name: s for s in symbols})
    try:
        one, other = waves_of([sympy.sympify(found), truth], symbols)
    except (mlayer.MLayerError, TypeError, ValueError):
        return "no"
    for tolerance, word in ((1e-9, "exact"), (1e-2, "recovered")):
        if _same(one, other, len(symbols), tolerance):
            return word
    return "no"


def _same(one: list[Wave], other: list[Wave], variables: int, tolerance: float) -> bool:
    def rates(wave: Wave) -> list[float]:
        return [float(r) for part in growth_and_frequency(wave.rates, variables) for r in part]

    scale = max(abs(float(c)) for w in other for p in (w.cosine, w.sine) for c in p.values())
    fastest = max([1.0, *(abs(r) for w in other for r in rates(w))])
    if len(one) != len(other):
        return False
    left = list(other)
    for wave in one:
        near = [
            w
            for w in left
            if all(abs(a - b) <= tolerance * fastest for a, b in zip(rates(wave), rates(w), strict=True))
        ]
        if not near:
            return False
        left.remove(near[0])
        for p, q in ((wave.cosine, near[0].cosine), (wave.sine, near[0].sine)):
            if any(abs(float(p.get(key, 0) - q.get(key, 0))) > tolerance * scale for key in {*p, *q}):
                return False
            # A polynomial must have the same terms; a phase may leave a trace of the other function.
            if not any(imaginary for _, _, imaginary in wave.rates) and set(p) != set(q):
                return False
    return True


def polynomial_and_lasso(x: np.ndarray, y: np.ndarray, names: list[str]) -> Any:
    """PolynomialFeatures and LassoCV, as a user would: degree by cross-validation, tiny terms dropped."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LassoCV
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    best: tuple[float, Any] | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for degree in range(1, 6):
            if math.comb(len(names) + degree, degree) > 500:
                break
            model = make_pipeline(
                PolynomialFeatures(degree, include_bias=False), StandardScaler(), LassoCV(cv=3, max_iter=5000)
            )
            score = float(cross_val_score(model, x, y, cv=3).mean())
            if best is None or score > best[0] + 1e-6:
                best = (score, model)
        if best is None:
            return sympy.Integer(0)
        model = best[1].fit(x, y)
    powers = model[0].powers_
    effects = model[2].coef_
    coefficients = effects / model[1].scale_
    constant = float(model[2].intercept_ - (coefficients * model[1].mean_).sum())
    symbols = sympy.symbols(names)
    terms = [
        float(c) * sympy.Mul(*[s ** int(k) for s, k in zip(symbols, p, strict=True)])
        for p, c, effect in zip(powers, coefficients, effects, strict=True)
        if abs(effect) > 0.01 * np.abs(effects).max()
    ]
    return sympy.Add(*terms, constant if abs(constant) > 0.01 * y.std() else 0)


def genetic(x: np.ndarray, y: np.ndarray, names: list[str]) -> Any | None:
    """Symbolic regression by gplearn with its defaults and sin, cos; None if it is not installed."""
    try:
        from gplearn.genetic import SymbolicRegressor  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    model = SymbolicRegressor(
        population_size=1000,
        generations=15,
        function_set=("add", "sub", "mul", "sin", "cos"),
        const_range=(-5.0, 5.0),
        feature_names=names,
        parsimony_coefficient=0.001,
        random_state=0,
    )
    model.fit(x, y)
    symbols = {name: sympy.Symbol(name) for name in names}
    functions: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "sin": sympy.sin,
        "cos": sympy.cos,
    }
    return sympy.sympify(str(model._program), locals={**symbols, **functions})


def run(law: Law, noise: float, starts: int, steps: int) -> dict[str, Any]:
    """One row of the table."""
    names = law.variables.split()
    symbols = sympy.symbols(names)
    truth = parse(law.formula, {s.name: s for s in symbols})
    generator = torch.Generator().manual_seed(7)
    x = law.low + (law.high - law.low) * torch.rand(
        COUNT, len(names), dtype=torch.float64, generator=generator
    )
    call = sympy.lambdify(list(symbols), truth, "numpy")
    clean = torch.as_tensor(call(*x.T.numpy()))[:, None]
    y = clean + noise * clean.std() * torch.randn(clean.shape, dtype=torch.float64, generator=generator)
    start = time.perf_counter()
    runs = [train(law, x, y, seed, steps) for seed in range(starts)]
    layer, error = min(runs, key=lambda pair: pair[1])
    trained = time.perf_counter() - start
    start = time.perf_counter()
    formula = read_formula(layer, names, data=(x, y))
    alone = read_formula(layer, names, data=x)
    read = time.perf_counter() - start
    found = formula.expressions[0]
    with torch.no_grad():
        against_model = float(np.sqrt(np.mean((formula(x) - layer(x).numpy()) ** 2)))
    spread = float(clean.std())
    row: dict[str, Any] = {
        "formula": law.formula,
        "noise": noise,
        "model error": error / spread,
        "held-out errors of the starts": [e / spread if math.isfinite(e) else None for _, e in runs],
        "parameters": sum(p.numel() for p in layer.parameters()),
        "found": str(found),
        "method": formula.method,
        "verdict": judge(found, law),
        "formula against model": against_model / spread,
        "formula against truth": float(np.sqrt(np.mean((formula(x) - clean.numpy()) ** 2))) / spread,
        "found without targets": str(alone.expressions[0])[:400],
        "verdict without targets": judge(alone.expressions[0], law),
        "seconds to train": round(trained, 1),
        "seconds to read": round(read, 1),
    }
    lasso = polynomial_and_lasso(x.numpy(), y[:, 0].numpy(), names)
    row["lasso"] = {"found": str(lasso.evalf(4))[:400], "verdict": judge(lasso, law)}
    other = genetic(x.numpy(), y[:, 0].numpy(), names)
    if other is not None:
        row["gplearn"] = {"found": str(other.evalf(4))[:400], "verdict": judge(other, law)}
    return row


def table(record: dict[str, Any]) -> str:
    """The results for the docs."""
    lines = [
        "| law | noise | error of the layer | read with the data | layer alone | Lasso | gplearn |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in LAWS:
        for noise, row in record["laws"].get(name, {}).items():
            cells = [
                f"{name}: `{row['formula']}`",
                f"{float(noise):.0%}",
                f"{row['model error']:.2g}",
                row["verdict"],
                row["verdict without targets"],
                row["lasso"]["verdict"],
                row.get("gplearn", {}).get("verdict", "-"),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Train, read, print, write."""
    parser = argument_parser("Formulas read back from trained M-layers.", "a smoke run: no file")
    parser.add_argument("--laws", help="names (or beginnings of them), separated by commas")
    parser.add_argument("--table", action="store_true", help="print the results as a table; no runs")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.output.read_text())))
        return 0
    torch.set_num_threads(1)
    chosen = list(LAWS)
    if arguments.laws:
        chosen = [n for n in LAWS if any(n.startswith(part.strip()) for part in arguments.laws.split(","))]
    if arguments.quick:
        for name in ("gas energy", "Rabi probability"):
            print(name, run(LAWS[name], 0.0, 1, 40)["found"])
        print("quick: a smoke run, nothing is written")
        return 0
    path: Path = arguments.output
    record = json.loads(path.read_text()) if path.exists() else {}
    record["setting"] = circumstances() | {
        "data": f"{COUNT} points, the last {HELD_OUT} held out to choose among the starts",
    }
    rows = record.setdefault("laws", {})
    for name in chosen:
        for noise in NOISES:
            law = LAWS[name]
            row = run(law, noise, 3 if law.turning else 2, 2000)
            rows.setdefault(name, {})[str(noise)] = row
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, indent=1) + "\n")  # each finished law is kept
            print(
                f"{name:22} noise {noise:g}: {row['verdict']:9} ({row['method']}) {row['found'][:70]}"
                f" | model {row['model error']:.2g} | without targets {row['verdict without targets']}"
                f" | lasso {row['lasso']['verdict']}"
                + (f" | gplearn {row['gplearn']['verdict']}" if "gplearn" in row else ""),
                flush=True,
            )
    print(
        f"{sum(r['verdict'] != 'no' for law in rows.values() for r in law.values())} of "
        f"{sum(len(law) for law in rows.values())} recovered"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
