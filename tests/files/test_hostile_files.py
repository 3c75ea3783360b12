"""Model files that want to fool: sizes that are not there, endless headers, NaN; and where `save` writes."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mlayer
from hostile import no_hang
from mlayer.arrayfile import read_arrays
from mlayer.disk import replace_file
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.files.store import _digest
from mlayer.tensorfile import DamagedError


def crafted(path: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    header = {"format": 1, "config": config, "digest": _digest(config, tensors)}
    save_file(tensors, path, {"mlayer": json.dumps(header)})
    return path


CONFIG: dict[str, Any] = {
    "in_features": 2**31,
    "out_features": 1,
    "matrix_size": 1,
    "embedding_size": None,
    "matrix_bias": False,
    "output_bias": False,
    "embedding_bias": False,
    "structure": {"name": "nilpotent"},
    "init": None,
    "dtype": "float32",
}


def test_a_small_file_does_not_take_gigabytes(tmp_path: Path) -> None:
    tensors = {"readout": torch.zeros(1, 1, 1), "free_generators": torch.zeros(2**31, 0)}
    file = crafted(tmp_path / "m.safetensors", CONFIG, tensors)
    assert file.stat().st_size < 2000
    with no_hang(), pytest.raises(FileFormatError, match="matrices of size 1 in a file of"):
        mlayer.load(file)


def test_hundreds_of_thousands_of_tensors_are_refused(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({str(k): entry for k in range(300_000)}).encode()
    file = tmp_path / "m.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    with no_hang(), pytest.raises(FileFormatError, match="300000 tensors"):
        mlayer.load(file)


@pytest.mark.parametrize(
    "header",
    [
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [99999999999999999999], "data_offsets": [0, 0]}}',
        b"[" * 100_000,
        b"[]",
        b"null",
        b'{"__metadata__": 3}',
        b'{"__metadata__": {"mlayer": 3}}',
        b'{"__metadata__": {"mlayer": "' + b"[" * 50_000 + b'"}}',
        b'{"__metadata__": {"mlayer": "{\\"format\\": ' + b"9" * 5000 + b'}"}}',
        b'{"__metadata__": {"mlayer": "[]"}}',
        b'{"__metadata__": {"mlayer": "{}"}}',
        b"\xff\xfe",
    ],
)
def test_headers_of_nonsense_are_refused(header: bytes, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    with no_hang(), pytest.raises(FileFormatError):
        mlayer.load(file)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_refused_unless_asked_for(value: float, tmp_path: Path) -> None:
    layer = mlayer.MLayer(2, 1, 3)
    with torch.no_grad():
        layer.readout[0, 0, 0] = value
    mlayer.save(layer, tmp_path / "m.safetensors")
    with pytest.raises(FileFormatError, match="NaN or infinity in readout"):
        mlayer.load(tmp_path / "m.safetensors")
    same = mlayer.load(tmp_path / "m.safetensors", allow_nonfinite=True)
    assert not same.readout.isfinite().all()


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of Unix")
def test_save_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    layer, file, link = mlayer.MLayer(2, 1, 3), tmp_path / "m.safetensors", tmp_path / "link.safetensors"
    mlayer.save(layer, file)
    file.chmod(0o640)
    link.symlink_to(file)
    before = file.read_bytes()
    mlayer.save(mlayer.MLayer(2, 1, 3), link)
    assert link.is_symlink()
    assert file.read_bytes() != before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("path", ["a\0b", ""])
def test_no_path(path: str) -> None:
    for call in (lambda: mlayer.save(mlayer.MLayer(2, 1, 3), path), lambda: mlayer.load(path)):
        with pytest.raises(ArgumentError, match="path must be a path"):
            call()


@pytest.mark.skipif(os.name != "posix", reason="pipes and sockets of Unix")
def test_what_is_no_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device or a pipe would be gone: as root, ``-o /dev/null`` would leave a file there."""
    pipe, link, place = tmp_path / "pipe", tmp_path / "link", tmp_path / "socket"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
        server.bind(place.name)
        for path in (pipe, link, place):
            with (
                no_hang(),
                pytest.raises(ArgumentError, match="path must be a file; got the device, pipe or"),
            ):
                mlayer.save(mlayer.MLayer(2, 1, 3), path)
            with no_hang(), pytest.raises(FileNotFoundError):
                mlayer.load(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISSOCK(place.stat().st_mode)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes of Linux")
def test_save_keeps_attributes_and_owner(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    mlayer.save(mlayer.MLayer(2, 1, 3), file)
    named = True
    try:
        os.setxattr(file, "user.note", b"mine")
    except OSError:
        named = False
    with suppress(OSError):  # only root may, and not every user exists in a container
        os.chown(file, 1234, 4321)
    owner = file.stat().st_uid, file.stat().st_gid
    mlayer.save(mlayer.MLayer(2, 1, 3), file)
    assert (file.stat().st_uid, file.stat().st_gid) == owner
    if named:
        assert os.getxattr(file, "user.note") == b"mine"


@pytest.mark.skipif(os.name != "posix", reason="permissions of Unix")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o644])
def test_nobody_reads_along_while_a_file_is_written(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"old")
    file.chmod(mode)
    seen = []

    def write(temporary: Path) -> None:
        temporary.write_bytes(b"new")
        seen.append(stat.S_IMODE(temporary.stat().st_mode))

    replace_file(file, write)
    assert seen[0] & 0o077 & ~mode == 0, "open to others for a moment"
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert file.read_bytes() == b"new"


