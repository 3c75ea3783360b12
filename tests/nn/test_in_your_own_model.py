"""An M-layer in somebody's own model: what is easily got wrong works, or says what to do."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel

import mlayer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn import OverflowedOutputWarning, watch_activity


def layer(**options: Any) -> mlayer.MLayer:
    generator = None if options.get("device") == "meta" else torch.Generator().manual_seed(0)
    return mlayer.MLayer(8, 3, 4, 5, generator=generator, **options)


X = torch.linspace(-1, 1, 48).reshape(6, 8)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_made_while_watched_is_not_watched(again: Any) -> None:
    net = nn.Sequential(layer())
    with watch_activity(net) as penalties:
        other = again(net)
        net(X)
        other(X)
    other(X)
    assert len(penalties) == 1
    assert other[0].watcher is None
    assert torch.equal(other(X), net(X))


def test_a_parametrized_copy_made_while_watched_ends_with_the_watching() -> None:
    net = nn.Sequential(parametrizations.weight_norm(layer(), "embedding"))
    with watch_activity(net) as penalties:
        other = copy.deepcopy(net)
    other(X)
    assert penalties == []


def test_the_choice_of_overflow_is_checked_when_it_is_assigned() -> None:
    made = layer()
    with pytest.raises(ArgumentError, match=r"on_overflow must be .* got 'rais'\. Did you mean 'raise'"):
        made.on_overflow = "rais"  # type: ignore[assignment]
    assert made.on_overflow == "ignore"
    made.on_overflow = "raise"
    assert "on_overflow='raise'" in repr(made)
    assert "on_overflow" not in repr(layer())


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_warning_names_the_line_that_called_the_model(depth: int) -> None:
    net: nn.Module = layer(on_overflow="warn", init="balanced")
    for _ in range(depth):
        net = nn.Sequential(net)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net(1e5 * X)
    ours = [each for each in caught if each.category is OverflowedOutputWarning]  # libraries may warn too
    assert [each.filename for each in ours] == [__file__]


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((3, 2, 2, 2), r"Flatten images first"),
        ((3, 8, 5), r"Features come last: x\.movedim\(1, -1\)"),
        ((3, 7), r"For inputs of 7 features: MLayer\(7, "),
        ((), r"Give a row"),
    ],
)
def test_inputs_of_another_shape_say_what_to_do(shape: tuple[int, ...], hint: str) -> None:
    with pytest.raises(ArgumentError, match=rf"x must be of shape \(\.\.\., 8\).*{hint}"):
        layer()(torch.zeros(shape))


def test_types_of_eight_bits() -> None:
    small = torch.float8_e4m3fn
    with pytest.raises(ArgumentTypeError, match=r"dtype must be .* 16, 32 or 64 bits; got torch\.float8"):
        layer(dtype=small)
    with pytest.raises(ArgumentTypeError, match=r"the layer must be .* bits; got torch\.float8.*bfloat16"):
        layer().to(small)(X.to(small))


class Wrapper(nn.Module):
    """A stand-in for DistributedDataParallel, which needs processes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.mark.parametrize(
    ("wrap", "name"),
    [(torch.compile, "_orig_mod"), (AveragedModel, "module"), (Wrapper, "module")],
)
def test_a_wrapped_layer_is_refused_with_its_name(wrap: Any, name: str, tmp_path: Path) -> None:
    wrapped = wrap(layer())
    says = rf"It wraps MLayer: give model\.{name}"
    with pytest.raises(ArgumentTypeError, match=says):
        mlayer.save(wrapped, tmp_path / "m.safetensors")
    with pytest.raises(ArgumentTypeError, match=says):
        mlayer.certify(wrapped, X[:1], torch.tensor([0]))
    with pytest.raises(ArgumentTypeError, match=says):
        mlayer.nn.lie.summary(wrapped)


def test_a_layer_without_values_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"layer must be one with values.*device meta.*assign=True"):
        mlayer.save(layer(device="meta"), tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
