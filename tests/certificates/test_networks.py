"""Certificates of networks that end in an M-layer, against the exact network in Arb balls, and the attack."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import flint
import pytest
import torch
from torch import Tensor, nn

import mlayer
from certificate_truth import BITS
from mlayer import MLayer
from mlayer.certificates.networks.certifier import EFFORTS, NetworkCertifier
from mlayer.certificates.networks.linear_end import margin_functions
from mlayer.certificates.networks.network import Network
from mlayer.certificates.networks.relax import Box, Functional, Relaxed, back, through
from mlayer.certificates.networks.steps import Affine, MaxPool, Relu, Step
from mlayer.certificates.problem.region import make_region
from mlayer.errors import ArgumentError, ArgumentTypeError
from network_truth import each, exact_front, exact_outputs, images, vectors

arb = flint.arb


@pytest.mark.parametrize("make", [vectors, images])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_point_within_a_radius_changes_the_class(make: Any, seed: int) -> None:
    model, x = make(seed)
    labels = model(x).argmax(1)
    box = (-0.1, 1.0) if seed else None
    found = mlayer.certify(model, x, labels, box=box)
    broken = mlayer.attack(model, x, labels, box=box)
    assert bool((found.radius > 0).all())
    assert bool((found.radius <= broken.radius).all())
    generator = torch.Generator().manual_seed(seed)
    for row in range(len(x)):
        size = min(float(found.radius[row]), 1e3)
        toward = (broken.adversarial[row] - x[row].double()).sign()
        for sign in (toward, torch.randint(0, 2, x[row].shape, generator=generator) * 2.0 - 1):
            point = x[row].double() + size * (1 - 1e-12) * sign
            point = point if box is None else point.clamp(*box)
            values = exact_outputs(model, point)
            assert all(values[int(labels[row])] > v for j, v in enumerate(values) if j != int(labels[row]))


@pytest.mark.parametrize("make", [vectors, images])
@pytest.mark.parametrize("seed", range(2))
def test_boxes_hold_what_the_front_computes(make: Any, seed: int) -> None:
    model, x = make(seed)
    network = Network(model, tuple(x.shape[1:]))
    flat = x.flatten(1).double()
    for eps in (0.0, 0.1, 2.0):
        relaxed = Relaxed(network.steps, Box(flat - eps, flat + eps))
        plain = Box(flat - eps, flat + eps)
        for step in network.steps:
            plain = through(step, plain)
        rounding = 1e-12 * (plain.low.abs() + plain.high.abs())  # the same products, in other batches
        assert bool((relaxed.features.low >= plain.low - rounding).all())
        assert bool((relaxed.features.high <= plain.high + rounding).all())
        generator = torch.Generator().manual_seed(seed)
        corner = torch.randint(0, 2, flat[0].shape, generator=generator) * 2.0 - 1
        point = (flat[0] + eps * corner).reshape(x.shape[1:])
        before, flint.ctx.prec = flint.ctx.prec, BITS
        try:
            truth = exact_front(model[:-1], each(point.tolist(), arb))
            low, high = relaxed.features.low[0].tolist(), relaxed.features.high[0].tolist()
            for value, a, b in zip(truth, low, high, strict=True):
                assert arb(a) <= value + arb(10) ** -80
                assert value <= arb(b) + arb(10) ** -80
        finally:
            flint.ctx.prec = before
        if eps == 0:
            assert bool((relaxed.features.high - relaxed.features.low < 1e-9).all())


def affine() -> Step:
    generator = torch.Generator().manual_seed(0)
    A, b = torch.randn(5, 6, generator=generator).double(), torch.randn(5, generator=generator).double()
    return Affine(A, b, 0.0, torch.zeros_like(b))


WINDOWS = torch.tensor([[0, 1, -1], [1, 2, 3], [3, 4, 5], [5, -1, -1], [0, 2, 4]])


@pytest.mark.parametrize("step", [affine(), Relu(), MaxPool(WINDOWS)], ids=["affine", "relu", "max"])
def test_a_functional_carried_back_stays_below(step: Step) -> None:
    generator = torch.Generator().manual_seed(1)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64) * 4 - 2

    low = uniform(40, 6)
    before = Box(low, low + torch.rand(40, 6, generator=generator).double() * 2)
    behind = Functional(uniform(40, 3, 6 if isinstance(step, Relu) else 5), uniform(40, 3))
    moved = back(step, behind, before)
    share = torch.rand(40, 400, 6, generator=generator).double()
    share[:, ::2] = share[:, ::2].round()  # corners, and points inside
    h = before.low[:, None] + (before.high - before.low)[:, None] * share  # (rows, points, 6)
    if isinstance(step, Affine):
        out = h @ step.A.T + step.b
    elif isinstance(step, Relu):
        out = h.relu()
    else:
        out = torch.cat([h, torch.full((40, 400, 1), -torch.inf).double()], -1)[..., WINDOWS].amax(-1)
    truth = out @ behind.slopes.mT + behind.constant[:, None]
    below = h @ moved.slopes.mT + moved.constant[:, None]
    assert bool((below <= truth + 1e-12).all())
    assert bool((moved.minimum(before)[:, None] <= truth + 1e-12).all())
    assert float((truth - below).amin(1).max()) < 4.0  # and not far below


def test_a_fixed_radius_says_what_the_search_says() -> None:
    model, x = vectors(3)
    labels = model(x).argmax(1)
    radius = mlayer.certify(model, x, labels).radius
    middle = float(radius.median())
    at = mlayer.certify(model, x, labels, eps=middle * 0.99)
    assert at.certified.tolist() == (radius >= middle * 0.99).tolist()
    wrong = mlayer.certify(model, x, (labels + 1) % 3, eps=0.01)
    assert not bool(wrong.certified.any())
    assert wrong.method == ("misclassified",) * 3
    scaled = mlayer.certify(model, x, labels, scale=torch.full((4,), 2.0)).radius
    assert torch.allclose(2 * scaled, radius, rtol=1e-2)


def note(asked: list[tuple[int, int]], done: int, total: int) -> None:
    asked.append((done, total))


def test_every_effort_is_below_the_exact_margins() -> None:
    """And more effort settles more rows; all of them together settle what the last one does."""
    settled = dict.fromkeys(EFFORTS, 0)
    for make, seed in ((vectors, 0), (vectors, 1), (images, 0), (images, 1)):
        model, x = make(seed)
        network = Network(model, tuple(x.shape[1:]))
        certifier = NetworkCertifier(network, make_region(network.in_features, "linf", None, None))
        flat, labels = x.flatten(1).double(), model(x).argmax(1)
        for eps in (0.02, 0.05, 0.1):
            size = torch.full((len(x),), eps, dtype=torch.float64)
            found = {effort: certifier.margins(flat, labels, size, effort) for effort in EFFORTS}
            generator = torch.Generator().manual_seed(seed)
            for row in range(len(x)):
                corner = torch.randint(0, 2, flat[row].shape, generator=generator) * 2.0 - 1
                values = exact_outputs(model, (flat[row] + eps * corner).reshape(x.shape[1:]))
                for lower in found.values():
                    for j in range(3):
                        if j != int(labels[row]):
                            assert arb(float(lower[row, j])) <= values[int(labels[row])] - values[j]
            for effort, lower in found.items():
                settled[effort] += int((lower > 0).all(1).sum())
            best = torch.stack([(lower > 0).all(1) for lower in found.values()]).any(0)
            asked: list[tuple[int, int]] = []
            at = certifier(flat, labels, eps, partial(note, asked))
            assert at.certified.tolist() == best.tolist()
            assert asked == sorted(asked)
            assert asked[-1] == (len(x), len(x))
    assert 0 < settled["intervals"] < settled["margins"] <= settled["boxes"] < 36


def test_zonotopes_are_tight_behind_one_layer_of_relus() -> None:
    """Boxes forget that the M-layer's features depend on each other."""
    torch.manual_seed(0)
    layer = MLayer(256, 3, matrix_size=3, embedding_size=4, init="balanced")
    with torch.no_grad():
        layer.get_parameter("embedding").mul_(10)  # so that the rest of second and third order counts
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), layer).eval()
    x = torch.rand(6, 1, 10, 10)
    labels = model(x).argmax(1)
    network = Network(model, (1, 10, 10))
    certifier = NetworkCertifier(network, make_region(100, "linf", None, None))
    size = torch.full((6,), 0.03, dtype=torch.float64)
    flat = x.flatten(1).double()
    lower = {effort: certifier.margins(flat, labels, size, effort).amin(1) for effort in EFFORTS}
    broken = mlayer.attack(model, x, labels, eps=0.03).adversarial.flatten(1)
    outputs = network(broken.double())
    reached = (outputs.gather(1, labels[:, None]) - outputs).scatter(1, labels[:, None], torch.inf).amin(1)
    assert bool((lower["zonotopes"] <= reached).all())
    lost = {effort: float((reached - least).mean()) for effort, least in lower.items()}
    assert lost["zonotopes"] < 0.7 * min(lost[effort] for effort in EFFORTS if effort != "zonotopes")


