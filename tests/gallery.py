"""Matrices on which exponentials go wrong, for benchmarks/accuracy.py and its test: name -> double precision.

Kinds that reviews of exponential functions name: badly balanced, companion, overscaled triangular, stiff
generators, rotated blocks with large couplings, quantum Hamiltonians, and the classics of the literature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

Named = tuple[str, Tensor]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(n: int, seed: int) -> Tensor:
    return torch.randn(n, n, dtype=torch.float64, generator=_generator(seed))


def _scaled(a: Tensor, norm: float) -> Tensor:
    return a * (norm / torch.linalg.matrix_norm(a, 2))


def _orthogonal(n: int, seed: int) -> Tensor:
    return torch.linalg.qr(_normal(n, seed))[0]


def _random() -> Iterator[Named]:
    for n, norm in product((3, 6, 10), (0.1, 1.0, 10.0, 50.0)):
        yield f"random {n}, norm {norm:g}", _scaled(_normal(n, n), norm)


def _badly_balanced() -> Iterator[Named]:
    for n, decades in product((3, 5, 10), (2, 4, 8, 12)):
        d = 10.0 ** torch.linspace(0, decades, n, dtype=torch.float64)
        yield (
            f"badly balanced {n}, {decades} decades",
            d[:, None] * _scaled(_normal(n, 7 * n + decades), 2.0) / d,
        )


def _companion_of(coefficients: list[float]) -> Tensor:
    """The companion matrix of x^n + c[n-1] x^(n-1) + ... + c[0]."""
    n = len(coefficients)
    a = torch.diag(torch.ones(n - 1, dtype=torch.float64), -1)
    a[:, -1] = -torch.tensor(coefficients, dtype=torch.float64)
    return a


def _companion() -> Iterator[Named]:
    for n in (4, 6, 8, 10):
        coefficients = [1.0]
        for root in range(1, n + 1):  # highest power first
            shifted = [*coefficients, 0.0]
            for k, c in enumerate(coefficients):
                shifted[k + 1] -= root * c
            coefficients = shifted
        yield f"companion, roots 1 to {n}", _companion_of(coefficients[:0:-1])
    for n in (5, 8, 10):
        coefficients = (10 * torch.randn(n, dtype=torch.float64, generator=_generator(n))).tolist()
        yield f"companion {n}, random coefficients", _companion_of(coefficients)
    yield "companion 8, roots of unity", _companion_of([-1.0] + [0.0] * 7)


def _overscaled() -> Iterator[Named]:
    for s in (1e3, 1e6, 1e9):
        yield f"overscaled 2, {s:g}", torch.tensor([[1.0, s], [0.0, -1.0]], dtype=torch.float64)
    for n, s in product((3, 5, 8), (1e2, 1e4, 1e6)):
        a = torch.triu(_normal(n, n + 20), 1) * s
        a.diagonal().copy_(torch.linspace(-2, 2, n))
        yield f"overscaled triangular {n}, {s:g}", a


def _triangular() -> Iterator[Named]:
    for n, span in product((4, 8, 12), (10.0, 100.0)):
        a = torch.triu(_normal(n, n + 30), 1)
        a.diagonal().copy_(-torch.linspace(0, span, n))
        yield f"triangular {n}, diagonal to -{span:g}", a
    for n in (4, 8):
        a = torch.triu(_normal(n, n + 40) * 50)
        a.diagonal().copy_(torch.full((n,), -3.0))
        yield f"triangular {n}, equal diagonal", a


def _stiff() -> Iterator[Named]:
    for n, decades in product((3, 6, 10), (2, 4, 6)):
        rates = 10.0 ** (decades * torch.rand(n, n, dtype=torch.float64, generator=_generator(n + decades)))
        rates.fill_diagonal_(0.0)
        yield f"stiff generator {n}, {decades} decades", rates - torch.diag(rates.sum(1))


def _rotated_blocks() -> Iterator[Named]:
    for n, coupling in product((4, 6), (10.0, 1e3, 1e5)):
        a = torch.zeros(n, n, dtype=torch.float64)
        for k in range(0, n, 2):
            angle = 1.0 + k
            a[k, k + 1], a[k + 1, k] = angle, -angle
            if k:
                a[k - 2 : k, k : k + 2] = coupling * _normal(2, n + k)
        q = _orthogonal(n, n)
        yield f"rotated blocks {n}, coupling {coupling:g}", q @ a @ q.T


def _hamiltonians() -> Iterator[Named]:
    for n, t in product((2, 4, 8), (1.0, 10.0, 100.0)):
        h = torch.complex(_normal(n, n + 50), _normal(n, n + 51))
        h = (h + h.mH) / 2
        yield f"Hamiltonian {n}, time {t:g}", -1j * t * h / torch.linalg.matrix_norm(h, 2)


def _complex() -> Iterator[Named]:
    """And two large real ones: beyond the sizes up to which every squaring is in twice the precision."""
    for n, t in ((9, 10.0), (10, 100.0), (12, 30.0), (12, 500.0)):
        h = torch.complex(_normal(n, n + 80), _normal(n, n + 81))
        yield f"evolution {n}, time {t:g}", -1j * t * _scaled(h + h.mH, 1.0)
    for n, norm in ((9, 8.0), (12, 40.0), (12, 200.0)):
        yield (
            f"complex random {n}, norm {norm:g}",
            _scaled(torch.complex(_normal(n, 82), _normal(n, 83)), norm),
        )
    for n, norm in ((10, 20.0), (12, 300.0)):
        q = torch.linalg.qr(torch.complex(_normal(n, n + 84), _normal(n, n + 85)))[0]
        values = torch.complex(-_normal(n, 86)[0].abs(), _normal(n, 87)[0])
        yield f"damped {n}, norm {norm:g}", q @ torch.diag(norm * values / values.abs().max()) @ q.mH
    coefficients = 40 * torch.complex(_normal(11, 88)[0], _normal(11, 89)[0])
    a = torch.diag(torch.ones(10, dtype=torch.complex128), -1)
    a[:, -1] = -coefficients
    yield "complex companion 11", a
    yield "random 42, norm 60", _scaled(_normal(42, 90), 60.0)
    skew = _normal(41, 91)
    yield "turning 41, norm 25", _scaled(skew - skew.T, 25.0)


def _jordan() -> Iterator[Named]:
    for n, value, coupling in product((4, 8), (-20.0, -1.0, 5.0), (1.0, 100.0)):
        a = value * torch.eye(n, dtype=torch.float64)
        a += coupling * torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
        yield f"Jordan {n}, {value:g}, coupling {coupling:g}", a


def _symmetric() -> Iterator[Named]:
    for n, norm in product((6, 10), (5.0, 50.0)):
        q = _orthogonal(n, n + 60)
        values = norm * torch.rand(n, dtype=torch.float64, generator=_generator(n))
        yield f"symmetric negative {n}, norm {norm:g}", q @ torch.diag(-values) @ q.T
        yield f"symmetric positive {n}, norm {norm:g}", q @ torch.diag(values) @ q.T
        skew = _normal(n, n + 61)
        yield f"skew {n}, norm {norm:g}", _scaled(skew - skew.T, norm)


def _others() -> Iterator[Named]:
    n = 10
    i = torch.arange(1, n + 1, dtype=torch.float64)
    one = torch.ones(n, n, dtype=torch.float64)
    off = torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
    yield "Grcar 10", torch.triu(torch.tril(one, 3)) - off.T
    yield "Frank 10", torch.triu(torch.minimum(n + 1 - i[:, None], n + 1 - i[None]), -1)
    yield "Hilbert 10", 1 / (i[:, None] + i[None] - 1)
    yield "Lehmer 10", torch.minimum(i[:, None], i) / torch.maximum(i[:, None], i)
    yield "minimum 10", torch.minimum(i[:, None], i)
    yield "Clement 10", torch.diag(i[:-1], 1) + torch.diag(n - i[:-1], -1)
    for scale in (1.0, 10.0, 100.0):
        yield f"diffusion 10, {scale:g}", scale * (off + off.T - 2 * torch.eye(n, dtype=torch.float64))
    yield "Forsythe 10", off + 1e-8 * torch.diag(torch.ones(1, dtype=torch.float64), -(n - 1))
    yield (
        "Kahan 10",
        torch.diag(0.8 ** (i - 1)) @ (torch.eye(n, dtype=torch.float64) - 0.6 * torch.triu(one, 1)),
    )
    yield "rank one 10", 3 * torch.outer(_normal(n, 70)[0], _normal(n, 71)[0])
    yield "orthogonal 10", 5 * _orthogonal(n, 72)
    yield "projection 10", 20 * _orthogonal(n, 73)[:, :5] @ _orthogonal(n, 73)[:, :5].T
    yield "nilpotent 10", torch.triu(_normal(n, 74), 1) * 5
    yield "positive 10", torch.rand(n, n, dtype=torch.float64, generator=_generator(75)) * 3


def _literature() -> Iterator[Named]:
    """Moler and Van Loan 1978, Ward 1977, Kenney and Laub 1998, Dieci and Papini 2000."""
    matrices = {
        "Moler and Van Loan": [[-49.0, 24.0], [-64.0, 31.0]],
        "Ward 1": [[4.0, 2.0, 0.0], [1.0, 4.0, 1.0], [1.0, 1.0, 4.0]],
        "Ward 3": [[-131.0, 19.0, 18.0], [-390.0, 56.0, 54.0], [-387.0, 57.0, 52.0]],
        "Kenney and Laub": [[0.0, 3.75e6], [-1e-6, 0.0]],
        "Dieci and Papini": [[0.0, 1e6, 1e6], [0.0, 0.0, 1e6], [0.0, 0.0, -1.0]],
        "two scales": [[1.0, 1e8], [1e-8, -1.0]],
    }
    for name, entries in matrices.items():
        yield name, torch.tensor(entries, dtype=torch.float64)
    n = 10
    ward = torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
    ward[-1, 0] = 1e-10
    yield "Ward 4", ward
    yield "rotation, 10 turns", 20 * math.pi * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


_KINDS = (
    _random,
    _badly_balanced,
    _companion,
    _overscaled,
    _triangular,
    _stiff,
    _rotated_blocks,
    _hamiltonians,
    _complex,
    _jordan,
    _symmetric,
    _others,
    _literature,
)
MATRICES: dict[str, Tensor] = {name: a for kind in _KINDS for name, a in kind()}
