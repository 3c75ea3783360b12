"""The layer's errors for wrong arguments: which one, what it must be, what it was, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
import scipy.sparse
import torch

import mlayer
from mlayer import MLayer, MLayerError
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn import activity_of, trajectory


@pytest.mark.parametrize("name", ["in_features", "out_features", "matrix_size", "embedding_size"])
def test_sizes(name: str) -> None:
    good: dict[str, Any] = {"in_features": 2, "out_features": 1}
    for value in (0, -3):
        with pytest.raises(ArgumentError, match=rf"{name} must be a positive integer; got {value}"):
            MLayer(**{**good, name: value})
    for other in (2.0, "2", True):
        with pytest.raises(
            ArgumentTypeError, match=rf"{name} must be a positive integer; got {type(other).__name__}"
        ):
            MLayer(**{**good, name: other})


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, "float32"])
def test_dtype(dtype: Any) -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"dtype must be a real floating point torch.dtype .*; got .*Use torch.fl"
    ):
        MLayer(2, 1, dtype=dtype)


def test_input_that_is_no_tensor() -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"x must be a torch.Tensor; got list. Convert it with torch.as_ten"
    ):
        MLayer(2, 1)([1.0, 2.0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "hint"), [((), "Give a row"), ((3,), "MLayer.3"), ((2, 3), "MLayer.3"), ((5, 2, 1), "Flatten")]
)
def test_input_of_another_size(shape: tuple[int, ...], hint: str) -> None:
    with pytest.raises(ArgumentError, match=rf"x must be of shape \(..., 2\); got shape .*{hint}"):
        MLayer(2, 1)(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64, torch.complex64])
def test_input_of_another_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(
        ArgumentTypeError, match=rf"x must be of the dtype of the layer, torch.float32; got {dtype}"
    ):
        MLayer(2, 1)(torch.zeros(2, dtype=dtype))


def test_double_precision_under_autocast() -> None:
    words = r"x must be of the dtype of the layer, torch.float32; got torch.float64"
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ArgumentTypeError, match=words):
        MLayer(2, 1)(torch.zeros(2, dtype=torch.float64))


def test_penalty_of_another_kind() -> None:
    with pytest.raises(ArgumentError, match=r"kind must be one of 'frobenius', 'l1'; got 'l2'"):
        activity_of(torch.zeros(1, 2, 2), "l2")  # type: ignore[arg-type]


@pytest.mark.parametrize(("t", "came"), [(1j, "complex"), (True, "bool"), ([1.0], "list")])
def test_times(t: Any, came: str) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"t must be a number or a tensor of times; got {came}"):
        trajectory(torch.zeros(2, 2), t)


def test_complex_times() -> None:
    with pytest.raises(ArgumentTypeError, match=r"t must be real times; got torch.complex64"):
        trajectory(torch.zeros(2, 2), torch.zeros(1, dtype=torch.complex64))


T, S = torch.zeros(3, 4, 4), torch.zeros(2, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"generators": T[0]}, r"generators must be a tensor \(d, n, n\); got shape \(4, 4\)"),
        ({"generators": T[:, :3]}, r"generators must be of shape \(3, 3, 3\); got shape \(3, 3, 4\)"),
        ({"readout": S[0]}, r"readout must be a tensor \(out_features, n, n\); got shape \(4, 4\)"),
        ({"readout": None}, r"readout must be a tensor .* got NoneType"),
        ({"readout": S[:, :3]}, r"readout must be of shape \(2, 4, 4\); got shape \(2, 3, 4\)"),
        ({"matrix_bias": T[0, 0]}, r"matrix_bias must be of shape \(4, 4\); got shape \(4,\)"),
        ({"output_bias": T[0, 0]}, r"output_bias must be of shape \(2,\); got shape \(4,\)"),
        ({"embedding": T[0, 0]}, r"embedding must be a tensor \(d, in_features\); got shape \(4,\)"),
        ({"embedding": [[1.0]]}, r"embedding must be a tensor \(d, in_features\); got list"),
        ({"matrix_bias": 0.0}, r"matrix_bias must be of shape \(4, 4\); got float"),
        ({"embedding": T[0]}, r"embedding must be of shape \(3, 4\); got shape \(4, 4\)"),
        (
            {"embedding_bias": T[:, 0, 0]},
            r"embedding_bias must be None without an embedding; got shape \(3,\)",
        ),
        (
            {"embedding": T[:, 0], "embedding_bias": T[0, 0]},
            r"embedding_bias must be of shape \(3,\); got shape \(4,\)",
        ),
    ],
)
def test_from_weights(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        MLayer.from_weights(**{"generators": T, "readout": S, **arguments})


def test_one_family() -> None:
    assert issubclass(ArgumentError, MLayerError)
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(ArgumentTypeError, TypeError)


def test_double_precision_layer_under_autocast_names_the_dtype() -> None:
    layer = MLayer(2, 1, matrix_size=3, dtype=torch.float64)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ArgumentTypeError, match=r"x must be of the dtype of the layer, torch\.float64"),
    ):
        layer(torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("free_generators", (7, 6)),
        ("free_matrix_bias", (1,)),
        ("readout", (5, 4, 4)),
        ("output_bias", (1,)),
        ("embedding", (3, 3)),
        ("embedding_bias", (1,)),
    ],
)
def test_a_parameter_replaced_by_one_of_another_shape(name: str, shape: tuple[int, ...]) -> None:
    """The product that met it first named no argument; biases of one entry were broadcast."""
    layer = MLayer(2, 2, matrix_size=4, embedding_size=3, structure="nilpotent")
    right = tuple(getattr(layer, name).shape)
    setattr(layer, name, torch.nn.Parameter(torch.zeros(shape)))
    with pytest.raises(ArgumentError) as caught:
        layer(torch.zeros(5, 2))
    assert f"{name} must be of shape {right}" in str(caught.value)
    assert f"got shape {shape}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("matrix_size", 5, r"readout must be of shape \(2, 5, 5\), .*; got shape \(2, 4, 4\)"),
        ("in_features", 3, r"embedding must be of shape \(3, 3\), .*; got shape \(3, 2\)"),
        ("out_features", 3, r"readout must be of shape \(3, 4, 4\), .*; got shape \(2, 4, 4\)"),
        ("structure", mlayer.nn.Full(4), r"free_generators must be of shape \(3, 4, 4\)"),
        ("readout", None, r"readout must be a parameter of the layer; got None\. Assign .*\(2, 4, 4\)"),
        ("embedding", None, r"embedding must be a parameter of the layer; got None"),
    ],
)
def test_sizes_and_parameters_that_do_not_belong_together(
    name: str, value: Any, words: str, tmp_path: Path
) -> None:
    """They gave torch's errors, and files that `load` refuses."""
    layer = MLayer(2, 2, matrix_size=4, embedding_size=3, structure="nilpotent")
    setattr(layer, name, value)
    with pytest.raises(MLayerError, match=words):
        layer(torch.zeros(5, 2))
    with pytest.raises(MLayerError, match=words):
        _ = layer.generators
    with pytest.raises(MLayerError, match=words):
        mlayer.save(layer, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["embedding", "embedding_bias", "free_matrix_bias", "output_bias"])