def test_a_linear_end_is_bounded_with_its_rounding() -> None:
    """Slopes that cancel: in floats C W is 0, the exact difference is not."""
    end = nn.Linear(2, 2, dtype=torch.float64).requires_grad_(False)
    with torch.no_grad():
        end.weight.copy_(torch.tensor([[1e16, 1.0], [1e16 - 2, 1.0]]))
        end.bias.copy_(torch.tensor([0.1, 0.3]))
    C = torch.tensor([[3.0, -3.0], [1 / 3, 1 / 3]], dtype=torch.float64)
    box = Box(torch.full((1, 2), -1.0).double(), torch.ones(1, 2).double())
    found = margin_functions(end, box, C)
    slopes, constant = found.slopes, found.constant
    for corner in ([-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]):
        for k in range(2):
            truth = sum(
                (
                    Fraction(float(C[k, o]))
                    * (
                        sum(
                            Fraction(float(w)) * Fraction(v)
                            for w, v in zip(end.weight[o], corner, strict=True)
                        )
                        + Fraction(float(end.bias[o]))
                    )
                    for o in range(2)
                ),
                Fraction(0),
            )
            below = sum(
                (Fraction(float(s)) * Fraction(v) for s, v in zip(slopes[0, k], corner, strict=True)),
                Fraction(float(constant[0, k])),
            )
            assert below <= truth


