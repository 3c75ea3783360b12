"""The authors' released model, and dumps of their Keras class."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mlayer import MLayer
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.files import load_authors_model, load_keras_npz
from mlayer.files.authors import LAYOUT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cifar10_model.npy and cifar-10-batches-bin/test_batch.bin."""
    if folder := os.environ.get("MLAYER_DATA"):
        given = Path(folder)
        if (given / "cifar10_model.npy").exists() and (
            given / "cifar-10-batches-bin/test_batch.bin"
        ).exists():
            return given
    unpack = ROOT.parent / "shared" / "data" / "unpack"
    if not unpack.exists():
        pytest.skip("needs the data: neither $MLAYER_DATA nor ../shared/data has the model and CIFAR-10")
    folder_ = tmp_path_factory.mktemp("data")
    command = [sys.executable, str(unpack), str(folder_), "cifar10-test", "model"]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return folder_


def cifar10_test_set(data: Path) -> tuple[Tensor, Tensor]:
    """CIFAR-10's test set: labels, and images of height x width x channel in [0, 1]."""
    raw = np.fromfile(data / "cifar-10-batches-bin/test_batch.bin", np.uint8).reshape(-1, 1 + 3072)
    images = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).reshape(-1, 3072)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(raw[:, 0].astype(np.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_accuracy_of_the_released_model(data: Path, dtype: torch.dtype) -> None:
    layer = load_authors_model(data / "cifar10_model.npy", dtype=dtype)
    assert (layer.in_features, layer.out_features, layer.matrix_size, layer.embedding_size) == (
        3072,
        10,
        20,
        35,
    )
    images, labels = cifar10_test_set(data)
    with torch.no_grad():
        guesses = torch.cat([layer(images[k : k + 1000].to(dtype)).argmax(1) for k in range(0, 10_000, 1000)])
    assert int((guesses == labels).sum()) == 5279


def test_norms_of_the_released_model(data: Path) -> None:
    """Two figures of the weights alone that were computed elsewhere."""
    layer = load_authors_model(data / "cifar10_model.npy", dtype=torch.float64)
    assert layer.embedding is not None
    contracted = torch.einsum("ai,ajk->ijk", layer.embedding, layer.generators).detach()
    assert abs(torch.linalg.matrix_norm(contracted.abs().sum(0), 2).item() - 213.598) < 1e-3
    assert abs(torch.linalg.matrix_norm(layer.readout.detach().flatten(1), 2).item() - 3.153) < 1e-3


# ---- The layout, without the data. ------------------------------------------------------------------


def write_vector(path: Path, dtype: type = np.float64) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    pieces = {name: 0.05 * random.standard_normal(shape) for name, shape in LAYOUT.items()}
    np.save(path, np.concatenate([piece.ravel() for piece in pieces.values()]).astype(dtype))
    return pieces


def test_layout(tmp_path: Path) -> None:
    pieces = write_vector(tmp_path / "m.npy")
    layer = load_authors_model(tmp_path / "m.npy", verify=False, dtype=torch.float64)
    image = np.random.default_rng(1).random((32, 32, 3))
    phi = np.einsum("yxc,yxca->a", image, pieces["embedding"]) + pieces["embedding_bias"]
    M = np.einsum("a,ajk->jk", phi, pieces["generators"]) + pieces["matrix_bias"]
    E = torch.linalg.matrix_exp(torch.from_numpy(M)).numpy()
    expected = np.einsum("jk,jkm->m", E, pieces["readout"]) + pieces["output_bias"]
    found = layer(torch.from_numpy(image).flatten())
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_another_file_of_the_layout_is_refused(tmp_path: Path) -> None:
    write_vector(tmp_path / "m.npy")
    with pytest.raises(FileFormatError, match=r"the released model, SHA-256 abe15f55.*1d25.*verify=False"):
        load_authors_model(tmp_path / "m.npy")


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.npy"
    np.save(file, np.zeros(7))
    with pytest.raises(FileFormatError, match=r"a vector of 125965 floats; got float64 of shape \(7,\)"):
        load_authors_model(file, verify=False)
    write_vector(file, np.int64)
    with pytest.raises(FileFormatError, match=r"got int64 of shape"):
        load_authors_model(file, verify=False)
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"a .npy file of one float vector; got something else"):
        load_authors_model(file, verify=False)
    file.write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"a .npy file of one float vector; got something else"):
        load_authors_model(file, verify=False)
    np.savez(tmp_path / "m.npz", a=np.zeros(3))
    with pytest.raises(FileFormatError, match=r"got something else \(.*an archive"):
        load_authors_model(tmp_path / "m.npz", verify=False)
    with pytest.raises(FileNotFoundError):
        load_authors_model(tmp_path / "nothing.npy")


# ---- Keras dumps. ---------------------------------------------------------------------------------


