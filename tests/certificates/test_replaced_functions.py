"""Functions of torch and of mlayer that were replaced, copies that differ: bounds would be false.

The replacements act on numbers beyond 100 only, so that no output at the certified rows tells.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mlayer
from mlayer.certificates import attack, certify, replaced_functions
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn.structures.entries import Scattered


def _layer() -> mlayer.MLayer:
    return mlayer.MLayer(4, 3, matrix_size=3, embedding_size=4, generator=torch.Generator().manual_seed(0))


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), _layer()).eval()


X, LABELS = torch.full((2, 4), 0.5), torch.zeros(2, dtype=torch.int64)


def _far_away(function: Any) -> Any:
    """The function with other values where they are large."""

    def changed(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        return torch.where(found.abs() > 100, -found, found) if isinstance(found, Tensor) else found

    return changed


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (nn.Linear, "forward"),
        (nn.Linear, "__call__"),
        (nn.ReLU, "forward"),
        (nn.BatchNorm1d, "forward"),
        (nn.Module, "__call__"),
        (nn.Sequential, "forward"),
        (nn.functional, "linear"),
        (nn.functional, "relu"),
        (torch, "relu"),
        (mlayer.MLayer, "_read"),
        (mlayer.MLayer, "matrix"),
        (mlayer.MLayer, "exponential"),
        (mlayer.nn.Structure, "exponential"),
    ],
)
def test_what_was_replaced_is_refused(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, _far_away(getattr(owner, name)))
    for question in (certify, attack):
        with pytest.raises(ArgumentError, match="which was replaced"):
            question(_network(), X, LABELS)
        with pytest.raises(ArgumentError, match="which was replaced"):
            question(_layer(), X, LABELS)
    with pytest.raises(ArgumentError, match="which was replaced"):
        mlayer.bounds(_layer(), X, X + 1)


def test_classes_and_files_of_structures_are_known_by_the_table() -> None:
    """A structure in a new file, and the methods that a structure inherits, need no entry of their own."""
    for kind in mlayer.nn.structures.STRUCTURES.values():
        assert sys.modules[kind.__module__] in replaced_functions._OWN_MODULES
        for cls in kind.__mro__:
            assert not cls.__module__.startswith("mlayer.") or cls in replaced_functions._OWN_KINDS, cls


def test_a_replaced_method_that_structures_inherit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scattered, "dense", _far_away(Scattered.dense))
    layer = mlayer.MLayer(4, 3, matrix_size=3, embedding_size=4, structure="nilpotent")
    with pytest.raises(ArgumentError, match=r"Scattered\.dense, which was replaced"):
        certify(layer, X, LABELS)


def test_other_code_in_the_same_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def relu(input: Tensor, inplace: bool = False) -> Tensor:
        return input

    monkeypatch.setattr(nn.functional.relu, "__code__", relu.__code__)
    with pytest.raises(ArgumentError, match=r"functional.relu, which was replaced"):
        certify(_network(), X, LABELS)


def test_nothing_is_replaced_by_using_torch() -> None:
    assert replaced_functions.replaced() is None
    network = _network()
    found = certify(network, X, network(X).argmax(1), eps=0.0)
    assert bool(found.certified.all())


EARLIER = """
import torch
plain = torch.nn.ReLU.forward
torch.nn.ReLU.forward = lambda self, x: plain(self, x).clamp_max(100)
import mlayer
model = torch.nn.Sequential(torch.nn.ReLU(), mlayer.MLayer(2, 2, matrix_size=2))
try:
    mlayer.certify(model, torch.ones(1, 2), torch.tensor([0]))
except ValueError as error:
    print(error)
"""


@pytest.mark.slow  # another process that loads torch
def test_what_was_replaced_before_mlayer_was_loaded_is_refused() -> None:
    run = subprocess.run([sys.executable, "-c", EARLIER], capture_output=True, text=True, check=True)
    assert "ReLU.forward, which was replaced" in run.stdout


KERNEL = """
import warnings
import torch, mlayer
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
library.impl("relu", lambda x: x.clamp(0, 100), "CPU")
model = torch.nn.Sequential(torch.nn.ReLU(), mlayer.MLayer(2, 2, matrix_size=2))
try:
    mlayer.certify(model, torch.ones(1, 2), torch.tensor([0]))
except ValueError as error:
    print(error)
"""


@pytest.mark.slow  # another process: the kernel of this one would stay replaced
def test_a_replaced_kernel_is_refused() -> None:
    run = subprocess.run([sys.executable, "-c", KERNEL], capture_output=True, text=True, check=True)
    assert "the kernel of aten::relu" in run.stdout


class _Copied(nn.Linear):
    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
        return nn.Linear(self.in_features, self.out_features)


class _CopiedLayer(mlayer.MLayer):
    def __deepcopy__(self, memo: dict[int, Any]) -> mlayer.MLayer:
        return _layer()


def test_modules_with_their_own_copies_are_refused() -> None:
    """The copy would be certified, not the model."""
    instance = nn.Linear(4, 4)
    instance.__dict__["__deepcopy__"] = lambda memo: nn.Linear(4, 4)
    layer = _CopiedLayer(4, 3, matrix_size=3)
    for model in (nn.Sequential(_Copied(4, 4), _layer()), nn.Sequential(instance, _layer()), layer):
        with pytest.raises(ArgumentTypeError, match="with its own __deepcopy__"):
            certify(model, X, LABELS)
    with pytest.raises(ArgumentTypeError, match="with its own __deepcopy__"):
        mlayer.bounds(layer, X, X + 1)


def test_a_copy_with_other_weights_is_noticed() -> None:
    """However it came about: here by the registry of the module copyreg, which copy.deepcopy asks."""
    import copyreg

    copyreg.pickle(nn.Linear, lambda module: (nn.Linear, (module.in_features, module.out_features)))
    try:
        with pytest.raises(ArgumentError, match="one whose copies have its weights"):
            certify(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), _layer()), X, LABELS)
    finally:
        copyreg.dispatch_table.pop(nn.Linear)


def test_a_model_is_certified_after_torch_has_compiled_one() -> None:
    """torch 2.13 puts a function around nn.Module.__setstate__ for the rest of the process."""
    torch.compile(nn.Linear(4, 4), backend="eager")(X)
    assert certify(_layer(), X, LABELS).radius.shape == (2,)
    assert certify(_network(), X, LABELS).radius.shape == (2,)
