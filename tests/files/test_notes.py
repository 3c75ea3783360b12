"""Notes beside a layer: they come back, the digest covers them, and files without them are as before."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

import mlayer
from mlayer import MLayer
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.files import load_with_notes

LAYER = MLayer(2, 1, matrix_size=3, embedding_size=None, generator=torch.Generator().manual_seed(0))

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(notes=st.dictionaries(st.text(), JSON, max_size=4))
def test_notes_come_back(notes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("notes") / "m.safetensors"
    mlayer.save(LAYER, file, notes=notes)
    layer, read = load_with_notes(file)
    assert read == notes
    assert torch.equal(layer.readout, LAYER.readout)
    assert torch.equal(mlayer.load(file).readout, LAYER.readout)


def _metadata(file: Path) -> dict[str, Any]:
    with safe_open(file, framework="pt") as opened:
        header: dict[str, Any] = json.loads(opened.metadata()["mlayer"])
    return header


def test_files_without_notes_are_as_before(tmp_path: Path) -> None:
    mlayer.save(LAYER, tmp_path / "m")
    header = _metadata(tmp_path / "m")
    assert set(header) == {"format", "config", "digest"}
    assert header["format"] == 1
    assert load_with_notes(tmp_path / "m")[1] is None
    mlayer.save(LAYER, tmp_path / "n", notes={})
    assert _metadata(tmp_path / "n")["format"] == 2, "an mlayer that knows no notes says that it is too old"
    assert load_with_notes(tmp_path / "n")[1] == {}


def _rewrite(file: Path, change: dict[str, Any]) -> None:
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header["__metadata__"]["mlayer"] = json.dumps(json.loads(header["__metadata__"]["mlayer"]) | change)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("notes", [{"target": "b"}, {}, None, ["target"], "x"], ids=str)
def test_changed_notes_are_noticed(notes: object, tmp_path: Path) -> None:
    mlayer.save(LAYER, tmp_path / "m", notes={"target": "a"})
    _rewrite(tmp_path / "m", {"notes": notes})
    with pytest.raises(FileFormatError, match="a file whose digest does not match"):
        mlayer.load(tmp_path / "m")


def test_notes_of_another_type(tmp_path: Path) -> None:
    from mlayer.files import store

    mlayer.save(LAYER, tmp_path / "m", notes={"target": "a"})
    header, tensors = store._read(tmp_path / "m")
    _rewrite(tmp_path / "m", {"notes": ["x"], "digest": store._digest(header["config"], tensors, ["x"])})
    with pytest.raises(FileFormatError, match="consistent; got notes of type list"):
        load_with_notes(tmp_path / "m")


@pytest.mark.parametrize("notes", [{"a": float("nan")}, {"a": {1, 2}}, {"a": torch.ones(1)}], ids=str)
def test_what_json_would_lose_is_refused(notes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"notes must be a JSON object; got something else"):
        mlayer.save(LAYER, tmp_path / "m", notes=notes)
    assert not list(tmp_path.iterdir())