def test_an_archive_of_zeros_does_not_take_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "bomb.npz"
    np.savez_compressed(file, a=np.zeros(2**23 + 1))  # 64 MB in some 65 kB, and a copy of them
    assert file.stat().st_size < 2**20
    with pytest.raises(DamagedError, match="bytes unpacked"):
        read_arrays(file)
    np.savez_compressed(file, a=np.zeros(2**20))
    assert read_arrays(file)["a"].shape == (2**20,)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(number: str, tmp_path: Path) -> None:
    """They would be written as JSON again by `mlayer info --json`."""
    file = tmp_path / "m.safetensors"
    mlayer.save(mlayer.MLayer(2, 1, 2), file, notes={"a": "place of a number"})
    data, place = file.read_bytes(), rb"\"place of a number\""
    assert data.count(place) == 1
    file.write_bytes(data.replace(place, number.ljust(len(place)).encode()))
    with pytest.raises(FileFormatError, match="for a number"):
        mlayer.load(file)


@pytest.mark.parametrize("name", ["__metadata__", "readout", "free_generators"])
def test_a_name_that_stands_twice_in_a_header(name: str, tmp_path: Path) -> None:
    """Readers may take either of two entries: the one that is checked might not be the one that is loaded."""
    path = tmp_path / "m.safetensors"
    mlayer.save(mlayer.MLayer(3, 2, 3), path)
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entry = json.dumps(json.loads(data[8:end])[name])
    header = data[8:end].rstrip()[:-1] + f',"{name}":{entry}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[end:])
    with pytest.raises(FileFormatError, match=f"names '{name}' twice"):
        mlayer.load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"in_features": 3', '"in_features": 9, "in_features": 3'), ('"format": 1', '"format": true')],
)
def test_a_configuration_that_readers_might_understand_differently(
    old: str, new: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    mlayer.save(mlayer.MLayer(3, 2, 3), path)
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:end])
    about = entries["__metadata__"]["mlayer"]
    assert old in about
    entries["__metadata__"]["mlayer"] = about.replace(old, new)
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[end:])
    with pytest.raises(FileFormatError, match=r"names 'in_features' twice|format True"):
        mlayer.load(path)


def test_half_of_a_pair_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="surrogate"):
        mlayer.save(mlayer.MLayer(3, 2, 3), tmp_path / "\ud800")
    with pytest.raises(ArgumentError, match="surrogate"):
        mlayer.load("\ud800")
