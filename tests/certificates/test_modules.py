"""Models that compute something else than the classes of their modules: refused, bounds would be false."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import mlayer
from mlayer.certificates import CertifiedLoss, attack, certify
from mlayer.errors import ArgumentError, ArgumentTypeError


class _Steeper(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 7 * super().forward(x)


class _Wave(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * torch.sin(5 * x)


class _Around(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(7 * x)


class _Other(mlayer.MLayer):
    def _read(self, exponentials: Tensor, x: Tensor) -> Tensor:
        return super()._read(7 * exponentials, x)


class _Same(nn.Linear):
    """Computes what Linear does."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)

    def extra_repr(self) -> str:
        return "the same"


def _layer(kind: type[mlayer.MLayer] = mlayer.MLayer) -> mlayer.MLayer:
    return kind(4, 3, matrix_size=3, init="balanced", generator=torch.Generator().manual_seed(0))


def _hooked(module: nn.Module, before: bool) -> nn.Module:
    if before:
        module.register_forward_pre_hook(lambda _, args: (7 * args[0],))
    else:
        module.register_forward_hook(lambda _, args, out: 7 * out)
    return module


def _replaced() -> nn.Module:
    module = nn.Linear(4, 4)
    module.forward = lambda input: 7 * input  # type: ignore[method-assign]
    return module


def _replaced_inside() -> nn.Module:
    module = nn.Conv2d(1, 1, 1)
    inner = module._conv_forward
    module._conv_forward = lambda *arguments: 7 * inner(*arguments)  # type: ignore[method-assign]
    return module


def _normalized() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


def _complex() -> nn.Module:
    module = nn.Linear(4, 4)
    module.weight = nn.Parameter(module.weight.detach().to(torch.complex64))
    return module


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a method of a Conv2d": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), _replaced_inside(), nn.Flatten(), _layer()),
        "Conv2d with its own _conv_forward",
    ),
    "a Linear": (lambda: nn.Sequential(_Steeper(4, 4), _layer()), "_Steeper with its own forward"),
    "a ReLU": (lambda: nn.Sequential(nn.Linear(4, 4), _Wave(), _layer()), "_Wave with its own forward"),
    "the Sequential": (lambda: _Around(nn.Linear(4, 4), _layer()), "_Around with its own forward"),
    "one inside": (lambda: nn.Sequential(_Around(nn.Linear(4, 4)), _layer()), "_Around with its own forward"),
    "the last": (lambda: nn.Sequential(nn.Linear(4, 4), _layer(_Other)), "_Other with its own _read"),
    "an MLayer": (lambda: _layer(_Other), "_Other with its own _read"),
    "an instance": (lambda: nn.Sequential(_replaced(), _layer()), "Linear with its own forward"),
    "hook": (lambda: nn.Sequential(_hooked(nn.Linear(4, 4), False), _layer()), "without forward hooks"),
    "hook before": (lambda: _hooked(nn.Sequential(nn.Linear(4, 4), _layer()), True), "without forward hooks"),
    "MLayer's hook": (lambda: _hooked(_layer(), True), "without forward hooks"),
    "parametrized": (lambda: nn.Sequential(_normalized(), _layer()), "of stored weights; got a parametrized"),
    "complex": (lambda: nn.Sequential(_complex(), _layer()), "of real weights; got torch.complex64"),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), _layer()).train(), "Dropout in training mode"),
    "statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(4), _layer()).train(),
        "BatchNorm1d in training mode",
    ),
    "no data": (lambda: nn.Sequential(nn.Linear(4, 4), _layer()).to("meta"), "weight without data"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(4), _layer()), "a lazy 0.weight"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_another_function_is_refused(name: str) -> None:
    make, words = OTHERS[name]
    model, x, labels = make(), torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)
    for question in (certify, attack):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
            question(model, x, labels)
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        mlayer.bounds(model, x, x + 1)


def test_a_subclass_of_the_same_function_is_certified() -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.0), _layer())
    same = nn.Sequential(_Same(4), nn.ReLU(), nn.Dropout(0.5).eval(), _layer())
    same.load_state_dict(plain.state_dict())
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    labels = plain(x).argmax(1)
    assert torch.equal(certify(same, x, labels).radius, certify(plain, x, labels).radius)


def test_in_place_modules_leave_the_inputs_alone() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Identity(), nn.ReLU(inplace=True), _layer())
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept = x.clone()
    labels = model.double()(x.clone()).argmax(1)
    found = certify(model, x, labels)
    assert torch.equal(x, kept)
    assert bool(found.correct.all())
    assert bool((found.radius > 0).all())


def test_the_loss_bears_hooks_that_watch() -> None:
    layer, seen = _layer().double(), []
    layer.register_forward_pre_hook(lambda _, args: seen.append(args))
    x = torch.rand(2, 4, dtype=torch.float64)
    assert bool(CertifiedLoss(4)(layer, x, torch.tensor([0, 1]), eps=0.01).isfinite())
