"""The linearisation of one M-layer without embedding, kept in its factors: for 15,000 parameters and more.

With M = sum_a x_a T_a and p = V + S : exp(M), the row of the Jacobian of an example is

    dp/dT_a = x_a G,    dp/dS = exp(M),    dp/dV = 1,    G = dp/dM,

so that J v and J' r are products with x, G and exp(M), and no row is ever written down. The normal
equations are solved by conjugate gradients. Their preconditioner takes x and G for independent:
mean (x x') ⊗ (G G') = mean(x x') ⊗ mean(G G'), where mean(x x') is c I for the inputs used here.
(That is the approximation of K-FAC: J. Martens, R. Grosse, ICML 2015.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlayer.errors import ArgumentError
from mlayer.exponential import expm
from mlayer.nn.layer import MLayer

_ROWS = 1024  # a block of them fits into the cache
_PRECONDITIONER_ROWS = 2**15
_TOLERANCE = 0.1  # of the residual in the preconditioner's norm; more exact steps are not better ones
_MOST = 60


@dataclass
class _Vector:
    """A vector of all parameters, as its three pieces."""

    T: Tensor  # (d, n n)
    S: Tensor  # (n n,)
    V: Tensor  # ()

    def plus(self, factor: float, other: _Vector) -> _Vector:
        return _Vector(self.T + factor * other.T, self.S + factor * other.S, self.V + factor * other.V)

    def dot(self, other: _Vector) -> float:
        pairs = ((self.T, other.T), (self.S, other.S), (self.V, other.V))
        return sum((a.double() * b.double()).sum().item() for a, b in pairs)


class LayerJacobian:
    """The linearisation of an M-layer with one output, without embedding and matrix bias."""

    def __init__(self, layer: nn.Module, x: Tensor, y: Tensor) -> None:
        if (
            not isinstance(layer, MLayer)
            or layer.embedding is not None
            or layer.free_matrix_bias is not None
            or layer.output_bias is None
            or layer.out_features != 1
            or layer.structure.name != "full"
        ):
            raise ArgumentError(
                "layer",
                "an M-layer with one output and an output bias, without embedding, matrix bias and structure",
                repr(layer),
                "Use DenseJacobian for other models.",
            )
        self.x, self.rows = x, len(x)
        outputs, slopes, exponentials = [], [], []
        for part in x.split(_ROWS):
            M = layer.matrix(part).detach().requires_grad_()
            E = expm(M)
            p = (E * layer.readout[0].detach()).sum((1, 2))
            slopes.append(torch.autograd.grad(p.sum(), M)[0].flatten(1))
            exponentials.append(E.detach().flatten(1))
            outputs.append(p.detach() + layer.output_bias.detach())
        self.G, self.E = torch.cat(slopes), torch.cat(exponentials)  # (N, n n)
        self.b = self._transposed(y[:, 0] - torch.cat(outputs))
        some = slice(_PRECONDITIONER_ROWS)
        rows = len(x[some])
        self.K = (self.G[some].mT @ self.G[some]).double() * (float(x.square().mean()) / rows)
        self.L = (self.E[some].mT @ self.E[some]).double() / rows

    def _transposed(self, r: Tensor) -> _Vector:
        """J' r / N.  (N,) -> parameters"""
        r = r / self.rows
        return _Vector(self.x.mT @ (r[:, None] * self.G), self.E.mT @ r, r.sum())

    def _normal(self, v: _Vector, damping: float) -> _Vector:
        """(J'J / N + damping) v, in one pass over memory."""
        T, S, V = damping * v.T, damping * v.S, damping * v.V
        for x, G, E in zip(self.x.split(_ROWS), self.G.split(_ROWS), self.E.split(_ROWS), strict=True):
            r = (((x @ v.T) * G).sum(1) + E @ v.S + v.V) / self.rows
            T.addmm_(x.mT, r[:, None] * G)
            S.addmv_(E.mT, r)
            V += r.sum()
        return _Vector(T, S, V)

    def step(self, damping: float) -> tuple[Tensor, float]:
        """Solve (J'J / N + damping) v = J'r / N by preconditioned conjugate gradients."""
        inverse_K, inverse_L = self._inverse(self.K, damping), self._inverse(self.L, damping)

        def precondition(r: _Vector) -> _Vector:
            return _Vector(r.T @ inverse_K, inverse_L @ r.S, r.V / (1 + damping))

        v = _Vector(torch.zeros_like(self.b.T), torch.zeros_like(self.b.S), torch.zeros_like(self.b.V))
        residual = self.b
        z = direction = precondition(residual)
        size = first = residual.dot(z)
        for _ in range(_MOST):
            image = self._normal(direction, damping)
            length = size / direction.dot(image)
            v, residual = v.plus(length, direction), residual.plus(-length, image)
            z = precondition(residual)
            size, old = residual.dot(z), size
            if size <= _TOLERANCE**2 * first:
                break
            direction = z.plus(size / old, direction)
        image = self._normal(v, damping)
        promised = 2 * v.dot(self.b) - v.dot(image) + damping * v.dot(v)
        return torch.cat([v.T.flatten(), v.S, v.V[None]]), promised

    def _inverse(self, A: Tensor, damping: float) -> Tensor:
        A = A.clone()
        # Rounding in A is relative to its largest entries.
        A.diagonal().add_(max(damping, 1e-9 * float(A.diagonal().mean())))
        return torch.cholesky_inverse(torch.linalg.cholesky(A)).to(self.x.dtype)
