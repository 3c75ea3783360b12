"""Bounds that are exact but for rounding: only the charge for it is between them and rational numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mlayer
from mlayer.certificates.boxes.output_bounds import _finished
from mlayer.certificates.boxes.planes import Planes
from mlayer.certificates.networks.certifier import EFFORTS, NetworkCertifier
from mlayer.certificates.networks.network import Network
from mlayer.certificates.problem.region import make_region

Random = np.random.Generator
Rational = list[Fraction]


def rational(values: Tensor) -> Rational:
    """The numbers of a vector."""
    return [Fraction(v) for v in values.tolist()]


def dot(a: Rational, b: Rational) -> Fraction:
    """The exact sum of products."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def tensor(values: object) -> Tensor:
    """Float64 numbers."""
    return torch.tensor(np.asarray(values), dtype=torch.float64)


@pytest.mark.parametrize("terms", [3, 40, 400])
def test_the_least_value_of_a_plane(terms: int) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        slopes = tensor(random.standard_normal((1, 1, terms)))
        value = slopes.abs().sum(-1) * (1 + 1e-15 * random.standard_normal())
        exact = Fraction(float(value)) - sum((abs(v) for v in rational(slopes[0, 0])), Fraction(0))
        assert Fraction(float(Planes(value, slopes).least())) <= exact, seed


def test_a_plane_as_a_function_of_the_inputs() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        m = int(random.integers(1, 5))
        reach, center = (
            10.0 ** random.uniform(-3, 3, m),
            random.standard_normal(m) * 10.0 ** random.uniform(0, 6),
        )
        plane = Planes(tensor([[random.standard_normal()]]), tensor(random.standard_normal((1, 1, m))))
        zero, yes = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
        _, slopes, constant = _finished(plane, zero, yes, tensor(center[None]), tensor(reach[None]))
        for t in product((-1, 1), repeat=m):
            signs = [Fraction(v) for v in t]
            there = [
                Fraction(c) + Fraction(r) * s
                for c, r, s in zip(center.tolist(), reach.tolist(), signs, strict=True)
            ]
            truth = Fraction(float(plane.value)) + dot(rational(plane.slopes[0, 0]), signs)
            assert dot(rational(slopes[0, 0]), there) + Fraction(float(constant)) <= truth, seed


def polynomial(random: Random, n: int, m: int, d: int) -> mlayer.MLayer:
    """A layer of degree n - 1 with two outputs."""
    T, B = np.triu(random.standard_normal((d, n, n)), 1), np.triu(random.standard_normal((n, n)), 1)
    U, u = random.standard_normal((d, m)), random.standard_normal(d) * 10.0 ** random.uniform(0, 5)
    if n == 3:
        T[:, 1, 2] *= 10.0 ** -random.uniform(0, 4)  # slopes outweigh the curvature
    layer = mlayer.MLayer.from_weights(
        tensor(T), tensor(random.standard_normal((2, n, n))), matrix_bias=tensor(B - np.tensordot(u, T, 1)),
        output_bias=tensor(random.standard_normal(2)), embedding=tensor(U), embedding_bias=tensor(u),
    )  # fmt: skip
    return layer.requires_grad_(False)


def outputs(layer: mlayer.MLayer, x: Rational) -> Rational:
    """W : (1 + M + M^2 / 2) + V for strictly triangular M of at most three rows."""
    assert layer.embedding is not None
    assert layer.embedding_bias is not None
    assert layer.matrix_bias is not None
    assert layer.output_bias is not None
    z = [
        dot(rational(row), x) + Fraction(float(u))
        for row, u in zip(layer.embedding, layer.embedding_bias, strict=True)
    ]
    M = np.array([rational(row) for row in layer.matrix_bias], dtype=object)
    for factor, T in zip(z, layer.generators, strict=True):
        M = M + factor * np.array([rational(row) for row in T], dtype=object)
    E = (
        np.array([[Fraction(i == j) for j in range(len(M))] for i in range(len(M))], dtype=object)
        + M
        + M @ M / 2
    )
    return [
        dot(rational(S.flatten()), list(E.flatten())) + Fraction(float(V))
        for S, V in zip(layer.readout, layer.output_bias, strict=True)
    ]


