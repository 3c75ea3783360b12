"""Functions that are no Python count by what they hold: those of numpy, torch.jit, ctypes, and C types."""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib.util
import json
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mlayer.training.fingerprint import model_fingerprint, plain

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)


class Scaling(nn.Module):
    """Its number is an attribute, which torch.jit makes a constant, or a buffer."""

    def __init__(self, by: float, buffer: bool = False) -> None:
        super().__init__()
        self.by = by
        self.register_buffer("factor", torch.tensor(by if buffer else 1.0))

    def forward(self, x: Tensor) -> Tensor:
        factor: Tensor = self.factor  # type: ignore[assignment]
        return x * factor * self.by


def traced(by: float, buffer: bool = False) -> Any:
    made: Any = torch.jit.trace(Scaling(by, buffer).eval(), torch.ones(1))
    return made


def with_method(by: float) -> type:
    return type("Own", (), {"scaled": functools.partialmethod(lambda self, factor: factor, by)})


def under_no_grad(function: Any) -> Any:
    return torch.no_grad()(function)


def code(by: float) -> CodeType:
    return (lambda: 0.0).__code__.replace(co_consts=(by,))


def cell(by: float) -> Any:
    return (lambda: by).__closure__[0]  # type: ignore[index]


PAIRS: dict[str, Callable[[float], Any]] = {
    "ufunc": lambda by: np.frompyfunc(lambda x: x + by, 1, 1),
    "identity of a ufunc": lambda by: np.frompyfunc(max, 2, 1, identity=by),
    "vectorized": lambda by: np.vectorize(lambda x: x + by),
    "vectorized inside a decorator": lambda by: under_no_grad(np.vectorize(lambda x: x + by)),
    "ufunc inside a decorator": lambda by: under_no_grad(np.frompyfunc(lambda x: x + by, 1, 1)),
    "partial method": lambda by: functools.partialmethod(max, by),
    "class with a partial method": with_method,
    "bound partial method": lambda by: with_method(by)().scaled,
    "method of a dictionary": lambda by: {"a": by}.get,
    "method of a list": lambda by: [by].__getitem__,
    "method of a tensor": lambda by: torch.tensor(by).mul,
    "method of an array": lambda by: np.array([by]).dot,
    "method of a number": lambda by: by.__add__,
    "key of a comparison": lambda by: functools.cmp_to_key(lambda a, b: int(a > by)),
    "values of a dictionary": lambda by: {"a": by}.values(),
    "items of a dictionary": lambda by: collections.OrderedDict(a=by).items(),
    "property": lambda by: property(lambda self: by),
    "cell": cell,
    "code": code,
    "callback of C": lambda by: CALLBACK(lambda x: x * by),
    "pointer of C": lambda by: ctypes.pointer(ctypes.c_double(by)),
    "function of torch.jit": lambda by: torch.jit.trace(lambda x: x * by, torch.ones(1)),
    "method of torch.jit": lambda by: traced(by).forward,
    "method with a buffer": lambda by: traced(by, True).forward,
    "module of torch.jit": traced,
    "scripted module": lambda by: torch.jit.script(Scaling(by)),
    "frozen module": lambda by: torch.jit.freeze(traced(by, True)),
    "nested tensor": lambda by: torch.nested.nested_tensor([torch.tensor([by]), torch.ones(2)]),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", PAIRS)
def test_they_are_told_apart_and_known_again(kind: str) -> None:
    make = PAIRS[kind]
    own, again, other = make(0.1), make(0.1), make(0.2)
    assert plain(own) == plain(again), "its own run would be refused"
    assert "unreadable" not in json.dumps(plain(own))
    assert plain(own) != plain(other), "another run would be taken for it"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_numbers_of_a_compiled_model_count_though_its_weights_do_not() -> None:
    own, again, other = (torch.jit.script(Scaling(by)) for by in (0.1, 0.1, 0.2))
    assert model_fingerprint(own) == model_fingerprint(again) != model_fingerprint(other)


def test_a_function_of_autograd_is_known_again() -> None:
    """Torch numbers these classes in the order of their definition, which differs between processes."""

    def make(by: float) -> Any:
        members = {"forward": staticmethod(lambda ctx, x: x * by)}
        return type("Own", (torch.autograd.Function,), members).apply  # type: ignore[attr-defined]

    assert plain(make(0.1)) == plain(make(0.1)) != plain(make(0.2))


def test_functions_of_packages_count_by_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame({"a": [by]}) for by in (0.1, 0.1, 0.2)]
    own, again, other = map(plain, frames)
    assert own == again != other
    assert plain(np.add) != plain(np.multiply)


def test_a_compiled_module_of_the_run_counts_by_its_file(tmp_path: Path) -> None:
    """A function of C has no code that could be compared; its file has."""
    import _bisect

    original = Path(getattr(_bisect, "__file__", ""))
    if not original.is_file():
        pytest.skip("this Python has its C modules inside")
    found = []
    for name, tail in (("one", b""), ("same", b""), ("other", b"\0")):
        copy = tmp_path / name / original.name
        copy.parent.mkdir()
        copy.write_bytes(original.read_bytes() + tail)
        spec = importlib.util.spec_from_file_location("_bisect", copy)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append((plain(module.bisect_left), plain(ctypes.CDLL(str(copy)))))
    assert found[0] == found[1]
    assert all(own != other for own, other in zip(found[0], found[2], strict=True))
    assert "_bisect" in sys.modules


def test_what_cannot_be_asked_for_is_no_error() -> None:
    class Silent:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("says nothing")

        @__class__.setter
        def __class__(self, kind: Any) -> None: ...

    gone: Any = weakref.proxy(Scaling(1.0))
    for value in (gone, Silent(), [gone, 1]):
        assert plain(value) == plain(value)
    assert plain([gone, 1]) != plain([gone, 2])
