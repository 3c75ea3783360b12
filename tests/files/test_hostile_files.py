"""Model files that want to fool: sizes that are not there, endless headers, NaN; and where `save` writes."""

from __future__ import annotations

import json
import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mlayer
from hostile import no_hang
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.files.store import _digest


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
