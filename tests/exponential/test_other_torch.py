"""A torch without one of the private names that the operators are made of."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch
import torch._functorch.utils
from torch import Tensor

import mlayer
from mlayer.errors import MLayerError
from mlayer.exponential import define_operator

NAMES = [
    (torch._C, "_after_autograd_keyset"),
    (torch._C, "_AutoDispatchBelowAutograd"),
    (torch._functorch.utils, "enable_single_level_autograd_function"),
    (torch.autograd.forward_ad, "_set_fwd_grad_enabled"),
    (torch.autograd.function, "_SingleLevelFunction"),
]


def twice(x: Tensor) -> Tensor:
    return 2 * x


@pytest.mark.parametrize(("owner", "name"), NAMES, ids=[name for _, name in NAMES])
def test_an_operator_says_what_torch_does_not_have(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module failed to import, and with it every exponential."""
    monkeypatch.delattr(owner, name)
    spec = spec_from_file_location("define_operator_again", define_operator.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    rules = module.Rules(twice, torch.empty_like, lambda size, dims, x: (x, dims[0]), None, None)
    operator = module.define("without" + name, "(Tensor x) -> Tensor", rules)
    with pytest.raises(MLayerError, match=f"{name}.* Install torch 2.13"):
        operator(torch.ones(2))


def test_ordinary_exponentials_do_without_the_operators(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(define_operator, "_missing", "no such name")
    a = torch.tensor([[0.5, 1.0], [-0.3, 0.2]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    (expected,) = torch.autograd.grad(torch.linalg.matrix_exp(a).sum(), a)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)
    for f in (torch.func.jacrev(mlayer.expm), mlayer.logm):
        with pytest.raises(MLayerError, match="no such name"):
            f(a.detach())
