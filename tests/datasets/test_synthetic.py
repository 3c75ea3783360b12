"""The made-up sets follow section 4 of the paper."""

from __future__ import annotations

import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from mlayer.datasets import (
    FIGURE_COSINES,
    Cosines,
    cosine_samples,
    determinants,
    permanents,
    random_cosines,
    spirals,
)
from mlayer.errors import ArgumentError, ArgumentTypeError


def test_spirals_lie_on_two_spirals() -> None:
    exact = spirals(2000, noise=0.0, seed=1)
    angle = 2 * exact.x.norm(dim=1)  # radius angle / 2
    assert angle.max() <= 6 * math.pi + 1e-4
    assert angle.max() > 6 * math.pi - 0.1
    sign = 1 - 2 * exact.y.float()
    curve = torch.stack([angle.sin(), angle.cos()], 1) * (angle * sign / 2)[:, None]
    torch.testing.assert_close(exact.x, curve, atol=2e-4, rtol=0)
    assert exact.y.bincount().tolist() == [1000, 1000]


def test_the_extra_turn_begins_where_training_ends() -> None:
    inside, extra = spirals(2000, noise=0.0), spirals(2000, noise=0.0, extra_turn=True)
    assert inside.x.norm(dim=1).max() <= extra.x.norm(dim=1).min() + 1e-4
    assert extra.x.norm(dim=1).max() <= 4 * math.pi + 1e-4
    assert inside.x.abs().max() < 10
    assert extra.x.abs().max() < 14


def test_noise_of_the_spirals_is_uniform_on_each_coordinate() -> None:
    noise = spirals(20_000, seed=3).x - spirals(20_000, noise=0.0, seed=3).x
    assert 0.49 < noise.abs().max() <= 0.5 + 1e-5
    torch.testing.assert_close(noise.std(0), torch.full((2,), 0.5 / math.sqrt(3)), atol=5e-3, rtol=0)
    assert abs(np.corrcoef(noise.T.numpy())[0, 1]) < 0.03


def test_figure_cosines() -> None:
    x = torch.tensor([0.3], dtype=torch.float64)
    wanted = 1.42 * math.cos(6 * math.pi * 0.3 + 0.84) + 6.29 * math.cos(8 * math.pi * 0.3 + 0.76)
    assert FIGURE_COSINES[0](x).item() == pytest.approx(wanted, abs=1e-12)
    assert FIGURE_COSINES[2].label == "1.60 cos(12πx + 0.59) + 6.92 cos(16πx + 0.44)"


def test_random_cosines_are_drawn_as_in_the_text() -> None:
    functions = [random_cosines(seed) for seed in range(300)]
    assert {k for f in functions for k in f.multiples} == set(range(3, 10))
    assert all(f.multiples[0] != f.multiples[1] for f in functions)
    for part, low, high in ((0, 1, 2), (1, 5, 10)):
        values = [f.amplitudes[part] for f in functions]
        assert low <= min(values) < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < max(values) <= high
    phases = [p for f in functions for p in f.phases]
    assert min(phases) >= 0
    assert math.pi / 3 - 0.05 < max(phases) <= math.pi / 3


def test_cosine_samples() -> None:
    function = Cosines((1.0, 6.0), (3, 4), (0.1, 0.2))
    train, test = cosine_samples(function), cosine_samples(function, 2, 6, noise=0.0)
    assert (len(train), len(test)) == (200_000, 400_000)
    assert train.x[0].item() == 0.0
    assert test.x[0].item() == 2.0
    assert train.x.max() < 2
    assert 5.9999 < test.x.max() <= 6
    exact = np.cos(6 * np.pi * 2.5 + 0.1) + 6 * np.cos(8 * np.pi * 2.5 + 0.2)
    assert test.y[50_000].item() == pytest.approx(exact, abs=1e-5)
    noise = train.y.double() - function(1e-5 * torch.arange(200_000, dtype=torch.float64)[:, None])
    assert noise.std().item() == pytest.approx(1e-4, rel=0.02)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_determinants_and_permanents_against_their_definition(size: int) -> None:
    for table, signed in ((determinants(20, size, seed=2), True), (permanents(20, size, seed=2), False)):
        for row, y in zip(table.x.reshape(-1, size, size).tolist(), table.y[:, 0].tolist(), strict=True):
            total = 0.0
            for order in itertools.permutations(range(size)):
                inversions = sum(a > b for a, b in itertools.combinations(order, 2))
                sign = -1 if signed and inversions % 2 else 1
                total += sign * math.prod(row[i][j] for i, j in enumerate(order))
            assert y == pytest.approx(total, abs=1e-6)


def test_scale_of_the_determinant() -> None:
    """The text: the expected square is n! / 3^n."""
    for size, square in ((3, 2 / 9), (5, 40 / 81)):
        table = determinants(200_000, size)
        assert table.y.square().mean().item() == pytest.approx(square, rel=0.03)
        assert -1 <= table.x.min() < -0.999 < 0.999 < table.x.max() <= 1


def test_seeds() -> None:
    state = torch.get_rng_state()
    makers = (
        lambda seed: spirals(10, seed=seed).x,
        lambda seed: torch.tensor(random_cosines(seed).amplitudes),
        lambda seed: cosine_samples(FIGURE_COSINES[0], 0, 0.001, seed=seed).y,
        lambda seed: determinants(10, seed=seed).x,
        lambda seed: permanents(10, seed=seed).x,
    )
    for make in makers:
        assert torch.equal(make(1), make(1))
        assert not torch.equal(make(1), make(2))
        assert torch.equal(make(torch.Generator().manual_seed(1)), make(1))
        generator = torch.Generator()
        assert not torch.equal(make(generator), make(generator))
    assert torch.equal(torch.get_rng_state(), state)


def test_invalid_arguments() -> None:
    with pytest.raises(ArgumentError, match="count must be even; got 7"):
        spirals(7)
    with pytest.raises(ArgumentError, match="count must be a positive integer; got 0"):
        determinants(0)
    with pytest.raises(ArgumentError, match=r"size must be a positive integer; got 1\.5"):
        permanents(3, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"seed must be an integer or a torch.Generator; got str"):
        spirals(4, seed="x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="spacing must be a finite number above 0; got 0"):
        cosine_samples(FIGURE_COSINES[0], spacing=0)


def test_every_extra_turn_begins_where_the_one_before_ends() -> None:
    radius = [spirals(2000, noise=0.0, extra_turn=k).x.norm(dim=1) for k in range(4)]
    for before, after in pairwise(radius):
        assert before.max() <= after.min() + 1e-3
        assert after.max() == pytest.approx(before.max().item() + math.pi, abs=0.01)
    assert torch.equal(spirals(100, extra_turn=True).x, spirals(100, extra_turn=1).x)


def test_random_cosines_off_the_grid() -> None:
    functions = [random_cosines(seed, whole=False) for seed in range(300)]
    multiples = [k for f in functions for k in f.multiples]
    assert 3 <= min(multiples) < 3.1
    assert 8.9 < max(multiples) <= 9
    assert not any(float(k).is_integer() for k in multiples)
