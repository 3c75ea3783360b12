"""Families of layers that are hard on certificates: canceling, vanishing, saturated, defective, tied, ...

Each family is a function of a random generator that returns a `Case`. Sizes are small, so that the truth can
be evaluated in balls at every corner of the region.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import certificate_extreme_families
from certificate_drafts import Case, Random, draft, inputs
from mlayer.nn import BlockDiagonal


def plain(random: Random) -> Case:
    weights = draft(random)
    return Case(weights.layer(), inputs(random, weights))


def float32(random: Random) -> Case:
    weights = draft(random)
    return Case(weights.layer(torch.float32), inputs(random, weights).astype(np.float32).astype(np.float64))


def l2(random: Random) -> Case:
    weights = draft(random)
    return Case(weights.layer(), inputs(random, weights), {"norm": "l2"})


def boxed(random: Random) -> Case:
    """Inputs inside the box and on its faces; small layers are certified in the whole of it."""
    weights = draft(random, size=float(random.choice([0.02, 0.3, 1.0])))
    x = random.random((2, len(weights.U)))
    x[0] = random.integers(0, 2, len(x[0]))
    return Case(weights.layer(), x, {"box": (0.0, 1.0)})


def thin_box(random: Random) -> Case:
    """A box without width in some directions, far from the origin in others."""
    weights = draft(random)
    m = len(weights.U)
    low = random.standard_normal(m) * 10.0 ** random.integers(-3, 6)
    width = np.where(random.random(m) < 0.4, 0.0, 10.0 ** random.uniform(-6, 1, m))
    x = low + width * random.random((2, m))
    high = np.maximum(low + width, x.max(0))
    weights.u = -low @ weights.U
    return Case(weights.layer(), x, {"box": (torch.from_numpy(low), torch.from_numpy(high))})


def scaled(random: Random) -> Case:
    """Units of very different size, some of them 0."""
    weights = draft(random)
    m = len(weights.U)
    scale = 10.0 ** random.uniform(-8, 8, m)
    scale[random.random(m) < 0.3] = 0
    weights.U = weights.U / np.where(scale > 0, scale, 1.0)[:, None]
    x = inputs(random, weights) * scale
    return Case(weights.layer(), x, {"scale": torch.from_numpy(scale), "norm": random.choice(["linf", "l2"])})


def _canceling(random: Random, m: int, dtype: torch.dtype) -> Case:
    """Features that nearly cancel: what M moves by is lost to rounding."""
    n = int(random.integers(1, 3))
    A = random.standard_normal((n, n)) * 0.5
    bits = 24 if dtype == torch.float32 else 53
    k = int(random.integers(bits // 4, bits))
    t = 1 + 2.0**-k * float(random.choice([1, 3, -1]))
    T = np.stack([A, A * t])
    size = 2.0 ** (k + int(random.integers(-3, 2)))
    U = np.repeat([[size, -size]], m, 0) * random.choice([1.0, 1.0, 1.5, 0.1], m)[:, None]
    weights = draft(random, n=n, m=m)
    if random.random() < 0.5:  # all that is left is the rounding of the entries of U
        size = 2.0 ** (bits + int(random.integers(-1, 6)))
        U = size * random.uniform(0.1, 1.0, (m, 1)) * np.array([1.0, -1.0 / t])
        if dtype == torch.float32:
            U = U.astype(np.float32).astype(np.float64)
    weights.T, weights.U, weights.u = T, U, np.zeros(2)
    layer = weights.layer(dtype)
    return Case(layer, np.zeros((1, m)), {"norm": random.choice(["linf", "l2"])})


def canceling_features(random: Random) -> Case:
    return _canceling(random, 3, torch.float64)


def canceling_products(random: Random) -> Case:
    return _canceling(random, int(random.integers(1, 3)), torch.float64)


def canceling_float32(random: Random) -> Case:
    return _canceling(random, int(random.integers(1, 4)), torch.float32)


def canceling_matrix(random: Random) -> Case:
    """Biases that cancel: M(x) is right to the rounding of large numbers only."""
    weights = draft(random)
    shift = 2.0 ** random.integers(10, 56)
    weights.u = weights.u + shift
    weights.B = weights.B - np.tensordot(np.full(len(weights.T), shift), weights.T, 1)
    return Case(weights.layer(), inputs(random, weights))


def canceling_readouts(random: Random) -> Case:
    weights = draft(random)
    weights.S[1] = weights.S[0] * (1 + 2.0 ** -int(random.integers(20, 53)))
    weights.V[1] = weights.V[0]
    return Case(weights.layer(), inputs(random, weights))


def canceling_outputs(random: Random) -> Case:
    weights = draft(random)
    weights.V = weights.V + 2.0 ** random.integers(10, 54)
    return Case(weights.layer(), inputs(random, weights))


def tied(random: Random) -> Case:
    """Margins of a few roundings, above and below zero."""
    weights = draft(random)
    layer, x = weights.layer(), inputs(random, weights)
    with torch.no_grad():
        values = layer(torch.from_numpy(x[:1]))[0].numpy()
    weights.V[1] += float(values[0] - values[1]) * (1 + float(random.choice([0, 1e-15, -1e-15, 1e-12])))
    return Case(weights.layer(), x)


def vanishing(random: Random) -> Case:
    """Products and squares below the range of float64 beside sizes of 1."""
    weights = draft(random, m=3)
    d = len(weights.T)
    small = 10.0 ** -random.uniform(100, 250)
    at = int(random.integers(d))
    weights.U[:, at] *= small
    weights.T[np.arange(d) != at] = 0
    zero = draft(random, m=3)
    weights.T = np.concatenate([weights.T, np.zeros((1, *weights.B.shape))])
    weights.U = np.concatenate([weights.U, zero.U[:, :1]], 1)
    weights.u = np.append(weights.u, 0.0)
    return Case(weights.layer(), np.zeros((1, 3)), {"norm": random.choice(["linf", "l2"])})


def vanishing_products(random: Random) -> Case:
    """U times the unit is below the range of float64, or denormal; the generators are as large."""
    weights = draft(random, m=int(random.integers(1, 3)))
    unit = random.uniform(100, 150, len(weights.U))
    scale = 10.0**-unit
    weights.U = weights.U * 10.0 ** (unit - random.uniform(318, 328))[:, None]
    weights.T, weights.u = weights.T * 10.0 ** random.uniform(295, 305), 0 * weights.u
    x = inputs(random, weights) * scale
    return Case(weights.layer(), x, {"scale": torch.from_numpy(scale), "norm": random.choice(["linf", "l2"])})


def small_weights(random: Random) -> Case:
    weights = draft(random)
    weights.T *= 10.0 ** -random.uniform(0, 25)
    weights.S *= 10.0 ** -random.uniform(0, 60)
    weights.V *= float(np.abs(weights.S).max())
    return Case(weights.layer(), inputs(random, weights))


def large_weights(random: Random) -> Case:
    weights = draft(random)
    size = 10.0 ** random.uniform(0, 12)
    weights.U, weights.u = weights.U * size, weights.u
    weights.S = weights.S * 10.0 ** random.uniform(0, 60)
    weights.V *= float(np.abs(weights.S).max())
    return Case(weights.layer(), inputs(random, weights, 1 / size))


def saturated(random: Random) -> Case:
    """exp(M) is nearly 0: the biases decide until a far step."""
    weights = draft(random)
    weights.B = weights.B - np.eye(len(weights.B)) * float(random.choice([20, 60, 300, 700]))
    weights.U = weights.U * float(random.choice([1, 30, 700]))
    return Case(weights.layer(), inputs(random, weights, 1e-3))


def exploding(random: Random) -> Case:
    """exp(M) is near the end of the range, or beyond."""
    weights = draft(random)
    weights.B = weights.B + np.eye(len(weights.B)) * float(random.choice([20, 150, 295, 305, 700]))
    return Case(weights.layer(), inputs(random, weights))


def defective(random: Random) -> Case:
    weights = draft(random, n=int(random.integers(2, 5)))
    n = len(weights.B)
    weights.B = 0.5 * np.eye(n) + np.diag(np.ones(n - 1), 1)
    weights.u = 0 * weights.u
    return Case(weights.layer(), inputs(random, weights))


def nearly_defective(random: Random) -> Case:
    case = draft(random, n=int(random.integers(2, 5)))
    n = len(case.B)
    case.B = np.diag(0.5 + 10.0 ** -random.uniform(2, 12) * np.arange(n)) + np.diag(np.ones(n - 1), 1)
    case.u = 0 * case.u
    return Case(case.layer(), inputs(random, case))


def equal_eigenvalues(random: Random) -> Case:
    weights = draft(random)
    one = np.eye(len(weights.B))
    weights.B, weights.T = one * 0.3, random.standard_normal((len(weights.T), 1, 1)) * one
    return Case(weights.layer(), inputs(random, weights))


def rotating(random: Random) -> Case:
    """Skew matrices of large norm: many turns, no growth."""
    weights = draft(random, n=int(random.integers(2, 5)))
    weights.T = weights.T - weights.T.transpose(0, 2, 1)
    weights.B = (weights.B - weights.B.T) * float(random.choice([1, 30, 1000]))
    weights.structure = "skew"
    return Case(weights.layer(), inputs(random, weights))


def nilpotent(random: Random) -> Case:
    weights = draft(random, n=int(random.integers(2, 5)))
    weights.T, weights.B = np.triu(weights.T, 1), np.triu(weights.B, 1)
    weights.structure = "nilpotent"
    return Case(weights.layer(), inputs(random, weights))


def large_polynomial(random: Random) -> Case:
    """Degree two, with entries of very different size."""
    weights = draft(random, n=3)
    weights.T, weights.B = np.triu(weights.T, 1), np.triu(weights.B, 1)
    size = 10.0 ** random.uniform(-6, 6, 3)
    outer = size[:, None] / size
    weights.T, weights.B, weights.S = weights.T * outer, weights.B * outer, weights.S / outer
    return Case(weights.layer(), inputs(random, weights))


def blocks(random: Random) -> Case:
    weights = draft(random, n=4)
    weights.structure = BlockDiagonal([2, 2])
    mask = np.kron(np.eye(2), np.ones((2, 2)))
    weights.T, weights.B = weights.T * mask, weights.B * mask
    return Case(weights.layer(), inputs(random, weights))


def rank_deficient(random: Random) -> Case:
    """Inputs that do the same, features that nothing reaches, matrices of zeros."""
    weights = draft(random, m=3)
    weights.U[1] = weights.U[0]
    weights.U[2] = 0 if random.random() < 0.5 else weights.U[0] * (1 + 1e-15)
    if random.random() < 0.5:
        weights.T[0] = 0
    return Case(weights.layer(), inputs(random, weights), {"norm": random.choice(["linf", "l2"])})


def constant(random: Random) -> Case:
    """Nothing that the inputs do reaches M."""
    weights = draft(random)
    weights.T[: len(weights.T) // 2] = 0
    weights.U[:, len(weights.T) // 2 :] = 0
    return Case(weights.layer(), inputs(random, weights))


def far_inputs(random: Random) -> Case:
    """Inputs of 1e8 and more, where x + delta rounds."""
    weights = draft(random)
    x = inputs(random, weights) + 10.0 ** random.uniform(4, 14)
    weights.u = -x[1] @ weights.U
    return Case(weights.layer(), x)


def many_rivals(random: Random) -> Case:
    """Classes that break at almost the same radius, in different corners."""
    weights = draft(random)
    classes = 6
    weights.S = np.concatenate(
        [weights.S[:1], weights.S[:1] + random.standard_normal((classes - 1, *weights.B.shape))]
    )
    weights.V = np.zeros(classes)
    layer, x = weights.layer(), inputs(random, weights)
    with torch.no_grad():
        values = layer(torch.from_numpy(x[:1]))[0].numpy()
    weights.V = -values - np.where(np.arange(classes) > 0, 0.3 * (1 + 0.01 * random.random(classes)), 0.0)
    return Case(weights.layer(), x)


def wide_gauge(random: Random) -> Case:
    """A gauge of large condition number, as a fit or a file may give it."""
    weights = draft(random, n=int(random.integers(2, 4)))
    n = len(weights.B)
    reach = float(random.choice([1, 3, 6, 12]))
    P = np.diag(10.0 ** random.uniform(-reach / 2, reach / 2, n))
    if random.random() < 0.5:
        P = P @ np.linalg.qr(random.standard_normal((n, n)))[0]
    return Case(weights.layer(), inputs(random, weights), gauge=P)


def badly_balanced(random: Random) -> Case:
    """A layer in a far gauge, which the fit undoes in part."""
    weights = draft(random, n=int(random.integers(2, 5)))
    size = 10.0 ** random.uniform(-4, 4, len(weights.B))
    outer = size[:, None] / size
    weights.T, weights.B, weights.S = weights.T * outer, weights.B * outer, weights.S / outer
    return Case(weights.layer(), inputs(random, weights), {"fit_steps": 40})


def curved(random: Random) -> Case:
    """Large steps: the quadratic terms decide."""
    weights = draft(random, size=1.2)
    weights.V[0] += 40
    return Case(weights.layer(), inputs(random, weights, 0.2))


def scalars(random: Random) -> Case:
    """1 x 1 matrices: sums of exponentials."""
    weights = draft(random, n=1, size=float(random.choice([0.5, 3.0])))
    return Case(weights.layer(), inputs(random, weights))


def all_sizes(random: Random) -> Case:
    """Entries of very different size, down to the smallest numbers and negative zero, in every weight."""
    weights = draft(random)
    for name in ("B", "T", "U", "u", "S", "V"):
        array = getattr(weights, name)
        array = array * 10.0 ** random.uniform(-float(random.choice([2, 20, 60])), 0, array.shape)
        tiny = random.random(array.shape) < 0.2
        array[tiny] = random.choice([5e-324, -5e-324, 1e-310, -0.0, 1e-160], int(tiny.sum()))
        setattr(weights, name, array)
    return Case(weights.layer(), inputs(random, weights), {"norm": random.choice(["linf", "l2"])})


def nearly_nilpotent(random: Random) -> Case:
    """A polynomial but for entries that are too small to be seen."""
    weights = draft(random, n=int(random.integers(2, 5)))
    small = 10.0 ** -random.uniform(5, 200)
    weights.T = np.triu(weights.T, 1) + small * np.tril(weights.T)
    weights.B = np.triu(weights.B, 1) + small * np.tril(weights.B)
    return Case(weights.layer(), inputs(random, weights))


def non_normal(random: Random) -> Case:
    """Large entries above the diagonal, also in a full similarity: exp(M) grows before it falls."""
    weights = draft(random, n=int(random.integers(2, 5)))
    n = len(weights.B)
    weights.B = weights.B + np.triu(random.standard_normal((n, n)), 1) * 10.0 ** random.uniform(0, 3)
    Q = np.linalg.qr(random.standard_normal((n, n)))[0] @ np.diag(10.0 ** random.uniform(-2, 2, n))
    inverse = np.linalg.inv(Q)
    weights.T, weights.B = Q @ weights.T @ inverse, Q @ weights.B @ inverse
    weights.S = inverse.T @ weights.S @ Q.T
    return Case(weights.layer(), inputs(random, weights))


def opposite_inputs(random: Random) -> Case:
    """Inputs that undo one another, at a box's corner, with rivals that almost tie."""
    weights = draft(random, m=3)
    weights.U[1], weights.U[2] = -weights.U[0], weights.U[0] * (1 + 2e-16)
    x = random.integers(0, 2, (2, 3)).astype(np.float64)
    with torch.no_grad():
        values = weights.layer()(torch.from_numpy(x[:1]))[0].numpy()
    weights.V = weights.V - values
    weights.V[0] += float(random.choice([1e-15, 1e-9, 0.3]))
    return Case(weights.layer(), x, {"box": (0.0, 1.0)})


