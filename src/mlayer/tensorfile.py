"""Safetensors files from anywhere: the header is checked before the rest is read, a digest covers every byte.

The format is a length, a JSON header with the shapes, and the numbers. A few hundred bytes of header can name
hundreds of thousands of tensors, or shapes of 2^31 rows of nothing; so it is read here first, with limits.

A sealed file has its own SHA-256 in its metadata, taken with zeros in the digest's place: no bit of the file
can change unnoticed. That guards against damage, not against forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlayer.errors import in_one_line
from mlayer.memory import check_size

MOST_HEADER = 64 * 2**20
MOST_TENSORS = 20_000
_DIGEST = "digest"
_EMPTY = "0" * 64
_MARK = f'"{_DIGEST}":"'.encode()
_COPIES = 3  # of a file in memory: what was read, its parts, and the tensors
_LARGEST = 2**48  # of a shape


class DamagedError(ValueError):
    """The file is not what it should be; says why. Rooms turn it into an error that names the file."""


@dataclass(frozen=True)
class Header:
    """The header of a file."""

    metadata: dict[str, str]
    shapes: dict[str, tuple[int, ...]]  # of the tensors
    size: int  # of the file, in bytes
    text: bytes  # the header itself


def read_header(path: Path) -> Header:
    """The header of a file, if it keeps within the limits."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise DamagedError(f"a header of {length} bytes in a file of {size}")
        if length > MOST_HEADER:
            raise DamagedError(f"a header of {length} bytes; at most {MOST_HEADER} are read")
        text = file.read(length)
    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=distinct)
    except DamagedError:
        raise
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise DamagedError(f"a header that is not JSON ({in_one_line(error)})") from None
    if not isinstance(entries, dict):
        raise DamagedError("a header that is not a JSON object")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise DamagedError("metadata that are not text")
    if len(entries) > MOST_TENSORS:
        raise DamagedError(f"{len(entries)} tensors; at most {MOST_TENSORS} are read")
    shapes = {name: _shape(name, entry) for name, entry in entries.items()}
    # Before it is read: a sparse file with gigabytes of zeros after the numbers takes no space on a disk.
    named = 8 + length + max((_end(name, entry) for name, entry in entries.items()), default=0)
    if named != size:
        raise DamagedError(f"a file of {size} bytes whose header names {named}")
    check_size(path, _COPIES)
    return Header(metadata, shapes, size, text)


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names are distinct: of two, each reader might believe another one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        double = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise DamagedError(f"a header that names {double[:60]!r} twice")
    return found


def _end(name: str, entry: Any) -> int:
    """The end of the numbers of a tensor, counted from the header's end."""
    places = entry.get("data_offsets")
    if not isinstance(places, list) or len(places) != 2 or not all(type(n) is int for n in places):
        raise DamagedError(f"no place of the tensor {name[:60]!r}")
    return int(places[1])


def _shape(name: str, entry: Any) -> tuple[int, ...]:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < _LARGEST for n in shape):
        raise DamagedError(f"an invalid shape of the tensor {name[:60]!r}")
    if math.prod(shape) >= _LARGEST:
        raise DamagedError(f"a tensor {name[:60]!r} of {len(shape)} axes and too many numbers")
    return tuple(shape)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors, each in separate memory, aligned as torch aligns it.

    Views into the file would lie anywhere, and the order in which torch adds up numbers depends on that.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OverflowError, RuntimeError) as error:
        raise DamagedError(in_one_line(error)) from None


def tensors_in(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file that was read, aligned in memory as those of :func:`read_tensors`."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return {name: tensor.clone() for name, tensor in load(data).items()}
    except (SafetensorError, ValueError, OverflowError, RuntimeError, KeyError) as error:
        raise DamagedError(in_one_line(error)) from None


def sealed(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a file with its own digest, the same for the same content."""
    from safetensors.torch import save

    data = save(tensors, metadata | {_DIGEST: _EMPTY})
    end = 8 + int.from_bytes(data[:8], "little")
    # Safetensors writes the metadata in an order of chance. Numbers begin at a multiple of 8 bytes.
    text = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = len(text).to_bytes(8, "little") + text + data[end:]
    place = _place(data)
    return data[:place] + hashlib.sha256(data).hexdigest().encode() + data[place + len(_EMPTY) :]


def check_seal(path: Path, header: Header) -> bytes:
    """The bytes of a file, which have the digest that it names, and the header that was read before.

    What follows uses these bytes: a file that is replaced meanwhile has another content under its name.
    """
    with path.open("rb") as file:
        data = file.read(header.size + 1)
    if len(data) != header.size or data[8 : 8 + len(header.text)] != header.text:
        raise DamagedError("another file than a moment ago")
    place = _place(data)
    digest = hashlib.sha256(memoryview(data)[:place])
    digest.update(_EMPTY.encode())
    digest.update(memoryview(data)[place + len(_EMPTY) :])
    if data[place : place + len(_EMPTY)] != digest.hexdigest().encode():
        raise DamagedError("its digest does not match")
    return data


def _place(data: bytes) -> int:
    """The place of the digest in the header."""
    end = 8 + int.from_bytes(data[:8], "little")
    place = data.find(_MARK, 8, end)
    if place < 0 or place + len(_MARK) + len(_EMPTY) > end:
        raise DamagedError("no digest")
    return place + len(_MARK)


def digest_of(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of names, shapes and all bytes of some tensors.

    >>> digest_of({"a": torch.zeros(2)}) == digest_of({"a": torch.zeros(3)})
    False
    """
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        if flat.numel():
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
