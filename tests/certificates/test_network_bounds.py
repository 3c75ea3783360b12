"""`mlayer.bounds` of networks against the exact network in Arb balls: corners, points, attacks of boxes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import pytest
import torch
from torch import Tensor, nn

import mlayer
from certificate_truth import BITS
from mlayer import MLayer
from mlayer.certificates.networks import network_bounds
from mlayer.certificates.networks.certifier import NetworkCertifier
from mlayer.certificates.networks.network import Network
from mlayer.certificates.problem.region import make_region
from mlayer.errors import ArgumentError, ArgumentTypeError
from network_truth import exact_outputs, filled, images, vectors

arb, F64 = flint.arb, torch.float64
# One row for the difference of two outputs, one of all of them, and the combination that is 0.
C = torch.tensor([[1.0, -1.0, 0.0], [0.3, -2.0, 1.7], [0.0, 0.0, 0.0]], dtype=F64)
Case = tuple[nn.Sequential, Tensor]


def large_terms(seed: int) -> Case:
    """Sums of large terms, of which float64 keeps few digits."""
    generator = torch.Generator().manual_seed(seed)
    first, second = nn.Linear(4, 6, dtype=F64), nn.Linear(6, 3, dtype=F64)
    layer = MLayer(3, 3, matrix_size=3, dtype=F64)
    model = filled(nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), layer), generator)
    second.weight[:, 3:] = -second.weight[:, :3]
    first.weight[3:], first.bias[3:] = first.weight[:3], first.bias[:3]
    first.weight.mul_(1e9)
    first.bias[3:] += 1e-6 * torch.rand(3, generator=generator, dtype=F64)
    return model, torch.rand(2, 4, generator=generator, dtype=F64) * 3 - 1


def one_output(seed: int) -> Case:
    """A regression: one output, an average and a dead ReLU before it, and no bias."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 2, 2, bias=False), nn.ReLU()),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Identity(),
        MLayer(2, 1, matrix_size=3),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    x = torch.rand(2, 1, 3, 3, generator=generator)
    x[0] = 0  # where all sums are 0
    return model.eval().requires_grad_(False), x


