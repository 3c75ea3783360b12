"""The other rows of the table, and the timing."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from mlayer.experiments import baselines, reproduce, timing
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.image_rivals import MAXOUT_WIDTHS, Maxout, ODEBlock, Solver, rival
from mlayer.experiments.shared.over_seeds import best_rate

CIFAR, MNIST = (32, 32, 3), (28, 28, 1)


@pytest.mark.parametrize(
    ("name", "of", "shape", "count"),
    [
        ("sigmoid", "cifar10", CIFAR, 8_049_010),
        ("ReLU", "cifar10", CIFAR, 8_049_010),
        ("PReLU", "cifar10", CIFAR, 8_049_010 + 3),
        ("maxout", "cifar10", CIFAR, 8_049_010),
        ("NODE", "mnist", MNIST, 84_395),
        ("ANODE", "mnist", MNIST, 84_816),
        ("NODE", "cifar10", CIFAR, 172_358),
        ("ANODE", "svhn", CIFAR, 171_799),
    ],
)
def test_parameter_counts(name: str, of: str, shape: tuple[int, ...], count: int) -> None:
    assert parameter_count(rival(name, of, shape, 10, torch.Generator())) == count


def maxout_count(widths: tuple[int, ...], maps: int) -> int:
    sizes = (3072, *widths)
    hidden = sum((a + 1) * maps * b for a, b in pairwise(sizes))
    return hidden + (sizes[-1] + 1) * 10


def test_what_is_said_of_maxout_widths() -> None:
    assert maxout_count((1600, 1200, 1000), 2) == 16_088_010
    assert 3073 * 1600 + 801 * 1200 + 601 * 1000 + 501 * 10 == 6_484_010
    assert maxout_count(MAXOUT_WIDTHS, 2) == maxout_count((1600, 1200, 1000), 1) == 8_049_010
    for maps in (2, 3, 4, 5):
        for first in range(100, 8_049_010 // (3073 * maps), 100):
            # With one and two given, the count is linear in the width of a further layer.
            rest = 8_049_010 - maxout_count((first,), maps)
            assert rest != 0
            given = 8_049_000 - 3073 * maps * first
            assert given % ((first + 1) * maps + 10) or (given // ((first + 1) * maps + 10)) % 100
            for second in range(100, given // (maps * (first + 1)) + 1, 100):
                left = given - (first + 1) * maps * second
                third, over = divmod(left, (second + 1) * maps + 10)
                assert over or third % 100 or third == 0


def test_maxout_takes_the_larger_of_each_pair() -> None:
    x = torch.tensor([[1.0, 2.0, -3.0, -4.0]])
    assert Maxout()(x).tolist() == [[2.0, -3.0]]


@torch.no_grad()
def test_the_ode_is_solved() -> None:
    # All filters pass h on and the last one multiplies by a: h' = a h for h > 0, so h(1) = e^a h(0).
    a = 0.7
    block = ODEBlock((4, 5, 1), 1, 0, 2, torch.Generator().manual_seed(0))
    for module, value in zip(list(block.derivative)[::2], (1.0, 1.0, a), strict=True):
        assert isinstance(module, torch.nn.Conv2d)
        module.weight.zero_()
        module.weight[0, 0, module.weight.shape[2] // 2, module.weight.shape[3] // 2] = value
    x = torch.rand(3, 20, generator=torch.Generator().manual_seed(1)) + 0.1
    torch.testing.assert_close(block(x), block.readout(math.exp(a) * x), rtol=3e-3, atol=3e-3)


@torch.no_grad()
def test_anode_adds_channels_of_zeros() -> None:
    block = ODEBlock((2, 2, 3), 4, 2, 5, torch.Generator().manual_seed(0))
    for parameter in block.derivative.parameters():
        parameter.zero_()
    x = torch.rand(3, 12, generator=torch.Generator().manual_seed(1))
    channels_first = x.view(3, 2, 2, 3).permute(0, 3, 1, 2)
    zeros = torch.zeros(3, 2, 2, 2)
    expected = block.readout(torch.cat([channels_first, zeros], 1).flatten(1))
    torch.testing.assert_close(block(x), expected)


@torch.no_grad()
@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("midpoint", 2)])
def test_fixed_steps_come_to_dopri5_at_their_order(method: str, order: int) -> None:
    block = ODEBlock((6, 5, 2), 7, 3, 4, torch.Generator().manual_seed(0)).double()
    for module in block.derivative:  # smooth, or the kinks of the ReLU would spoil the order
        if isinstance(module, torch.nn.Conv2d):
            module.weight.abs_().div_(4)
            assert module.bias is not None
            module.bias.fill_(0.3)
    x = torch.rand(3, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def solved(steps: int) -> torch.Tensor:
        block.solver = Solver(method, steps)
        return block(x)

    exact = solved(256)
    errors = [float((solved(steps) - exact).abs().max()) for steps in (2, 4)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.5)
    block.solver = Solver("dopri5")
    torch.testing.assert_close(block(x), exact, rtol=1e-3, atol=1e-3)


def test_all_rows_of_the_table_are_in_the_full_run() -> None:
    full = baselines.SCALES["full"]
    assert sorted(full.rows) == sorted(
        (of, net) for of in baselines.EXPECTED for net in baselines.EXPECTED[of]
    )
    assert (full.part, full.dense_epochs, full.seeds) == (1.0, 100, 3)
    default = baselines.SCALES["default"]
    assert [net for _, net in default.rows] == ["sigmoid", "ReLU", "PReLU", "maxout"]
    assert (default.part, default.dense_epochs) == (1.0, 100)


def test_figures_come_from_whole_sets_only() -> None:
    row = {"set": "mnist", "net": "ANODE", "test_accuracy": 90.0, "epochs": 20, "test_accuracy_dopri5": 91.0}
    part = {"rows": [row | {"whole": False}]}
    whole = {"rows": [row | {"whole": True}, row | {"whole": True, "test_accuracy": 92.0}]}
    assert baselines.headline(part) == {}
    figures = baselines.headline(whole)
    assert figures["baselines.mnist.ANODE.mean"] == 91.0
    assert figures["baselines.mnist.ANODE.sd"] == pytest.approx(math.sqrt(2), abs=1e-3)
    assert figures["baselines.mnist.ANODE.dopri5"] == 91.0


def test_the_rate_is_the_best_on_validation() -> None:
    search = [
        {"set": "a", "net": net, "learning_rate": rate, "validation_accuracy": value}
        for net, rate, value in (("ReLU", 0.1, 50.0), ("ReLU", 0.3, 60.0), ("maxout", 0.1, 70.0))
    ]
    assert best_rate(search, set="a", net="ReLU") == 0.3


@pytest.mark.slow
def test_baselines_smoke(tmp_path: Path) -> None:
    record = reproduce("baselines", "smoke", out=tmp_path)
    rows = {row["net"]: row for row in record["results"]["rows"]}
    assert len(rows) == 6
    assert len(record["results"]["search"]) == 8  # two rates of four dense nets
    assert rows["ReLU"]["test_accuracy"] > 25
    assert 0 <= rows["ReLU"]["validation_accuracy"] <= 100
    for net in ("NODE", "ANODE"):
        assert (rows[net]["solver"], rows[net]["steps"]) == ("rk4", 2)
        assert abs(rows[net]["test_accuracy_dopri5"] - rows[net]["test_accuracy"]) < 20
    assert record["headline"] == {}  # a part of the set
    assert (tmp_path / "baselines.smoke.png").stat().st_size > 5000


def test_timing_counts_and_ratio(tmp_path: Path) -> None:
    results = timing.run(timing.SCALES["smoke"], RunContext())
    assert results["parameters"] == {"m_layer": 148_965, "dnn": 147_649}
    assert [len(times) for times in results["seconds"].values()] == [2, 2]
    low, high = sorted(results["ratios"])
    assert low <= results["ratio"] <= high
    assert timing.headline(results)["timing.ratio"] == pytest.approx(results["ratio"], abs=1e-3)
    assert timing.plot(results).axes
