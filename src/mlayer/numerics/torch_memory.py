"""Arrays as tensors whose results do not depend on where NumPy happened to put the numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.numerics.arrays import AnyArray


def in_torch_memory(array: AnyArray) -> Tensor:
    """A copy in memory of torch, which starts at a full cache line.

    A BLAS may sum in another order where its operands start elsewhere in a line, and an array of NumPy
    starts at any multiple of 16 bytes, another one in the next run. `torch.from_numpy` would share that
    memory, and the same fit or prediction twice could differ in its last digits.
    """
    return torch.tensor(array)
