"""`from_function`: the universal-approximation corollary as a function.

A continuous function on a box is interpolated at Chebyshev points, the smallest sufficient set of Chebyshev
polynomials is kept, multiplied out in the box's own coordinates, and wired. The error is then measured with
the layer itself, rounding and all, on a grid that is finer than the interpolation points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlayer.checks import brief, positive_integer
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.nn import MLayer
from mlayer.nn.arguments import as_dtype
from mlayer.symbolic.compile.board import Word
from mlayer.symbolic.compile.lifts import in_order, wired
from mlayer.symbolic.compile.step_budget import TooManyStatesError
from mlayer.symbolic.compile.to_layer import Block, layer_of
from mlayer.symbolic.parse.lists import is_listed

MOST_VARIABLES = 4
_LEAST_POINTS, _MOST_POINTS = 3_000, 300_000
_HIGHEST_DEGREE = {1: 128, 2: 48, 3: 20, 4: 10}
_CHUNK = 4096
_LARGEST_TOLERANCE = 1e300


@dataclass(frozen=True)
class Approximation:
    """A layer that stands for a function on a box.

    Attributes:
        layer: the layer.
        error: largest difference found on the grid, over all outputs.
        points: of that grid.
        degree: of the polynomial, in each variable at most.
        terms: of the polynomials.
    """

    layer: MLayer
    error: float
    points: int
    degree: int
    terms: int


def from_function(
    f: Callable[[Tensor], Any],
    box: Any,
    tolerance: float,
    *,
    dtype: torch.dtype | None = None,
    largest: int = 200,
) -> MLayer:
    """A layer that differs from a function by at most a tolerance on a box.

    The error is measured on a grid finer than the one the function was sampled on. That is not a proof: a
    function with a narrow spike between the points of both grids is not seen.

    Args:
        f: maps a float64 tensor of points (count, variables) to values (count,) or (count, outputs).
        box: (low, high), or one such pair per variable; at most 4.
        tolerance: largest difference allowed.
        dtype: of the layer; torch's default if None.
        largest: the largest matrix allowed.

    >>> import torch
    >>> layer = from_function(lambda x: torch.exp(-x[:, 0] ** 2), (-1, 1), 1e-4)
    >>> bool((layer(torch.tensor([[0.3]])) - torch.tensor(-0.09).exp()).abs() < 1e-4)
    True
    """
    return approximate(f, box, tolerance, dtype=dtype, largest=largest).layer


def approximate(
    f: Callable[[Tensor], Any],
    box: Any,
    tolerance: float,
    *,
    dtype: torch.dtype | None = None,
    largest: int = 200,
) -> Approximation:
    """The layer of :func:`from_function`, with the measured error and the size of the polynomial."""
    sides = _sides(box)
    if not isinstance(tolerance, (int, float)) or not 0 < tolerance <= _LARGEST_TOLERANCE:
        raise ArgumentError(
            "tolerance",
            f"a positive number of at most {_LARGEST_TOLERANCE:g}",
            brief(tolerance),
            "For example 1e-4.",
        )
    if not callable(f):
        raise ArgumentTypeError("f", "a callable", type(f).__name__, "For example lambda x: x[:, 0].exp().")
    positive_integer("largest", largest)
    dtype = as_dtype(dtype)
    count = len(sides)
    best: tuple[float, int] | None = None
    worse = False
    degree, highest = 4, _HIGHEST_DEGREE[count]
    while True:
        coefficients = _chebyshev(f, sides, degree)
        per_side = max(3 * degree + 2, round(_LEAST_POINTS ** (1 / count)))
        grid = _grid(sides, min(per_side, int(_MOST_POINTS ** (1 / count))))
        wanted = _values(f, grid)
        if wanted.shape[1] != coefficients.shape[-1]:
            raise ArgumentError(
                "f",
                "a function with the same number of outputs at all points",
                f"{coefficients.shape[-1]} for some and {wanted.shape[1]} for others",
                "It is called with many points at once.",
            )
        # Half of the tolerance is for truncation, half for the error between grid points and for rounding.
        kept = _truncated(coefficients, 0.5 * tolerance)
        layer = _wired(kept, sides, largest, dtype)
        if layer is not None:
            error = _error(layer, grid, wanted)
            if error <= tolerance:
                largest_power = max((max(m) for p in kept for m in p), default=0)
                return Approximation(layer, error, len(grid), largest_power, sum(len(p) for p in kept))
            worse = best is not None and error > 2 * best[0]
            if best is None or error < best[0]:
                best = (error, layer.matrix_size)
        # Once rounding grows faster than the series falls, higher degrees only make it worse.
        if layer is None or worse or degree >= highest:
            raise _refusal(tolerance, best, largest, degree, dtype)
        degree = min(highest, degree + max(2, degree // 2))


def _refusal(
    tolerance: float, best: tuple[float, int] | None, largest: int, degree: int, dtype: torch.dtype
) -> ArgumentError:
    reached = (
        "none, the first series needs a larger matrix"
        if best is None
        else f"{best[0]:.2g} with size {best[1]}"
    )
    return ArgumentError(
        "tolerance",
        f"one that a matrix of size {largest} (`largest`) and {str(dtype).removeprefix('torch.')} reach",
        f"{tolerance:g} (best error: {reached}; degree {degree} was the last tried)",
        "Allow a larger error, a larger matrix or float64, or cut the box into smaller ones.",
    )


def _sides(box: Any) -> list[tuple[float, float]]:
    pairs: list[tuple[float, ...]] = []
    try:  # a tensor may be one without numbers, or nested
        short = isinstance(box, Tensor | np.ndarray) and math.prod(box.shape) <= 2 * MOST_VARIABLES
        sides = box.tolist() if short else box
        if _is_short(sides):
            several = all(_is_short(side) for side in sides)
            pairs = [tuple(float(x) for x in side) for side in (sides if several else [sides])]
    except Exception:  # whatever __float__ of a foreign class raises
        pairs = []
    good = all(len(p) == 2 and -math.inf < p[0] < p[-1] < math.inf for p in pairs)
    if not pairs or not good or len(pairs) > MOST_VARIABLES:
        raise ArgumentError(
            "box",
            f"a pair (low, high), or 1 to {MOST_VARIABLES} such pairs, low < high",
            _box_in_words(box),
            "For example [(-1, 1), (0, 2)].",
        )
    return [(p[0], p[1]) for p in pairs]


def _box_in_words(box: Any) -> str:
    if not _is_short(box):
        return brief(box)
    return str([[brief(x) for x in side] if _is_short(side) else brief(side) for side in box])


def _is_short(value: Any) -> bool:
    return is_listed(value) and len(value) <= MOST_VARIABLES


def _values(f: Callable[[Tensor], Any], points: Tensor) -> Tensor:
    try:
        given = f(points.clone())
    except Exception as error:
        raise ArgumentError(
            "f",
            "a function of many points at once, a float64 tensor (count, variables)",
            f"one that raises {type(error).__name__}: {_first_line(error)}",
            "A float32 model can be converted first: model.double().",
        ) from error
    try:
        values = torch.as_tensor(given).detach()
        dense = values.layout == torch.strided and not (values.is_nested or values.is_meta)
        if values.is_complex() or not dense or np.ma.isMaskedArray(given):
            raise TypeError("a real part, or what is not masked, is not what was given")
        values = values.to(dtype=torch.float64)
    except Exception:  # whatever __float__ of a foreign class raises
        kind = str(given.dtype) if isinstance(given, Tensor) else brief(given)
        raise ArgumentTypeError(
            "f", "a function that returns real numbers", kind, "It is called with many points at once."
        ) from None
    if values.dim() == 1:
        values = values[:, None]
    if values.dim() != 2 or len(values) != len(points) or not values.shape[1]:
        raise ArgumentError(
            "f",
            "a function of points (count, variables) to (count,) or (count, outputs)",
            f"shape {tuple(values.shape)} for {len(points)} points",
            "It is called with many points at once.",
        )
    if not values.isfinite().all():
        raise ArgumentError("f", "finite on the box", "nan or infinity", "Choose a box without poles.")
    return values


def _first_line(error: Exception) -> str:
    try:
        return in_one_line(error)
    except Exception:  # a class whose errors have no words
        return ""


def _grid(sides: Sequence[tuple[float, float]], per_side: int) -> Tensor:
    axes = [torch.linspace(low, high, per_side, dtype=torch.float64) for low, high in sides]
    return torch.cartesian_prod(*axes).reshape(-1, len(sides))


def _chebyshev(f: Callable[[Tensor], Any], sides: Sequence[tuple[float, float]], degree: int) -> Tensor:
    """Chebyshev coefficients by interpolation.  (degree + 1, ..., degree + 1, outputs)"""
    k = torch.arange(degree + 1, dtype=torch.float64)
    angle = (k + 0.5) * math.pi / (degree + 1)
    nodes = torch.cos(angle)
    axes = [(low + high) / 2 + (high - low) / 2 * nodes for low, high in sides]
    values = _values(f, torch.cartesian_prod(*axes).reshape(-1, len(sides)))
    transform = torch.cos(k[:, None] * angle[None, :]) * (2 / (degree + 1))
    transform[0] /= 2
    table = values.reshape(*[degree + 1] * len(sides), -1)
    for axis in range(len(sides)):
        table = torch.tensordot(transform, table, dims=([1], [axis])).movedim(0, axis)
    return table


def _truncated(table: Tensor, budget: float) -> list[dict[tuple[int, ...], Fraction]]:
    """The polynomials, multiplied out, without the highest degrees that are worth less than the budget."""
    count = table.dim() - 1
    degrees = torch.stack(torch.meshgrid(*[torch.arange(s) for s in table.shape[:-1]], indexing="ij"))
    total = degrees.sum(0)
    worth = [table[total == d].abs().sum(0).max().item() for d in range(int(total.max()) + 1)]
    last = len(worth) - 1
    spent = 0.0
    while last > 0 and spent + worth[last] <= budget / 2:
        spent += worth[last]
        last -= 1
    powers = [_chebyshev_powers(d) for d in range(max(table.shape[:-1]))]
    polynomials = []
    # Single small coefficients go too, as long as their sum keeps within the other half of the budget.
    small = budget / 2 / max(1, int((total <= last).sum()))
    for m in range(table.shape[-1]):
        polynomial: dict[tuple[int, ...], Fraction] = {}
        for index in itertools.product(*(range(s) for s in table.shape[:-1])):
            value = float(table[(*index, m)])
            if sum(index) > last or abs(value) <= small:
                continue
            for terms in itertools.product(*(powers[d].items() for d in index)):
                key = tuple(power for power, _ in terms)
                coefficient = Fraction(value) * math.prod(c for _, c in terms)
                polynomial[key] = polynomial.get(key, Fraction(0)) + coefficient
        polynomials.append(
            {key: value for key, value in polynomial.items() if value} or {(0,) * count: Fraction(0)}
        )
    return polynomials


def _chebyshev_powers(degree: int) -> dict[int, int]:
    """The Chebyshev polynomial multiplied out: power -> coefficient."""
    before, now = {0: 1}, {1: 1}
    if degree == 0:
        return before
    for _ in range(degree - 1):
        after = {power + 1: 2 * c for power, c in now.items()}
        for power, c in before.items():
            after[power] = after.get(power, 0) - c
        before, now = now, after
    return now


def _wired(
    polynomials: list[dict[tuple[int, ...], Fraction]],
    sides: Sequence[tuple[float, float]],
    largest: int,
    dtype: torch.dtype,
) -> MLayer | None:
    """The layer, or None if it would be too large.

    Prefixes in the first variables meet suffixes in the last: in two variables of degree d, 2 d + 1 states
    instead of d^2. Not reduced further: exact elimination is blind to the size of numbers.
    """
    count = len(sides)
    first = set(range(count // 2))

    def cut(word: Word) -> int:
        return sum(letter in first for letter in word)

    try:
        board = wired([in_order(p, range(count)) for p in polynomials], cut, largest)
    except TooManyStatesError:
        return None
    low = torch.tensor([side[0] for side in sides], dtype=torch.float64)
    high = torch.tensor([side[1] for side in sides], dtype=torch.float64)
    embedding = (torch.diag(2 / (high - low)), -(high + low) / (high - low))
    zeros = (Fraction(0),) * count
    blocks = [Block(board, zeros, zeros)] if board.edges else []
    return layer_of(blocks, board.constants, count, dtype, embedding)


@torch.no_grad()
def _error(layer: MLayer, grid: Tensor, wanted: Tensor) -> float:
    dtype = layer.readout.dtype
    found = torch.cat([layer(chunk.to(dtype)).double() for chunk in grid.split(_CHUNK)])
    error = (found - wanted).abs().max().item()
    return error if math.isfinite(error) else math.inf
