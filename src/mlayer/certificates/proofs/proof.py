"""`Proof`: what certificates rest on, in a form that the checker reads, and its file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.certificates.checker import file_digest
from mlayer.certificates.checker.proof_file import FORMAT, VERSION
from mlayer.checks import file_path
from mlayer.disk import replace_bytes

_AS_TENSOR = 16  # shorter lists stay in the JSON text


@dataclass(frozen=True)
class Proof:
    """Proofs of certificates, one entry for each row.

    Attributes:
        weights: digest of the layer.
        frame: what all rows share.
        rows: the claims of each row; None where there is nothing to prove (radius 0).
    """

    weights: str
    frame: dict[str, Any]
    rows: tuple[dict[str, Any] | None, ...]

    def as_lists(self) -> dict[str, Any]:
        """The proof as the checker reads it: lists and numbers."""
        found: dict[str, Any] = plain(self._content())
        return found

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "weights": self.weights,
            "frame": self.frame,
            "rows": list(self.rows),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, without pickle; `read_proof` reads it."""
        from safetensors.numpy import save

        tensors: dict[str, np.ndarray[Any, Any]] = {}
        text = json.dumps(_with_tensors(self._content(), tensors), allow_nan=False)
        zeros = "0" * 64
        data = save(tensors, {"proof": text, "sha256": zeros})
        place = data.index(f'"{zeros}"'.encode()) + 1
        found = file_digest(data, zeros).encode()
        replace_bytes(file_path("path", path), data[:place] + found + data[place + len(zeros) :])


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def _with_tensors(value: Any, tensors: dict[str, np.ndarray[Any, Any]]) -> Any:
    """The object with its long arrays moved to tensors, in single precision where that is exact."""
    if isinstance(value, np.ndarray):
        if len(value) < _AS_TENSOR:
            return value.tolist()
        with np.errstate(over="ignore"):
            single = value.astype(np.float32)
        name = f"t{len(tensors)}"
        tensors[name] = (
            single if np.array_equal(single.astype(np.float64), value) else value.astype(np.float64)
        )
        return {"tensor": name}
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    return [_with_tensors(item, tensors) for item in value] if isinstance(value, list) else value
