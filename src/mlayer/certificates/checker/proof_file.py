"""Proof files: safetensors, read with the standard library alone.

The metadata entry "proof" is a JSON object in which {"tensor": NAME} stands for a flat list of numbers kept
as a tensor (F64 or F32); the entry "sha256" is the digest of the file with zeros in its place. What the
object holds: docs/theory/certificates-checker.md, section "The file".
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlayer.certificates.checker.balls import ProofError

FORMAT, VERSION = "mlayer-proof", 1
_HEX = 64  # digits of a SHA-256
_LONGEST_HEADER = 2**28  # bytes: some 10,000 rows
_CODES = {"F64": ("d", 8), "F32": ("f", 4)}


def file_digest(data: bytes, written: str) -> str:
    """SHA-256 of the file with zeros in place of the digest that is written in it."""
    return hashlib.sha256(data.replace(written.encode(), b"0" * len(written), 1)).hexdigest()


def read_proof(path: str | Path) -> dict[str, Any]:
    """The proof object with its numbers; refused if the file is damaged."""
    place = Path(path)
    if place.exists() and not place.is_file():  # a pipe would be waited for
        raise ProofError("not a file")
    with place.open("rb") as file:
        # Before it is read whole: a sparse file of gigabytes takes no space on a disk.
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if not 8 + length <= size or length > _LONGEST_HEADER:
            raise ProofError("the proof file is truncated, or its header is too long")
        header = file.read(length)
        try:
            body = _body_size(json.loads(header))
        except Exception as error:
            raise ProofError(f"the proof file is damaged ({type(error).__name__})") from None
        if size != 8 + length + body:
            raise ProofError(f"the proof file has {size} bytes and names {8 + length + body}")
        return parse_proof(start + header + file.read())


def _body_size(header: Mapping[str, Any]) -> int:
    """Bytes behind the header, where each belongs to one list; refused otherwise.

    A file whose lists lie on each other could name any number of them.
    """
    places = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
    end = 0
    for start, stop in places:
        if start != end or stop < start:
            raise ProofError("lists of the proof file that lie on each other, or far apart")
        end = stop
    return end


def parse_proof(data: bytes) -> dict[str, Any]:
    """The same from the bytes of a file."""
    try:
        proof = _parse(data)
    except ProofError:
        raise
    except Exception as error:
        raise ProofError(f"the proof file is damaged ({type(error).__name__})") from None
    if proof.get("format") != FORMAT or proof.get("version") != VERSION:
        raise ProofError(f"not a proof of format {FORMAT!r}, version {VERSION}")
    return proof


def _parse(data: bytes) -> dict[str, Any]:
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8:
        raise ProofError("the proof file is truncated")
    header = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    if _body_size(header) != len(body):
        raise ProofError("the proof file is truncated")
    metadata = header.pop("__metadata__")
    written = metadata["sha256"]
    if len(written) != _HEX or file_digest(data, written) != written:
        raise ProofError("the digest of the proof file does not match its content")
    lists: dict[str, list[float]] = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        if not 0 <= start <= stop <= len(body):
            raise ProofError("the proof file is truncated")
        raw = bytes(body[start:stop])
        code, size = _CODES[entry["dtype"]]
        values = array(code)
        if values.itemsize != size or len(raw) % size:
            raise ProofError("the proof file is damaged")
        values.frombytes(raw)
        if sys.byteorder == "big":
            values.byteswap()
        lists[name] = [float(value) for value in values]
    proof = _with_lists(json.loads(metadata["proof"]), lists)
    if not isinstance(proof, dict):
        raise ProofError("the proof is not a JSON object")
    return proof


def _with_lists(value: Any, lists: Mapping[str, Sequence[float]]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"tensor"}:
            return lists[value["tensor"]]
        return {key: _with_lists(item, lists) for key, item in value.items()}
    return [_with_lists(item, lists) for item in value] if isinstance(value, list) else value
