"""The numbers in a tensor, a storage, an array in a file, or memory of C, for the identity of a run."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
from multiprocessing.sharedctypes import SynchronizedBase
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlayer.numerics.arrays import AnyArray
from mlayer.training.bulk_digest import tensor_digest
from mlayer.training.changes import NOT_COMPARED

_OF_C: tuple[type, ...] = (ctypes.Structure, ctypes.Union, ctypes.Array, *ctypes.c_double.__mro__[1:2])


def numbers_of_tensor(tensor: Tensor) -> str:
    """The digest of a tensor of any layout; one without numbers, or that hides them, counts by its shape.

    >>> one, other = torch.arange(8.0)[::2][:1], torch.arange(8.0)[1::2][:1]
    >>> numbers_of_tensor(one) == numbers_of_tensor(other)
    False
    """
    tensor = tensor.detach()
    try:
        dense = tensor.to_dense() if tensor.layout != torch.strided else tensor
        scales = f" {_scales(tensor)}" if tensor.is_quantized else ""
        return f"{dense.dtype} {tuple(dense.shape)}{scales} {tensor_digest(dense)}"
    except (RuntimeError, TypeError, NotImplementedError):
        mark = "" if tensor.is_meta else f" {NOT_COMPARED} {type(tensor).__qualname__} without numbers"
        return f"{tensor.dtype} {tuple(tensor.shape)}{mark}"


def _scales(quantized: Tensor) -> str:
    """The scales and zero points of a quantized tensor."""
    if quantized.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return f"{quantized.q_scale()!r} {quantized.q_zero_point()}"
    scales, zeros = quantized.q_per_channel_scales(), quantized.q_per_channel_zero_points()
    return f"{quantized.q_per_channel_axis()} {tensor_digest(scales)} {tensor_digest(zeros)}"


def numbers_of_storage(storage: torch.UntypedStorage | torch.TypedStorage) -> str:
    """The digest of a storage's bytes."""
    bare = storage if isinstance(storage, torch.UntypedStorage) else storage._untyped_storage
    return tensor_digest(torch.empty(0, dtype=torch.uint8, device=bare.device).set_(bare))


def place_in_a_file(array: np.memmap[Any, Any]) -> list[Any] | None:
    """The file that an array lies in, where it begins there, and its steps; None for one in memory.

    Copies and results of arithmetic are of this class too, though they lie in no file, and a part of an array
    has the offset of the whole.
    """
    file = getattr(array, "_mmap", None)
    if file is None or array.filename is None:
        return None
    begins: AnyArray = np.frombuffer(file, np.uint8)
    distance = array.__array_interface__["data"][0] - begins.__array_interface__["data"][0]
    page = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return [str(array.filename), page + distance, list(array.strides)]


def numbers_of_c(value: Any) -> list[Any] | None:
    """The bytes of numbers, arrays and structures of ctypes, also those that processes share; else None.

    >>> numbers_of_c(ctypes.c_double(1.0)) == numbers_of_c(ctypes.c_double(2.0))
    False
    """
    kind: type = type(value)
    if issubclass(kind, SynchronizedBase):
        return numbers_of_c(value.get_obj())
    if issubclass(kind, ctypes.c_char_p | ctypes.c_wchar_p):  # a pointer to text
        return [kind.__name__, hashlib.sha256(repr(value.value).encode()).hexdigest()]
    if not issubclass(kind, _OF_C) or _has_pointers(kind):
        return None
    return [kind.__name__, hashlib.sha256(bytes(value)).hexdigest()]


def _has_pointers(kind: Any) -> bool:
    """Whether the bytes are addresses, at least in a part."""
    if issubclass(kind, ctypes.Array):
        return _has_pointers(kind._type_)
    fields = [field for base in kind.__mro__ for field in vars(base).get("_fields_", ())]
    if fields:
        return any(_has_pointers(field[1]) for field in fields)
    return getattr(kind, "_type_", "P") in ("P", "z", "Z", "O") or not issubclass(kind, _OF_C)
