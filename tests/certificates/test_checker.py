"""The checker against rational arithmetic and mpmath, against wrong claims, and as an independent program."""

from __future__ import annotations

import ast
import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import torch

from certificate_layers import KINDS, random_layer
from mlayer import MLayer
from mlayer.certificates import Certifier, checker
from mlayer.certificates.checker import Checker, Layer, ProofError, ProofRegion, digest, read_proof
from mlayer.certificates.checker.balls import (
    exponential_tail,
    matrix,
    positive_definite,
    precision,
    upper_root,
)
from mlayer.certificates.checker.exponential import Exponential
from mlayer.certificates.checker.frame import partial_transpose
from mlayer.certificates.proofs import Prover, check_rows
from proof_cases import Case, proved_case

REGIONS = (("linf", None), ("linf", (-0.2, 1.3)), ("l2", None))


def test_it_imports_nothing_of_the_certifier() -> None:
    for file in Path(checker.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [str(node.module)]
            for name in names:
                own = name.startswith("mlayer.certificates.checker")
                assert own or name == "flint" or name.split(".")[0] in sys.stdlib_module_names, (file, name)


# ---- Its pieces. ----------------------------------------------------------------------------------


def test_positive_definite_says_what_the_leading_minors_say() -> None:
    chooser = random.Random(0)
    found = {True: 0, False: 0}
    for _ in range(150):
        n = chooser.randint(1, 5)
        A = flint.fmpq_mat(n, n, [chooser.randint(-3, 3) for _ in range(n * n)])
        A = A * A.transpose() + flint.fmpq_mat(n, n, [3 * (r == c) - 2 for r in range(n) for c in range(n)])
        minors = [
            flint.fmpq_mat(k, k, [A[r, c] for r in range(k) for c in range(k)]).det() for k in range(1, n + 1)
        ]
        truth = all(minor > 0 for minor in minors)
        if all(minor != 0 for minor in minors):
            found[truth] += 1
            entries = [flint.arb(int(A[r, c].p)) for r in range(n) for c in range(n)]
            assert positive_definite(matrix(n, n, entries)) == truth
    assert min(found.values()) > 20


def test_a_matrix_that_may_be_singular_is_not_positive_definite() -> None:
    ball = flint.arb(1, 1e-10)
    assert not positive_definite(matrix(2, 2, [ball, ball, ball, ball]))
    assert not positive_definite(matrix(2, 2, [1.0, 1.0, 1.0, 1.0]))
    assert positive_definite(matrix(2, 2, [1.0, 1.0 - 2**-40, 1.0 - 2**-40, 1.0]))


@pytest.mark.parametrize("q", [0.0, 1e-200, 1e-3, 1.0, 7.5, 120.0])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_exponential_tail_is_just_above_the_sum(q: float, first: int) -> None:
    with mpmath.workdps(900), precision(96):
        truth = mpmath.exp(q) - sum(mpmath.mpf(q) ** k / mpmath.factorial(k) for k in range(first))
        found = exponential_tail(flint.arb(q), first)
        bound = mpmath.mpf(int(found.mid().man_exp()[0])) * mpmath.mpf(2) ** int(found.mid().man_exp()[1])
        assert truth <= bound <= truth * (1 + mpmath.mpf(10) ** -20)


def _contains(ball: Any, number: Any) -> bool:
    """Is the mpmath number, right to 60 digits, within the ball?"""
    sign, mantissa, exponent, _ = number._mpf_
    exact = flint.arb(int(-mantissa if sign else mantissa)) * flint.arb(2) ** int(exponent)
    return bool(ball.overlaps(exact + flint.arb(0, 1e-40))) and bool(ball.rad() < 1e-12)


def test_derivatives_enclose_those_of_mpmath() -> None:
    """The reference is integrals of the Dyson series, as differences of 100-digit exponentials."""
    generator = torch.Generator().manual_seed(3)
    n, d = 3, 2
    M, W, *T = (torch.randn(n, n, generator=generator, dtype=torch.float64).tolist() for _ in range(2 + d))
    with mpmath.workdps(100), precision(128):
        step = mpmath.mpf(10) ** -30

        def f(*z: Any) -> Any:
            X = mpmath.matrix(M)
            for z_a, t in zip(z, T, strict=True):
                X += z_a * mpmath.matrix(t)
            E = mpmath.expm(X, method="taylor")
            return sum(W[r][c] * E[r, c] for r in range(n) for c in range(n))

        as_matrix = [matrix(n, n, [v for row in A for v in row]) for A in (M, W, *T)]
        value, first, second = Exponential(as_matrix[0], as_matrix[2:]).derivatives(as_matrix[1])
        assert _contains(value, f(0, 0))
        for a in range(d):
            ends = [f(*(sign * step * (a == b) for b in range(d))) for sign in (1, -1)]
            gradient = (as_matrix[2 + a] * first).trace()
            assert _contains(gradient, (ends[0] - ends[1]) / (2 * step))
            for b in range(d):
                corners = [
                    s * t * f(*(s * step * (a == k) + t * step * (b == k) for k in range(d)))
                    for s in (1, -1)
                    for t in (1, -1)
                ]
                found = (as_matrix[2 + a] * second[b]).trace()
                assert _contains(found, sum(corners) / (4 * step**2))


def test_what_the_taylor_polynomial_leaves_out_is_enclosed() -> None:
    """A readout with larger sums of columns than of rows: the fourth order is 96 times its largest entry.

    Without the squarings, which add the balls of their own rounding: exp of the scaled matrices.
    """
    fan, size = 96, 6
    n = fan + 4
    M, W = np.zeros((n, n)), np.zeros((n, n))
    W[1 : fan + 1, 0] = 1  # W^T leads from 0 to all of the fan, M from there along the last three
    M[1 : fan + 1, fan + 1] = M[fan + 1, fan + 2] = M[fan + 2, fan + 3] = size
    with precision(26):
        exponential = Exponential(matrix(n, n, M.reshape(-1).tolist()), [])
        assert len(exponential._terms) == 4
        scaled = flint.arb(2) ** -exponential._squarings
        exponential._squares = []
        _, first, _ = exponential.derivatives(matrix(n, n, W.reshape(-1).tolist()))
        assert first[0, n - 1].overlaps(fan * size**3 * scaled**4 / 24)


def test_partial_transposition_is_not_seen_by_product_vectors() -> None:
    numbers = np.random.default_rng(0)
    n = 3
    Y, p, q = numbers.normal(size=(n * n, n * n)), numbers.normal(size=n), numbers.normal(size=n)
    moved = partial_transpose(matrix(n * n, n * n, Y.reshape(-1).tolist()), n)
    Z = np.array([[float(moved[r, c]) for c in range(n * n)] for r in range(n * n)])
    x = np.kron(p, q)
    assert x @ Y @ x == pytest.approx(x @ Z @ x, rel=1e-12)
    assert not np.allclose(Y, Z)


# ---- Proofs. --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_accepted_lies_below_the_attack(kind: str, tmp_path: Path) -> None:
    seed = KINDS.index(kind)
    case = Case(kind, (1, 6, 7, 8, 12, 14)[seed % 6], *REGIONS[seed % len(REGIONS)])
    claims, radii = [], []
    for k in range(2):
        right = case.radius[k] > 0
        found = case.prover.confirmed(case.row(k), float(case.radius[k]), False) if right else (0.0, None)
        assert found[0] <= float(case.attacked[k])
        assert found[0] > 0 or not right
        radii.append(found[0])
        claims.append(found[1])
    proof = case.prover.proof(tuple(claims))
    proof.save(tmp_path / "proof.safetensors")
    read = read_proof(tmp_path / "proof.safetensors")
    assert read == proof.as_lists()
    rows = [(case.x[k].tolist(), int(case.labels[k])) for k in range(2)]
    verdicts = check_rows(case.prover.layer, case.prover.region, read, rows)
    assert [v.radius for v in verdicts] == radii
    assert [v.accepted for v in verdicts] == [c is not None for c in claims]


@pytest.fixture(scope="module", params=["linf", "l2"])
def proved(request: pytest.FixtureRequest) -> tuple[Case, float, dict[str, Any]]:
    return proved_case(request.param)


def _lowered(claims: dict[str, Any], name: str, factor: float) -> dict[str, Any]:
    """The claims with one number of every rival (or level) times a factor."""
    rivals = {}
    for j, rival in claims["rivals"].items():
        levels = [
            level | ({name: level[name] * factor} if name in level else {}) for level in rival["levels"]
        ]
        rivals[j] = rival | {"levels": levels} | ({name: rival[name] * factor} if name in rival else {})
    return claims | {"rivals": rivals}


def test_claims_that_are_too_good_are_refused(proved: tuple[Case, float, dict[str, Any]]) -> None:
    case, radius, claims = proved
    assert case.check(0, claims).accepted
    frame = case.prover.proof(()).as_lists()["frame"]
    for name in ("delta_F", "delta_2"):
        verdict = case.check(0, claims, frame | {name: frame[name] * 0.98})
        assert not verdict.accepted
        assert name in verdict.reason
    for name, word in (("mu", "mu"), ("spectral", "spectral")):
        value = _lowered(claims, name, 0.9 if name == "spectral" else -1e3)
        assert word in case.check(0, value).reason
    too_far = float(case.attacked[0]) * 1.0001
    assert not case.check(0, claims | {"eps": too_far}).accepted
    assert case.check(0, claims | {"eps": radius * 0.9}).radius == pytest.approx(radius * 0.9)


def test_what_a_proof_is_about_must_be_the_same(proved: tuple[Case, float, dict[str, Any]]) -> None:
    case, _, claims = proved
    proof = case.prover.proof((claims,)).as_lists()
    x, label = case.x[0].tolist(), int(case.labels[0])
    other = (label + 1) % case.layer.out_features
    layer, region, entry = case.prover.layer, case.prover.region, proof["rows"][0]
    rightly = Checker(layer, region, proof)
    assert rightly.check(x, label, entry).accepted
    assert "another row" in rightly.check([*x[:-1], x[-1] + 2**-40], label, entry).reason
    assert "another label" in rightly.check(x, other, entry).reason
    assert "rival" in rightly.check(x, label, entry | {"rivals": {}}).reason
    moved = replace(layer, V=[v + 2**-40 for v in layer.V])
    assert "other weights" in Checker(moved, region, proof).check(x, label, entry).reason
    wider = replace(region, scale=[2.0] * layer.m)
    assert "another region" in Checker(layer, wider, proof).check(x, label, entry).reason
    swapped = replace(region, norm="l2" if region.norm == "linf" else "linf")
    assert "norm" in Checker(layer, swapped, proof).check(x, label, entry).reason


# ---- Infinite radii. ------------------------------------------------------------------------------


def _claiming_infinity(layer: MLayer, x: torch.Tensor, label: int) -> checker.Verdict:
    prover = Prover(Certifier(layer, fit_steps=0)._model)
    claims = {
        "x": digest(x.tolist()),
        "label": label,
        "eps": "infinite",
        "bits": 256,
        "rivals": {str(j): {"constant": True} for j in range(layer.out_features) if j != label},
    }
    return Checker(prover.layer, prover.region, prover.proof((claims,)).as_lists()).check(
        x.tolist(), label, claims
    )


def _scalar_layer(U: list[list[float]], T: list[float]) -> MLayer:
    """n = 1, readouts 1 and 2, output biases 0 and -1.5."""
    layer = MLayer(len(U[0]), 2, matrix_size=1, embedding_size=len(U), dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        assert layer.embedding is not None
        assert layer.output_bias is not None
        layer.embedding.copy_(torch.tensor(U, dtype=torch.float64))
        layer.free_generators.copy_(torch.tensor(T, dtype=torch.float64).reshape(layer.free_generators.shape))
        layer.readout.copy_(torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(layer.readout.shape))
        layer.output_bias.copy_(torch.tensor([0.0, -1.5], dtype=torch.float64))
    return layer


def test_an_infinite_radius_needs_a_margin_that_is_constant() -> None:
    """Weights that cancel to something far below what double precision sees; then ones that cancel."""
    x = torch.zeros(3, dtype=torch.float64)
    moving = _scalar_layer([[1e9] * 3, [-1e9] * 3], [1.0, 1.0 + 2**-30])
    label = int(moving(x[None]).argmax())
    assert _claiming_infinity(moving, x, label).reason == "the margin is not constant"
    still = _scalar_layer([[1e9] * 3, [-1e9] * 3], [1.0, 1.0])
    assert _claiming_infinity(still, x, label).radius == math.inf
    rounded = _scalar_layer([[0.1 * 2**57] * 3, [-0.03 * 2**57] * 3], [0.3, 1.0])
    assert not _claiming_infinity(rounded, x, label).accepted


def test_an_infinite_radius_in_a_box_is_a_claim_about_the_box() -> None:
    case = Case("small", 1, "linf", (-0.2, 1.3))
    k = int((case.radius > 0).nonzero()[0])
    radius, claims = case.prover.confirmed(case.row(k), math.inf, False)
    assert radius == math.inf
    assert claims is not None
    assert case.check(k, claims).accepted
    assert case.attacked[k] == math.inf


def test_inputs_that_are_held_still_are_proved_constant() -> None:
    layer, x, labels = random_layer("full", 4)
    found = Certifier(layer, scale=0.0, fit_steps=0)(x[:1], labels[:1], rigorous=True)
    assert float(found.radius[0]) == math.inf


def test_the_root_of_no_number_is_no_bound() -> None:
    with pytest.raises(ProofError):
        upper_root(flint.arb("nan"))
    assert upper_root(flint.arb(-1)) == 0


LEVELS: dict[tuple[str, str], Callable[[float], dict[str, Any]]] = {
    ("linf", "linear"): lambda _: {},
    ("linf", "quadratic"): lambda eps: {"shift": [0.5 + 1e-9], "shift_ridge": 0.0, "point": [eps]},
    ("linf", "touching"): lambda eps: {
        "shift": [0.5 * math.exp(eps) + 1e-9],
        "shift_ridge": 0.0,
        "point": [eps],
    },
    ("l2", "linear"): lambda _: {},
    ("l2", "quadratic"): lambda eps: {"shift": 0.5 + 0.5 / eps},
}


@pytest.mark.parametrize(("norm", "kind"), LEVELS)
def test_every_kind_of_level_ends_where_the_class_does(norm: str, kind: str) -> None:
    """1.2 - exp(x) against 0 at x = 0: each of these proofs is exact, and the true radius is log 1.2."""
    layer = Layer(1, 1, 1, 2, [0.0], [1.0], [1.0], [0.0], [-1.0, 0.0], [1.2, 0.0])
    region = {"norm": norm, "scale": [1.0], "low": None, "high": None}
    frame = {**region, "weights": [1.0], "gauge": [1.0], "ridge": 0.0, "delta_F": 1 + 1e-12}
    checks = Checker(layer, ProofRegion(norm, [1.0]), {"weights": layer.digest, "frame": frame})
    for share, accepted in ((1 - 1e-6, True), (1 + 1e-6, False)):
        eps = math.log(1.2) * share
        level = {"kind": kind, "mu": 1e-12, **LEVELS[norm, kind](eps)}
        rivals = {"1": {"left": [-1.0], "right": [1.0], "levels": [level]}}
        claims = {"x": digest([0.0]), "label": 0, "eps": eps, "bits": 128, "rivals": rivals}
        verdict = checks.check([0.0], 0, claims)
        assert verdict.accepted == accepted, verdict.reason
        assert accepted or "lower bound of the margin is not positive" in verdict.reason
    if kind == "touching":  # half the second derivative is -exp(x) / 2: no smaller shift makes it convex
        eps = math.log(1.2) / 2
        level = {**level, "shift": [0.5 * math.exp(eps) - 1e-6], "point": [eps]}
        rivals = {"1": {"left": [-1.0], "right": [1.0], "levels": [level]}}
        assert "convex" in checks.check([0.0], 0, {**claims, "eps": eps, "rivals": rivals}).reason


def test_a_radius_far_beyond_the_series_of_the_checker_keeps_a_proof() -> None:
    """7 - x / 10^6 over 0, a polynomial: the bounds know where its expansion ends, the checker does not."""
    step, S = torch.zeros(1, 2, 2).double(), torch.zeros(2, 2, 2).double()
    step[0, 0, 1], S[0, 0, 1] = 1.0, -1e-6
    layer = MLayer.from_weights(step, S, output_bias=torch.tensor([7.0, 0.0]).double())
    x, label = torch.zeros(1, 1).double(), torch.tensor([0])
    plain = Certifier(layer, fit_steps=0)(x, label).radius.item()
    assert 6.999e6 < plain <= 7e6
    found = Certifier(layer, fit_steps=0)(x, label, rigorous=True)
    assert found.radius.item() > 10