def points_of(model: nn.Sequential, low: Tensor, high: Tensor, rows: Tensor, seed: int) -> list[Tensor]:
    """Corners and points of one box, and for each combination those that gradients lead to."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(3, *low.shape, generator=generator, dtype=F64)
    found = [low, high, *(torch.minimum(low + (high - low) * s, high) for s in share)]
    corner = torch.where(share[0] < 0.5, low, high)
    found.append(corner)
    double = Network(model, tuple(low.shape), classes=False)
    for row in rows:
        for sign in (1.0, -1.0):
            point = corner
            for _ in range(3):
                leaf = point.clone().requires_grad_(True)
                (gradient,) = torch.autograd.grad(sign * (double(leaf[None]) @ row).sum(), leaf)
                point = torch.where(gradient > 0, low, torch.where(gradient < 0, high, point))
            found.append(point)
    return found


def violations(model: nn.Sequential, low: Tensor, high: Tensor, C: Tensor | None, seed: int = 0) -> list[str]:
    """Points at which a bound is certainly wrong; nothing is rounded but in balls of many digits."""
    found = mlayer.bounds(model, low, high, C)
    rows = torch.eye(found.lower.shape[1], dtype=F64) if C is None else C
    wrong = []
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        for r in range(len(low)):
            for point in points_of(model, low[r].double(), high[r].double(), rows, seed):
                values = exact_outputs(model, point)
                for k, row in enumerate(rows.tolist()):
                    truth = sum((arb(c) * v for c, v in zip(row, values, strict=True)), arb(0))
                    for side, sign in (("lower", 1), ("upper", -1)):
                        number = float(getattr(found, side)[r, k])
                        constant = float(getattr(found, f"{side}_constant")[r, k])
                        slopes = getattr(found, f"{side}_slopes")[r, k].tolist()
                        if number in (torch.inf, -torch.inf):
                            assert number == constant == -sign * torch.inf
                            assert not any(slopes)
                            continue
                        plane = arb(constant)
                        for slope, x in zip(slopes, point.flatten().tolist(), strict=True):
                            plane = plane + arb(slope) * arb(x)
                        if sign * (truth - arb(number)) < 0 or sign * (truth - plane) < 0:
                            wrong.append(f"{side} of {row}, row {r}: {truth}, {number}, {plane}")
        return wrong
    finally:
        flint.ctx.prec = before


@pytest.mark.parametrize("eps", [0.0, 1e-9, 0.02, 0.5, 20.0])
@pytest.mark.parametrize("make", [vectors, images, large_terms])
def test_bounds_hold_for_the_exact_network(make: Callable[[int], Case], eps: float) -> None:
    """Weights in float32 and float64, boxes of one point, wide ones, and wide in some inputs only."""
    model, x = make(1)
    x = x[:2].double()
    reach = eps * torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=F64).round(decimals=1)
    assert violations(model, x - reach, x + reach, C) == []


@pytest.mark.parametrize("eps", [0.0, 0.1, 3.0])
def test_bounds_of_a_network_with_one_output(eps: float) -> None:
    model, x = one_output(0)
    found = mlayer.bounds(model, x - eps, x + eps)
    assert found.lower.shape == (2, 1)
    assert found.lower_slopes.shape == found.upper_slopes.shape == (2, 1, 9)
    assert bool((found.upper - found.lower).isfinite().all())
    assert violations(model, x - eps, x + eps, None) == []


@pytest.mark.fuzz
@pytest.mark.parametrize("make", [vectors, images, large_terms])
def test_bounds_hold_for_many_networks(make: Callable[[int], Case]) -> None:
    for seed in range(2, 32):
        model, x = make(seed % 2 + 10 * (seed // 2) if make is images else seed)
        eps = (0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.3, 2.0, 1e3)[seed % 8]
        x = x[:2].double()
        combinations = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)
        assert violations(model, x - eps, x + eps, combinations, seed) == [], seed


@pytest.mark.parametrize("make", [vectors, images])
def test_bounds_prove_what_certificates_prove(make: Callable[[int], Case]) -> None:
    """The margins of the same boxes are as large as those of certify, up to rounding, and decide the same."""
    model, x = make(1)
    network = Network(model, tuple(x.shape[1:]))
    certifier = NetworkCertifier(network, make_region(network.in_features, "linf", None, None))
    flat, labels = x.flatten(1).double(), model(x).argmax(1)
    eye = torch.eye(3, dtype=F64)
    rivals = torch.stack([eye[label] - eye[[j for j in range(3) if j != label]] for label in labels.tolist()])
    decisions = []
    for eps in (0.0, 0.03, 0.3):
        size = torch.full((len(x),), eps, dtype=F64)
        box = certifier.box(flat, size)
        low, high = (end.reshape(x.shape) for end in (box.low, box.high))
        found = mlayer.bounds(model, low, high, rivals)
        margins = certifier.margins(flat, labels, size)
        margins = margins[margins < torch.inf].reshape(len(x), 2)
        assert bool((found.lower >= margins - 1e-9 * (1 + margins.abs())).all())
        certified = mlayer.certify(model, x, labels, eps=eps).certified
        least = found.lower.amin(1)
        assert bool((certified == (least > 0))[least.abs() > 1e-9].all())
        decisions += certified.tolist()
    assert 0 < sum(decisions) < len(decisions)


def test_a_layer_alone_in_a_sequential_has_the_bounds_of_the_layer() -> None:
    layer = MLayer(3, 2, matrix_size=4, generator=torch.Generator().manual_seed(0))
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(1))
    of_layer = mlayer.bounds(layer, x - 0.1, x + 0.1)
    of_network = mlayer.bounds(nn.Sequential(layer), x - 0.1, x + 0.1)
    for name in ("lower", "upper", "lower_slopes", "lower_constant", "upper_slopes", "upper_constant"):
        assert torch.allclose(getattr(of_layer, name), getattr(of_network, name), rtol=1e-9, atol=1e-12), name


def test_numbers_are_no_worse_than_the_affine_functions_and_the_box_of_features() -> None:
    model, x = vectors(1)
    low, high = (x - 0.1).double(), (x + 0.1).double()
    found = mlayer.bounds(model, low, high)
    middle, reach = (low + high)[:, None] / 2, (high - low)[:, None] / 2
    least = (found.lower_slopes * middle - found.lower_slopes.abs() * reach).sum(-1) + found.lower_constant
    assert bool((found.lower >= least - 1e-9 * least.abs()).all())
    behind = mlayer.bounds(model[-1], *_interval(Network(model, (4,)).steps, low, high))
    assert bool((found.lower > behind.lower).all())
    assert bool((found.upper < behind.upper).all())


def _interval(steps: Any, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Interval arithmetic in float64, without charges."""
    for step in steps:
        if hasattr(step, "A"):
            middle, reach = (low + high) / 2 @ step.A.mT + step.b, (high - low) / 2 @ step.A.abs().mT
            low, high = middle - reach, middle + reach
        else:
            low, high = low.relu(), high.relu()
    return low, high


