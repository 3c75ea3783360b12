"""Image sets: tiny files written byte by byte in each original format, and what is wrong with them."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import sklearn.datasets
import torch

from mlayer.datasets import (
    ImageSet,
    cifar10,
    cifar10_binary,
    digits,
    evaluation_split,
    images,
    mnist,
    mnist_idx,
    svhn,
    svhn_mat,
)
from mlayer.datasets.mat5 import read_mat
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError, MissingDataError

random = np.random.default_rng(5)


# ---- MNIST. -----------------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(struct.pack(">I", size) for size in array.shape)
    return head + bytes(array.ravel().tolist())


def write_mnist(folder: Path, packed: bool = True) -> dict[str, np.ndarray]:
    arrays = {
        "train-images-idx3-ubyte": random.integers(0, 256, (6, 4, 3)),
        "train-labels-idx1-ubyte": random.integers(0, 10, (6,)),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (2, 4, 3)),
        "t10k-labels-idx1-ubyte": random.integers(0, 10, (2,)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        raw = idx(array)
        (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(raw) if packed else raw)
    return arrays


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["mnist", "MNIST/raw", "."])
def test_mnist(tmp_path: Path, packed: bool, place: str) -> None:
    arrays = write_mnist(tmp_path / place, packed)
    set_ = mnist(tmp_path, verify=False)
    assert (set_.name, set_.image_shape, set_.classes) == ("mnist", (4, 3), tuple("0123456789"))
    assert set_.source == str(tmp_path / place)
    for split, half in ((set_.train, "train"), (set_.test, "t10k")):
        wanted = arrays[f"{half}-images-idx3-ubyte"]
        assert split.pixels.dtype == torch.uint8
        assert split.labels.dtype == torch.int64
        assert split.labels.tolist() == arrays[f"{half}-labels-idx1-ubyte"].tolist()
        assert split.images(flat=False).dtype == torch.float32
        np.testing.assert_array_equal(split.images(flat=False).numpy(), wanted.astype(np.float32) / 255)
        np.testing.assert_array_equal(
            split.images(slice(1)).numpy(), wanted.reshape(len(wanted), -1)[:1].astype(np.float32) / 255
        )
        assert len(split.take(slice(1))) == 1


def test_mnist_from_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("MLAYER_DATA", str(tmp_path))
    assert len(images("mnist", verify=False).train) == 6


def test_mnist_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "mnist")
    with pytest.raises(FileFormatError, match=r"published file, SHA-256 440fcabf.*; got SHA.*verify=False"):
        mnist(tmp_path)
    for key, file in list(mnist_idx.FILES.items()):
        sha256 = hashlib.sha256((tmp_path / "mnist" / file.name).read_bytes()).hexdigest()
        monkeypatch.setitem(mnist_idx.FILES, key, replace(file, sha256=(sha256,)))
    assert len(mnist(tmp_path).test) == 2


def test_mnist_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    with pytest.raises(
        MissingDataError, match=r"argument data, or \$MLAYER_DATA.*put it at DIR.mnist.train-images"
    ):
        mnist()
    with pytest.raises(
        MissingDataError, match=rf"Get it from https:.*put it at {tmp_path}/mnist/train-images.*download=True"
    ):
        mnist(tmp_path)
    assert issubclass(MissingDataError, FileNotFoundError)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda raw: b"\x00\x00\x09\x03" + raw[4:],
            r"an idx file of bytes with 3 dimensions, 00000803; got 00000903",
        ),
        (lambda raw: raw[:-1], r"6 x 4 x 3 bytes after its header; got 71 bytes"),
        (lambda raw: raw + b"\0", r"6 x 4 x 3 bytes after its header; got 73 bytes"),
        (lambda raw: raw[:9], r"a header of 16 bytes; got 9 bytes in all"),
        (lambda raw: b"", r"got nothing"),
        (lambda raw: gzip.compress(raw)[:-9], r"a complete .gz file; got a damaged one"),
        (
            lambda raw: gzip.compress(raw)[:20] + b"\xff\xff\xff\xff" + gzip.compress(raw)[24:],
            r"a complete .gz file; got a damaged one",
        ),
        (lambda raw: raw[:7] + b"\x05" + raw[8:-12], r"one label for each of 5 images; got 6"),
    ],
)
def test_mnist_broken(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    write_mnist(tmp_path, packed=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FileFormatError, match=words):
        mnist(tmp_path, verify=False)


def test_mnist_labels_are_digits(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.array([1, 2, 3, 4, 5, 11])))
    with pytest.raises(FileFormatError, match="labels 0 to 9; got a label 11"):
        mnist(tmp_path, verify=False)


def test_the_test_half_without_the_training_files(tmp_path: Path) -> None:
    arrays = write_mnist(tmp_path / "mnist")
    content = write_cifar(tmp_path)
    for file in (*tmp_path.rglob("train-*"), *tmp_path.rglob("data_batch_*")):
        file.unlink()
    half = evaluation_split("mnist", tmp_path, verify=False)
    assert half.labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()
    np.testing.assert_array_equal(half.pixels.numpy(), arrays["t10k-images-idx3-ubyte"])
    half = evaluation_split("cifar10", tmp_path, verify=False)
    np.testing.assert_array_equal(half.pixels.numpy(), content["test_batch"][1])
    with pytest.raises(MissingDataError, match="train-images"):
        mnist(tmp_path, verify=False)
    with pytest.raises(MissingDataError, match="test_32x32"):
        evaluation_split("svhn", tmp_path)
    assert len(evaluation_split("digits")) == 360


# ---- CIFAR-10. --------------------------------------------------------------------------------------

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")


def write_cifar(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for name in BATCHES:
        labels, pixels = random.integers(0, 10, 2), random.integers(0, 256, (2, 32, 32, 3))
        raw = b""
        for label, image in zip(labels, pixels, strict=True):
            raw += bytes([label])
            for color in range(3):
                raw += bytes(image[:, :, color].ravel().tolist())
        (folder / f"{name}.bin").write_bytes(raw)
        content[name] = labels, pixels
    return content


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "."])
def test_cifar(tmp_path: Path, place: str) -> None:
    content = write_cifar(tmp_path / place)
    set_ = images("cifar10", tmp_path, verify=False)
    assert (set_.name, set_.image_shape, set_.classes[6]) == ("cifar10", (32, 32, 3), "frog")
    for split, names in ((set_.train, BATCHES[:5]), (set_.test, BATCHES[5:])):
        pixels = np.concatenate([content[name][1] for name in names])
        np.testing.assert_array_equal(split.pixels.numpy(), pixels)
        np.testing.assert_array_equal(
            split.images().numpy(), pixels.reshape(-1, 3072).astype(np.float32) / 255
        )
        assert split.labels.tolist() == [int(label) for name in names for label in content[name][0]]


def test_cifar_sums(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    with pytest.raises(FileFormatError, match="published file, SHA-256 cee91656"):
        cifar10(tmp_path)


def test_cifar_missing(tmp_path: Path) -> None:
    with pytest.raises(
        MissingDataError,
        match=r"cifar-10-binary.tar.gz and put it at .*cifar-10-batches-bin/data_batch_1.bin",
    ):
        cifar10(tmp_path)
    write_cifar(tmp_path)
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(MissingDataError, match=r"test_batch.bin is not in"):
        cifar10(tmp_path, verify=False)


@pytest.mark.parametrize("place", ["cifar-10-batches-py", "."])
def test_pickled_cifar_is_not_read(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "data_batch_1").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(
        FileFormatError, match=r"pickled python version, which is not read because unpickling runs code"
    ):
        cifar10(tmp_path)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x80\x02}q\x00.", "a binary batch; got a pickled one"),
        (bytes(3073 + 3072), "rows of 3073 bytes; got 6145 bytes"),
        (b"", "rows of 3073 bytes; got 0 bytes"),
        (b"\x0a" + bytes(3072), "a label 0 to 9; got a label 10"),
    ],
)
def test_cifar_broken(tmp_path: Path, raw: bytes, words: str) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(raw)
    with pytest.raises(FileFormatError, match=words):
        cifar10(tmp_path, verify=False)
    assert cifar10_binary.TRAIN[2].name == "data_batch_3.bin"


# ---- SVHN. ------------------------------------------------------------------------------------------


def mat_element(kind: int, content: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "II", kind, len(content)) + content + bytes(-len(content) % 8)


def mat_array(name: str, array: np.ndarray, order: str = "<") -> bytes:
    kind, class_, code = {"uint8": (2, 9, "u1"), "float64": (9, 6, "f8")}[str(array.dtype)]
    content = mat_element(6, struct.pack(order + "II", class_, 0), order)
    content += mat_element(5, struct.pack(f"{order}{array.ndim}i", *array.shape), order)
    # A short name is stored as a small element: length and type share four bytes.
    first = struct.pack(order + "I", len(name) << 16 | 1)
    content += first + name.encode() + bytes(4 - len(name))
    content += mat_element(kind, array.astype(order + code).tobytes(order="F"), order)
    return mat_element(14, content, order)


def mat_file(*elements: bytes, order: str = "<") -> bytes:
    return (
        b"MATLAB 5.0 MAT-file, by hand".ljust(124)
        + struct.pack(order + "HH", 0x0100, 0x4D49)
        + b"".join(elements)
    )


def squeeze(element: bytes) -> bytes:
    content = zlib.compress(element)
    return struct.pack("<II", 15, len(content)) + content


SMALL = random.integers(0, 256, (32, 32, 3, 4)).astype(np.uint8)
LABELS = np.array([[10], [1], [9], [10]], np.uint8)


@pytest.mark.parametrize(
    "way", ["plain", "compressed", "big-endian", "scipy", "scipy-compressed", "other-arrays"]
)
def test_svhn(tmp_path: Path, way: str) -> None:
    (tmp_path / "svhn").mkdir()
    for name in ("train_32x32.mat", "test_32x32.mat"):
        path = tmp_path / "svhn" / name
        if way == "plain":
            path.write_bytes(mat_file(mat_array("X", SMALL), mat_array("y", LABELS)))
        elif way == "compressed":
            path.write_bytes(mat_file(squeeze(mat_array("X", SMALL)), squeeze(mat_array("y", LABELS))))
        elif way == "big-endian":
            path.write_bytes(
                mat_file(mat_array("X", SMALL, ">"), mat_array("y", LABELS.astype(float), ">"), order=">")
            )
        elif way == "other-arrays":
            scipy.io.savemat(path, {"a": "words", "z": np.ones(3), "X": SMALL, "y": LABELS})
        else:
            scipy.io.savemat(path, {"X": SMALL, "y": LABELS}, do_compression=way.endswith("ed"))
    with pytest.raises(FileFormatError, match=r"published file, SHA-256 435e94d6.*verify=False"):
        svhn(tmp_path)
    set_ = svhn(tmp_path, verify=False)
    assert (set_.name, set_.image_shape) == ("svhn", (32, 32, 3))
    assert set_.train.labels.tolist() == [0, 1, 9, 0]
    np.testing.assert_array_equal(set_.test.pixels.numpy(), SMALL.transpose(3, 0, 1, 2))


def test_svhn_copies_of_another_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The date at the start of a file does not count; every other byte does."""
    folder = tmp_path / "svhn"
    folder.mkdir()
    for half in ("TRAIN", "TEST"):
        file = getattr(svhn_mat, half)
        path = folder / file.name
        scipy.io.savemat(path, {"X": SMALL, "y": LABELS})
        raw = path.read_bytes()
        body = hashlib.sha256(raw[116:]).hexdigest()
        monkeypatch.setattr(svhn_mat, half, replace(file, without_remark=(body,)))
        path.write_bytes(b"MATLAB 5.0 MAT-file, written on another day".ljust(116) + raw[116:])
    assert len(svhn(tmp_path).train) == len(LABELS)
    changed = bytearray(path.read_bytes())
    changed[-3] ^= 1
    path.write_bytes(changed)
    with pytest.raises(FileFormatError, match="published file"):
        svhn(tmp_path)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"HDF stuff" * 30, r"a MATLAB 5 .mat file; got another header"),
        (
            mat_file(mat_array("X", SMALL), mat_array("y", LABELS))[:9000],
            r"a complete MATLAB 5 .mat file; got a damaged one",
        ),
        (mat_file(squeeze(mat_array("X", SMALL))[:900]), "a damaged one"),
        (mat_file(mat_array("X", SMALL)), r"with the arrays X, y; got no y"),
        (mat_file(mat_array("X", SMALL), mat_array("y", LABELS[:3])), r"a y for each of 4 images; got 3"),
        (mat_file(mat_array("X", SMALL), mat_array("y", LABELS - 1)), r"y of 1 to 10; got 0 to 9"),
        (mat_file(mat_array("X", SMALL), mat_array("y", LABELS / 4)), r"y of 1 to 10; got 0.25 to 2.5"),
        (
            mat_file(mat_array("X", SMALL[:16]), mat_array("y", LABELS)),
            r"32 x 32 x 3 x N; got uint8 of 16 x 32 x 3 x 4",
        ),
        (mat_file(mat_array("X", SMALL / 1.0), mat_array("y", LABELS)), r"X of bytes.*got float64"),
    ],
)
def test_svhn_broken(tmp_path: Path, raw: bytes, words: str) -> None:
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(FileFormatError, match=words):
        svhn(tmp_path, verify=False)


