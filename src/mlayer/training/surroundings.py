"""The settings of torch for the whole process that numbers depend on, in words."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from operator import attrgetter
from typing import Any

import torch
import torch.nn.modules.module as of_modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from mlayer.training.changes import marks_in
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
# Where torch keeps the precision of products; "none" stands for what a wider setting says.
_PRECISIONS = ("", "cuda.", "cuda.matmul.", "mkldnn.", "mkldnn.matmul.")
_PLAIN = ("none", "ieee")
# Modules of torch that count operations and change no number.
_COUNTERS = ("torch.utils.flop_counter", "torch.utils.module_tracker")


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
    if precisions := _precisions():
        words.append(f"with matrix products in precision {', '.join(precisions)}")
    hooks = [one for module, name in _HOOKS for one in getattr(module, name, {}).values()]
    if hooks := [hook for hook in hooks if getattr(hook, "__module__", None) not in _COUNTERS]:
        words.append(f"with hooks of all modules or optimizers ({_digest(hooks)})")
    if packing := torch._C._autograd._top_saved_tensors_default_hooks(True):
        words.append(f"with hooks of saved tensors ({_digest(packing)})")
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    modes = [mode for mode in modes if type(mode).__module__ not in _COUNTERS]
    if around := [mode for mode in modes if not isinstance(mode, DeviceContext)]:
        names = ", ".join(type(mode).__name__ for mode in around)
        words.append(f"inside {names} ({_digest(around)})")
    return ", ".join(words)


def _precisions() -> list[str]:
    """The precision of float32 products, by torch's older setting or by those of its back ends."""
    try:
        general = torch.get_float32_matmul_precision()
    except RuntimeError:  # the settings of the back ends say more than it can
        general = "highest"
    if general != "highest":
        return [repr(general)]
    found = {}
    for place in _PRECISIONS:
        with suppress(AttributeError, RuntimeError):
            found[place] = attrgetter(f"{place}fp32_precision")(torch.backends)
    return [f"{place}{precision!r}" for place, precision in found.items() if precision not in _PLAIN]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _digest(value: Any) -> str:
    found = plain(value)
    digest = hashlib.sha256(json.dumps(found).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return "; ".join([digest, *marks_in(found)])
