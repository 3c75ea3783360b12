"""`mlayer.logm` and `mlayer.sqrtm`: input is checked here, once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential.arguments import HALVES, check_matrices
from mlayer.exponential.inverse.balance import balancing
from mlayer.exponential.inverse.logarithm import logarithm
from mlayer.exponential.inverse.pairs import MatrixPair
from mlayer.exponential.inverse.root import largest_entry, square_root
from mlayer.exponential.primary_function import Value, define_primary
from mlayer.exponential.sharding import allow_sharding

Method = Callable[[MatrixPair], tuple[MatrixPair, Tensor]]
# Roots with a residual ||A - X^2|| / ||A|| above this have lost half of their digits.
_LOST = 2.0**-26
# The binary exponent from which on sums of entries may overflow.
_LARGE = 900


def sqrtm(A: Tensor) -> Tensor:
    """The principal square root of a square matrix, or of each in a batch.

    X X = A, and the eigenvalues of X have positive real parts; the root of a real matrix is real. It exists
    where no eigenvalue of A lies on the closed negative real axis; elsewhere an error names the matrix.
    Differentiable to every order in reverse and forward mode, under ``torch.func.vmap`` too.
    float16, bfloat16, float32 and complex64 are computed in double precision. NaN or infinity in one matrix
    gives NaN in that matrix only.

    Args:
        A: shape (..., n, n), floating point or complex.

    Returns:
        A tensor of the shape, dtype and device of ``A``.

    >>> import torch, mlayer
    >>> mlayer.sqrtm(torch.tensor([[4.0, 1.0], [0.0, 9.0]]))
    tensor([[2.0000, 0.2000],
            [0.0000, 3.0000]])
    """
    return _checked(A, _SQUARE_ROOT)


def logm(A: Tensor) -> Tensor:
    """The principal logarithm of a square matrix, or of each in a batch.

    exp(X) = A, and the eigenvalues of X have imaginary parts between -pi and pi; the logarithm of a real
    matrix is real. It exists where no eigenvalue of A lies on the closed negative real axis; elsewhere an
    error names the matrix. Derivatives, precision and special values as for :func:`mlayer.sqrtm`.

    Args:
        A: shape (..., n, n), floating point or complex.

    Returns:
        A tensor of the shape, dtype and device of ``A``.

    >>> import torch, mlayer
    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> torch.allclose(mlayer.logm(turn), turn * torch.pi / 2)
    True
    """
    return _checked(A, _LOGARITHM)


def _checked(A: Tensor, function: Value) -> Tensor:
    check_matrices(A)
    if A.dtype in HALVES:
        return _checked(A.float(), function).to(A.dtype)
    allow_sharding(A)
    return function(A)


def _function(method: Method, name: str, what: str) -> Value:
    def value(matrices: Tensor) -> Tensor:
        if matrices.is_meta or not matrices.numel():
            return torch.empty_like(matrices, memory_format=torch.contiguous_format)
        flat, finite = _flat(matrices)
        scale = balancing(flat)
        flat = _similar(flat, 1 / scale)
        _refuse(flat, matrices.shape[:-2], what)
        pair, residual = method(MatrixPair(flat))
        _refuse_lost(residual, matrices.shape[:-2], what)
        return _back(_similar(pair.x, scale), finite, matrices)

    def frechet(matrices: Tensor, direction: Tensor) -> Tensor:
        if matrices.is_meta or not matrices.numel():
            return torch.empty_like(matrices, memory_format=torch.contiguous_format)
        flat, finite = _flat(matrices)
        along, usable = _flat(direction)
        scale = balancing(flat)
        flat, along = _similar(flat, 1 / scale), _similar(along, 1 / scale)
        # The derivative is linear in its direction: at the size of A little overflows on the way.
        power = _exponent(along) - _exponent(flat).clamp(min=-_LARGE)  # not among the subnormal numbers
        h = _times_two_to(_tangent(method, flat, _times_two_to(along, -power)), power)
        odd = (~h.isfinite().flatten(1).all(1)).nonzero().squeeze(1)
        if len(odd):  # eigenvalues so far apart that the direction must not be as large as A
            h = h.index_copy(0, odd, _tangent(method, flat[odd], along[odd]))
        _refuse_nan(h, matrices.shape[:-2], what)
        return _back(_similar(h, scale), finite & usable, matrices)

    return define_primary(name, f"{name}_frechet", value, frechet, _scale)[0]


def _scale(matrices: Tensor, direction: Tensor) -> Tensor:
    """Powers of two that bring each direction to the size of its matrix."""
    largest = [x.detach().abs().amax((-2, -1), keepdim=True) for x in (matrices, direction)]
    ratio = largest[1] / largest[0]
    return torch.where((ratio > 0) & ratio.isfinite(), torch.exp2(torch.log2(ratio).floor()), 1.0)


def _tangent(method: Method, flat: Tensor, along: Tensor) -> Tensor:
    h = method(MatrixPair(flat, along))[0].h
    assert h is not None
    return h


def _flat(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices in double precision, I in place of those that are not finite; which are.  -> , (b,)"""
    n = matrices.shape[-1]
    wide = matrices.to(torch.complex128 if matrices.is_complex() else torch.float64)
    flat = wide.reshape(-1, n, n)
    finite = flat.isfinite().flatten(1).all(1)
    eye = torch.eye(n, dtype=flat.dtype, device=flat.device)
    return torch.where(finite[:, None, None], flat, eye), finite


