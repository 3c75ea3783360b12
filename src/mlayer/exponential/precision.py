"""Full float32 products, whatever the user allows for their own network."""

from __future__ import annotations

from threading import Lock
from types import TracebackType

import torch
from torch import Tensor

_lock = Lock()
_inside = 0
_allowed_outside = "highest"


class full_precision:  # noqa: N801 - used as a context manager, like torch's own
    """Switch autocast and reduced float32 products (TF32, bfloat16) off for our own products.

    Squaring amplifies the error of a product: with TF32 an exponential of norm 10 keeps three digits. The
    precision of float32 products is one setting per process, so threads share one switch: the first to enter
    sets it and the last to leave restores it.
    """

    def __init__(self, matrices: Tensor) -> None:
        device = matrices.device.type
        autocasts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        self._autocast = torch.autocast(device, enabled=False) if autocasts else None
        self._reducible = matrices.dtype in (torch.float32, torch.complex64)

    def __enter__(self) -> None:
        if self._autocast is not None:
            self._autocast.__enter__()
        if self._reducible:
            _enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reducible:
            _leave()
        if self._autocast is not None:
            self._autocast.__exit__(kind, error, trace)


def _enter() -> None:
    global _inside, _allowed_outside  # noqa: PLW0603 - mirrors a setting of the process
    with _lock:
        if _inside == 0:
            _allowed_outside = torch.get_float32_matmul_precision()
            if _allowed_outside != "highest":
                torch.set_float32_matmul_precision("highest")
        _inside += 1


def _leave() -> None:
    global _inside  # noqa: PLW0603 - as above
    with _lock:
        _inside -= 1
        if _inside == 0 and _allowed_outside != "highest":
            torch.set_float32_matmul_precision(_allowed_outside)
