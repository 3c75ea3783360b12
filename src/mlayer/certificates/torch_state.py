"""The state of torch and numpy in which certificates are computed, whatever the caller's is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@contextmanager
def own_conditions() -> Iterator[None]:
    """Tensors are made on the CPU, and fits have their gradients; also within inference_mode and no_grad.

    Denormal numbers count, also under torch.set_flush_denormal(True): weights that are some are not 0.
    Numbers that overflow or vanish prove nothing and raise nothing, also under numpy.seterr(all="raise").
    """
    flushes = math.ulp(0.0) == 0.0
    if flushes:
        torch.set_flush_denormal(False)
    # Where it is needed only: the context of a device looks at every call of torch.
    on_cpu = torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext()
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            on_cpu,
            np.errstate(all="ignore"),
        ):
            yield
    finally:
        if flushes:
            torch.set_flush_denormal(True)


def keeps_zeros(tensor: Tensor, copy: Tensor) -> bool:
    """Whether as many numbers are 0 in a copy, by their bits: other threads may still flush denormal ones."""
    return _zeros(tensor) == _zeros(copy)


def _zeros(tensor: Tensor) -> int:
    bits = tensor.detach().cpu().contiguous().view(_BITS[tensor.dtype.itemsize])
    return int(((bits << 1) == 0).sum())  # without the sign
