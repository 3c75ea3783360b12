"""Checks of the matrices that are exponentiated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mlayer.errors import ArgumentError, ArgumentTypeError

HALVES = (torch.float16, torch.bfloat16)
# Those that `expm` converts: a type that it learns to compute in leaves this list and stays in the other.
EXPM_IN_SINGLE = HALVES
_DTYPES = frozenset((*HALVES, torch.float32, torch.float64, torch.complex64, torch.complex128))


def check_matrices(A: Tensor, argument: str = "A") -> None:
    """Raise unless ``A`` is a dense tensor of square matrices of a floating point or complex dtype."""
    if not isinstance(A, Tensor):
        raise ArgumentTypeError(argument, "a torch.Tensor", type(A).__name__, conversion(argument, A))
    check_not_nested(A, argument)
    shape = A.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ArgumentError(
            argument,
            "a square matrix or a batch of them, shape (..., n, n)",
            f"shape {tuple(shape)}",
            "The last two dimensions must be equal.",
        )
    check_dtype(A, argument)
    if A.layout != torch.strided:
        raise ArgumentTypeError(
            argument, "a dense tensor", str(A.layout), f"Convert it with {argument}.to_dense()."
        )


def conversion(argument: str, value: object) -> str:
    """The advice for what is given in place of a tensor.

    >>> conversion("x", [1.0, 2.0])
    'Convert it with torch.as_tensor(x).'
    """
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return f"Give {argument}.data, which has a row for each step of each sequence."
    if isinstance(value, tuple) and any(isinstance(part, Tensor) for part in value):
        return f"Give one of its parts: {argument}[0] is the output of nn.LSTM and nn.MultiheadAttention."
    if isinstance(value, list) and any(isinstance(part, Tensor) for part in value):
        return f"Join its parts with torch.stack({argument})."
    if value is None:
        return "The function that should give it returned nothing."
    # Tables of pandas and polars; sparse matrices of SciPy.
    method = next((f".{name}()" for name in ("to_numpy", "toarray") if hasattr(value, name)), "")
    return f"Convert it with torch.as_tensor({argument}{method})."


def check_dtype(tensor: Tensor, argument: str) -> None:
    """Raise unless the functions of matrices compute in this dtype, or in one that it is converted to."""
    if tensor.dtype not in _DTYPES:
        hint = f"{argument}.to(torch.complex64)" if tensor.dtype == torch.complex32 else None
        raise ArgumentTypeError(
            argument,
            "of floating point or complex dtype",
            str(tensor.dtype),
            f"Convert it with {hint or f'{argument}.float() or {argument}.double()'}.",
        )


def check_not_nested(tensor: Tensor, argument: str) -> None:
    """Raise if matrices of different sizes stand in one tensor, which has no shape."""
    if tensor.is_nested:
        hint = f"Call it for each of {argument}.unbind()."
        raise ArgumentTypeError(argument, "one tensor of one shape", "a nested tensor", hint)


_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


def is_plain(tensor: Tensor) -> bool:
    """An ordinary tensor with memory behind it, not a fake, meta or batched one.

    Nor while a dispatch mode watches operations: `make_fx` would take a result from elsewhere for a constant,
    and a checkpoint could not keep it.
    """
    if type(tensor) not in _PLAIN_TYPES or tensor.is_meta or torch._C._len_torch_dispatch_stack():
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:  # the stand-ins of torch.autograd.grad(is_grads_batched=True)
        return False
    return True


def materialized(tensor: Tensor) -> Tensor:
    """The tensor with what torch may have deferred: negation, conjugation, the memory of a zero tangent."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.resolve_conj() if tensor.is_conj() else tensor


def transforms_active() -> bool:
    """Whether this runs inside torch.func or forward-mode differentiation."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def owned(result: Tensor) -> Tensor:
    """The result of an autograd function as no view: torch would not let the user change that in place."""
    return result.detach() if result._is_view() else result


def moved_and_broadcast(tensors: Sequence[Tensor], dims: Sequence[int | None]) -> Sequence[Tensor]:
    """For vmap: tensors of one shape but for a batch, which some have at ``dims``, with it in front."""
    moved = (x.unsqueeze(0) if d is None else x.movedim(d, 0) for x, d in zip(tensors, dims, strict=True))
    return torch.broadcast_tensors(*moved)
