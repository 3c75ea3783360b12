"""Numbers count wherever they lie, objects by their type and not by what they say of themselves, and so does
what torch was told for the whole process.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import multiprocessing
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import layer, product
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.fingerprint import model_fingerprint, plain

ONE = Settings(epochs=1, learning_rate=1e-2)


class Lying:
    """Says that it is of another class, as proxies and mocks do."""

    def __init__(self, by: float, kind: type) -> None:
        self.by, self.kind = by, kind

    @property
    def __class__(self) -> Any:
        return self.kind

    @__class__.setter
    def __class__(self, kind: Any) -> None: ...


class Pair(ctypes.Structure):
    _fields_ = (("number", ctypes.c_double),)


def quantized(scale: float) -> torch.Tensor:
    return torch.quantize_per_tensor(torch.zeros(3), scale, 0, torch.qint8)


def quantized_by_channel(scale: float) -> torch.Tensor:
    scales = torch.full((3,), scale)
    return torch.quantize_per_channel(torch.zeros(3, 2), scales, torch.zeros(3), 0, torch.qint8)


def one_number() -> Iterator[int]:
    yield 1


def advanced(by: float) -> Iterator[int]:
    made = one_number()
    if by > 0.1:
        next(made)
    return made


class Inherited(Pair):
    """The number is a field of the base class."""


class Pointing(ctypes.Structure):
    _fields_ = (("to", ctypes.POINTER(ctypes.c_double)),)


class PointingToo(Pointing):
    """An address is a field of the base class."""


def shift(by: float) -> Callable[[float], float]:
    return lambda x: x + by


def module(by: float) -> types.ModuleType:
    made = types.ModuleType("made")
    made.__dict__["by"] = by
    return made


ALIVE: list[Any] = []


def proxied(make: Callable[[float], Any]) -> Callable[[float], Any]:
    """A weak proxy of an object that is kept."""

    def made(by: float) -> Any:
        ALIVE.append(make(by))
        return weakref.proxy(ALIVE[-1])

    return made


KINDS: dict[str, Callable[[float], Any]] = {
    "one number of a table": lambda by: torch.tensor([[0.0, 0.0], [by, 0.0]])[1:, :1].T[:, :1],
    "one number with a step": lambda by: torch.tensor([by, 0.0, 1.0])[::2][:1],
    "negative view": lambda by: torch.tensor([complex(0, by)] * 3).conj().imag,
    "quantized": quantized,
    "quantized by channel": quantized_by_channel,
    "number that processes share": lambda by: multiprocessing.Value("d", by),
    "array that processes share": lambda by: multiprocessing.Array("d", [by]),
    "structure of C": Pair,
    "text of C": lambda by: ctypes.c_wchar_p(str(by)),
    "place of a generator": advanced,
    "structure of C by inheritance": Inherited,
    "proxy of a function": proxied(shift),
    "proxy of a class": proxied(lambda by: type("Made", (), {"by": by})),
    "proxy of a module": proxied(module),
    "proxy of a generator": proxied(advanced),
}
LIES = (
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, types.CodeType),
    *(types.GeneratorType, types.FrameType, torch.Tensor, nn.Module, nn.Parameter, np.ndarray, np.memmap),
    *(np.generic, type, set, bytes, dict, list, functools.partial, weakref.ref, ctypes.CDLL, random.Random),
    *(torch.jit.ScriptFunction, torch.UntypedStorage, torch.fx.Graph, np.random.Generator, torch.Generator),
)


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning", "ignore:.*quantiz.*:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_counts_wherever_it_lies(kind: str) -> None:
    make = KINDS[kind]
    assert plain(make(0.1)) == plain(make(0.1)) != plain(make(0.2))


@pytest.mark.parametrize("kind", LIES, ids=lambda kind: kind.__name__)
def test_a_class_that_an_object_only_claims_hides_nothing(kind: type) -> None:
    own, again, other = (plain(Lying(by, kind)) for by in (0.1, 0.1, 0.2))
    assert own == again != other


def test_pointers_of_c_count_by_what_they_lead_to() -> None:
    own, again, other = (plain(ctypes.pointer(ctypes.c_double(by))) for by in (0.1, 0.1, 0.2))
    assert own == again != other
    assert plain(ctypes.c_char_p(b"a")) == plain(ctypes.c_char_p(b"a"))
    one, again = (PointingToo(ctypes.pointer(ctypes.c_double(0.1))) for _ in range(2))
    assert plain(one) == plain(again), "an address is no number of a run"


class Rows(Dataset[Any]):
    """Examples of an array, of which one that is not asked for differs."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.x[index], dtype=torch.float32), torch.zeros(1)


