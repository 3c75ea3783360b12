"""The option ``on_overflow``: the behavior of a layer whose exponential leaves the range of its dtype."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

from mlayer.checks import one_of
from mlayer.errors import MLayerError
from mlayer.nn.initializers import Balanced

if TYPE_CHECKING:
    from mlayer.nn.layer import MLayer

OnOverflow = Literal["ignore", "warn", "raise"]
_CHOICES = ("ignore", "warn", "raise")
# Where the code of a call between the user's line and the warning is.
_INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


class OverflowedOutputError(MLayerError, ArithmeticError):
    """An M-layer with ``on_overflow="raise"`` gave an output that is not finite for inputs that are."""


class OverflowedOutputWarning(UserWarning):
    """The same with ``on_overflow="warn"``."""


def check_on_overflow(value: object) -> OnOverflow:
    """``value``, if it is one of the choices."""
    one_of("on_overflow", value, _CHOICES, "Use 'raise' while you look for the cause of NaN.")
    return cast(OnOverflow, value)


def report_overflow(layer: MLayer, x: Tensor, output: Tensor) -> None:
    """Warn or raise where the output is not finite although the input is."""
    if torch.compiler.is_compiling() or output.device.type == "meta" or _under_vmap():
        return
    finite = _finite_rows(output)
    lost = int((_finite_rows(x) & ~finite).sum())
    if not lost:
        return
    with torch.no_grad():
        norm = torch.linalg.matrix_norm(layer.matrix(x).float()).max().item()
    other_start = "" if isinstance(layer.init, Balanced) else "use init='balanced', "
    message = (
        f"{lost} of {finite.numel()} outputs of an MLayer are not finite although their inputs are: p leaves "
        f"the range of {output.dtype} (up to {torch.finfo(output.dtype).max:.1e}; largest Frobenius norm of "
        f"M: {norm:.3g}). Scale the inputs to about unit variance, lower the learning rate, "
        f"{other_start}or add the activity penalty."
    )
    if layer.on_overflow == "raise":
        raise OverflowedOutputError(message)
    warnings.warn(message, OverflowedOutputWarning, stacklevel=_levels_to_the_caller())


def _levels_to_the_caller() -> int:
    """The stacklevel of the line that called the model, through however many modules of torch and mlayer."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, levels = frame.f_back, levels + 1
    return levels


def _under_vmap() -> bool:
    """Whether one call computes many examples, so that no Python branch can depend on an output."""
    return any(i.key() == TransformType.Vmap for i in retrieve_all_functorch_interpreters())


def _finite_rows(tensor: Tensor) -> Tensor:
    """One flag per row.  (..., k) -> (rows,)"""
    return tensor.detach().reshape(tensor.shape[:-1].numel(), tensor.shape[-1]).isfinite().all(-1)
