"""The synthetic data of section 4 of the paper. Each set is drawn from a seed or a generator it is given."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.checks import brief, flag, instance, integer, number, positive_integer
from mlayer.datasets.dataset_types import Table
from mlayer.errors import ArgumentError, ArgumentTypeError

Seed = int | torch.Generator

# The text says that the spirals' coordinates lie in [-10, 10]; the authors' notebook has the curve:
# radius angle / 2, three turns for training (radius 9.4), a fourth that no model has seen (12.6).
TRAINING_TURNS = 3.0
# So that a point is as likely here as there, squared angles are drawn evenly: from 0.036 turns^2 on.
_FIRST_TURNS = 12 / 2 * math.sqrt(0.001)


def spirals(count: int = 2000, *, extra_turn: int = 0, noise: float = 0.5, seed: Seed = 0) -> Table:
    """Points along two spirals, with uniform noise on each coordinate.

    Args:
        count: of points; half of them on each spiral.
        extra_turn: 0 for the training range; 1 (or True) for the turn that follows it, 2 for the next, ...
        noise: the noise is uniform in [-noise, noise]. The text has 0.5, the authors' notebook 0.25.
        seed: a number, or a torch.Generator to draw from.

    Returns:
        x (count, 2) float32; y 0 or 1.

    >>> from mlayer.datasets import spirals
    >>> points = spirals()
    >>> points.x.shape, bool(points.x.abs().max() < 10), points.y.bincount().tolist()
    (torch.Size([2000, 2]), True, [1000, 1000])
    """
    count = positive_integer("count", count)
    if count % 2:
        raise ArgumentError("count", "even", str(count), "Half of the points lie on each spiral.")
    number("noise", noise, least=0)
    integer("extra_turn", int(extra_turn) if isinstance(extra_turn, bool) else extra_turn, 0)
    random = _generator(seed)
    last = TRAINING_TURNS + extra_turn
    low, high = (last - 1, last) if extra_turn else (_FIRST_TURNS, TRAINING_TURNS)
    share = torch.rand(count, generator=random, dtype=torch.float64)
    angle = 2 * math.pi * (low**2 + (high**2 - low**2) * share).sqrt()
    points = torch.stack([angle.sin(), angle.cos()], 1) * angle[:, None] / 2
    labels = torch.arange(count) % 2
    points[labels == 1] *= -1
    points += float(noise) * (2 * torch.rand(count, 2, generator=random, dtype=torch.float64) - 1)
    return Table(points.float(), labels)


@dataclass(frozen=True)
class Cosines:
    """a_1 cos(2 pi k_1 x + p_1) + a_2 cos(2 pi k_2 x + p_2).

    >>> from mlayer.datasets import FIGURE_COSINES
    >>> FIGURE_COSINES[0].label
    '1.42 cos(6πx + 0.84) + 6.29 cos(8πx + 0.76)'
    """

    amplitudes: tuple[float, float]
    multiples: tuple[float, float]
    phases: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("amplitudes", "multiples", "phases"):
            pair = getattr(self, name)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ArgumentTypeError(
                    name, "a tuple of two numbers", brief(pair), "For example (1.0, 2.0)."
                )
            for value in pair:
                number(name, value)

    def __call__(self, x: Tensor) -> Tensor:
        """The function, without noise, in the precision of ``x``."""
        terms = zip(self.amplitudes, self.multiples, self.phases, strict=True)
        return sum((a * torch.cos(2 * math.pi * k * x + p) for a, k, p in terms), torch.zeros_like(x))

    @property
    def label(self) -> str:
        """The function in the paper's notation."""
        terms = zip(self.amplitudes, self.multiples, self.phases, strict=True)
        return " + ".join(f"{a:.2f} cos({2 * k:.6g}πx + {p:.2f})" for a, k, p in terms)


# The three functions of the paper's figure.
FIGURE_COSINES = (
    Cosines((1.42, 6.29), (3, 4), (0.84, 0.76)),
    Cosines((1.55, 5.07), (4, 7), (0.26, 0.81)),
    Cosines((1.60, 6.92), (6, 8), (0.59, 0.44)),
)