def one_large_bias(random: Random) -> Case:
    """Readouts that differ in their last bits, behind output biases that are far larger."""
    weights = draft(random)
    small = 2.0 ** -random.integers(10, 50)
    weights.S = weights.S[:1] + small * weights.S
    weights.V = 2.0 ** random.integers(0, 40) + small * weights.V
    return Case(weights.layer(), inputs(random, weights), {"norm": random.choice(["linf", "l2"])})


FAMILIES: dict[str, Callable[[Random], Case]] = {
    family.__name__: family
    for family in (
        plain,
        float32,
        l2,
        boxed,
        thin_box,
        scaled,
        canceling_features,
        canceling_products,
        canceling_float32,
        canceling_matrix,
        canceling_readouts,
        canceling_outputs,
        tied,
        vanishing,
        vanishing_products,
        small_weights,
        large_weights,
        saturated,
        exploding,
        defective,
        nearly_defective,
        equal_eigenvalues,
        rotating,
        nilpotent,
        large_polynomial,
        blocks,
        rank_deficient,
        constant,
        far_inputs,
        many_rivals,
        wide_gauge,
        badly_balanced,
        curved,
        scalars,
        all_sizes,
        nearly_nilpotent,
        non_normal,
        opposite_inputs,
        one_large_bias,
    )
} | certificate_extreme_families.FAMILIES