def test_a_parameter_of_another_dtype(name: str) -> None:
    layer = MLayer(2, 2, matrix_size=4, embedding_size=3)
    setattr(layer, name, torch.nn.Parameter(getattr(layer, name).double()))
    with pytest.raises(ArgumentTypeError, match=rf"{name} must be of the dtype of readout, torch.float32"):
        layer(torch.zeros(5, 2))


def test_parameters_of_another_kind_that_belong_together() -> None:
    """Another readout with its bias, no biases, generators in half precision, all by assigned tensors."""
    layer = MLayer(2, 2, matrix_size=4, embedding_size=3)
    layer.out_features, layer.output_bias = 5, None
    layer.readout = torch.nn.Parameter(torch.zeros(5, 4, 4))
    layer.embedding_bias = None
    layer.free_generators = torch.nn.Parameter(layer.free_generators.bfloat16())
    assert layer(torch.zeros(7, 2)).shape == (7, 5)
    weights = {name: tensor.double() for name, tensor in layer.state_dict().items()}
    layer.load_state_dict(weights, assign=True)
    assert layer(torch.zeros(7, 2).double()).dtype == torch.float64


def test_a_structure_that_is_assigned() -> None:
    layer = MLayer(2, 2, matrix_size=4)
    for value, got in (("skew", "'skew'"), (torch.nn.Tanh(), "Tanh")):
        with pytest.raises(ArgumentTypeError, match=rf"got {got}\. .*layer\.with_structure"):
            layer.structure = value  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (torch.nn.LSTM(3, 2)(torch.zeros(4, 3)), r"x\[0\] is the output of nn\.LSTM"),
        ([torch.zeros(2), torch.zeros(2)], r"torch\.stack\(x\)"),
        (torch.nn.utils.rnn.pack_sequence([torch.zeros(4, 2)]), r"Give x\.data"),
        (pandas.DataFrame([[1.0, 2.0]]), r"torch\.as_tensor\(x\.to_numpy\(\)\)"),
        (scipy.sparse.eye(2), r"torch\.as_tensor\(x\.toarray\(\)\)"),
        (None, r"returned nothing"),
    ],
)
def test_what_comes_in_place_of_a_tensor(value: Any, hint: str) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"x must be a torch\.Tensor; got .*{hint}"):
        MLayer(2, 1)(value)
    with pytest.raises(ArgumentTypeError, match=rf"x must be a torch\.Tensor; got .*{hint}"):
        mlayer.certify(MLayer(2, 2), value, torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ArgumentTypeError, match=rf"A must be .*; got .*{hint.replace('x', 'A')}"):
        mlayer.expm(value)


def test_rows_of_one_input() -> None:
    with pytest.raises(
        ArgumentError, match=r"x must be of shape \(..., 1\); got shape \(5,\). .*x\[:, None\]"
    ):
        MLayer(1, 1)(torch.zeros(5))


def test_an_initializer_of_torch() -> None:
    with pytest.raises(ArgumentTypeError, match=r"got torch.nn.init.xavier_uniform_, which fills one tensor"):
        MLayer(2, 1, init=torch.nn.init.xavier_uniform_)  # type: ignore[arg-type]
