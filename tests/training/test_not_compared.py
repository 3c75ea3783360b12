"""All that a run holds is compared whole, or named when the run is resumed: there is no third kind."""

from __future__ import annotations

import collections
import contextvars
import functools
import importlib.util
import itertools
import logging
import mmap
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from other_runs import KINDS, X, Y, holding
from problems import layer
from torch import Tensor, nn

from mlayer.errors import ArgumentError
from mlayer.training import CheckpointWarning, Settings, train
from mlayer.training.changes import NOT_COMPARED, marks_in
from mlayer.training.fingerprint import model_fingerprint, plain

ONE = Settings(epochs=1, learning_rate=1e-2)
# Of these the fingerprint of other runs says what it can see, and that this may not be all.
PARTLY_SEEN = {
    "code: holds: code of a generator",
    "code: holds: values of a generator",
    "code: holds: ufunc of a function",
}


def memory(by: float) -> mmap.mmap:
    made = mmap.mmap(-1, 8)
    made[:] = np.float64(by).tobytes()
    return made


def variable(by: float) -> contextvars.ContextVar[float]:
    made = contextvars.ContextVar("made", default=0.0)
    made.set(by)
    return made


class Number(float):
    """Says that it is to be stored as another number."""

    def __getnewargs__(self) -> Any:
        return (0.0,)


class Queue(collections.deque[float]):
    def __reduce__(self) -> Any:
        return Queue, ()


def nested(by: float) -> Any:
    value: Any = by
    for _ in range(200):
        value = (value,)
    return value


class Wrapping(Tensor):
    """A tensor without memory of its own, as libraries have them; its number is not seen."""

    def __new__(cls, by: float) -> Any:
        return Tensor._make_wrapper_subclass(cls, (1,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, *given: Any) -> Any:
        raise NotImplementedError


# Objects whose content Python does not give away, by the name that a warning has for them.
HIDDEN: dict[str, Callable[[float], Any]] = {
    "mmap.mmap": memory,
    "numpy.nditer": lambda by: np.nditer(np.array([by])),
    "numpy.flatiter": lambda by: np.array([by]).flat,
    "numpy.broadcast": lambda by: np.broadcast(np.array([by]), np.zeros(1)),
    "_contextvars.ContextVar": variable,
    "test_not_compared.Number": Number,
    "test_not_compared.Queue": lambda by: Queue([by]),
    "builtins.tuple in 100 containers": nested,
    "functools.KeyWrapper": functools.cmp_to_key(lambda a, b: 0),
    "test_not_compared.Wrapping": Wrapping,
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_cannot_be_read_whole_is_named(kind: str, tmp_path: Path) -> None:
    own, other = HIDDEN[kind](0.1), HIDDEN[kind](0.2)
    named = f"{NOT_COMPARED} {kind}"
    assert named in marks_in(plain(own)), "alone"
    assert named in marks_in(plain({"a": [own] + ["x" * 99] * 99})), "in an object that counts by a digest"

    def run(value: Any) -> Any:
        return train(layer(), (X, Y), ONE, augment=holding(value, lambda _: 0.0), checkpoint=tmp_path)

    run(own)
    words = rf"resumed from .* without comparing what is in .*{kind} \(augment\)"
    for value in (own, other) if plain(own) == plain(other) else (own,):
        with pytest.warns(CheckpointWarning, match=words):
            assert run(value).resumed_at
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        with pytest.raises(CheckpointWarning, match="without comparing"):
            run(own)


def test_a_loader_of_a_library_is_named() -> None:
    from mlayer.training.loader_fingerprint import loader_fingerprint

    class Loader:
        dataset = (X, Y)

    assert not marks_in(loader_fingerprint(Loader()))
    Loader.__module__, Loader.__qualname__ = "torch.utils.data", "Loader"
    torch.utils.data.Loader = Loader  # type: ignore[attr-defined]
    try:
        assert marks_in(loader_fingerprint(Loader())) == [f"{NOT_COMPARED} Loader"]
    finally:
        del torch.utils.data.Loader  # type: ignore[attr-defined]


def test_nothing_else_is_named(tmp_path: Path) -> None:
    """None of what the other tests of fingerprints hold, and of what people hold besides."""
    found = {
        name: marks_in(model_fingerprint(own) if what == "model" else plain(own))
        for name, (what, own, _) in KINDS.items()
        if what != "data"
    }
    assert {name for name, marks in found.items() if marks} == PARTLY_SEEN
    import pandas
    import scipy.interpolate
    import scipy.special
    import sklearn.linear_model

    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "c": pandas.to_datetime(["2020", "2021"])})
    logger = logging.getLogger("of a run")

    @torch.no_grad()
    def talking(x: Tensor, generator: torch.Generator) -> Tensor:
        logger.info("a step")
        sys.stderr.write(f"{np.linalg.norm(x)} {scipy.special.expit(0.0)} {np.add.reduce([1])}")
        warnings.warn("said", stacklevel=2)
        return x

    with (tmp_path / "log").open("w") as file:
        kinds = [
            *(frame, frame.groupby("b"), scipy.interpolate.CubicSpline([0, 1, 2], [0, 1, 1])),
            *(sklearn.linear_model.LinearRegression().fit(np.eye(2), [0, 1]), file, talking, logger),
            *(threading.Lock(), threading.RLock(), threading.Event(), threading.Condition()),
            *(torch.optim.Adam, torch.distributions.Normal(0.0, 1.0), nn.CrossEntropyLoss(), Path("a")),
            *({1: 2}.keys(), property(len), itertools.count(), collections.OrderedDict(a=1), np, ...),
            *(torch.inference_mode()(talking), torch.vmap(talking), torch.func.grad(talking), object()),
        ]
        assert {str(kind): marks_in(plain(kind)) for kind in kinds if marks_in(plain(kind))} == {}


