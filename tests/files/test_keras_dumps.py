"""Dumps of Keras models that hold more, less or something else than one M-layer between two Dense layers."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlayer.arrayfile import read_arrays
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError
from mlayer.files import load_authors_model, load_keras_npz
from mlayer.files.authors import LAYOUT
from mlayer.tensorfile import DamagedError

WEIGHTS: dict[str, np.ndarray] = {
    "d/kernel:0": np.ones((4, 2)),
    "d/bias:0": np.ones(2),
    "m/rep_to_exp_tensor:0": np.ones((2, 3, 3)),
    "m/matrix_bias:0": np.ones((1, 9)),
    "e/kernel:0": np.ones((9, 5)),
    "e/bias:0": np.ones(5),
}


def _load(path: Path, weights: dict[str, Any], **options: Any) -> Any:
    np.savez(path / "m.npz", **weights)
    return load_keras_npz(path / "m.npz", **options)


@pytest.mark.parametrize("kind", ["V2", "i8", "c16", "U3"])  # V2: bfloat16, as numpy.savez stores it
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_of_another_type_is_not_left_out(name: str, kind: str, tmp_path: Path) -> None:
    other = np.zeros(WEIGHTS[name].shape, kind)
    with pytest.raises(FileFormatError, match=rf"floating point weights; got {name} of .*astype"):
        _load(tmp_path, WEIGHTS | {name: other})


@pytest.mark.parametrize("name", ["bn/gamma:0", "p/alpha:0", "f/bias:0", "f/kernel:0"])
def test_weights_without_a_place_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=f"other weights too: {name}"):
        _load(tmp_path, WEIGHTS | {name: np.ones(2)})


def test_a_bias_without_its_kernel_is_refused(tmp_path: Path) -> None:
    rest = {name: array for name, array in WEIGHTS.items() if name != "d/kernel:0"}
    with pytest.raises(FileFormatError, match="other weights too: d/bias:0"):
        _load(tmp_path, rest)
    counter = {"seed/state:0": np.ones(2, np.int64)}  # of a Dropout layer: no weight
    assert _load(tmp_path, WEIGHTS | counter).in_features == 4


def test_two_arrays_of_one_layer_and_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="one kernel a layer; got several of d"):
        _load(tmp_path, WEIGHTS | {"d/kernel": np.zeros((4, 2))})


def test_numbers_beyond_the_dtype_are_refused(tmp_path: Path) -> None:
    large = WEIGHTS | {"e/kernel:0": np.full((9, 5), 1e300)}
    with pytest.raises(FileFormatError, match=r"range of float32; got larger ones.*float64"):
        _load(tmp_path, large)
    assert bool((_load(tmp_path, large, dtype=torch.float64).readout == 1e300).all())
    vector = np.full(sum(int(np.prod(shape)) for shape in LAYOUT.values()), 1e300)
    np.save(tmp_path / "m.npy", vector)
    with pytest.raises(FileFormatError, match="range of float32"):
        load_authors_model(tmp_path / "m.npy", verify=False)
    with pytest.raises(ArgumentTypeError, match="verify must be"):
        load_authors_model(tmp_path / "m.npy", verify="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["embedding", "readout"])
def test_a_layer_that_does_not_fit_is_not_chosen(argument: str, tmp_path: Path) -> None:
    other = {"embedding": "e", "readout": "d"}[argument]
    with pytest.raises(ArgumentError, match=f"{argument} must be one of .*; got '{other}'.*layers d, e"):
        _load(tmp_path, WEIGHTS, **{argument: other})
    with pytest.raises(ArgumentTypeError, match=f"{argument} must be one of"):
        _load(tmp_path, WEIGHTS, **{argument: [other]})


@pytest.mark.parametrize("name", ["\x1b[2J/kernel:0", "a\nb/gamma:0", "x\x07/kernel:0"])
def test_names_do_not_steer_a_terminal(name: str, tmp_path: Path) -> None:
    for weights in (WEIGHTS | {name: np.ones((7, 7))}, {name: np.ones((7, 7))}):
        with pytest.raises(FileFormatError) as caught:
            _load(tmp_path, weights)
        assert str(caught.value).isprintable()


def test_an_archive_that_names_an_array_twice_is_refused(tmp_path: Path) -> None:
    for again in ("x.npy", "x"):
        np.savez(tmp_path / "a.npz", x=np.ones(2))
        np.save(tmp_path / "x.npy", np.zeros(2))
        with zipfile.ZipFile(tmp_path / "a.npz", "a") as packed:
            if again == "x.npy":
                with pytest.warns(UserWarning, match="Duplicate"):
                    packed.writestr(again, (tmp_path / "x.npy").read_bytes())
            else:
                packed.writestr(again, (tmp_path / "x.npy").read_bytes())
        with pytest.raises(DamagedError, match="names 'x' twice"):
            read_arrays(tmp_path / "a.npz")
