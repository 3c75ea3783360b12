"""Refusal of derivatives in forward mode that torch would compute wrongly."""

from __future__ import annotations

from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

from mlayer.errors import ArgumentError


def refuse_nested_forward_modes() -> None:
    """Torch drops the outer tangent of what a `jvp` computes, unless it is one function's result.

    So a function of matrices can be pushed forward twice, but its L only once: better an error than a wrong
    third derivative.
    """
    transforms = [interpreter.key() for interpreter in retrieve_all_functorch_interpreters()]
    if transforms.count(TransformType.Jvp) > 1:
        raise ArgumentError(
            "the derivative",
            "without two nested forward modes (torch.func.jvp, jacfwd) from the third order on",
            "two or more",
            "Use reverse mode (torch.func.grad, jacrev) for the others.",
        )