def test_mat_reader_against_scipy(tmp_path: Path) -> None:
    arrays = {
        "a": random.standard_normal((3, 4)),
        "long_name": random.integers(-9, 9, (2, 3, 5)).astype(np.int16),
    }
    stream = io.BytesIO()
    scipy.io.savemat(stream, arrays)
    (tmp_path / "m.mat").write_bytes(stream.getvalue())
    came = read_mat(tmp_path / "m.mat", ("a", "long_name"))
    for name, array in arrays.items():
        np.testing.assert_array_equal(came[name].T, array)


# ---- Digits, names, folders. ------------------------------------------------------------------------


def test_digits() -> None:
    set_ = images("digits")
    assert isinstance(set_, ImageSet)
    assert set_.train.images().shape == (1437, 64)
    assert set_.train.images().max() == 1.0
    assert set(set_.test.labels.tolist()) == set(range(10))
    assert set_.source == digits().source == "scikit-learn"


@pytest.mark.parametrize("found", [True, False], ids=["its file", "its function"])
def test_digits_are_those_of_scikit_learn(found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not found:  # a version that keeps the file elsewhere
        monkeypatch.setattr(Path, "is_file", lambda _: False)
    else:
        monkeypatch.setattr(sklearn.datasets, "load_digits", None)
    set_ = digits()
    monkeypatch.undo()
    bunch = sklearn.datasets.load_digits()
    for_test = np.arange(len(bunch.target)) % 5 == 0
    for split, chosen in ((set_.train, ~for_test), (set_.test, for_test)):
        assert np.array_equal(split.images().numpy(), (bunch.data[chosen] / 16).astype(np.float32))
        assert np.array_equal(split.labels.numpy(), bunch.target[chosen])


def test_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"name must be one of 'mnist', .*got 'imagenet'"):
        images("imagenet")
    with pytest.raises(ArgumentTypeError, match="data must be the path of a folder; got int"):
        mnist(5)  # type: ignore[arg-type]
    (tmp_path / "f").write_text("")
    with pytest.raises(ArgumentError, match="data must be a folder; got the file"):
        svhn(tmp_path / "f")
