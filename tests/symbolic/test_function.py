"""Functions in: the error on points that were not used, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.symbolic import approximate, from_function


def runge(x: Tensor) -> Tensor:
    return 1 / (1 + 25 * x[:, 0] ** 2)


@pytest.mark.parametrize(
    ("f", "box", "tolerance"),
    [
        (lambda x: x[:, 0].exp(), (-1, 1), 1e-10),
        (lambda x: x[:, 0].sin(), [(0, 10)], 1e-7),
        (lambda x: (x[:, 0] * x[:, 1]).sin() + x[:, 1] ** 2, [(-2, 2), (0, 3)], 1e-5),
        (lambda x: torch.stack([x[:, 0] * x[:, 1], x[:, 2].cos()], 1), [(-1, 1)] * 3, 1e-4),
        (lambda x: 0 * x[:, 0] + 2, (-1, 1), 1e-9),
        (runge, (-1, 1), 1e-2),
    ],
)
def test_within_the_tolerance_elsewhere(f: object, box: object, tolerance: float) -> None:
    found = approximate(f, box, tolerance, dtype=torch.float64)  # type: ignore[arg-type]
    sides = torch.tensor([box] if isinstance(box, tuple) else box, dtype=torch.float64)
    points = torch.rand(500, len(sides), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = sides[:, 0] + points * (sides[:, 1] - sides[:, 0])
    wanted = f(points).reshape(500, -1)  # type: ignore[operator]
    assert found.error <= tolerance
    assert (found.layer(points) - wanted).abs().max() <= 1.2 * tolerance


def test_two_variables_take_the_sum_of_the_degrees() -> None:
    found = approximate(lambda x: (x[:, 0] + x[:, 1]).exp(), [(-1, 1)] * 2, 1e-6, dtype=torch.float64)
    assert found.layer.matrix_size <= 2 * found.degree + 2 < found.terms


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match=r"size 12 .*best error"):
        from_function(runge, (-1, 1), 1e-4, largest=12)
    with pytest.raises(ArgumentError, match="cut the box"):
        from_function(lambda x: x[:, 0].sign(), (-1, 1), 1e-2)
    with pytest.raises(ArgumentError, match="tolerance must be a positive"):
        from_function(runge, (-1, 1), 0)
    with pytest.raises(ArgumentError, match="low < high"):
        from_function(runge, (1, -1), 1e-2)
    with pytest.raises(ArgumentError, match="low < high"):
        from_function(runge, [(-1, 1)] * 5, 1e-2)
    with pytest.raises(ArgumentError, match="finite on the box"):
        from_function(lambda x: x[:, 0].log(), (-1, 1), 1e-2)
    with pytest.raises(ArgumentError, match="shape"):
        from_function(lambda x: x.sum(), (-1, 1), 1e-2)
    with pytest.raises(ArgumentTypeError, match="callable"):
        from_function("x", (-1, 1), 1e-2)  # type: ignore[arg-type]


class NoNumber:
    def __float__(self) -> float:
        raise KeyError("no number")


class NoWordsError(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


def raising(_: Tensor) -> Tensor:
    raise NoWordsError


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x[:, 0] + 1j, r"real numbers; got torch\.complex128"),
        (lambda x: x.to_sparse(), "real numbers"),
        (lambda x: x[:, 0].to("meta"), "real numbers"),
        (lambda x: np.ma.MaskedArray(x[:, 0].numpy(), mask=True), "real numbers"),
        (lambda x: [NoNumber()] * len(x), "real numbers"),
        (lambda x: x[:, :0], "shape"),
        (lambda x: x.expand(-1, 1 if len(x) < 10 else 2), "the same number of outputs at all points; got 1"),
        (raising, "one that raises NoWordsError"),
    ],
)
def test_what_is_not_a_real_function_is_refused(f: Any, message: str) -> None:
    """The imaginary part of values was left out, and what a mask hides was taken."""
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        from_function(f, (0, 1), 1e-2)
    with pytest.raises(ArgumentError, match="low < high"):
        from_function(runge, (NoNumber(), 1), 1e-2)
