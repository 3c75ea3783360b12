"""Files with a hole of gigabytes, pipes in the place of files, lists that lie on each other."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlayer
from hostile import no_hang
from mlayer import memory
from mlayer.certificates import Certifier
from mlayer.certificates.checker import ProofError, file_digest, parse_proof, read_proof
from mlayer.cli import main
from mlayer.errors import FileFormatError, MLayerError
from mlayer.files import load_authors_model, load_keras_npz
from mlayer.tables import open_table
from mlayer.tables.certify.check_proof import read_proof_file

pytest.importorskip("flint")

HUGE = 2**42


def proof_bytes(lists: dict[str, Any], body: bytes) -> bytes:
    """A proof file with a digest that fits."""
    text = json.dumps({"format": "mlayer-proof", "version": 1, "rows": []})
    header = json.dumps({"__metadata__": {"proof": text, "sha256": "0" * 64}, **lists}).encode()
    data = struct.pack("<Q", len(header)) + header + body
    place = data.index(b'"' + b"0" * 64) + 1
    return data[:place] + file_digest(data, "0" * 64).encode() + data[place + 64 :]


def numbers(start: int, stop: int) -> dict[str, Any]:
    return {"dtype": "F64", "shape": [(stop - start) // 8], "data_offsets": [start, stop]}


def test_a_proof_whose_lists_lie_on_each_other_is_refused() -> None:
    """Each of a million entries of a header could name all the numbers of the file."""
    body = bytes(80)
    whole = parse_proof(proof_bytes({"a": numbers(0, 40), "b": numbers(40, 80)}, body))
    assert whole["rows"] == []
    for lists in (
        {"a": numbers(0, 80), "b": numbers(0, 80)},
        {"a": numbers(0, 48), "b": numbers(40, 80)},
        {"a": numbers(0, 40)},
        {"a": numbers(0, 40), "b": numbers(48, 80)},
        {"a": numbers(0, 40), "b": numbers(40, 88)},
        {"a": numbers(0, 80), "b": numbers(80, 40)},
        {},
    ):
        with pytest.raises(ProofError, match=r"lie on each other|truncated"):
            parse_proof(proof_bytes(lists, body))


def test_a_proof_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "p.safetensors"
    data = proof_bytes({"a": numbers(0, 40)}, bytes(40))
    file.write_bytes(data)
    assert read_proof(file) == parse_proof(data)
    for damaged in (data[:-1], data + b"\0", data[:5], b""):
        file.write_bytes(damaged)
        with pytest.raises(ProofError):
            read_proof(file)


def model_that_names_its_hole(path: Path) -> None:
    n = 2**15
    size = 4 * n * n
    config: dict[str, Any] = {"in_features": 1, "out_features": 1, "matrix_size": n, "embedding_size": None}
    config |= dict.fromkeys(("matrix_bias", "output_bias", "embedding_bias"), False)
    config |= {"structure": {"name": "full"}, "init": None, "dtype": "float32"}
    entry = {"dtype": "F32", "shape": [1, n, n]}
    header = {
        "__metadata__": {"mlayer": json.dumps({"format": 1, "config": config, "digest": "0" * 64})},
        "readout": entry | {"data_offsets": [0, size]},
        "free_generators": entry | {"data_offsets": [size, 2 * size]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + 2 * size)


def hole(start: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(start)
        os.truncate(path, HUGE)

    return make


def constants(path: Path) -> object:
    return Certifier(mlayer.MLayer(2, 2, matrix_size=2), constants=path)


READERS: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], None]]] = {
    "model that names its hole": ("m.safetensors", mlayer.load, model_that_names_its_hole),
    "model": ("m.safetensors", mlayer.load, hole(struct.pack("<Q", 2) + b"{}")),
    "proof": ("p.safetensors", read_proof_file, hole(struct.pack("<Q", 2) + b"{}")),
    "constants": ("c.npz", constants, hole(b"PK\x03\x04")),
    "Keras": ("k.npz", load_keras_npz, hole(b"PK\x03\x04")),
    "authors": ("a.npy", load_authors_model, hole(b"\x93NUMPY\x01\x00")),
}


@pytest.mark.parametrize("name", READERS)
def test_a_hole_of_gigabytes_is_not_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read where memory is short, as it is simulated here, so nothing is allocated."""
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    file, read, make = READERS[name]
    make(tmp_path / file)
    assert (tmp_path / file).stat().st_size > 8 * 10**9
    with no_hang(), pytest.raises(FileFormatError):
        read(tmp_path / file)


def test_a_proof_with_a_hole_is_refused_without_the_table_too(tmp_path: Path) -> None:
    hole(struct.pack("<Q", 2) + b"{}")(tmp_path / "p.safetensors")
    with no_hang(), pytest.raises(ProofError, match=f"has {HUGE} bytes and names 10"):
        read_proof(tmp_path / "p.safetensors")
    hole(struct.pack("<Q", HUGE - 8))(tmp_path / "p.safetensors")
    with no_hang(), pytest.raises(ProofError, match="header is too long"):
        read_proof(tmp_path / "p.safetensors")


PIPES: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{name: (file, read) for name, (file, read, _) in READERS.items()},
    "csv": ("t.csv", open_table),
    "parquet": ("t.parquet", open_table),
    "packed csv": ("t.csv.gz", open_table),
    "proof without a table": ("p.safetensors", read_proof),
}


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes there")
@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    """It is read more than once, or looked into first, which a pipe does not allow."""
    file, read = PIPES[name]
    os.mkfifo(tmp_path / file)
    with no_hang(), pytest.raises((MLayerError, FileNotFoundError, ProofError)):
        read(tmp_path / file)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes there")
def test_the_command_says_what_to_do_with_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with no_hang():
        assert main(["fit", str(tmp_path / "t.csv"), "-t", "y"]) == 2
    assert "the table must be a file; got the pipe or device" in capsys.readouterr().err
