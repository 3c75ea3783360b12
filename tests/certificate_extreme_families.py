"""More families of layers: polynomials whose bounds are exact, cancellation within exp(M), ends of ranges.

As in `certificate_families.py`, whose table takes them in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from certificate_drafts import Case, Draft, Random, draft, inputs
from mlayer import MLayer
from mlayer.nn import BlockTriangular


def _of_norm(random: Random) -> dict[str, str]:
    return {"norm": str(random.choice(["linf", "l2"]))}


def half_precision(random: Random) -> Case:
    dtype = torch.float16 if random.random() < 0.5 else torch.bfloat16
    weights = draft(random)
    x = torch.from_numpy(inputs(random, weights)).to(dtype).double().numpy()
    return Case(weights.layer(dtype), x, _of_norm(random))


def without_embedding(random: Random) -> Case:
    """The inputs are the features; no biases but the outputs'."""
    weights = draft(random)
    T, S, V = (torch.from_numpy(array) for array in (weights.T, weights.S, weights.V))
    x = random.standard_normal((2, len(T)))
    return Case(MLayer.from_weights(T, S, output_bias=V), x, _of_norm(random))


def many_inputs(random: Random) -> Case:
    """Sums of many terms of different size, most of which cancel."""
    m = int(random.integers(30, 120))
    weights = draft(random, m=m, size=0.3)
    weights.U = weights.U * 10.0 ** random.uniform(-6, 0, (m, 1))
    x = random.standard_normal((1, m)) * 10.0 ** random.uniform(0, 6, m)
    weights.u = -x[0] @ weights.U + 0.1 * weights.u
    return Case(weights.layer(), x, _of_norm(random))


def _polynomial(random: Random, n: int, m: int) -> Draft:
    weights = draft(random, n=n, m=m)
    weights.T, weights.B = np.triu(weights.T, 1), np.triu(weights.B, 1)
    weights.structure = "nilpotent"
    return weights


def linear(random: Random) -> Case:
    """Degree one, where the bound of first order is exact: only rounding is between it and the truth."""
    weights = _polynomial(random, 2, int(random.integers(1, 6)))
    weights.U = weights.U * 10.0 ** random.uniform(-8, 8, weights.U.shape)
    shift = 10.0 ** random.uniform(0, 12)
    weights.u, weights.B = weights.u + shift, weights.B - shift * weights.T.sum(0)
    scale = torch.from_numpy(10.0 ** random.uniform(-6, 6, len(weights.U)))
    x = inputs(random, weights) * 1e-9
    return Case(weights.layer(), x, {"scale": scale, **_of_norm(random)})


def quadratic(random: Random) -> Case:
    """Degree two with slopes that outweigh the curvature: exact in a corner."""
    weights = _polynomial(random, 3, int(random.integers(1, 4)))
    weights.T[:, 0, 1] *= 10.0 ** -random.uniform(0, 4)
    box = {"box": (-1.0, 1.5)} if random.random() < 0.5 else {}
    return Case(weights.layer(), np.clip(inputs(random, weights), -1, 1.5), box)


def high_degree(random: Random) -> Case:
    """Polynomials of degree four to six."""
    n = int(random.integers(5, 8))
    weights = _polynomial(random, n, int(random.integers(1, 4)))
    return Case(weights.layer(), inputs(random, weights), _of_norm(random))


def block_triangular(random: Random) -> Case:
    """The expansion ends by blocks: degree two with a matrix of five rows."""
    weights = draft(random, n=5)
    mask = np.triu(np.ones((5, 5)), 1)
    mask[0, 1] = mask[3, 4] = 0
    weights.T, weights.B, weights.structure = weights.T * mask, weights.B * mask, BlockTriangular([2, 1, 2])
    return Case(weights.layer(), inputs(random, weights), _of_norm(random))


