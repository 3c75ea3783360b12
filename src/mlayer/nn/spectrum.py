"""The spectral view: eigenvalues of M(x), and the frequencies and growth rates a model has learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.nn.arguments import check_tensor
from mlayer.nn.layer import MLayer, check_layer

# Beyond this condition number of the eigenvectors half of the digits of double precision are lost.
_LARGEST_CONDITION = 1e8


@dataclass(frozen=True)
class Modes:
    """The modes of exp(M) at one input: p_m = V_m + sum_k weights[m, k] exp(eigenvalues[k]).

    Attributes:
        eigenvalues: of M(x), (n,), complex.
        rates: change of the eigenvalues along the direction asked for, (n,), complex.
        weights: of each mode in each output, (out_features, n), complex.
    """

    eigenvalues: Tensor
    rates: Tensor
    weights: Tensor

    @property
    def frequencies(self) -> Tensor:
        """Angular frequency of each mode.  (n,)"""
        return self.rates.imag

    @property
    def growth_rates(self) -> Tensor:
        """Exponential growth (decay, where negative) of each mode.  (n,)"""
        return self.rates.real


def eigenvalues(layer: MLayer, x: Tensor) -> Tensor:
    """Eigenvalues of M(x), in double precision.  (..., in_features) -> (..., n), complex"""
    check_layer(layer)
    check_tensor("x", x)
    values: Tensor = torch.linalg.eigvals(_matrix(layer, x))
    return values


def eigenvalues_along(layer: MLayer, start: Tensor, direction: Tensor, t: Tensor) -> Tensor:
    """Eigenvalues of M(start + t direction), each column following one eigenvalue from t to t.

    Args:
        layer: the layer.
        start: a point in input space, (in_features,).
        direction: (in_features,).
        t: (k,), in order.

    Returns:
        (k, n), complex. A row is matched with what the two before it lead to, nearest pairs first, so that
        columns can be drawn as curves; where eigenvalues collide, the curves may swap.
    """
    check_layer(layer)
    check_tensor("t", t)
    if t.dim() != 1:
        raise ArgumentError("t", "of shape (k,)", f"shape {tuple(t.shape)}", "Use torch.linspace.")
    _check_point("start", layer, start)
    _check_point("direction", layer, direction)
    rows = list(eigenvalues(layer, start + t.to(start)[:, None] * direction))
    for k in range(1, len(rows)):
        expected = rows[k - 1]
        if k > 1 and t[k - 1] != t[k - 2]:  # extrapolate linearly, so that curves may cross
            expected = (
                expected + (rows[k - 1] - rows[k - 2]) * ((t[k] - t[k - 1]) / (t[k - 1] - t[k - 2])).item()
            )
        rows[k] = rows[k][_nearest(expected, rows[k])]
    return torch.stack(rows) if rows else torch.zeros(0, layer.matrix_size, dtype=torch.complex128)


def modes(layer: MLayer, x: Tensor, direction: Tensor | None = None) -> Modes:
    """The modes at one input, strongest weight first.

    Without ``direction`` the rates are the eigenvalues of M(x) themselves: frequencies and growth in
    the time of the ODE view. With it they are the derivatives of the eigenvalues along it: frequencies
    and growth of the outputs as the input moves. The latter are what a periodic model has learned; they
    are exact for all x if B and the generator commute, else local. Where M(x) is defective (in nilpotent
    layers everywhere) there are no such modes, and an error says so.

    Args:
        layer: the layer.
        x: (in_features,).
        direction: (in_features,), or None.

    >>> import torch, mlayer
    >>> turn = torch.tensor([[[0.0, -3.0], [3.0, 0.0]]])
    >>> wave = mlayer.MLayer.from_weights(turn, torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]))
    >>> [abs(round(f, 6)) for f in modes(wave, torch.tensor([0.7]), torch.tensor([1.0])).frequencies.tolist()]
    [3.0, 3.0]
    """
    check_layer(layer)
    _check_point("x", layer, x)
    M = _matrix(layer, x)
    values, vectors = torch.linalg.eig(M)
    condition = float(torch.linalg.cond(vectors))
    if not condition < _LARGEST_CONDITION:
        raise ArgumentError(
            "x",
            "an input at which M(x) has a basis of eigenvectors",
            f"one at which their condition number is {condition:.0e}",
            "M is (nearly) defective there, as in every nilpotent layer: its outputs are not a sum of "
            "exponentials. Use eigenvalues_along, or another x.",
        )
    inverse = torch.linalg.inv(vectors)
    rates = values
    if direction is not None:
        _check_point("direction", layer, direction)
        slope = (_matrix(layer, direction) - _matrix(layer, torch.zeros_like(direction))).to(values.dtype)
        rates = (inverse @ slope @ vectors).diagonal()
    S = layer.readout.detach().to(values.dtype)
    weights = torch.einsum("mij,ik,kj->mk", S, vectors, inverse)
    order = weights.abs().amax(0).argsort(descending=True, stable=True)
    return Modes(values[order], rates[order], weights[:, order])


@torch.no_grad()
def _matrix(layer: MLayer, x: Tensor) -> Tensor:
    M = layer.matrix(x.to(layer.readout.dtype)).to(torch.float64)
    if not bool(M.isfinite().all()):  # which would make LAPACK print to the terminal
        raise ArgumentError(
            "x",
            "finite, and so M(x)",
            "an input at which M(x) is infinite or NaN",
            "Check x and the weights.",
        )
    return M


def _nearest(before: Tensor, after: Tensor) -> Tensor:
    """The order of ``after`` that pairs it with ``before``, nearest pairs first."""
    n = len(before)
    order = [0] * n
    left, right = set(range(n)), set(range(n))
    for flat in (before[:, None] - after[None, :]).abs().flatten().argsort(stable=True).tolist():
        i, j = divmod(flat, n)
        if i in left and j in right:
            order[i] = j
            left.remove(i)
            right.remove(j)
    return torch.tensor(order)


def _check_point(name: str, layer: MLayer, x: Tensor) -> None:
    check_tensor(name, x)
    if x.shape != (layer.in_features,):
        raise ArgumentError(
            name,
            f"of shape ({layer.in_features},)",
            f"shape {tuple(x.shape)}",
            "Give one point of input space.",
        )