class ListIn(list[float]):
    def __iter__(self) -> Iterator[float]:
        return iter(())


class DictIn(dict[str, float]):
    def items(self) -> Any:
        return {}.items()


class SetIn(set[float]):
    def __iter__(self) -> Iterator[float]:
        return iter(())


class BytesIn(bytes):
    def __bytes__(self) -> bytes:
        return b""


def helpers(by: float) -> types.ModuleType:
    made = types.ModuleType("helpers")
    made.settings = types.SimpleNamespace(by=by)  # type: ignore[attr-defined]
    return made


# Differences that no container or module may hide.
SEEN: dict[str, Callable[[float], Any]] = {
    "list that lists nothing": lambda by: ListIn([by]),
    "dict that lists nothing": lambda by: DictIn(a=by),
    "set that lists nothing": lambda by: SetIn([by]),
    "bytes that say other bytes": lambda by: BytesIn(str(by).encode()),
    "format of memory": lambda by: memoryview(bytes(8)).cast("d" if by < 0.15 else "q"),
    "object in a module": helpers,
}


@pytest.mark.parametrize("kind", SEEN)
def test_what_can_be_read_is_compared(kind: str) -> None:
    own, again, other = (plain(SEEN[kind](by)) for by in (0.1, 0.1, 0.2))
    assert own == again != other
    assert not marks_in(own)


class WithATeacher(nn.Module):
    """Holds another model where neither parameters() nor state_dict() find it."""

    def __init__(self, by: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, teacher = nn.Linear(2, 1), nn.Linear(2, 1)
        nn.init.constant_(teacher.weight, by)
        object.__setattr__(self, "teacher", teacher)
        object.__setattr__(self.linear, "parent", self)

    def forward(self, x: Tensor) -> Tensor:
        teacher: Any = self.teacher
        outputs: Tensor = self.linear(x) + teacher(x).detach()
        return outputs


def test_a_model_beside_the_model_counts(tmp_path: Path) -> None:
    model = WithATeacher(0.1)
    train(model, (X, Y), ONE, checkpoint=tmp_path)
    longer = Settings(epochs=2, learning_rate=1e-2)
    assert train(model, (X, Y), longer, checkpoint=tmp_path).resumed_at, "by the same object"
    assert train(WithATeacher(0.1), (X, Y), longer, checkpoint=tmp_path).resumed_at
    with pytest.raises(ArgumentError, match="the model computes something else"):
        train(WithATeacher(0.2), (X, Y), longer, checkpoint=tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_functions_and_numbers_inside_a_scripted_one_count(tmp_path: Path) -> None:
    def made(by: float) -> list[Any]:
        file = tmp_path / f"scripted_{by}.py".replace(".", "_", 1)
        file.write_text(
            "import torch\n"
            f"def inner(x: torch.Tensor) -> torch.Tensor:\n    return x * {by}\n"
            "@torch.jit.script\ndef outer(x: torch.Tensor) -> torch.Tensor:\n    return inner(x)\n"
            "class Part(torch.nn.Module):\n"
            "    def __init__(self, by: float):\n        super().__init__()\n        self.by = by\n"
            "    def forward(self, x):\n        return x * self.by\n"
            "class Whole(torch.nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n        self.part = Part({by})\n"
            "    def forward(self, x):\n        return outer(self.part(x))\n"
        )
        spec = importlib.util.spec_from_file_location("scripted", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        whole = torch.jit.script(module.Whole())
        return [plain(module.outer), plain(whole.forward), model_fingerprint(whole)]

    for own, again, other in zip(made(0.1), made(0.1), made(0.2), strict=True):
        assert own == again != other


class Plain:
    by = 1.0


def test_a_class_is_known_again_after_its_objects_were_stored() -> None:
    """Python then adds an attribute to it."""
    before = plain(Plain)
    pickle.dumps(Plain())
    assert "__slotnames__" in vars(Plain)
    assert plain(Plain) == before
