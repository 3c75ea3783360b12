"""The state of torch in which certificates are computed, whatever the caller's is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def own_conditions() -> Iterator[None]:
    """Tensors are made on the CPU, and fits have their gradients; also within inference_mode and no_grad."""
    # Where it is needed only: the context of a device looks at every call of torch.
    on_cpu = torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext()
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False), on_cpu:
        yield
