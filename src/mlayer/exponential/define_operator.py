"""A torch operator with derivatives in reverse and forward mode, under every nesting of torch.func.

`torch.library.custom_op` has no forward mode: tangents are lost without an error, in graphs of torch.compile
too, and its reverse mode does not work under torch.func. Here an autograd function is the operator's kernel
for autograd, as in torch's own operators: every level of torch.func runs it, and its forward calls the next.
It is of one level, as those that torch.func makes itself: what a `torch.autograd.Function` does beyond that
serves torch.func, whose levels are entered already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlayer.errors import ArgumentError, MLayerError
from mlayer.exponential.arguments import owned
from mlayer.exponential.sharding import computes_matrix_by_matrix

_TESTED = "2.13 to 2.15"
_missing = ""
try:  # names that torch may change: without them ordinary exponentials still work
    from torch._C import _after_autograd_keyset, _are_functorch_transforms_active, _AutoDispatchBelowAutograd
    from torch._functorch.utils import enable_single_level_autograd_function
    from torch.autograd.forward_ad import _set_fwd_grad_enabled
    from torch.autograd.function import _SingleLevelFunction
except ImportError as error:
    _missing = str(error)
    _SingleLevelFunction = torch.autograd.Function  # type: ignore[misc]

Tensors = Sequence[Tensor]


class Rules(NamedTuple):
    """An operator by functions of its tensors and of `rest`, its other arguments."""

    value: Callable[..., Any]  # of all arguments, for tensors with memory
    like: Callable[..., Any]  # results without values
    # (size of the batch, where the arguments have it, all arguments) -> results, where these have it
    batch: Callable[..., tuple[Any, Any]]
    # (rest, tensors, cotangents of the results, which gradients are wanted) -> gradients
    pull_back: Callable[[tuple[Any, ...], Tensors, Tensors, Sequence[bool]], Sequence[Tensor | None]]
    # (rest, tensors, their tangents as far as there are any) -> tangents of the results
    push_forward: Callable[[tuple[Any, ...], Tensors, Sequence[Tensor | None]], Any]


def define(name: str, schema: str, rules: Rules, tensors: int | None = None) -> Callable[..., Any]:
    """The operator mlayer::name; its first arguments are this many tensors, or one list of them."""
    library = _library(name)
    library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.mlayer, name).default

    def value(*arguments: Any) -> Any:
        with torch.no_grad():
            results = rules.value(*arguments)
            return [owned(x) for x in results] if isinstance(results, list) else owned(results)

    class Derivatives(_SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, keys: Any, rest: tuple[Any, ...], *given: Tensor) -> Any:
            ctx.rest = rest
            ctx.save_for_backward(*given)
            ctx.save_for_forward(*given)
            arguments = given if tensors is not None else (list(given),)
            with _level_below():
                result = operator.redispatch(keys & _after_autograd_keyset, *arguments, *rest)
            return tuple(result) if isinstance(result, list) else result

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
            wanted = ctx.needs_input_grad[2:]
            return None, None, *rules.pull_back(ctx.rest, ctx.saved_tensors, cotangents, wanted)

        @staticmethod
        def jvp(ctx: Any, _: None, __: None, *tangents: Tensor | None) -> Any:
            # Torch has switched forward mode off here, for outer levels too, whose tangents would be lost.
            with _set_fwd_grad_enabled(True):
                given = [torch.ops.aten._fw_primal(x, 0) for x in ctx.saved_tensors]
                result = rules.push_forward(ctx.rest, given, tangents)
            return tuple(result) if isinstance(result, list) else result

    def autograd(keys: Any, *arguments: Any) -> Any:
        if _missing:
            raise MLayerError(
                f"mlayer::{name} needs a part of torch that version {torch.__version__} does not have: "
                f"{_missing}. Install torch {_TESTED}. With this one expm and MLayer work for ordinary "
                "tensors, with first derivatives in reverse mode."
            )
        given, rest = (
            (arguments[0], arguments[1:]) if tensors is None else (arguments[:tensors], arguments[tensors:])
        )
        with enable_single_level_autograd_function():
            results = Derivatives.apply(keys, rest, *given)  # type: ignore[attr-defined]
        return list(results) if isinstance(results, tuple) else results

    library.impl(name, value, "CompositeExplicitAutograd")
    library.impl(name, autograd, "Autograd", with_keyset=True)
    torch.library.register_fake(f"mlayer::{name}", rules.like, lib=library)
    torch.library.register_vmap(
        f"mlayer::{name}",
        lambda info, in_dims, *arguments: rules.batch(info.batch_size, in_dims, *arguments),
        lib=library,
    )
    if tensors is not None:
        computes_matrix_by_matrix(operator, tensors)
    else:
        library.impl(name, _refuse_old_batches, "Batched")
    return operator


def _refuse_old_batches(*_: object) -> None:
    """Raise under torch's first vmap, which computes one tensor after the other, but no lists of them."""
    raise ArgumentError(
        "the derivative",
        "of torch.func where it is batched, or not batched",
        "torch.autograd.functional with vectorize=True, or gradcheck with check_batched_forward_grad=True",
        "Use torch.func.jacfwd, or vectorize=False.",
    )


def _library(name: str) -> torch.library.Library:
    """An empty library for one operator, in place of that of a module which is imported again."""
    # With torch's own names, which outlive this module.
    libraries: dict[str, torch.library.Library] = torch.ops.mlayer.__dict__.setdefault("_libraries", {})
    if name in libraries:
        libraries.pop(name)._destroy()
    libraries[name] = torch.library.Library("mlayer", "FRAGMENT")
    return libraries[name]


@contextmanager
def _level_below() -> Iterator[None]:
    with ExitStack() as stack:
        if _are_functorch_transforms_active():
            # Torch has switched both modes off for this level; those below decide for themselves.
            stack.enter_context(torch.enable_grad())
            stack.enter_context(_set_fwd_grad_enabled(True))
        stack.enter_context(_AutoDispatchBelowAutograd())
        yield