@pytest.mark.parametrize("n", [2, 3])
def test_bounds_of_polynomials_at_the_corners(n: int) -> None:
    for seed in range(16):
        random = np.random.default_rng([seed, n])
        m = int(random.integers(1, 4))
        layer = polynomial(random, n, m, int(random.integers(1, 5)))
        center, reach = random.standard_normal((1, m)), 10.0 ** random.uniform(-6, 0, (1, m))
        low, high = tensor(center - reach), tensor(center + reach)
        found = mlayer.bounds(layer, low, high, splits=int(random.integers(3)))
        for ends in product((low, high), repeat=m):
            x = rational(torch.stack([end[0, i] for i, end in enumerate(ends)]))
            for k, value in enumerate(outputs(layer, x)):
                assert Fraction(float(found.lower[0, k])) <= value <= Fraction(float(found.upper[0, k])), seed
                for side in (-1, 1):
                    slopes = (found.upper_slopes if side > 0 else found.lower_slopes)[0, k]
                    constant = (found.upper_constant if side > 0 else found.lower_constant)[0, k]
                    plane = dot(rational(slopes), x) + Fraction(float(constant))
                    assert side * (plane - value) >= 0, seed


@pytest.mark.parametrize("effort", EFFORTS)
def test_margins_of_affine_networks_at_the_corners(effort: str) -> None:
    """Weights and biases that cancel from map to map."""
    for seed in range(20):
        random = np.random.default_rng([seed, 7])
        m, inner = int(random.integers(1, 4)), int(random.integers(2, 6))
        size = 10.0 ** random.uniform(0, 6)
        maps = [nn.Linear(m, inner), nn.Linear(inner, 2)]
        with torch.no_grad():
            for module, factor in zip(maps, (size, 1 / size), strict=True):
                module.double()
                module.weight.copy_(tensor(random.standard_normal(module.weight.shape) * factor))
                module.bias.copy_(tensor(random.standard_normal(len(module.bias)) * factor))
        layer = polynomial(random, 2, 2, int(random.integers(1, 4)))
        model = nn.Sequential(*maps, layer).eval().requires_grad_(False)
        scale = tensor(10.0 ** random.uniform(-3, 1, m))
        certifier = NetworkCertifier(Network(model, (m,)), make_region(m, "linf", scale, None))
        x, eps = tensor(random.standard_normal((1, m))), tensor([10.0 ** random.uniform(-6, 0)])
        label = torch.tensor([seed % 2])
        with torch.no_grad():
            least = certifier.margins(x, label, eps, effort)[0, 1 - seed % 2]  # type: ignore[arg-type]
        assert bool(least.isfinite())
        for signs in product((-1, 1), repeat=m):
            h = [
                v + Fraction(float(eps)) * s * r
                for v, s, r in zip(rational(x[0]), signs, rational(scale), strict=True)
            ]
            for module in maps:
                h = [
                    dot(rational(row), h) + Fraction(float(b))
                    for row, b in zip(module.weight, module.bias, strict=True)
                ]
            p = outputs(layer, h)
            assert Fraction(float(least)) <= p[seed % 2] - p[1 - seed % 2], seed


def test_the_box_of_a_radius_holds_all_steps() -> None:
    for seed in range(50):
        random = np.random.default_rng(seed)
        m = 5
        layer = mlayer.MLayer(m, 2, matrix_size=2, embedding_size=None).double()
        scale = np.where(random.random(m) < 0.2, 0.0, 10.0 ** random.uniform(-8, 8, m))
        x = random.standard_normal(m) * 10.0 ** random.uniform(-8, 8, m)
        ends = (tensor(x - 1e-3), tensor(x + 1e3)) if seed % 2 else None
        certifier = NetworkCertifier(
            Network(nn.Sequential(layer), (m,)), make_region(m, "linf", tensor(scale), ends)
        )
        eps = 10.0 ** random.uniform(-12, 3)
        found = certifier.box(tensor(x[None]), tensor([eps]))
        for i in range(m):
            step = Fraction(eps) * Fraction(scale[i])
            low, high = Fraction(x[i]) - step, Fraction(x[i]) + step
            if ends is not None:
                low, high = max(low, Fraction(float(ends[0][i]))), min(high, Fraction(float(ends[1][i])))
            assert Fraction(float(found.low[0, i])) <= low <= high <= Fraction(float(found.high[0, i])), seed