@pytest.mark.parametrize(("low", "high", "slope"), [(-1.0, 2.0, 1.0), (-2.0, 1.0, 0.0), (0.5, 2.0, 1.0)])
def test_a_relu_alone_is_bounded_by_its_chord(low: float, high: float, slope: float) -> None:
    """The network is max(x, 0), as exp(h N) = 1 + h N, and its bounds are known."""
    nilpotent = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=F64)[None]
    model = nn.Sequential(nn.ReLU(), MLayer.from_weights(generators=nilpotent, readout=nilpotent)).eval()
    a, b = (torch.tensor([[end]], dtype=F64) for end in (low, high))
    for sign in (1.0, -1.0):
        found = mlayer.bounds(model, a, b, torch.tensor([[sign]], dtype=F64))
        ends = {max(low, 0.0), max(high, 0.0)}
        wanted = [sign * end for end in sorted(ends, reverse=sign < 0)]
        assert [float(found.lower), float(found.upper)] == pytest.approx(wanted, abs=1e-9)
        chord = (max(high, 0.0) - max(low, 0.0)) / (high - low)
        sides = [
            (found.lower_slopes, found.lower_constant, 1),
            (found.upper_slopes, found.upper_constant, -1),
        ]
        for slopes, constant, side in sides:
            tangent = slope if side == sign else chord
            assert float(slopes) == pytest.approx(sign * tangent, abs=1e-9)
            for x in (low, 0.0 if low < 0 else 1.0, high):
                line = Fraction(float(slopes)) * Fraction(x) + Fraction(float(constant))
                gap = side * (Fraction(sign) * max(Fraction(x), Fraction(0)) - line)
                assert gap >= 0
                if side != sign and x != 0:  # the chord meets it at the ends
                    assert gap < 1e-9


def test_splits_of_a_network() -> None:
    model, x = vectors(1)
    low, high = (x[:1] - 0.3).double(), (x[:1] + 0.3).double()
    whole = mlayer.bounds(model, low, high, C[:2])
    split = mlayer.bounds(model, low, high, C[:2], splits=12)
    assert bool((split.upper - split.lower < 0.8 * (whole.upper - whole.lower)).all())
    assert torch.equal(split.lower_slopes, whole.lower_slopes)
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        for point in points_of(model, low[0], high[0], C[:2], 0):
            values = exact_outputs(model, point)
            for k, row in enumerate(C[:2].tolist()):
                truth = sum((arb(c) * v for c, v in zip(row, values, strict=True)), arb(0))
                assert arb(float(split.lower[0, k])) <= truth <= arb(float(split.upper[0, k]))
    finally:
        flint.ctx.prec = before


