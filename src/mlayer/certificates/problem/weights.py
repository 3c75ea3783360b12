"""The layer as float64 numpy arrays in the coordinates of the region: what all bounds start from.

A layer in float32 (or less) is read as the exact real function of its stored weights: they are converted
to float64, which changes no value, and everything is computed from there.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from mlayer.certificates.linalg import UNIT, VANISHED, frobenius, frobenius_each
from mlayer.certificates.modules import check_copy
from mlayer.certificates.problem.region import Region
from mlayer.errors import ArgumentError
from mlayer.nn.layer import MLayer
from mlayer.numerics.arrays import Array

_SMALLEST, _LARGEST = 1e-30, 1e30
# Products below it are right to no relative error: they may be denormal, or taken as 0.
_LEAST = 2.0**-1021


@dataclass(frozen=True)
class Weights:
    """M(x) = B + sum_a T_a (U^T x + u)_a, outputs V + S : exp(M).

    `rows` are the rows u_i of U in units of the region's scale, over d directions with the matrices `T`.
    Where the inputs are fewer than the features, the inputs themselves are the directions.
    """

    B: Array  # (n, n)
    T0: Array  # (d0, n, n): the layer's own generators
    U0: Array  # (m, d0): the layer's own embedding
    u: Array  # (d0,)
    S: Array  # (c, n, n)
    V: Array  # (c,)
    T: Array  # (d, n, n)
    rows: Array  # (m, d)
    scale: Array  # (m,)

    @cached_property
    def depends(self) -> bool:
        """Whether M depends on x, by the zeros of the weights; products may underflow."""
        features = (self.U0[self.scale > 0] != 0).any(0)
        return bool((features & (self.T0 != 0).any((1, 2))).any())

    @cached_property
    def sizes(self) -> Array:
        """Bounds of sum_a |U_ia| ||T_a||_F: of ||A_i||_F, and of the terms that add up to it.  (m,)"""
        embedding = np.abs(self.U0) * self.scale[:, None] + self.lost
        result: Array = embedding @ self._norms * (1 + 1e-9) + VANISHED
        return result

    @cached_property
    def _norms(self) -> Array:
        return np.array([frobenius(t) for t in self.T0])

    @cached_property
    def lost(self) -> Array:
        """Bounds of what vanishing took from the products U_ia scale_i; T_a may be as large.  (m, d0)"""
        embedding = np.abs(self.U0)
        vanishing = (embedding > 0) & (self.scale[:, None] > 0) & (embedding * self.scale[:, None] < _LEAST)
        return np.where(vanishing, _LEAST, 0.0)

    @cached_property
    def forming_error(self) -> Array:
        """Bounds of ||sum_a rows_ia T_a - A_i||_F, A_i the exact matrices of the inputs.  (m,)"""
        error: Array = (len(self.T0) + 4) * UNIT * self.sizes + 2 * (self.lost @ self._norms) + VANISHED
        return error

    @property
    def n(self) -> int:
        """Size of the matrix."""
        return self.B.shape[0]

    def matrix(self, x: Array) -> Array:
        """M(x) at one row.  (m,) -> (n, n)"""
        return self.matrices(x[None])[0]

    def matrices(self, x: Array) -> Array:
        """M(x), row by row: a row's numbers do not depend on the other rows.  (r, m) -> (r, n, n)"""
        features = x[:, None] @ self.U0 + self.u
        moved = features @ self.T0.reshape(len(self.T0), -1)
        result: Array = self.B + moved.reshape(len(x), *self.B.shape)
        return result

    @cached_property
    def _absolute(self) -> tuple[Array, Array, Array, Array]:
        return np.abs(self.B), np.abs(self.T0), np.abs(self.U0), np.abs(self.u)

    def matrix_roundings(self, x: Array) -> Array:
        """Bounds of the errors of the computed M(x), in Frobenius norm: sums of products in some order.

        (r, m) -> (r,)
        """
        B, T0, U0, u = self._absolute
        features = np.abs(x)[:, None] @ U0 + u
        sizes = B.reshape(-1) + (features @ T0.reshape(len(T0), -1))[:, 0]
        vanished = len(self.U0) * _LEAST * float(self._norms.sum())  # of products of x and U
        result: Array = (sum(self.U0.shape) + 8) * UNIT * frobenius_each(sizes) + vanished + VANISHED
        return result

    def digest(self) -> str:
        """SHA-256 of everything the bounds depend on."""
        hasher = hashlib.sha256()
        for array in (self.B, self.T0, self.U0, self.u, self.S, self.V, self.T, self.rows):
            hasher.update(repr(array.shape).encode())
            hasher.update(np.ascontiguousarray(array).tobytes())
        return hasher.hexdigest()


def float64_copy(layer: MLayer) -> MLayer:
    """The same function in float64 on the CPU, without gradients."""
    copy = deepcopy(layer).to(device="cpu", dtype=torch.float64).eval()
    check_copy("layer", layer, copy)
    if copy.embedding is None:
        copy.embedding_bias = None  # the layer does not read it either
    copy.on_overflow = "ignore"  # what overflows is not certified
    return copy.requires_grad_(False)


def weights_of(layer: MLayer, region: Region) -> Weights:
    """Read a float64 layer."""

    def array(tensor: torch.Tensor) -> Array:
        return np.array(tensor.detach().numpy(), np.float64, order="C")  # a copy: the layer may change later

    n, m = layer.matrix_size, layer.in_features
    T0 = array(layer.generators)
    d0 = len(T0)
    U0 = np.eye(m) if layer.embedding is None else array(layer.embedding.mT)
    u = np.zeros(d0) if layer.embedding_bias is None else array(layer.embedding_bias)
    B = np.zeros((n, n)) if layer.matrix_bias is None else array(layer.matrix_bias)
    V = np.zeros(layer.out_features) if layer.output_bias is None else array(layer.output_bias)
    scaled = U0 * region.scale.numpy()[:, None]
    if m <= d0:  # fewer inputs than features: the inputs are the directions
        T, rows = np.tensordot(scaled, T0, 1), np.eye(m)
    else:
        T, rows = T0, scaled
    weights = Weights(B, T0, U0, u, array(layer.readout), V, T, rows, region.scale.numpy())
    # What nothing depends on may be of any size.
    return weights if weights.depends else replace(weights, T=np.zeros_like(T), rows=np.zeros_like(rows))


def within_range(weights: Weights) -> None:
    """Raise where powers of the weights, up to the fourth, would vanish or overflow in float64.

    A bound that underflows to 0 would certify everything.
    """
    rows, T = float(np.abs(weights.rows).max(initial=0.0)), float(np.abs(weights.T).max(initial=0.0))
    for what, size in (("embedding", rows), ("generators", T), ("embedding times generators", rows * T)):
        if size and not _SMALLEST <= size <= _LARGEST:
            raise ArgumentError(
                "layer",
                f"one with {what}, in units of scale, between {_SMALLEST:.0e} and {_LARGEST:.0e} in size",
                f"a largest entry of {size:.3g}",
                "Rescale the inputs, or scale.",
            )
