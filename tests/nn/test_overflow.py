"""`on_overflow`: an output that is not finite is ignored, warned about or refused, as the layer was told."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch

from mlayer import MLayer
from mlayer.errors import ArgumentError
from mlayer.nn import OverflowedOutputError, OverflowedOutputWarning


def layer(on_overflow: Any, dtype: torch.dtype = torch.float32) -> MLayer:
    """exp(x) of one input."""
    made = MLayer.from_weights(torch.ones(1, 1, 1, dtype=dtype), torch.ones(1, 1, 1, dtype=dtype))
    made.on_overflow = on_overflow
    return made


HUGE = torch.tensor([[1.0], [1e4], [2.0]])


def test_raise_names_count_and_remedy() -> None:
    with pytest.raises(OverflowedOutputError, match=r"^1 of 3 .*torch.float32 .*norm of M: 1e\+04.*Scale"):
        layer("raise")(HUGE)
    with pytest.raises(OverflowedOutputError, match=r"^1 of 1 outputs"):
        layer("raise")(HUGE[1])
    with pytest.raises(OverflowedOutputError, match=r"use init='balanced', or add the activity penalty\.$"):
        layer("raise").forward_with_activity(HUGE)
    balanced = MLayer(1, 1, matrix_size=2, init="balanced", on_overflow="raise")
    with pytest.raises(OverflowedOutputError, match=r"add the activity penalty\.$"):
        balanced(torch.tensor([[1e6], [-1e6]]))  # the trace of M is positive for one of them


def test_warn_gives_the_output_too() -> None:
    with pytest.warns(OverflowedOutputWarning, match="1 of 3"):
        output = layer("warn")(HUGE)
    assert output.isinf().flatten().tolist() == [False, True, False]


@pytest.mark.parametrize("choice", ["warn", "raise"])
def test_finite_outputs_and_foreign_nan_pass(choice: str) -> None:
    """NaN that came in is not the layer's overflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(choice)(torch.tensor([[1.0], [torch.nan]]))
        layer(choice)(torch.zeros(0, 1))
        layer(choice)(torch.zeros(2, 0, 1))
        layer("ignore")(HUGE)


def test_half_precision_overflows_by_its_own_range() -> None:
    with pytest.raises(OverflowedOutputError):
        layer("raise", torch.float16)(torch.tensor([[20.0]], dtype=torch.float16))


def test_the_choice_is_checked_and_kept() -> None:
    with pytest.raises(ArgumentError, match="on_overflow must be one of 'ignore', 'warn', 'raise'"):
        MLayer(2, 1, on_overflow="explode")  # type: ignore[arg-type]
    made = MLayer(2, 1, matrix_size=2, on_overflow="raise")
    assert copy.deepcopy(made).on_overflow == "raise"
    assert pickle.loads(pickle.dumps(made)).on_overflow == "raise"


def test_a_compiled_layer_does_not_check() -> None:
    compiled = torch.compile(layer("raise"), fullgraph=True, backend="eager")
    assert compiled(HUGE).isinf().any()


@pytest.mark.parametrize("name", ["generators", "matrix_bias"])
@pytest.mark.parametrize("wrap", [torch.nn.Parameter, lambda tensor: tensor])
def test_assigning_computed_matrices_says_how(name: str, wrap: Any) -> None:
    with pytest.raises(AttributeError, match=rf"free_{name} = other.free_{name}.*structure.free"):
        setattr(MLayer(2, 1, matrix_size=2), name, wrap(torch.zeros(2, 2, 2)))


def test_tying_as_the_message_says() -> None:
    one, two = MLayer(2, 1, matrix_size=2, embedding_size=3), MLayer(2, 1, matrix_size=2, embedding_size=3)
    two.free_generators = one.free_generators
    one.free_generators.data.copy_(one.structure.free(torch.ones(3, 2, 2)))
    assert torch.equal(two.generators, torch.ones(3, 2, 2))
    assert len(list(torch.nn.ModuleList([one, two]).parameters())) == len(list(one.parameters())) * 2 - 1
