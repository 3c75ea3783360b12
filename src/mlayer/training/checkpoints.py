"""Checkpoints: one safetensors file, replaced as a whole, and the history as JSON lines beside it.

    FOLDER/state.safetensors    everything that the rest of the run depends on
    FOLDER/history.jsonl        one line an epoch, for people and scripts

The state is a tree of dictionaries, lists, numbers and tensors. Tensors go into the file as they are, the
rest as JSON into its metadata (Python writes floats so that they are read back to the bit). No pickle.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlayer.disk import replace_bytes
from mlayer.errors import FileFormatError, MLayerError

FORMAT = 1
_KEY = "mlayer-checkpoint"


class CheckpointError(MLayerError, OSError):
    """A checkpoint cannot be written, and nothing was trained yet."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; training goes on, the last good one is kept."""


class Checkpoints:
    """The checkpoints of one run in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state.safetensors"
        self.history = folder / "history.jsonl"

    def tidy(self) -> None:
        """Remove the half-written file of a run that was killed."""
        for left_over in self.folder.glob(f".{self.file.name}.*.tmp"):
            left_over.unlink(missing_ok=True)

    def read(self) -> dict[str, Any] | None:
        """The last state, or None."""
        from safetensors import SafetensorError, safe_open

        if not self.file.is_file():
            return None
        must_be = "a checkpoint written by mlayer.training"
        try:
            with safe_open(str(self.file), framework="pt") as file:
                metadata = (file.metadata() or {}).get(_KEY)
                if metadata is None:
                    raise FileFormatError(
                        self.file, must_be, "another safetensors file", "Choose another folder."
                    )
                header = json.loads(metadata)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, json.JSONDecodeError, OSError) as error:
            raise FileFormatError(
                self.file, must_be, f"a damaged file ({error})", "Delete it to start anew."
            ) from None
        if header.get("format") != FORMAT:
            raise FileFormatError(
                self.file,
                f"of format {FORMAT}",
                f"format {header.get('format')}",
                "Use the mlayer that wrote it.",
            )
        tree: dict[str, Any] = _unflatten(header["tree"], tensors)
        return tree

    def write_first(self, state: dict[str, Any]) -> None:
        """Before the first step, so that a place that cannot be written costs nothing."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            size = self._write(state)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise CheckpointError(
                f"checkpoint: {self.folder} must be a folder that can be written; {error}. "
                "Nothing was trained yet: choose another folder or make room."
            ) from None
        # The old file and the new one are there together, and best weights and history come on top.
        if free < 3 * size:
            raise CheckpointError(
                f"checkpoint: {self.folder} must have room for {3 * size / 1e6:.1f} MB; "
                f"{free / 1e6:.1f} MB are free. Nothing was trained yet: choose another folder or make room."
            )

    def write(self, state: dict[str, Any]) -> bool:
        """Replace the last state. On failure warn, and keep the last one and the training."""
        try:
            self._write(state)
        except OSError as error:
            warnings.warn(
                f"could not write the checkpoint {self.file} ({error}); the one before is kept, training "
                "goes on and will try again. Make room, or the work since then is lost if it stops.",
                CheckpointWarning,
                stacklevel=3,
            )
            return False
        return True

    def _write(self, state: dict[str, Any]) -> int:
        from safetensors.torch import save

        tensors: dict[str, Tensor] = {}
        tree = _flatten(state, tensors)
        data = save(tensors, {_KEY: json.dumps({"format": FORMAT, "tree": tree})})
        replace_bytes(self.file, data)
        lines = "".join(json.dumps(record) + "\n" for record in state["history"]).encode()
        if not self.history.exists() or self.history.read_bytes() != lines:
            replace_bytes(self.history, lines)
        return len(data)


def _flatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        name = str(len(tensors))
        tensors[name] = tree.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(tree, dict):
        # As pairs: the keys of an optimizer's state are integers, which JSON would make strings.
        return {"dict": [[key, _flatten(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, tuple | list):
        return {type(tree).__name__: [_flatten(value, tensors) for value in tree]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"a checkpoint cannot hold {type(tree).__name__}")


def _unflatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unflatten(value, tensors) for key, value in content}
    values = [_unflatten(value, tensors) for value in content]
    return tuple(values) if kind == "tuple" else values