def changed(array: Any, by: float) -> Any:
    array[333] += by
    return array


# Ways from an array in a file to the examples of a run, and of another run.
PLACES: dict[str, Callable[[Any, float], Any]] = {
    "copy": lambda file, by: changed(file.copy(), by),
    "other type": lambda file, by: changed(file.astype(np.float32), by),
    "part": lambda file, by: file[10:] if by else file[:-10],
    "step": lambda file, by: file[: 2 * (len(file) // 2) : 2] if by else file[: len(file) // 2],
    "order": lambda file, by: file[::-1] if by else file[:],
}


@pytest.mark.parametrize("kind", PLACES)
def test_arrays_in_files_count_by_their_place_and_copies_by_their_numbers(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(1300, 2)))

    def rows(by: float) -> Any:
        whole = np.load(tmp_path / "x.npy", mmap_mode="r")
        assert type(whole.copy()) is np.memmap, "numpy keeps the class"
        return DataLoader(Rows(PLACES[kind](whole, by)), 64)

    def run(by: float) -> Any:
        return train(layer(), rows(by), ONE, checkpoint=tmp_path / "run")

    run(0.0)
    assert run(0.0).resumed_at
    with pytest.raises(ArgumentError, match="the data differ, in the attribute x"):
        run(1e-3)


def hooks_of_modules(by: float) -> Any:
    return nn.modules.module.register_module_forward_hook(lambda module, inputs, outputs: outputs * by)


def hooks_of_optimizers(by: float) -> Any:
    register: Any = sys.modules[torch.optim.Optimizer.__module__]
    return register.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: (by, None)[1])


@pytest.mark.parametrize("register", [hooks_of_modules, hooks_of_optimizers])
def test_functions_around_every_module_or_step_count(register: Any, tmp_path: Path) -> None:
    def run(by: float) -> Any:
        handle = register(by)
        try:
            return train(layer(), product(), ONE, checkpoint=tmp_path)
        finally:
            handle.remove()

    run(1.0)
    assert run(1.0).resumed_at
    with pytest.raises(ArgumentError, match="with hooks of all modules or optimizers"):
        run(0.5)
    with pytest.raises(ArgumentError, match="with hooks of all modules or optimizers"):
        train(layer(), product(), ONE, checkpoint=tmp_path)


class Around(torch.overrides.TorchFunctionMode):
    """Sees every function of torch."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_precision_of_products_and_modes_count(tmp_path: Path) -> None:
    def run(around: Any = None) -> Any:
        with around or contextlib.nullcontext():
            return train(layer(), product(), ONE, checkpoint=tmp_path)

    run()
    assert run(torch.device("cpu")).resumed_at, "a mode of torch, but the device is no part of a run"
    with pytest.raises(ArgumentError, match=r"without autocast, inside Around"):
        run(Around())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ArgumentError, match="with matrix products in precision 'medium'"):
            run()
    finally:
        torch.set_float32_matmul_precision(before)
    assert run().resumed_at
    with FlopCounterMode(display=False):
        assert run().resumed_at, "counting changes no number"


def test_precision_of_a_back_end_counts(tmp_path: Path) -> None:
    """Torch's older setting cannot be read after one of its newer ones was used."""
    train(layer(), product(), ONE, checkpoint=tmp_path)
    products: Any = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32"
    try:
        with pytest.raises(ArgumentError, match=r"with matrix products in precision cuda.matmul.'tf32'"):
            train(layer(), product(), ONE, checkpoint=tmp_path)
    finally:
        products.fp32_precision = before
    assert train(layer(), product(), ONE, checkpoint=tmp_path).resumed_at


def test_parameters_of_the_same_shape_may_be_assigned(tmp_path: Path) -> None:
    """`load_state_dict(assign=True)` and sharding do so."""
    model = layer()
    train(model, product(), ONE, checkpoint=tmp_path)
    again = copy.deepcopy(layer())
    again.load_state_dict(layer().state_dict(), assign=True)
    assert train(again, product(), ONE, checkpoint=tmp_path).resumed_at


@pytest.mark.slow
def test_an_exported_model_is_known_again() -> None:
    """Its graph holds addresses."""

    class Scaled(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = by

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    def made(by: float) -> Any:
        return torch.export.export(Scaled(by), (torch.ones(2),)).module()

    own, again, other = (model_fingerprint(made(by)) for by in (0.1, 0.1, 0.2))
    assert own == again != other


def test_tensors_of_several_lengths_are_known_again() -> None:
    def made(by: float) -> Any:
        return torch.nested.nested_tensor([torch.full((2,), by), torch.ones(3)], layout=torch.jagged)

    assert plain(made(0.1)) == plain(made(0.1)) != plain(made(0.2))
