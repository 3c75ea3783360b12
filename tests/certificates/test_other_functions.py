"""Models whose weights do not tell what they compute: replaced tensors, structures, hooks of all, modes.

Bounds of the weights would be false for them. Each is refused, or bounded as what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import mlayer
from mlayer.certificates import CertifiedLoss, Certifier, attack, certify
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn import BlockDiagonal, Structure

REFUSED = (ArgumentError, ArgumentTypeError)


def layer_of(seed: int = 0, size: int = 3, **options: Any) -> mlayer.MLayer:
    generator = torch.Generator().manual_seed(seed)
    options = {"embedding_size": 4, **options}
    layer = mlayer.MLayer(4, 3, matrix_size=size, init="balanced", generator=generator, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return layer


def inputs() -> Tensor:
    return torch.rand(2, 4, generator=torch.Generator().manual_seed(1))


class _Twice(nn.Linear):
    @property
    def weight(self) -> Any:  # type: ignore[override]
        if "weight" not in self.__dict__.get("_parameters", {}):
            raise AttributeError("not yet")
        return 2 * self._parameters["weight"]  # type: ignore[operator]

    def reset_parameters(self) -> None:
        """torch would initialize a copy, and leave the weight as the memory was."""
        self._parameters["weight"].data.fill_(0.5)  # type: ignore[union-attr]
        self.bias.data.fill_(0.0)


class _Own(nn.Parameter):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(function, types, args, kwargs or {})
        return 7 * found if function is nn.functional.linear else found


class _Line(Structure):
    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return self.size, self.size

    def dense(self, free: Tensor) -> Tensor:
        return free

    def exponential(self, matrices: Tensor) -> Tensor:
        return torch.eye(self.size, dtype=matrices.dtype) + 7 * matrices


class _Noise(nn.Module):
    def forward(self, free: Tensor) -> Tensor:
        return free + torch.randn(free.shape, dtype=free.dtype)


class _Symmetric(nn.Module):
    def forward(self, free: Tensor) -> Tensor:
        return free + free.mT


def plain_tensor(module: nn.Module, name: str) -> nn.Module:
    value = getattr(module, name).detach().clone()
    delattr(module, name)
    setattr(module, name, value)
    return module


def among_parameters() -> nn.Module:
    module = nn.Linear(4, 4)
    module._parameters["weight"] = module.weight.detach().clone()  # type: ignore[assignment]
    return module


def with_weight(weight: nn.Parameter) -> nn.Module:
    module = nn.Linear(4, 4)
    module.weight = weight
    return module


def changed(change: Callable[[mlayer.MLayer], object], **options: Any) -> mlayer.MLayer:
    layer = layer_of(**options)
    change(layer)
    return layer


def own_exponential(layer: mlayer.MLayer) -> None:
    def line(matrices: Tensor) -> Tensor:
        return torch.eye(3, dtype=matrices.dtype) + 7 * matrices

    layer.structure.exponential = line  # type: ignore[method-assign]


def blocks(layer: mlayer.MLayer) -> None:
    layer.structure.blocks = (8, 8)  # type: ignore[assignment]


REPLACED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a tensor for a weight": (lambda: plain_tensor(nn.Linear(4, 4), "weight"), "Linear whose weight is none"),
    "a tensor among parameters": (among_parameters, "Linear whose weight is none"),
    "a property": (lambda: _Twice(4, 4), "Twice whose weight is none"),
    "integers": (
        lambda: with_weight(nn.Parameter(torch.ones(4, 4, dtype=torch.int64), requires_grad=False)),
        "Linear whose weight is none",
    ),
    "a tensor of another class": (lambda: with_weight(_Own(torch.ones(4, 4))), "of plain tensors; got _Own"),
    "a tensor for a readout": (lambda: plain_tensor(layer_of(), "readout"), "MLayer whose readout is none"),
    "its exponential": (lambda: layer_of(structure=_Line(3)), "_Line with its own exponential"),
    "its exponential, later": (lambda: changed(own_exponential), "Full with its own exponential"),
    "its blocks": (
        lambda: changed(blocks, size=16, structure=BlockDiagonal([16])),
        "one that computes what its weights say",
    ),
    "noise": (lambda: layer_of(structure=_Noise()), "gives the same matrices each time"),
    "dropout inside": (lambda: layer_of(structure=nn.Dropout(0.5)), "Dropout in training mode"),
    "a watcher": (
        lambda: changed(lambda layer: setattr(layer, "watcher", lambda E: E.mul_(-3))),
        "without a watcher",
    ),
    "outputs": (
        lambda: changed(lambda layer: setattr(layer, "readout", nn.Parameter(torch.ones(5, 3, 3)))),
        r"with readout of shape \(3, 3, 3\)",
    ),
    "a bias of one number": (
        lambda: changed(lambda layer: setattr(layer, "free_matrix_bias", nn.Parameter(torch.ones(1, 1)))),
        r"with free_matrix_bias of shape \(3, 3\)",
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_the_weights_do_not_tell_is_refused(name: str) -> None:
    make, words = REPLACED[name]
    module = make()
    models = [module, nn.Sequential(nn.Linear(4, 4), nn.ReLU(), module)]
    if not isinstance(module, mlayer.MLayer):
        models = [nn.Sequential(module, nn.ReLU(), layer_of())]
    for model in models:
        for options in ({"fit_steps": 0}, {"eps": 0.01, "fit_steps": 0}):
            with pytest.raises(REFUSED, match=words):
                certify(model, inputs(), torch.tensor([0, 1]), **options)
        if "blocks" not in name:
            with pytest.raises(REFUSED, match=words):
                mlayer.bounds(model, inputs(), inputs() + 0.1)


@contextmanager
def for_all_modules(before: bool) -> Iterator[None]:
    if before:
        hook: Any = lambda _, args: (7 * args[0],)  # noqa: E731
        handle = nn.modules.module.register_module_forward_pre_hook(hook)
    else:
        handle = nn.modules.module.register_module_forward_hook(lambda _, args, out: 7 * out)
    try:
        yield
    finally:
        handle.remove()


class _Steeper(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        return 7 * found if function is nn.functional.linear else found


class _Deeper(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("within", "words"),
    [
        (lambda: for_all_modules(False), "one for all modules"),
        (lambda: for_all_modules(True), "one for all modules"),
        (_Steeper, "_Steeper, which is active"),
        pytest.param(_Deeper, "_Deeper, which is active", marks=pytest.mark.slow),  # torch loads much for it
    ],
    ids=["hook", "hook before", "function mode", "dispatch mode"],
)
def test_what_torch_is_told_to_compute_instead_is_refused(
    within: Callable[[], AbstractContextManager[object]], words: str
) -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), layer_of())
    x, labels, certifier = inputs(), torch.tensor([0, 1]), Certifier(layer_of(), fit_steps=0)
    with within():
        for model in (layer_of(), network):
            with pytest.raises(ArgumentError, match=words):
                certify(model, x, labels, fit_steps=0)
            with pytest.raises(ArgumentError, match=words):
                attack(model, x, labels)
        with pytest.raises(ArgumentError, match=words):
            mlayer.bounds(layer_of(), x, x)
        with pytest.raises(ArgumentError, match=words):
            certifier(x, labels)


def test_weights_that_change_later_are_not_half_read() -> None:
    certifier = Certifier(layer_of(), fit_steps=0)
    labels = layer_of()(inputs()).argmax(1)
    before = certifier(inputs(), labels).radius
    kept = certifier.layer.readout.detach().clone()
    certifier.layer.readout.data.mul_(-3)
    with pytest.raises(ArgumentError, match="one that computes what its weights say"):
        certifier(inputs(), labels)
    certifier.layer.readout.data.copy_(kept)
    assert torch.equal(certifier(inputs(), labels).radius, before)


def test_a_users_structure_is_taken_as_the_matrices_that_it_gives() -> None:
    layer = layer_of(structure=_Symmetric())
    plain = layer.with_structure("full")
    labels = layer(inputs()).argmax(1)
    found, expected = (certify(one, inputs(), labels, fit_steps=0).radius for one in (layer, plain))
    assert torch.equal(found, expected)
    assert bool((found > 0).all())
    network = nn.Sequential(nn.Identity(), layer)
    assert bool((certify(network, inputs(), labels).radius > 0).all())
    assert CertifiedLoss(4)(layer, inputs(), labels, eps=0.01).requires_grad


@pytest.mark.parametrize("ask", [certify, mlayer.attack, mlayer.bounds], ids=lambda f: f.__name__)
def test_a_layer_whose_embedding_was_removed_is_refused(ask: Callable[..., object]) -> None:
    """Its features would be its inputs, whatever embedding_bias holds."""
    layer = layer_of()
    labels = layer(inputs()).argmax(1)
    layer.embedding = None
    with pytest.raises(ArgumentTypeError, match="embedding must be a parameter of the layer; got None"):
        ask(layer, inputs(), inputs() + 0.1 if ask is mlayer.bounds else labels)


@pytest.mark.parametrize(
    "within",
    [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
    ],
    ids=["inference", "no_grad", "autocast", "device"],
)
def test_the_callers_state_of_torch_changes_nothing(
    within: Callable[[], AbstractContextManager[object]],
) -> None:
    x, network = inputs().double(), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), layer_of()).double()
    layer = layer_of().double()
    labels = [model(x).argmax(1) for model in (layer, network)]

    def answers() -> list[Tensor]:
        point = x * 1.0
        found = [
            certify(layer, point, labels[0], method="second_order", fit_steps=3).radius,
            certify(network, point, labels[1], eps=0.01).radius,
            certify(network, point[:1], labels[1][:1]).radius,
        ]
        return [*found, mlayer.bounds(layer, point, point + 0.1).upper]

    expected = answers()
    with within():
        for found, same in zip(answers(), expected, strict=True):
            assert torch.equal(found, same)  # exact: the same calls again


def test_default_precision_changes_nothing() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), layer_of()).double().eval()
    x = inputs().double()
    labels = network(x).argmax(1)
    expected = certify(network, x, labels).radius
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = certify(network, x, labels).radius
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found, expected)


def test_inputs_of_another_class_are_refused() -> None:
    class Scaled(Tensor):
        pass

    odd = inputs().as_subclass(Scaled)
    labels = torch.tensor([0, 1])
    for model in (layer_of(), nn.Sequential(nn.ReLU(), layer_of())):
        with pytest.raises(ArgumentTypeError, match="x must be a plain"):
            certify(model, odd, labels, fit_steps=0)
        with pytest.raises(ArgumentTypeError, match="labels must be a plain"):
            certify(model, inputs(), labels.as_subclass(Scaled), fit_steps=0)


def test_slopes_that_vanish_stand_before_large_numbers() -> None:
    """1e265 and 1e-200, each alone out of proportion: their product moves the margin, of 1e-71, by 1e-70."""
    layer = mlayer.MLayer(1, 2, matrix_size=1, embedding_size=None, dtype=torch.float64)
    wide, narrow = nn.Linear(1, 1, dtype=torch.float64), nn.Linear(1, 1, dtype=torch.float64)
    with torch.no_grad():
        layer.free_generators.fill_(1e-70)
        layer.free_matrix_bias.zero_()  # type: ignore[union-attr]
        layer.readout.copy_(torch.tensor([[[1e-65]], [[0.0]]], dtype=torch.float64))
        bias = torch.tensor([-1e-65 * (1 - 1e-6), 0.0], dtype=torch.float64)
        layer.output_bias.copy_(bias)  # type: ignore[union-attr]
        wide.weight.fill_(1e265)
        narrow.weight.fill_(1e-200)
        wide.bias.zero_()
        narrow.bias.zero_()
    network = nn.Sequential(wide, narrow, layer)
    x, labels = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0])
    assert not bool((network(torch.full((1, 1), -1.0, dtype=torch.float64)).argmax(1) == 0).all())
    assert not bool(certify(network, x, labels, eps=1.0).certified[0])
