"""The compiled kernel: found, loaded and called. Plain C entry points through ctypes."""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlayer.errors import ArgumentError, KernelError
from mlayer.exponential.arguments import materialized
from mlayer.exponential.build import kernel_digest
from mlayer.exponential.schedule import EIGHT, FOUR, SIXTEEN, Schedule, schedule_for

KERNEL_VERSION = 4

REBUILD = "python setup.py build_ext --inplace"

# Holds the kernel down to an instruction set, for measurements; read when the kernel is loaded.
ISA_VARIABLE = "MLAYER_EXPM_ISA"

# Above this size one matrix no longer stays in cache and the BLAS behind torch.matmul is as fast.
LARGEST_SIZE = 192


class KernelTable(ctypes.Structure):
    """`mlayer_table` of kernel/table.h."""

    _fields_ = (
        ("theta", ctypes.c_double * 4),
        ("norm_theta", ctypes.c_double * 4),
        ("four", ctypes.c_double * 2),
        ("eight", ctypes.c_double * 6),
        ("sixteen", ctypes.c_double * 15),
        ("largest_norm", ctypes.c_double),
    )

    @classmethod
    def of(cls, schedule: Schedule) -> KernelTable:
        table = cls()
        table.theta[:] = schedule.theta
        table.norm_theta[:] = schedule.norm_theta
        table.four[:] = FOUR
        table.eight[:] = EIGHT
        table.sixteen[:] = SIXTEEN
        table.largest_norm = schedule.largest_norm
        return table


# A complex matrix is computed as a real one of twice the size (kernel/embedding.h).
_ENTRIES = {
    torch.float32: "mlayer_expm_f32",
    torch.float64: "mlayer_expm_f64",
    torch.complex64: "mlayer_expm_c64",
    torch.complex128: "mlayer_expm_c128",
}
_TABLES = {
    (dtype, derivative): KernelTable.of(schedule_for(dtype, derivative))
    for dtype in _ENTRIES
    for derivative in (False, True)
}


def _is_of_these_sources(library: ctypes.CDLL) -> bool:
    """Whether it was built from the sources in its folder; an installed wheel has none to compare with."""
    wanted = kernel_digest()
    if wanted is None:
        return True
    try:
        digest = library.mlayer_kernel_source_digest
    except AttributeError:  # built before libraries carried one
        return False
    digest.restype = ctypes.c_char_p
    return bool(digest().decode() == wanted)


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or None and why not. Tried once per process."""
    # The plain suffix stands last: setup.py builds `_kernel.so`, which is for every Python.
    candidates = (Path(__file__).with_name(f"_kernel{suffix}") for suffix in reversed(EXTENSION_SUFFIXES))
    found = [path for path in candidates if path.exists()]
    if not found:
        return None, "no kernel was built (no C++ compiler, or it failed, when mlayer was installed)"
    try:
        library = ctypes.CDLL(str(found[0]))
        version = library.mlayer_kernel_version()
    except (OSError, AttributeError) as error:
        return None, f"the kernel {found[0].name} does not load: {error}"
    if version != KERNEL_VERSION:
        return None, f"the kernel is of version {version}, this mlayer needs {KERNEL_VERSION}: install again"
    if not _is_of_these_sources(library):
        why = f"the kernel {found[0].name} was built from other sources than the present ones: {REBUILD}"
        warnings.warn(f"{why}. Until then torch's own products are used, slower.", stacklevel=2)
        return None, why
    library.mlayer_kernel_isa.restype = ctypes.c_char_p
    wish = os.environ.get(ISA_VARIABLE)
    if wish and library.mlayer_kernel_use_isa(wish.encode()) != 0:
        raise ArgumentError(
            f"the environment variable {ISA_VARIABLE}",
            "one of avx512, avx2, portable that this processor has",
            repr(wish),
            "Unset it to let mlayer choose.",
        )
    library.mlayer_kernel_careful_squarings.restype = ctypes.c_int64
    for name in _ENTRIES.values():
        getattr(library, name).argtypes = (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_int32,
        )
    return library, ""


@cache
def _entry(dtype: torch.dtype, derivative: bool) -> tuple[Any, int]:
    """The entry point for a dtype, and the address of its table."""
    library, why = _load()
    if library is None:
        raise KernelError(why)
    return getattr(library, _ENTRIES[dtype]), ctypes.addressof(_TABLES[dtype, derivative])


def addresses() -> tuple[int, ...]:
    """For node.py: the entry points in the order of `_ENTRIES`; the tables, derivative after value."""
    entries = (ctypes.cast(_entry(dtype, False)[0], ctypes.c_void_p).value or 0 for dtype in _ENTRIES)
    precisions = (torch.float32, torch.float64)
    return (*entries, *(_entry(dtype, derivative)[1] for dtype in precisions for derivative in (False, True)))


def available() -> bool:
    """Whether the kernel is available."""
    return _load()[0] is not None


def description() -> str:
    """The kernel in use, or why there is none."""
    library, why = _load()
    return why if library is None else f"compiled kernel, {library.mlayer_kernel_isa().decode()} instructions"


def use_instruction_set(name: str) -> bool:
    """For tests: compute with "avx512", "avx2" or "portable" from now on. False if this machine cannot."""
    library, _ = _load()
    return library is not None and library.mlayer_kernel_use_isa(name.encode()) == 0


def shares_torch_threads() -> bool:
    """Whether the kernel runs on torch's own thread pool."""
    library, _ = _load()
    return library is not None and bool(library.mlayer_kernel_shares_torch_pool())


