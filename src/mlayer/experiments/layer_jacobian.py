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

_ROWS = 4096
_TOLERANCE = 0.1  # of the residual in the preconditioner's norm; more exact steps are not better ones
_MOST = 200


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
        spread = float(x.square().mean())
        self.K = (self.G.mT @ self.G).double() * (spread / self.rows)
        self.L = (self.E.mT @ self.E).double() / self.rows

    def _product(self, v: _Vector) -> Tensor:
        return torch.linalg.vecdot(self.x @ v.T, self.G) + self.E @ v.S + v.V

    def _transposed(self, r: Tensor) -> _Vector:
        r = r / self.rows
        return _Vector(self.x.mT @ (r[:, None] * self.G), self.E.mT @ r, r.sum())

    def step(self, damping: float) -> tuple[Tensor, float]:
        """Solve (J'J / N + damping I) v = J'r / N by preconditioned conjugate gradients."""
        inverse_K, inverse_L = self._inverse(self.K, damping), self._inverse(self.L, damping)

        def operator(v: _Vector) -> _Vector:
            return self._transposed(self._product(v)).plus(damping, v)

        def precondition(r: _Vector) -> _Vector:
            return _Vector(r.T @ inverse_K, inverse_L @ r.S, r.V / (1 + damping))

        v = _Vector(torch.zeros_like(self.b.T), torch.zeros_like(self.b.S), torch.zeros_like(self.b.V))
        residual = self.b
        z = direction = precondition(residual)
        size = first = residual.dot(z)
        for _ in range(_MOST):
            image = operator(direction)
            length = size / direction.dot(image)
            v, residual = v.plus(length, direction), residual.plus(-length, image)
            z = precondition(residual)
            size, old = residual.dot(z), size
            if size <= _TOLERANCE**2 * first:
                break
            direction = z.plus(size / old, direction)
        image = operator(v)
        promised = 2 * v.dot(self.b) - v.dot(image) + damping * v.dot(v)
        return torch.cat([v.T.flatten(), v.S, v.V[None]]), promised

    def _inverse(self, A: Tensor, damping: float) -> Tensor:
        A = A.clone()
        # Rounding in A is relative to its largest entries.
        A.diagonal().add_(max(damping, 1e-9 * float(A.diagonal().mean())))
        return torch.cholesky_inverse(torch.linalg.cholesky(A)).to(self.x.dtype)