def keras_weights(n: int = 4, d: int = 3, inputs: int = 6, outputs: int = 2) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "dense/kernel:0": random.standard_normal((inputs, d)),
        "dense/bias:0": random.standard_normal(d),
        "m_layer/rep_to_exp_tensor:0": random.standard_normal((d, n, n)),
        "m_layer/matrix_bias:0": random.standard_normal((1, n, n)),
        "dense_1/kernel:0": random.standard_normal((n * n, outputs)),
        "dense_1/bias:0": random.standard_normal(outputs),
    }


def dump(path: Path, weights: dict[str, np.ndarray]) -> None:
    savez: Callable[..., None] = np.savez
    savez(path, **weights)


def keras_output(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Dense, M-layer, Flatten, Dense, as Keras computes them."""
    phi = x @ w["dense/kernel:0"] + w["dense/bias:0"] if "dense/kernel:0" in w else x
    M = np.einsum("amn,...a->...mn", w["m_layer/rep_to_exp_tensor:0"], phi) + w.get(
        "m_layer/matrix_bias:0", 0
    )
    E = torch.linalg.matrix_exp(torch.from_numpy(M)).numpy()
    return np.asarray(E.reshape(len(x), -1) @ w["dense_1/kernel:0"] + w.get("dense_1/bias:0", 0))


@pytest.mark.parametrize(
    "missing",
    [(), ("m_layer/matrix_bias:0",), ("dense/kernel:0", "dense/bias:0"), ("dense_1/bias:0",)],
    ids=str,
)
def test_keras(missing: tuple[str, ...], tmp_path: Path) -> None:
    weights = {name: value for name, value in keras_weights().items() if name not in missing}
    dump(tmp_path / "m.npz", weights)
    layer = load_keras_npz(tmp_path / "m.npz", dtype=torch.float64)
    x = np.random.default_rng(1).standard_normal((5, layer.in_features))
    expected = keras_output(weights, x)
    found = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * abs(expected).max())


def test_keras_layers_by_name(tmp_path: Path) -> None:
    weights = keras_weights(n=2, d=3, inputs=4, outputs=3)  # both kernels are 4 x 3
    dump(tmp_path / "m.npz", weights)
    with pytest.raises(ArgumentError, match=r"readout must be given, because several Dense layers fit"):
        load_keras_npz(tmp_path / "m.npz")
    with pytest.raises(ArgumentError, match=r"readout must be one of 'dense', 'dense_1'; got 'dense_7'"):
        load_keras_npz(tmp_path / "m.npz", readout="dense_7")
    layer = load_keras_npz(tmp_path / "m.npz", embedding="dense", readout="dense_1", dtype=torch.float64)
    x = np.random.default_rng(1).standard_normal((5, 4))
    expected = keras_output(weights, x)
    np.testing.assert_allclose(layer(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_keras_complaints(tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    good = keras_weights()
    np.savez(file, kernel=np.zeros((2, 2)))
    with pytest.raises(
        FileFormatError, match=r"one rep_to_exp_tensor of shape \(d, n, n\); got the names kernel"
    ):
        load_keras_npz(file)
    dump(file, {**good, "other/rep_to_exp_tensor:0": np.zeros((1, 2, 2))})
    with pytest.raises(FileFormatError, match=r"a dump with one rep_to_exp_tensor; got 2"):
        load_keras_npz(file)
    dump(file, {name: value for name, value in good.items() if "dense" not in name})
    with pytest.raises(FileFormatError, match=r"a Dense kernel of 16 rows; got none"):
        load_keras_npz(file)
    file.write_bytes(b"not an archive")
    with pytest.raises(FileFormatError, match=r"an .npz archive; got something else"):
        load_keras_npz(file)
    np.save(tmp_path / "m.npy", np.zeros(3))
    with pytest.raises(FileFormatError, match=r"an .npz archive; got something else"):
        load_keras_npz(tmp_path / "m.npy")


def test_the_loaded_layer_is_an_ordinary_one(tmp_path: Path) -> None:
    dump(tmp_path / "m.npz", keras_weights())
    layer = load_keras_npz(tmp_path / "m.npz")
    assert isinstance(layer, MLayer)
    assert layer.readout.dtype == torch.float32
    assert all(p.requires_grad for p in layer.parameters())


def test_a_keras_dump_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    good = keras_weights(n=4, d=3, inputs=5, outputs=2)
    dump(file, good | {"m_layer/matrix_bias:0": np.zeros((5, 5))})
    with pytest.raises(FileFormatError, match=r"a matrix_bias of 16 entries; got shape \(5, 5\)"):
        load_keras_npz(file)
    dump(file, good | {"dense_2/kernel:0": np.zeros((7, 9))})
    with pytest.raises(FileFormatError, match=r"other weights too: dense_2/kernel:0"):
        load_keras_npz(file)
