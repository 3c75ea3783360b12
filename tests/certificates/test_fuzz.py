"""Thousands of layers of hard families; at every corner of what was certified the exact class is the label.

Also at the largest eps that is certified at all, and what the attack reports is misclassified exactly.

make fuzz                                    all of it
python -m pytest -m fuzz -k "tied and 17"    one family, one seed
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from certificate_drafts import Case
from certificate_families import FAMILIES
from certificate_truth import changes_class, step_to, stored
from mlayer.certificates import Certifier, attack
from mlayer.certificates.bounds import methods
from mlayer.errors import ArgumentError

METHODS = methods.names()
FAR = (1.0, 1e4, 1e60, 1e200)  # what stands for an infinite radius
LARGE = 1e9  # within radii beyond, steps that move M by about these are tried, too
MOVES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
QUICK = [(name, seed) for seed in range(2) for name in FAMILIES]
LONG = 100  # seeds of each family


# Cases in which a bound without its charge for rounding is false at the last bit.
EXACT = (("linear", "first_order", 2), ("linear", "first_order", 7))
_HALVINGS = 42


def certifier_of(case: Case) -> Certifier:
    """The Certifier of a case, with its gauge if it has one."""
    certifier = Certifier(case.layer, **{"fit_steps": 3, **case.options})
    if case.gauge is not None:
        from mlayer.certificates.problem.constants import evaluate
        from mlayer.certificates.problem.fit import Fitted
        from mlayer.certificates.problem.model import Model

        model = certifier._model
        w = model.white.w if model.region.norm == "linf" else None
        n = len(case.gauge)
        fitted = Fitted(w, case.gauge, np.linalg.inv(case.gauge).astype(np.float64), np.zeros((n * n, n * n)))
        certifier.constants, white = evaluate(model.weights, model.region.norm, fitted)
        certifier._model = Model(model.weights, model.region, certifier.constants, white)
    return certifier


def directions(case: Case, row: int, label: int, random: np.random.Generator) -> list[list[float]]:
    """Unit steps of the norm: corners (a few where there are many), axes, and what gradients point to."""
    m = case.x.shape[1]
    corners = list(product((-1.0, 1.0), repeat=m)) if m <= 3 else random.choice([-1.0, 1.0], (8, m)).tolist()
    found = [np.array(corner) for corner in corners]
    point = torch.from_numpy(case.x[row]).requires_grad_(True)
    outputs = case.layer.double()(point[None])[0]
    for rival in range(len(outputs)):
        if rival != label:
            (g,) = torch.autograd.grad(outputs[label] - outputs[rival], point, retain_graph=True)
            found.append(-g.numpy())
    l2 = case.options.get("norm") == "l2"
    if l2:
        found += list(np.eye(m)) + list(-np.eye(m))
    result: list[Any] = []
    for direction in found:
        if not np.isfinite(direction).all():
            continue
        if l2:
            largest = float(np.abs(direction).max()) or 1.0
            length = float(np.linalg.norm(direction / largest)) * largest
            unit = direction / length * (1 - 1e-14) if length > 0 else direction
        else:
            unit = np.sign(direction)
        if not any(np.array_equal(unit, other) for other in result):
            result.append(unit)
    return [unit.tolist() for unit in result]


def typical_step(case: Case, scale: list[float]) -> float:
    """A step that moves M by about 1, by logarithms: products of weights and units may vanish."""
    with np.errstate(divide="ignore"):
        U = (
            np.eye(case.x.shape[1])
            if case.layer.embedding is None
            else case.layer.embedding.mT.double().numpy(force=True)
        )
        sizes = np.log10(np.abs(U)) + np.log10(scale)[:, None]
        sizes = sizes + np.log10(case.layer.generators.double().abs().amax((1, 2)).numpy(force=True))
    exponent = -float(sizes.max(initial=-math.inf))
    return 10.0**exponent if exponent < 300 else 1.0


def violations(case: Case, seed: int, methods: tuple[str, ...]) -> list[str]:
    """The certified claims that are false."""
    random = np.random.default_rng(seed)
    try:
        certifier = certifier_of(case)
    except ArgumentError as error:  # weights out of range are refused
        return [] if "between 1e-30 and 1e+30" in str(error) else [str(error)]
    labels, x = case.labels, torch.from_numpy(case.x)
    natural = [move * typical_step(case, _scale(case)) for move in MOVES]
    tried: set[tuple[int, float]] = set()
    found: list[str] = []

    def examine(what: str, radii: list[float]) -> None:
        for row, radius in enumerate(radii):
            assert radius >= 0
            if radius == 0 or (row, radius) in tried:
                continue
            tried.add((row, radius))
            sizes = FAR if math.isinf(radius) else (radius, 0.6 * radius)
            if radius > LARGE:
                sizes = (*sizes, *(size for size in natural if size <= radius))
            found.extend(f"{what}, {radius!r}: {at}" for at in changes(case, row, sizes, random))

    for method in methods:
        radii = certifier(x, labels, method=method).radius.tolist()
        examine(method, radii)
        if method == "best":  # decisions at a fixed eps take another way
            finite = [radius for radius in radii if 0 < radius < math.inf] or [1.0]
            for eps in (1.02 * max(finite), 1.2 * min(finite), 0.5 * max(finite)):
                if 0 < eps < math.inf:
                    examine(f"at {eps!r}", certifier(x, labels, eps=eps).radius.tolist())
    return found


def changes(case: Case, row: int, sizes: tuple[float, ...], random: np.random.Generator) -> list[str]:
    """The steps of these sizes that change the class of a row, by exact evaluation."""
    weights, box, scale = stored(case.layer), _box(case), _scale(case)
    label, start = int(case.labels[row]), case.x[row].tolist()
    return [
        f"row {row} at {size!r} x {direction}"
        for direction in directions(case, row, label, random)
        for size in sizes
        if changes_class(weights, step_to(start, direction, size, scale, box), label)
    ]


def beyond_the_last_bit(case: Case, seed: int, method: str) -> list[str]:
    """False claims at the largest eps that is certified: only the charge for rounding is left there."""
    try:
        certifier = certifier_of(case)
    except ArgumentError:
        return []
    x, labels, found = torch.from_numpy(case.x), case.labels, list[str]()
    for row, radius in enumerate(certifier(x, labels, method=method).radius.tolist()):
        if not 0 < radius < math.inf:
            continue
        low, high, one = radius, 1.3 * radius, slice(row, row + 1)
        for _ in range(_HALVINGS):
            eps = (low + high) / 2
            passes = bool(certifier(x[one], labels[one], eps=eps, method=method).certified[0])
            low, high = (eps, high) if passes else (low, eps)
        found += changes(case, row, (low,), np.random.default_rng(seed))
    return found


def false_successes(case: Case) -> list[str]:
    """Adversarial examples that keep the class of their row, by exact evaluation."""
    options = {name: value for name, value in case.options.items() if name != "fit_steps"}
    x, labels, weights = torch.from_numpy(case.x), case.labels, stored(case.layer)
    found = attack(case.layer, x, labels, starts=3, **options)
    least = float(found.radius.min())
    results = [found]
    if 0 < least < 1e300:  # by descent, too
        results.append(attack(case.layer, x, labels, 0.999 * least, starts=1, pgd_steps=5, **options))
    return [
        f"row {row}: {result.adversarial[row].tolist()}"
        for result in results
        for row in torch.nonzero(result.success)[:, 0].tolist()
        if not changes_class(weights, result.adversarial[row].tolist(), int(labels[row]))
    ]


def _scale(case: Case) -> list[float]:
    scale: list[float] = case.options.get("scale", torch.ones(case.x.shape[1])).tolist()
    return scale


def _box(case: Case) -> Any:
    box, m = case.options.get("box"), case.x.shape[1]
    if box is None:
        return None
    return [torch.as_tensor(end, dtype=torch.float64).expand(m).tolist() for end in box]


def methods_of(seed: int) -> tuple[str, ...]:
    """The best, and one of the others."""
    return "best", METHODS[seed % (len(METHODS) - 1)]


@pytest.mark.parametrize(("family", "seed"), QUICK)
def test_no_false_certificate(family: str, seed: int) -> None:
    case = FAMILIES[family](np.random.default_rng([seed, len(family)]))
    assert violations(case, seed, methods_of(seed + len(family))) == []


@pytest.mark.parametrize(("family", "method", "seed"), EXACT)
def test_no_false_certificate_at_the_last_bit(family: str, method: str, seed: int) -> None:
    case = FAMILIES[family](np.random.default_rng([seed, len(family)]))
    assert beyond_the_last_bit(case, seed, method) == []


@pytest.mark.parametrize(("family", "seed"), [*(("one_entry", seed) for seed in range(4)), ("non_normal", 0)])
def test_no_false_success(family: str, seed: int) -> None:
    case = FAMILIES[family](np.random.default_rng([seed, len(family)]))
    assert false_successes(case) == []


@pytest.mark.parametrize("family", ["boxed", "vanishing_products"])
def test_numbers_that_vanish_raise_nothing(family: str) -> None:
    """Numpy may have been told to raise; every bound charges what vanishes."""
    case = FAMILIES[family](np.random.default_rng([0, len(family)]))
    x, labels = torch.from_numpy(case.x), case.labels
    expected = certifier_of(case)(x, labels).radius
    with np.errstate(all="raise"):
        assert torch.equal(certifier_of(case)(x, labels).radius, expected)  # exact: the same call again


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(LONG // 10))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_false_certificate_of_many(family: str, block: int) -> None:
    for seed in range(10 + 10 * block, 20 + 10 * block):
        case = FAMILIES[family](np.random.default_rng([seed, len(family)]))
        assert violations(case, seed, METHODS) == [], seed
        assert beyond_the_last_bit(case, seed, METHODS[seed % len(METHODS)]) == [], seed
        assert false_successes(case) == [], seed


@pytest.mark.fuzz
@pytest.mark.parametrize("family", FAMILIES)
def test_no_false_proof_of_many(family: str) -> None:
    for seed in range(10):
        case = FAMILIES[family](np.random.default_rng([seed, len(family)]))
        try:
            found = certifier_of(case)(torch.from_numpy(case.x), case.labels, rigorous=True)
        except ArgumentError:
            continue
        for row, radius in enumerate(found.radius.tolist()):
            sizes = FAR if math.isinf(radius) else (radius,)
            assert radius == 0 or changes(case, row, sizes, np.random.default_rng(seed)) == [], seed