def one_entry(random: Random) -> Case:
    """A margin that is one entry of exp(M), near its root: terms cancel within the exponential."""
    weights = _polynomial(random, int(random.integers(2, 5)), int(random.integers(1, 3)))
    if random.random() < 0.5:  # not a polynomial
        weights.B, weights.structure = weights.B + random.uniform(-1, 1) * np.eye(len(weights.B)), "full"
    weights.S, weights.V = 0 * weights.S[:2], np.zeros(2)
    weights.S[0, 0, -1] = 1
    return Case(weights.layer(), random.standard_normal((4, len(weights.U))), _of_norm(random))


def graded(random: Random) -> Case:
    """Entries that grow or fall from row to row and column to column, and a readout of the smallest."""
    weights = draft(random, n=int(random.integers(2, 5)))
    n = len(weights.B)
    size = 10.0 ** (float(random.choice([-3, -1, 2])) * np.arange(n))
    outer = size[:, None] * size
    weights.T, weights.B = weights.T * outer / outer.max(), weights.B * outer / outer.max()
    weights.S = weights.S / outer * outer.min()
    weights.V = weights.V * 1e-3
    return Case(weights.layer(), inputs(random, weights))


def faded(random: Random) -> Case:
    """exp(M) is 0 in float64 at the input and not within reach, beside biases as small."""
    weights = draft(random, n=int(random.integers(1, 3)))
    weights.B = weights.B - np.eye(len(weights.B)) * float(random.choice([600, 745, 760, 1000]))
    weights.U = weights.U * float(random.choice([1, 100, 500]))
    weights.V = weights.V * 10.0 ** -random.uniform(100, 310)
    weights.u = 0 * weights.u
    return Case(weights.layer(), inputs(random, weights, 1e-3), _of_norm(random))


def held_still(random: Random) -> Case:
    """Units of 0 for all inputs but one, or for all."""
    weights = draft(random, m=3)
    scale = torch.zeros(3, dtype=torch.float64)
    if random.random() < 0.7:
        scale[int(random.integers(3))] = 10.0 ** random.uniform(-3, 3)
    box = {"box": (-1.0, 1.0)} if random.random() < 0.5 else {}
    x = np.clip(inputs(random, weights), -1, 1)
    return Case(weights.layer(), x, {"scale": scale, **box})


def box_of_a_point(random: Random) -> Case:
    """Boxes whose ends are next to each other as numbers, or equal."""
    weights = draft(random)
    x = inputs(random, weights)
    x[1] = x[0] = x[1] * 10.0 ** random.uniform(-3, 9)
    moves = random.random((2, len(x[0]))) < 0.6
    low, high = np.where(moves, np.nextafter(x[0], [[-np.inf], [np.inf]]), x[0])
    return Case(weights.layer(), x[:1], {"box": (torch.from_numpy(low), torch.from_numpy(high))})


def far_box(random: Random) -> Case:
    """Ends far beyond every step: of a bounded wave the whole box is certified."""
    weights = draft(random, n=2, size=0.4)
    weights.T, weights.B = weights.T - weights.T.transpose(0, 2, 1), weights.B - weights.B.T
    weights.structure = "skew"
    weights.V[0] += float(random.choice([0.5, 2.0, 20.0]))
    far = 10.0 ** random.uniform(0, 30)
    return Case(weights.layer(), inputs(random, weights), {"box": (-far - 5, far + 5)})


def almost_equal_readouts(random: Random) -> Case:
    """Rivals whose readouts differ from the label's by one unit in the last place, or are the same."""
    weights = draft(random)
    other = np.nextafter(weights.S[0], np.inf)
    weights.S = np.stack([weights.S[0], other, weights.S[0]])
    weights.V = np.array([0.0, -float(random.choice([1e-17, 1e-16, 1e-13, 1.0])), -0.5])
    return Case(weights.layer(), inputs(random, weights))


FAMILIES: dict[str, Callable[[Random], Case]] = {
    family.__name__: family
    for family in (
        half_precision,
        without_embedding,
        many_inputs,
        linear,
        quadratic,
        high_degree,
        block_triangular,
        one_entry,
        graded,
        faded,
        held_still,
        box_of_a_point,
        far_box,
        almost_equal_readouts,
    )
}