def random_cosines(seed: Seed = 0, *, whole: bool = True) -> Cosines:
    """A sum of two cosines drawn as in the text, or off its grid of frequencies.

    Frequencies are two different multiples of 2 pi from 3 to 9, amplitudes uniform in [1, 2] and [5, 10],
    phases uniform in [0, pi / 3].

    Args:
        seed: a number, or a torch.Generator to draw from.
        whole: whether the multiples are whole numbers, as in the text, which a window of whole length holds
            exactly; otherwise they are uniform in [3, 9].
    """
    flag("whole", whole)
    random = _generator(seed)
    if whole:
        first, second = (torch.randperm(7, generator=random)[:2] + 3).tolist()
    else:
        first, second = (3 + 6 * torch.rand(2, generator=random, dtype=torch.float64)).tolist()
    u = torch.rand(4, generator=random, dtype=torch.float64).tolist()
    return Cosines((1 + u[0], 5 + 5 * u[1]), (first, second), (u[2] * math.pi / 3, u[3] * math.pi / 3))


def cosine_samples(
    function: Cosines,
    start: float = 0.0,
    stop: float = 2.0,
    *,
    spacing: float = 1e-5,
    noise: float = 1e-4,
    seed: Seed = 0,
) -> Table:
    """The function at even spacing in [start, stop), with Gaussian noise: [0, 2) trains, [2, 6) tests.

    Args:
        function: what is sampled.
        start: of the range.
        stop: of the range, itself left out.
        spacing: of the points.
        noise: standard deviation; 0 for a test set.
        seed: a number, or a torch.Generator to draw from.

    Returns:
        x and y (count, 1) float32.
    """
    instance(
        "function", function, Cosines, "a Cosines", "random_cosines() draws one; FIGURE_COSINES has three."
    )
    for name, value in (("start", start), ("stop", stop)):
        number(name, value)
    number("spacing", spacing, above=0)
    number("noise", noise, least=0)
    if not stop > start or not (stop - start) / spacing < 1e9:
        raise ArgumentError(
            "spacing and stop",
            "a stop after the start, and fewer than 1e9 points between them",
            f"spacing {spacing}, start {start}, stop {stop}",
            "For example spacing=1e-5, start=0, stop=2.",
        )
    x = start + float(spacing) * torch.arange(round((stop - start) / spacing), dtype=torch.float64)[:, None]
    y = function(x)
    if noise:
        y = y + float(noise) * torch.randn(x.shape, generator=_generator(seed), dtype=torch.float64)
    return Table(x.float(), y.float())


def determinants(count: int, size: int = 3, *, seed: Seed = 0) -> Table:
    """Matrices with entries uniform in [-1, 1] and their determinants.

    Args:
        count: of matrices.
        size: of a matrix.
        seed: a number, or a torch.Generator to draw from.

    Returns:
        x (count, size * size) and y (count, 1), float32.
    """
    x = _matrices(count, size, seed)
    return Table(x.flatten(1), torch.linalg.det(x.double()).float()[:, None])


def permanents(count: int, size: int = 3, *, seed: Seed = 0) -> Table:
    """Matrices and their permanents, as `determinants`: the same sum of products, all signs positive."""
    x = _matrices(count, size, seed)
    return Table(x.flatten(1), permanent(x.double()).float()[:, None])


def permanent(matrices: Tensor) -> Tensor:
    """The permanent by its definition, for small matrices.  (N, n, n) -> (N,)

    >>> import torch
    >>> permanent(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([10.])
    """
    if not isinstance(matrices, Tensor) or matrices.dim() != 3 or matrices.shape[1] != matrices.shape[2]:
        came = f"shape {tuple(matrices.shape)}" if isinstance(matrices, Tensor) else brief(matrices)
        raise ArgumentError("matrices", "a tensor (N, n, n)", came, "Stack them with torch.stack.")
    rows = torch.arange(matrices.shape[-1])
    total = torch.zeros_like(matrices[:, 0, 0])
    for order in itertools.permutations(range(len(rows))):
        total += matrices[:, rows, torch.tensor(order)].prod(1)
    return total


def _matrices(count: int, size: int, seed: Seed) -> Tensor:
    count = positive_integer("count", count)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < 2**31:
        raise ArgumentError("size", "a positive integer", repr(size), "The paper has 3 and 5.")
    return 2 * torch.rand(count, size, size, generator=_generator(seed)) - 1


def _generator(seed: Seed) -> torch.Generator:
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentTypeError(
            "seed", "an integer or a torch.Generator", type(seed).__name__, "For example seed=0."
        )
    if not 0 <= seed < 2**63:
        raise ArgumentError("seed", "an integer from 0 to 2**63 - 1", str(seed), "For example seed=0.")
    return torch.Generator().manual_seed(seed)