def supports(matrices: Tensor) -> bool:
    """Whether this is a dense tensor that the kernel takes, with any strides."""
    return (
        matrices.dtype in _ENTRIES and matrices.is_cpu and matrices.shape[-1] <= largest_size(matrices.dtype)
    )


def largest_size(dtype: torch.dtype) -> int:
    """The largest size of a matrix that the kernel takes."""
    return LARGEST_SIZE // 2 if dtype.is_complex else LARGEST_SIZE


def careful_squarings() -> int:
    """For tests: how many squarings the careful path has made."""
    library, _ = _load()
    return 0 if library is None else int(library.mlayer_kernel_careful_squarings())


def _one_thread() -> None:
    torch.set_num_threads(1)


# Threads do not survive a fork, and GNU's OpenMP waits for them forever, in torch's own products too.
# A forked child computes with one thread, as the workers of torch's data loaders do.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)


def _call(matrices: Tensor, direction: Tensor | None, transposed: bool) -> Tensor:
    # Every microsecond here is one of a training step with small matrices.
    matrices = materialized(matrices)
    contiguous = matrices.is_contiguous()
    if not contiguous:
        # The flag is the transpose of the real form: of a complex matrix that is its adjoint.
        if matrices.mT.is_contiguous() and not matrices.is_complex():
            transposed = not transposed
        else:
            matrices, contiguous = matrices.contiguous(), True
    if direction is not None:
        direction = materialized(direction).contiguous()
    out = torch.empty_like(matrices) if contiguous else torch.empty(matrices.shape, dtype=matrices.dtype)
    n = out.shape[-1]
    function, table = _entry(out.dtype, direction is not None)
    failed = function(
        matrices.data_ptr(),
        None if direction is None else direction.data_ptr(),
        out.data_ptr(),
        out.numel() // (n * n),
        n,
        transposed,
        table,
        torch.get_num_threads(),
    )
    if failed:
        raise KernelError("the kernel ran out of memory")
    return out


def expm(matrices: Tensor) -> Tensor:
    """exp(A).  (..., n, n) -> (..., n, n), n >= 1"""
    return _call(matrices, None, False)


def frechet(matrices: Tensor, direction: Tensor, adjoint: bool = False) -> Tensor:
    """L(A, E), the derivative of exp at A (or at its adjoint) in direction E; both (..., n, n)."""
    return _call(matrices, direction, adjoint)
