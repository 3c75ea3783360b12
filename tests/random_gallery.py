"""Random matrices of many kinds, for benchmarks/accuracy.py --random: nobody chose or tuned to any of them.

A kind makes a matrix from its size, a norm and a generator. Sizes are 2 to 20, norms 0.1 to 50, both uniform
(norms in their logarithm). The same seed gives the same matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Kind = Callable[[int, float, torch.Generator], Tensor]
SIZES, NORMS = (2, 20), (0.1, 50.0)


def _normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=g)


def _uniform(g: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=g)


def _number(g: torch.Generator, least: float, most: float) -> float:
    return least + (most - least) * float(_uniform(g, 1))


def _scaled(a: Tensor, norm: float) -> Tensor:
    size = torch.linalg.matrix_norm(a, 2)
    return a * (norm / size) if size > 0 else a


def _complex(n: int, g: torch.Generator) -> Tensor:
    return torch.complex(_normal(g, n, n), _normal(g, n, n))


def _shift(n: int) -> Tensor:
    return torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)


def _rotated(a: Tensor, g: torch.Generator) -> Tensor:
    q = torch.linalg.qr(_normal(g, *a.shape))[0]
    return q @ a @ q.mT


def _spectrum(n: int, least: float, most: float, g: torch.Generator) -> Tensor:
    return torch.diag(least + (most - least) * _uniform(g, n))


def _coupled(n: int, norm: float, g: torch.Generator) -> Tensor:
    """Triangular, with couplings up to 10^4 times the diagonal."""
    a = torch.triu(_normal(g, n, n), 1) * 10 ** _number(g, 0, 4)
    return a + _spectrum(n, -norm, norm, g)


def _jordan(n: int, norm: float, g: torch.Generator) -> Tensor:
    a = _number(g, -1, 1) * torch.eye(n, dtype=torch.float64) + 10 ** _number(g, -2, 1) * _shift(n)
    return _scaled(a, norm)


def _companion(n: int, norm: float, g: torch.Generator) -> Tensor:
    a = _shift(n).mT.contiguous()
    a[:, -1] = norm * _normal(g, n)
    return a


def _stiff(n: int, norm: float, g: torch.Generator) -> Tensor:
    rates = 10 ** (_number(g, 0, 4) * _uniform(g, n, n))
    rates.fill_diagonal_(0.0)
    return _scaled(rates - torch.diag(rates.sum(1)), norm)


def _nearly_nilpotent(n: int, norm: float, g: torch.Generator) -> Tensor:
    return _scaled(torch.triu(_normal(g, n, n), 1), norm) + 10 ** _number(g, -12, -1) * _normal(g, n, n)


def _rotations(n: int, norm: float, g: torch.Generator) -> Tensor:
    """Rotations coupled strongly, in a random basis."""
    a = torch.zeros(n, n, dtype=torch.float64)
    coupling = 10 ** _number(g, 0, 3)
    for k in range(0, n - 1, 2):
        a[k, k + 1] = _number(g, 0, norm)
        a[k + 1, k] = -a[k, k + 1]
        a[k : k + 2, k + 2 : k + 4] = coupling * _normal(g, *a[k : k + 2, k + 2 : k + 4].shape)
    return _rotated(a, g)


def _graded(n: int, norm: float, g: torch.Generator) -> Tensor:
    d = 10 ** torch.linspace(0, -_number(g, 1, 6), n, dtype=torch.float64)
    return _scaled(d[:, None] * _normal(g, n, n) * d, norm)


def _blocks(n: int, norm: float, g: torch.Generator) -> Tensor:
    """A large and a small block, with a coupling between them."""
    k = max(1, n // 2)
    a = torch.zeros(n, n, dtype=torch.float64)
    a[:k, :k] = _scaled(_normal(g, k, k), norm)
    a[k:, k:] = _scaled(_normal(g, n - k, n - k), 0.1 * norm)
    a[:k, k:] = _normal(g, k, n - k)
    return a


def _toeplitz(n: int, norm: float, g: torch.Generator) -> Tensor:
    i = torch.arange(n)
    return _scaled(_normal(g, 2 * n - 1)[i[:, None] - i + n - 1], norm)


def _grcar(n: int, norm: float, g: torch.Generator) -> Tensor:
    width = int(_number(g, 1, 5))
    one = torch.ones(n, n, dtype=torch.float64)
    return _scaled(torch.triu(torch.tril(one, width)) - _shift(n).mT, norm)


def _frank(n: int, norm: float, g: torch.Generator) -> Tensor:
    i = torch.arange(1, n + 1, dtype=torch.float64)
    return _scaled(torch.triu(torch.minimum(n + 1 - i[:, None], n + 1 - i), -1), norm * _number(g, 0.5, 1))


def _kahan(n: int, norm: float, g: torch.Generator) -> Tensor:
    angle = _number(g, 0.3, 1.4)
    d = torch.diag(math.sin(angle) ** torch.arange(n, dtype=torch.float64))
    upper = torch.triu(torch.ones(n, n, dtype=torch.float64), 1)
    return _scaled(d @ (torch.eye(n, dtype=torch.float64) - math.cos(angle) * upper), norm)


def _powers_of_two(n: int, norm: float, g: torch.Generator) -> Tensor:
    d = torch.exp2((_number(g, 1, 20) * _uniform(g, n)).round())
    return d[:, None] * _scaled(_normal(g, n, n), norm) / d


def _sparse(n: int, norm: float, g: torch.Generator) -> Tensor:
    return _scaled(_normal(g, n, n) * (_uniform(g, n, n) < 0.3), norm)


def _laplacian(n: int, norm: float, g: torch.Generator) -> Tensor:
    edges = torch.triu((_uniform(g, n, n) < 0.5).double(), 1)
    edges = edges + edges.mT
    return _scaled(edges - torch.diag(edges.sum(1)), norm)


def _hamiltonian(n: int, norm: float, g: torch.Generator) -> Tensor:
    k = max(1, n // 2)
    a, b, c = (_normal(g, k, k) for _ in range(3))
    return _scaled(torch.cat([torch.cat([a, b + b.mT], 1), torch.cat([c + c.mT, -a.mT], 1)]), norm)


def _skew(n: int, norm: float, g: torch.Generator) -> Tensor:
    a = _normal(g, n, n)
    return _scaled(a - a.mT, norm)


def _symmetric(n: int, norm: float, g: torch.Generator) -> Tensor:
    a = _normal(g, n, n)
    return _scaled(a + a.mT, norm)


def _hermitian(n: int, norm: float, g: torch.Generator) -> Tensor:
    a = _complex(n, g)
    return -1j * _scaled(a + a.mH, norm)


def _damped(n: int, norm: float, g: torch.Generator) -> Tensor:
    """Turning and decaying."""
    q = torch.linalg.qr(_complex(n, g))[0]
    values = torch.complex(-_uniform(g, n), 2 * _uniform(g, n) - 1)
    return q @ torch.diag(norm * values) @ q.mH


def _shifted(n: int, norm: float, g: torch.Generator) -> Tensor:
    a = _scaled(_normal(g, n, n), norm * _number(g, 0.1, 1))
    return a + norm * _number(g, -1, 1) * torch.eye(n, dtype=torch.float64)


KINDS: dict[str, Kind] = {
    "normal": lambda n, norm, g: _scaled(_normal(g, n, n), norm),
    "positive": lambda n, norm, g: _scaled(_uniform(g, n, n), norm),
    "negative": lambda n, norm, g: _scaled(-_uniform(g, n, n), norm),
    "skew": _skew,
    "symmetric": _symmetric,
    "decaying": lambda n, norm, g: _rotated(_spectrum(n, -norm, 0, g), g),
    "growing": lambda n, norm, g: _rotated(_spectrum(n, 0, norm, g), g),
    "triangular": lambda n, norm, g: _scaled(torch.triu(_normal(g, n, n)), norm),
    "triangular, coupled": _coupled,
    "Jordan": _jordan,
    "Jordan, rotated": lambda n, norm, g: _rotated(_jordan(n, norm, g), g),
    "companion": _companion,
    "stiff generator": _stiff,
    "nearly nilpotent": _nearly_nilpotent,
    "nearly nilpotent, rotated": lambda n, norm, g: _rotated(_nearly_nilpotent(n, norm, g), g),
    "rotations, coupled": _rotations,
    "graded": _graded,
    "blocks": _blocks,
    "Toeplitz": _toeplitz,
    "Grcar": _grcar,
    "Frank": _frank,
    "Kahan": _kahan,
    "powers of two": _powers_of_two,
    "sparse": _sparse,
    "Laplacian": _laplacian,
    "Hamiltonian": _hamiltonian,
    "orthogonal": lambda n, norm, g: norm * torch.linalg.qr(_normal(g, n, n))[0],
    "rank one": lambda n, norm, g: _scaled(torch.outer(_normal(g, n), _normal(g, n)), norm),
    "integers": lambda n, norm, g: torch.round(norm * (2 * _uniform(g, n, n) - 1)),
    "shifted": _shifted,
    "complex": lambda n, norm, g: _scaled(_complex(n, g), norm),
    "complex triangular": lambda n, norm, g: _scaled(torch.triu(_complex(n, g)), norm),
    "evolution": _hermitian,
    "damped": _damped,
}


def matrices(count: int, seed: int) -> Iterator[tuple[str, str, Tensor]]:
    """Kind, description and matrix, ``count`` of each kind."""
    for number, (kind, make) in enumerate(KINDS.items()):
        g = torch.Generator().manual_seed(1_000_003 * seed + number)
        for k in range(count):
            n = int(torch.randint(SIZES[0], SIZES[1] + 1, (1,), generator=g))
            norm = math.exp(_number(g, math.log(NORMS[0]), math.log(NORMS[1])))
            yield kind, f"{kind} {k}: {n}, norm {norm:.3g}", make(n, norm, g)
