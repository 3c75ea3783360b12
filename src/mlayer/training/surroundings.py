"""The settings of torch for the whole process that numbers depend on, in words."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import torch
import torch.nn.modules.module as of_modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from mlayer.training.fingerprint import plain

# Where torch keeps the functions that are called around every module and every step of an optimizer.
_HOOKS = (
    *(
        (of_modules, f"_global_{name}_hooks")
        for name in ("forward", "forward_pre", "backward", "backward_pre")
    ),
    *(
        (sys.modules[torch.optim.Optimizer.__module__], f"_global_optimizer_{name}_hooks")
        for name in ("pre", "post")
    ),
)


def surroundings(device: str) -> str:
    """The default dtype, autocast, precision of products, and functions around all of torch's.

    >>> surroundings("cpu")
    'the default dtype float32, without autocast'
    """
    words = [f"the default dtype {_short(torch.get_default_dtype())}"]
    if torch.is_autocast_enabled(device):
        words.append(f"under autocast to {_short(torch.get_autocast_dtype(device))}")
    else:
        words.append("without autocast")
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        words.append(f"with matrix products in precision {precision!r}")
    if hooks := [one for module, name in _HOOKS for one in getattr(module, name, {}).values()]:
        words.append(f"with hooks of all modules or optimizers ({_digest(hooks)})")
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    if around := [mode for mode in modes if not isinstance(mode, DeviceContext)]:
        names = ", ".join(type(mode).__name__ for mode in around)
        words.append(f"inside {names} ({_digest(around)})")
    return ", ".join(words)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(plain(value)).encode("utf-8", "surrogatepass")).hexdigest()[:12]
