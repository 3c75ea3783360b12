"""Differences in how things are held, bound or called, and what must not stand in the way of the own run."""

from __future__ import annotations

import enum
import functools
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import layer, product
from torch import nn

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.changes import marks_in
from mlayer.training.fingerprint import model_fingerprint, plain

ONE = Settings(epochs=1)


def counted(*given: Any) -> int:
    return len(given)


def around(*given: Any) -> None:
    return None


def package(by: float) -> types.ModuleType:
    """Passes on a function of a module inside it."""
    inner, made = types.ModuleType("package.inner"), types.ModuleType("package")
    exec(f"def shift(x): return x + {by}", inner.__dict__)
    made.__dict__.update(shift=inner.shift, inner=inner)
    return made


def hooked(register: Callable[[nn.Module], Any]) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 1))
    register(model)
    return model_fingerprint(model)


def after_loading(by: float) -> Any:
    change = lambda model, keys: (model[0].weight.data.mul_(by), None)[1]  # noqa: E731
    return hooked(lambda model: model.register_load_state_dict_post_hook(change))


def of_a_class(**members: Any) -> Any:
    return plain(type("Made", (), members))


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "list or tuple": (lambda: plain([0, 1]), lambda: plain((0, 1))),
    "lists or tuples of tensors": (
        lambda: plain([torch.ones(2)] * 40),
        lambda: plain((torch.ones(2),) * 40),
    ),
    "a name like those of abc": (lambda: of_a_class(_abc_by=0.1), lambda: of_a_class(_abc_by=0.2)),
    "bound to a class": (
        lambda: of_a_class(f=staticmethod(counted)),
        lambda: of_a_class(f=classmethod(counted)),
    ),
    "bound to an object": (lambda: of_a_class(f=staticmethod(counted)), lambda: of_a_class(f=counted)),
    "keywords for a hook": (
        lambda: hooked(lambda model: model.register_forward_hook(around)),
        lambda: hooked(lambda model: model.register_forward_hook(around, with_kwargs=True)),
    ),
    "a hook of the whole module": (
        lambda: hooked(lambda model: model.register_full_backward_hook(around)),
        lambda: hooked(lambda model: model.register_backward_hook(around)),
    ),
    "a hook after loading": (lambda: after_loading(0.1), lambda: after_loading(0.2)),
    "what a package passes on": (lambda: plain(package(0.1)), lambda: plain(package(0.2))),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_told_apart(kind: str) -> None:
    make, other = PAIRS[kind]
    assert make() == make() != other()


def test_hooks_of_saved_tensors_count(tmp_path: Path) -> None:
    def run(by: float) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: by * one):
            return train(layer(), product(), ONE, checkpoint=tmp_path)

    run(0.5)
    assert run(0.5).resumed_at
    for other in (lambda: run(0.25), lambda: train(layer(), product(), ONE, checkpoint=tmp_path)):
        with pytest.raises(ArgumentError, match="with hooks of saved tensors"):
            other()


IMPORTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from mlayer.training.fingerprint import plain
def augment(x, generator):
    from tools.shift import by
    return x + by
before = plain(augment)
augment(0.0, None)
assert plain(augment) == before
print(json.dumps(before))
"""


def test_a_folder_without_init_that_a_function_imports_counts(tmp_path: Path) -> None:
    """Before the first call it was not found, and afterwards taken for something that changes."""
    found = []
    for place, by in (("one", 0.1), ("again", 0.1), ("other", 0.2)):
        (tmp_path / place / "tools").mkdir(parents=True)
        (tmp_path / place / "tools" / "shift.py").write_text(f"by = {by}\n")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", IMPORTS, str(tmp_path / place)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        found.append(done.stdout)
    assert found[0] == found[1] != found[2]


class Chained:
    def __init__(self, length: int) -> None:
        self.next = Chained(length - 1) if length else None


def test_the_depth_of_the_caller_does_not_count() -> None:
    """Near Python's limit of calls a part could not be read, and a run refused its own checkpoint."""
    value = Chained(40)

    def called(depth: int) -> Any:
        return plain(value) if depth == 0 else called(depth - 1)

    room = sys.getrecursionlimit() - len(list(_frames()))
    assert called(room - 250) == plain(value)
    assert not marks_in(called(room - 250))


def _frames() -> Any:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def in_a_thread(by: float) -> threading.local:
    made = threading.local()
    made.by = by
    return made


def test_enumerations_and_what_a_thread_holds_are_compared_whole() -> None:
    attr: Any = pytest.importorskip("attr")
    for own, again, other in (
        (Level.LOW, Level.LOW, Level.HIGH),
        tuple(map(in_a_thread, (0.1, 0.1, 0.2))),
        tuple(attr.make_class("Made", ["by"])(by) for by in (0.1, 0.1, 0.2)),
    ):
        assert plain(own) == plain(again) != plain(other)
        assert not marks_in(plain(own))


def test_arguments_of_a_function_in_functools_are_compared() -> None:
    assert plain(functools.partial(counted, [0])) != plain(functools.partial(counted, (0,)))
