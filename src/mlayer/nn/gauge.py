"""The gauge view: weights that compute the same function (end of section 3.2 of the paper).

For invertible P (n x n) and Q (d x d),

    T_a -> P T_a P^-1,  B -> P B P^-1,  S_m -> P^-T S_m P^T        exp(M) -> P exp(M) P^-1
    U -> Q U,  u -> Q u,  T_a -> sum_b (Q^-1)_ba T_b               M unchanged

and for c in R^d, u -> u - c with B -> B + sum_a c_a T_a. `canonical` picks one representative.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.nn.arguments import check_tensor, shape_of
from mlayer.nn.layer import MLayer, check_layer

_NEWTON_STEPS = 50
_INNER_STEPS = 200
_CONVERGED = 1e-12
# No step of the balancing stretches a direction by more than e to this power.
_LONGEST = 2.0
# No similarity with a larger condition number is taken.
_WIDEST = 1e8


def transform(layer: MLayer, *, matrix: Tensor | None = None, embedding: Tensor | None = None) -> MLayer:
    """A layer with other weights and the same function.

    Args:
        layer: the layer; it is not changed.
        matrix: P, (n, n), invertible: the similarity on T, B and S. A structured layer allows only those
            that keep its structure: ``layer.structure.similarities`` says which.
        embedding: Q, (d, d), invertible: the change of features between T and U. Needs an embedding.

    >>> import torch, mlayer
    >>> layer, x = mlayer.MLayer(4, 2, matrix_size=3, embedding_size=2).double(), torch.ones(4).double()
    >>> other = transform(layer, matrix=torch.diag(torch.tensor([1.0, 2.0, 4.0])))
    >>> torch.allclose(layer(x), other(x))
    True
    """
    weights = _GaugeWeights(layer)
    if matrix is not None:
        weights.change_basis(_invertible("matrix", matrix, layer.matrix_size))
    if embedding is not None:
        if layer.embedding is None:
            raise ArgumentError(
                "embedding",
                "None for a layer without an embedding",
                shape_of(embedding),
                "Without U the features are the inputs, and there is nothing to change.",
            )
        weights.change_features(_invertible("embedding", embedding, layer.generator_count))
    return weights.layer()


def canonical(layer: MLayer) -> MLayer:
    """The representative with balanced norms: equal for layers that differ by a gauge transformation.

    1. u is moved into B, where there is a B.
    2. The similarity minimizes the sum of squares of all n x n matrices: T contracted with U, B and S.
       It is the minimum over the similarities exp(X), X symmetric, with X in the entries that
       ``layer.structure.balancing_mask()`` names: all for "full", the diagonal for "nilpotent", none for
       "skew" and for structures that define no mask. What is left for "full" is an orthogonal matrix, which
       is fixed by the eigenvectors of the sum of the symmetric parts of squares.
    3. T and U become the two halves of a singular value decomposition: orthogonal features, strongest
       first, with equal norms in T and U.

    Signs are fixed by sums of entries. Weights that are symmetric under some rotation have no unique
    representative, but the norms are still balanced. Computed in double precision; the result has the
    dtype of ``layer``.
    """
    weights = _GaugeWeights(layer)
    weights.absorb_embedding_bias()
    matrices = weights.all_matrices()
    if not matrices.isfinite().all():
        raise ArgumentError(
            "layer", "of finite weights", "infinity or NaN", "Look for where training diverged."
        )
    mask = layer.structure.balancing_mask().to(matrices.device)
    P = _balancing(matrices, mask)
    if bool(mask.all()):
        weights.change_basis(P)
        P = _principal_axes(weights.all_matrices())
        weights.change_basis(P)
        P = _row_signs(weights.contracted()).diag()
    weights.change_basis(P)
    weights.balance_features()
    return weights.layer()


class _GaugeWeights:
    """The weights of a layer in double precision, to be changed step by step."""

    def __init__(self, layer: MLayer) -> None:
        check_layer(layer)

        def wide(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.detach().to(torch.float64)

        self.original = layer
        self.T = layer.generators.detach().to(torch.float64)
        self.S = layer.readout.detach().to(torch.float64)
        self.B, self.U, self.u = wide(layer.matrix_bias), wide(layer.embedding), wide(layer.embedding_bias)

    def layer(self) -> MLayer:
        def narrow(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(self.original.readout.dtype)

        dtype = self.original.readout.dtype
        layer = MLayer.from_weights(
            self.T.to(dtype),
            self.S.to(dtype),
            matrix_bias=narrow(self.B),
            output_bias=self.original.output_bias,
            embedding=narrow(self.U),
            embedding_bias=narrow(self.u),
            structure=deepcopy(self.original.structure),
        )
        layer.init, layer.on_overflow = self.original.init, self.original.on_overflow
        return layer

    def change_basis(self, P: Tensor) -> None:
        P = P.to(self.T)
        inverse = torch.linalg.inv(P)
        self.T = P @ self.T @ inverse
        self.B = None if self.B is None else P @ self.B @ inverse
        self.S = inverse.mT @ self.S @ P.mT

    def change_features(self, Q: Tensor) -> None:
        assert self.U is not None
        Q = Q.to(self.T)
        self.T = torch.einsum("bjk,ba->ajk", self.T, torch.linalg.inv(Q))
        self.U = Q @ self.U
        self.u = None if self.u is None else Q @ self.u

    def absorb_embedding_bias(self) -> None:
        if self.u is not None and self.B is not None:
            self.B = self.B + torch.einsum("a,ajk->jk", self.u, self.T)
            self.u = torch.zeros_like(self.u)

    def all_matrices(self) -> Tensor:
        """Matrices that a similarity conjugates, with the sum of squares that step 2 minimizes.  (k, n, n)"""
        if self.U is None:
            return self.contracted()
        # sum_i ||sum_a U_ai T_a||^2 depends on U U^T only; d matrices do for all inputs.
        R = torch.linalg.qr(self._inputs().mT, mode="r").R  # (d or fewer, d)
        return self._with_bias_and_readout(torch.einsum("ca,ajk->cjk", R, self.T))

    def contracted(self) -> Tensor:
        """The same with one matrix per input: no change of features alters them.  (k, n, n)"""
        if self.U is None:
            return self._with_bias_and_readout(self.T)
        return self._with_bias_and_readout(torch.einsum("ai,ajk->ijk", self._inputs(), self.T))

    def _with_bias_and_readout(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, self.S.mT] if self.B is None else [inputs, self.B[None], self.S.mT])

    def _inputs(self) -> Tensor:
        """U, with u as one more column where there is no B to hold it.  (d, inputs)"""
        assert self.U is not None
        return self.U if self.u is None or self.B is not None else torch.cat([self.U, self.u[:, None]], 1)

    def balance_features(self) -> None:
        if self.U is None:
            return
        d, inputs = self.T.shape[0], self._inputs()
        # The singular value decomposition of T^T [U u] (n^2 x inputs) through two small factors.
        q_left, r_left = torch.linalg.qr(self.T.flatten(1).mT)
        q_right, r_right = torch.linalg.qr(inputs.mT)
        left, values, right = torch.linalg.svd(r_left @ r_right.mT, full_matrices=False)
        left, right = q_left @ left, right @ q_right.mT  # (n^2, k), (k, inputs)
        signs = _signs(left)
        roots = values.sqrt()
        T, product = (left * signs * roots).mT, right * (signs * roots)[:, None]
        missing = d - len(values)
        if missing > 0:  # fewer inputs than features: the rest do nothing
            T = torch.cat([T, T.new_zeros(missing, T.shape[1])])
            product = torch.cat([product, product.new_zeros(missing, product.shape[1])])
        self.T = T.reshape(self.T.shape)
        self.U = product[:, : self.U.shape[1]]
        if inputs.shape[1] > self.U.shape[1]:
            self.u = product[:, -1]


def _balancing(matrices: Tensor, mask: Tensor) -> Tensor:
    """P that minimizes sum_k ||P A_k P^-1||_F^2 among products of exp(X), X symmetric within ``mask``.

    The function is convex along X -> exp(X), with gradient 2 C, C = sum [A, A^T], and second derivative
    4 sum ||[X, A]||^2; Newton steps by conjugate gradients, each halved until it descends.
    """
    n = matrices.shape[-1]
    P = torch.eye(n, dtype=matrices.dtype, device=matrices.device)
    if not bool(mask.any()) or not bool(matrices.any()):
        return P
    A = matrices
    for _ in range(_NEWTON_STEPS):
        square = A.square().sum()
        C = (A @ A.mT - A.mT @ A).sum(0) * mask
        if C.norm() <= _CONVERGED * square:
            break
        X = _conjugate_gradients(partial(_curvature, A, mask), -C)
        X = X * min(1.0, _LONGEST / torch.linalg.matrix_norm(X, 2).item())
        slope = 2 * (C * X).sum()
        for _ in range(40):
            E = torch.linalg.matrix_exp(X)
            moved = E @ A @ torch.linalg.matrix_exp(-X)
            if moved.square().sum() <= square + 0.1 * slope:
                break
            X, slope = X / 2, slope / 2
        else:
            break  # as small as rounding allows
        if torch.linalg.cond(E @ P) > _WIDEST:
            break  # the minimum lies at infinity, or too far to be worth its rounding
        A, P = moved, E @ P
    return P


def _curvature(A: Tensor, mask: Tensor, X: Tensor) -> Tensor:
    """The symmetric matrix H(X) with <X, H(X)> = 2 sum ||[X, A]||^2, within ``mask``."""
    Y = X @ A - A @ X
    H: Tensor = (Y @ A.mT - A.mT @ Y).sum(0)
    return (H + H.mT) * mask


def _conjugate_gradients(apply: Callable[[Tensor], Tensor], target: Tensor) -> Tensor:
    """X with apply(X) close to target, apply positive semidefinite."""
    X = torch.zeros_like(target)
    residual = target
    step = residual
    size = residual.square().sum()
    goal = 1e-4 * size  # squares: 1% of the residual is enough for a Newton step
    for _ in range(_INNER_STEPS):
        image = apply(step)
        curvature = (step * image).sum()
        if curvature <= 0 or size <= goal:
            break
        length = size / curvature
        X = X + length * step
        residual = residual - length * image
        last, size = size, residual.square().sum()
        step = residual + (size / last) * step
    return X if bool(X.any()) else target


def _principal_axes(matrices: Tensor) -> Tensor:
    """An orthogonal Q that fixes what is left of the similarities, up to signs: Q F Q^T is diagonal."""
    traces = matrices.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
    F = (matrices @ matrices.mT + traces * matrices).sum(0)  # turns with the matrices
    axes: Tensor = torch.linalg.eigh(F + F.mT).eigenvectors
    return axes.mT


def _row_signs(matrices: Tensor) -> Tensor:
    """Signs s for conjugation by diag(s): the first is +, each other makes a strong entry positive.  (n,)"""
    total = (matrices**3).sum(0)  # odd, so it shows the sign
    total = total + total.mT
    signs = torch.ones(len(total), dtype=matrices.dtype, device=matrices.device)
    for i in range(1, len(total)):
        j = int(total[i, :i].abs().argmax())
        signs[i] = signs[j] * (1.0 if total[i, j] >= 0 else -1.0)
    return signs


def _signs(columns: Tensor) -> Tensor:
    """A sign for every column that makes its entry of largest size positive.  (k,)"""
    largest = columns.abs().argmax(0, keepdim=True)
    return torch.where(columns.gather(0, largest)[0] >= 0, 1.0, -1.0)


def _invertible(argument: str, matrix: Tensor, size: int) -> Tensor:
    check_tensor(argument, matrix)
    if matrix.shape != (size, size):
        raise ArgumentError(
            argument, f"of shape ({size}, {size})", f"shape {tuple(matrix.shape)}", "Give one square matrix."
        )
    matrix = matrix.detach().to(torch.float64)
    if not matrix.isfinite().all() or torch.linalg.cond(matrix).item() > 1e12:
        raise ArgumentError(
            argument,
            "invertible",
            "a matrix that is singular or nearly so",
            "Its condition number must stay below 1e12.",
        )
    return matrix