def test_relaxations_are_tighter_than_intervals() -> None:
    model, x = vectors(1)
    network = Network(model, (4,))
    flat = x.double()
    box = Box(flat - 0.1, flat + 0.1)
    relaxed = Relaxed(network.steps, box)
    for step in network.steps:
        box = through(step, box)
    width = relaxed.features.high - relaxed.features.low
    assert float(width.sum()) < 0.9 * float((box.high - box.low).sum())


def test_a_region_of_one_point_needs_a_proof_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64 says that the row is right; where no margin is proved there is no radius, not even there."""
    model, x = vectors(0)
    labels = model(x).argmax(1)

    def nothing(self: NetworkCertifier, x: Tensor, labels: Tensor, eps: Tensor) -> Tensor:
        return torch.full((len(x), 3), -1.0, dtype=torch.float64)

    monkeypatch.setattr(NetworkCertifier, "margins", nothing)
    for region in ({"box": (x[0], x[0])}, {"scale": 0.0}, {"scale": 0.0, "box": (-1, 2)}):
        found = mlayer.certify(model, x[:1], labels[:1], **region)
        assert float(found.radius[0]) == 0
        assert not bool(found.certified[0])


def test_what_cannot_move_has_an_infinite_radius() -> None:
    model, x = vectors(0)
    labels = model(x).argmax(1)
    for region in ({"scale": 0.0}, {"scale": torch.zeros(4), "box": (0, 1)}):
        assert bool((mlayer.certify(model, x, labels, **region).radius == torch.inf).all())


IMAGE = {"x": torch.zeros(1, 1, 2, 2)}


def model_of(*modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(*modules, MLayer(2, 2, matrix_size=2))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (model_of(nn.Tanh()), {}, r"model must be made of modules with bounds.*Known: .*\bUnflatten\b"),
        (model_of(nn.LayerNorm(2)), {}, r"certify\(model\[-1\], model\[:-1\]\(x\), labels\)"),
        (nn.Sequential(nn.Linear(2, 2)), {}, "a Sequential that ends in an MLayer.*Put an MLayer last"),
        (nn.Sequential(MLayer(2, 2), nn.Softmax(-1)), {}, "ends in Softmax. Leave it out: the largest"),
        (nn.Sequential(MLayer(2, 1, matrix_size=2)), {}, "a classifier with at least 2 outputs"),
        (
            model_of(nn.Linear(3, 2)),
            {},
            r"Linear\(3, ...\) gets.*rows of shape \(2,\)\. .*a Linear\(2, ...\)",
        ),
        (model_of(nn.Linear(4, 2)), IMAGE, r"Linear\(4, ...\) gets .*shape \(1, 2, 2\)\. Flatten first"),
        (model_of(nn.Linear(2, 3)), {}, r"front ends in \(2,\)"),
        (
            model_of(nn.Conv2d(1, 1, 1)),
            {},
            r"images .* before Conv2d .*shape \(2,\)\. Add nn.Unflatten.*x\[None\]",
        ),
        (model_of(nn.Conv2d(3, 1, 1)), {"x": torch.zeros(1, 2, 2, 3)}, r"first: x\.permute\(0, 3, 1, 2\)"),
        (model_of(nn.ReLU()), {"norm": "l2"}, "norm must be"),
        (model_of(nn.ReLU()), {"method": "paper"}, "method must be"),
        (model_of(nn.ReLU()), {"rigorous": True}, "rigorous must be False for a network"),
        (model_of(nn.ReLU()), {"x": torch.zeros(2)}, "x must be a batch"),
        (model_of(nn.ReLU()), {"x": torch.full((1, 2), torch.nan)}, "x must be finite"),
        (model_of(nn.BatchNorm1d(2, track_running_stats=False)), {}, "needs its running statistics"),
        (model_of(nn.Conv2d(1, 1, 9)), IMAGE, r"Conv2d takes shape \(1, 2, 2\).* Change its sizes"),
        (model_of(nn.MaxPool2d(9)), IMAGE, "MaxPool2d takes shape"),
        (model_of(nn.AvgPool2d(2, padding=2)), IMAGE, "AvgPool2d takes shape.*pad should be at most half"),
        (model_of(nn.Conv2d(1, 1, 1)), {"x": torch.zeros(1, 1, 0, 2)}, "Conv2d takes shape"),
        (model_of(nn.Unflatten(1, (5, 5))), {}, r"Unflatten takes shape \(2,\)"),
    ],
)
def test_what_is_refused(model: nn.Sequential, options: dict[str, Any], message: str) -> None:
    arguments = {"x": torch.zeros(1, 2), "labels": torch.zeros(1, dtype=torch.int64), "eps": 0.1, **options}
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        mlayer.certify(model, **arguments)


@pytest.mark.parametrize("pooling", [nn.MaxPool2d, nn.AvgPool2d])
def test_one_number_in_a_tuple_is_for_both_directions(pooling: Any) -> None:
    layer = MLayer(4, 2, matrix_size=2, generator=torch.Generator().manual_seed(1)).double()
    x = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    models = [nn.Sequential(pooling(size), nn.Flatten(), layer).eval() for size in (2, (2,))]
    labels = models[0](x).argmax(1)
    one, other = (mlayer.certify(model, x, labels, eps=0.01) for model in models)
    assert torch.equal(one.certified, other.certified)