def test_a_combination_for_each_row_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_bounds, "_BOXES", 2)  # rows in two chunks
    model, x = images(1)
    each = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    found = mlayer.bounds(model, x - 0.1, x + 0.1, each)
    for row in range(3):
        alone = mlayer.bounds(model, x[row : row + 1] - 0.1, x[row : row + 1] + 0.1, each[row])
        assert torch.allclose(found.lower[row], alone.lower[0], rtol=1e-9)
        assert torch.allclose(found.upper_slopes[row], alone.upper_slopes[0], rtol=1e-9)
    assert mlayer.bounds(model, x[:0], x[:0], each[:0]).lower.shape == (0, 2)
    assert mlayer.bounds(model, x[:0], x[:0]).upper_slopes.shape == (0, 3, 16)


def test_huge_boxes_of_a_network_have_no_bound_but_no_nan() -> None:
    model, _ = vectors(0)
    for size in (1e10, 1e200, 1.7e308):
        high = torch.full((1, 4), size, dtype=F64)
        found = mlayer.bounds(model, -high, high)
        assert bool((found.lower == -torch.inf).all())
        assert bool((found.upper_constant == torch.inf).all())
        assert bool((found.lower_slopes == 0).all())


def test_sums_that_are_zero_have_bounds_and_certificates() -> None:
    """Their boxes are as narrow as what may vanish: they were taken as out of range."""
    model = nn.Sequential(nn.Linear(2, 3, bias=False), MLayer(3, 2, matrix_size=3)).eval()
    x = torch.zeros(1, 2)
    found = mlayer.bounds(model, x, x)
    assert bool((found.upper - found.lower < 1e-10).all())
    assert mlayer.certify(model, x, model(x).argmax(1), eps=0.0).certified.tolist() == [True]


def model_of(*modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(*modules, MLayer(2, 2, matrix_size=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": nn.Sequential(nn.Linear(2, 2))}, "model must be a Sequential that ends in an MLayer"),
        ({"layer": nn.Sequential()}, "model must be a Sequential that ends in an MLayer"),
        ({"layer": model_of(nn.Tanh())}, "model must be made of modules with bounds"),
        ({"layer": model_of(nn.BatchNorm1d(2)).train()}, "model must be in evaluation mode"),
        ({"layer": model_of(nn.Dropout(0.5)).train()}, "model must be in evaluation mode"),
        ({"layer": model_of(nn.Linear(3, 2))}, "gets vectors of that length; got rows of shape"),
        ({"layer": model_of(nn.Conv2d(1, 1, 1))}, "images .* before Conv2d"),
        ({"low": torch.zeros(2), "high": torch.ones(2)}, r"low must be a batch.*low\[None\]"),
        ({"low": [[0.0, 0.0]]}, "low must be a floating point tensor"),
        ({"high": torch.ones(1, 2, dtype=torch.int64)}, "high must be a floating point tensor"),
        ({"high": torch.ones(1, 2).to_sparse()}, "high must be a dense tensor"),
        ({"high": torch.ones(1, 3)}, "high must be of shape"),
        ({"high": torch.full((1, 2), torch.inf)}, "high must be finite"),
        ({"low": torch.full((1, 2), 2.0)}, "low must be at most high"),
        ({"C": torch.zeros(1, 3)}, "C must be of shape"),
        ({"splits": -1}, "splits must be an integer from 0"),
    ],
)
def test_what_bounds_of_networks_refuse(change: dict[str, Any], message: str) -> None:
    good = {"layer": model_of(nn.ReLU()), "low": torch.zeros(1, 2), "high": torch.ones(1, 2)}
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        mlayer.bounds(**{**good, **change})