def _similar(matrices: Tensor, scale: Tensor) -> Tensor:
    """D X D^-1, exact for powers of two."""
    return matrices * scale[:, :, None] / scale[:, None, :]


def _exponent(matrices: Tensor) -> Tensor:
    """The binary exponent of the largest entry of each, 0 for zero.  -> (b, 1, 1)"""
    largest = largest_entry(matrices)
    return torch.where(largest > 0, torch.frexp(largest).exponent, 0)


def _times_two_to(matrices: Tensor, power: Tensor) -> Tensor:
    """Multiply in two steps: 2^power alone may be out of range where the product is not."""
    half = torch.div(power, 2, rounding_mode="floor").to(torch.float64)
    return matrices * torch.exp2(half) * torch.exp2(power - half)


def _back(result: Tensor, finite: Tensor, like: Tensor) -> Tensor:
    return torch.where(finite[:, None, None], result, torch.nan).reshape(like.shape).to(like.dtype)


def _refuse(flat: Tensor, batch: torch.Size, what: str) -> None:
    """Raise if an eigenvalue is on the closed negative real axis, to rounding."""
    # Eigenvalues of the largest matrices would overflow, which those of a part of them do not.
    power = torch.where(_exponent(flat) > _LARGE, _exponent(flat), 0)
    whole, flat = flat, _times_two_to(flat, -power)
    eigenvalues = torch.linalg.eigvals(flat)
    lower, upper = ((triangle == 0).flatten(1).all(1) for triangle in (flat.triu(1), flat.tril(-1)))
    triangular = (lower | upper)[:, None]
    diagonal = whole.diagonal(dim1=1, dim2=2).to(eigenvalues.dtype)
    eigenvalues = torch.where(triangular, diagonal, eigenvalues)  # exact there
    size = flat.abs().sum(1).amax(1)[:, None]  # the 1-norm
    rounding = flat.shape[-1] * torch.finfo(flat.dtype).eps * size
    rounding = torch.where(triangular, 0.0, rounding)
    zero = eigenvalues.abs() <= rounding
    negative = (eigenvalues.real <= 0) & (eigenvalues.imag.abs() <= rounding)
    bad = zero | negative
    if not bool(bad.any()):
        return
    item, place = bad.nonzero()[0].tolist()
    eigenvalue = complex(eigenvalues[item, place])
    if not triangular[item]:
        eigenvalue *= 2.0 ** min(1023, int(power[item]))
    written = f"{eigenvalue.real:.3g}" if negative[item, place] else f"{eigenvalue:.3g}"
    kind = "0 to rounding" if zero[item, place] else "negative"
    raise ArgumentError(
        f"A{_place(item, batch)}",
        "without eigenvalues on the closed negative real axis",
        f"the eigenvalue {written}, {kind}",
        f"There is no principal {what}. Add a multiple of the identity.",
    )


def _refuse_lost(residual: Tensor, batch: torch.Size, what: str) -> None:
    lost = ~(residual <= _LOST)
    if bool(lost.any()):
        item = int(lost.nonzero()[0])
        raise ArgumentError(
            f"A{_place(item, batch)}",
            f"a matrix whose principal {what} is determined to half of the digits",
            "one too close to a matrix that has none",
            "Add a multiple of the identity.",
        )


def _refuse_nan(h: Tensor, batch: torch.Size, what: str) -> None:
    """The inputs are finite here: a derivative may be infinite, never NaN."""
    bad = h.isnan().flatten(1).any(1)
    if bool(bad.any()):
        raise ArgumentError(
            f"A{_place(int(bad.nonzero()[0]), batch)}",
            f"a matrix at which the {what} has a derivative that double precision can hold",
            "one with eigenvalues too small, or too far apart",
            "Add a multiple of the identity.",
        )


def _place(item: int, batch: torch.Size) -> str:
    """The place of a matrix in the batch, as an index."""
    index = []
    for size in reversed(batch):
        item, rest = divmod(item, size)
        index.append(rest)
    return str(list(reversed(index))) if index else ""


_SQUARE_ROOT = _function(square_root, "sqrtm", "square root")
_LOGARITHM = _function(logarithm, "logm", "logarithm")
