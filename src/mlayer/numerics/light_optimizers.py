"""torch's optimizers without the import of torch's compiler.

Building a torch.optim.Optimizer, or its first step, imports torch._dynamo and with it sympy: a thousand
modules, which takes longer than many trainings here. torch does so to keep its compiler out of these methods,
which changes nothing where nothing is compiled. The functions inside these decorators do the work.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar, cast

import torch

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741

_METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
_MADE: dict[type[torch.optim.Optimizer], type[torch.optim.Optimizer]] = {}


def light(kind: type[O]) -> type[O]:
    """The same optimizer, same name, arguments, state and results; not for use inside torch.compile.

    It computes its steps without a graph, so ``differentiable=True`` needs the class itself.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> optimizer = light(torch.optim.SGD)([weight], lr=0.25)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> weight.detach(), isinstance(optimizer, torch.optim.SGD)
    (tensor([0.5000, 1.0000]), True)
    """
    if kind not in _MADE:
        body: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in _METHODS}
        body["step"] = torch.no_grad()(inspect.unwrap(kind.step))
        body |= {"__doc__": kind.__doc__, "__module__": kind.__module__}
        _MADE[kind] = type(kind.__name__, (kind,), body)
    return cast(type[O], _MADE[kind])
