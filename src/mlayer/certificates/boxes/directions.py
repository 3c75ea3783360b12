"""The directions in which M moves with the inputs, from the weights alone, before a box is given."""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.certificates.boxes.enclosed import Enclosed, exact, frobenius, gamma
from mlayer.certificates.derivatives.polynomial_degree import degree_of
from mlayer.certificates.linalg import VANISHED
from mlayer.nn.layer import MLayer


class Directions:
    """N(x - center) = sum_a z_a T_a with z = sum_i (x_i - center_i) U_i.

    Attributes:
        T: (d, n, n), enclosed. Where inputs are fewer than features, the matrices of the inputs themselves.
        U: (m, d).
        degree: of the outputs as polynomials in the features; mostly infinite.
        input_norms: (m,), about ||A_i||_F; they choose weights, no proof reads them.
    """

    def __init__(self, layer: MLayer) -> None:
        """``layer`` is in float64."""
        n, m = layer.matrix_size, layer.in_features
        self.T0 = T0 = layer.generators.detach()
        d0 = len(T0)
        self.U0 = U0 = (
            torch.eye(m, dtype=torch.float64) if layer.embedding is None else layer.embedding.detach().mT
        )
        self.B = T0.new_zeros(n, n) if layer.matrix_bias is None else layer.matrix_bias.detach()
        self.u = T0.new_zeros(d0) if layer.embedding_bias is None else layer.embedding_bias.detach()
        self.degree = degree_of(self.B.numpy(), T0.numpy())
        A = (U0 @ T0.flatten(1)).reshape(m, n, n)
        self.input_norms = frobenius(A)
        if layer.embedding is not None and m <= d0:
            off = gamma(d0) * frobenius((U0.abs() @ T0.flatten(1).abs()).reshape(m, n, n)) + VANISHED
            self.T, self.U = Enclosed(A, off), torch.eye(m, dtype=torch.float64)
        else:
            self.T, self.U = exact(T0), U0

    def matrix(self, x: Tensor) -> Enclosed:
        """M(x).  (rows, m) -> (rows, n, n)"""
        m, d = self.U0.shape
        features, size = x @ self.U0 + self.u, x.abs() @ self.U0.abs() + self.u.abs()
        flat, flat_size = self.T0.flatten(1), self.T0.abs().flatten(1)
        M = (features @ flat).reshape(-1, *self.B.shape) + self.B
        total = (size @ flat_size).reshape(-1, *self.B.shape) + self.B.abs()
        return Enclosed(M, 2 * gamma(m + d + 4) * frobenius(total) + VANISHED)

    def of_features(self, directions: Tensor) -> FeatureDirections:
        """The same for the features z_a themselves, which move along these directions.  (rows, m, d)"""
        return FeatureDirections(self, directions)


class FeatureDirections:
    """N(z - center) = sum_a (z - center)_a T_a where z - center = sum_i t_i directions_i, of each row others.

    The attributes are those of `Directions`; U: (rows, m, d), input_norms: (rows, m).
    """

    def __init__(self, layer: Directions, directions: Tensor) -> None:
        self.T, self.U, self.degree = exact(layer.T0), directions, layer.degree
        self._B = layer.B
        flat = layer.T0.flatten(1)
        gram = flat @ flat.mT
        self.input_norms = ((directions @ gram) * directions).sum(-1).clamp_min(0).sqrt()

    def matrix(self, z: Tensor) -> Enclosed:
        """M at features z.  (rows, d) -> (rows, n, n)"""
        flat, d = self.T.mid.flatten(1), z.shape[1]
        M = (z @ flat).reshape(-1, *self._B.shape) + self._B
        total = (z.abs() @ flat.abs()).reshape(-1, *self._B.shape) + self._B.abs()
        return Enclosed(M, 2 * gamma(d + 4) * frobenius(total) + VANISHED)
