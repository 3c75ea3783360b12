"""`save` and `load`: one safetensors file, the configuration in its metadata.

The metadata has one entry, "mlayer", a JSON object:

    format    version of this layout, an integer: 1, or 2 where there are notes
    config    the arguments of MLayer
    notes     what the writer wants to keep beside the layer, a JSON object; only in format 2
    digest    SHA-256 of config, tensors and notes, so that a changed file is noticed

Reading parses JSON and numbers. Nothing in a file names code: a structure is one of ours, or the
caller brings it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.checks import file_path
from mlayer.disk import absent, replace_bytes
from mlayer.errors import ArgumentError, FileFormatError, MissingPackageError, MLayerError
from mlayer.nn.arguments import check_device
from mlayer.nn.initialisers import INITIALISERS
from mlayer.nn.layer import MLayer, check_layer
from mlayer.nn.structures import STRUCTURES, Structure, as_structure, structure_from_config

FORMAT = 2
_PLAIN = 1  # files without notes stay readable for every mlayer
_KEY = "mlayer"
_DTYPES = {
    str(d).removeprefix("torch."): d for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
_SIZES = ("in_features", "out_features", "matrix_size", "embedding_size")
_FLAGS = ("matrix_bias", "output_bias", "embedding_bias")
_CUSTOM = Structure.name

PathLike = str | os.PathLike[str]


def save(layer: MLayer, path: PathLike, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write ``layer`` to one safetensors file. A crash on the way leaves an old file at ``path`` whole.

    A layer with a user-given structure is saved with all its numbers; :func:`load` then has to be given
    the structure, because files carry no code.

    Args:
        layer: the layer.
        path: where to; by custom ending in ``.safetensors``.
        notes: a JSON object to keep beside the layer; :func:`load_with_notes` reads it back.

    >>> import tempfile, torch, mlayer
    >>> layer, x = mlayer.MLayer(4, 2, matrix_size=3), torch.ones(4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mlayer.save(layer, f"{folder}/m.safetensors")
    ...     same = mlayer.load(f"{folder}/m.safetensors")
    >>> torch.equal(layer(x), same(x))
    True
    """
    check_layer(layer, "Save the MLayer inside; rebuild what stands around it.")
    target = file_path("path", path)
    tensors = {name: t.detach().to("cpu").contiguous() for name, t in layer.state_dict().items()}
    config = _config_of(layer)
    header: dict[str, Any] = {"format": _PLAIN, "config": config}
    if notes is not None:
        header |= {"format": FORMAT, "notes": _as_json(notes)}
    header["digest"] = _digest(config, tensors, header.get("notes"))
    metadata = {_KEY: json.dumps(header, sort_keys=True)}
    data = _safetensors().torch.save(tensors, metadata)
    replace_bytes(target, data)


def load(
    path: PathLike, *, structure: nn.Module | None = None, device: torch.device | str | None = None
) -> MLayer:
    """Read a layer that :func:`save` wrote.

    Args:
        path: the file.
        structure: for layers that were saved with a user-given structure, that structure.
        device: where to put the layer.

    Raises:
        FileFormatError: the file is truncated, changed, of another origin, or of a newer mlayer.
    """
    return load_with_notes(path, structure=structure, device=device)[0]


def load_with_notes(
    path: PathLike, *, structure: nn.Module | None = None, device: torch.device | str | None = None
) -> tuple[MLayer, dict[str, Any] | None]:
    """As :func:`load`, with the notes of :func:`save`; None for a file without."""
    file_path("path", path)
    check_device(device)
    header, tensors = _read(path)
    config, notes = header["config"], header.get("notes")
    if header.get("digest") != _digest(config, tensors, notes):
        raise FileFormatError(path, "as it was saved", "a file whose digest does not match", "Get it again.")
    if notes is not None and not isinstance(notes, dict):
        raise FileFormatError(path, "consistent", f"notes of type {type(notes).__name__}", "Get it again.")
    _check_config(path, config, tensors)
    layer = _build(path, config, structure)
    try:
        layer.load_state_dict(tensors)
    except RuntimeError as error:
        raise FileFormatError(
            path, "consistent", f"weights that do not fit: {error}", "Get it again."
        ) from None
    return layer.to(device=device), notes


def _as_json(notes: Mapping[str, Any]) -> dict[str, Any]:
    """The notes as they will be read back; refuses what JSON would lose."""
    try:
        copy = json.loads(json.dumps(dict(notes), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            "notes", "a JSON object", f"something else ({error})", "Use dicts, lists, strings and numbers."
        ) from None
    result: dict[str, Any] = copy
    return result


def _config_of(layer: MLayer) -> dict[str, Any]:
    name = type(layer.structure).name
    built_in = STRUCTURES.get(name) is type(layer.structure)
    init = getattr(layer.init, "name", None)
    known = init in INITIALISERS and layer.init == INITIALISERS[init]()
    return {
        **{size: getattr(layer, size) for size in _SIZES},
        "matrix_bias": layer.free_matrix_bias is not None,
        "output_bias": layer.output_bias is not None,
        "embedding_bias": layer.embedding_bias is not None,
        "structure": layer.structure.config() if built_in else {"name": _CUSTOM, "class": _class_name(layer)},
        "init": init if known else None,
        "dtype": str(layer.readout.dtype).removeprefix("torch."),
    }


def _class_name(layer: MLayer) -> str:
    module = getattr(layer.structure, "module", layer.structure)
    return type(module).__qualname__


def _digest(config: dict[str, Any], tensors: dict[str, Tensor], notes: Any = None) -> str:
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    if notes is not None:
        digest.update(json.dumps(notes, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(path: PathLike) -> tuple[dict[str, Any], dict[str, Tensor]]:
    safetensors = _safetensors()
    must_be = "a safetensors file written by mlayer.save"
    if not Path(path).is_file():
        hint = "Check the path: a model is what mlayer.save or `mlayer fit` wrote."
        raise absent(Path(path), (".safetensors",), hint)
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise FileFormatError(
                    path, must_be, "a safetensors file of another origin", "Load it with its maker."
                )
            header = json.loads(metadata[_KEY])
            version = header["format"]
            if not isinstance(version, int) or version < 1:
                raise FileFormatError(path, must_be, f"format {version!r}", "Get it again.")
            if version > FORMAT:
                raise FileFormatError(
                    path,
                    f"of format {FORMAT} or older",
                    f"format {version}, written by a newer mlayer",
                    "Upgrade: pip install --upgrade mlayer",
                )
            if not isinstance(header["config"], dict):
                raise FileFormatError(path, must_be, "no configuration", "Get it again.")
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise FileFormatError(
            path,
            must_be,
            f"something else, or half of it ({error})",
            "Get it again." if Path(path).suffix == ".safetensors" else "Models end in .safetensors.",
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(path, must_be, f"a damaged header ({error!r})", "Get it again.") from None


def _check_config(path: PathLike, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Types and sizes, before anything is built from them."""

    def wrong(what: str) -> FileFormatError:
        return FileFormatError(path, "consistent", what, "Get it again.")

    for name in _SIZES:
        value = config.get(name)
        if not (name == "embedding_size" and value is None) and (type(value) is not int or value < 1):
            raise wrong(f"{name} = {value!r}")
    for name in _FLAGS:
        if type(config.get(name)) is not bool:
            raise wrong(f"{name} = {config.get(name)!r}")
    if config.get("dtype") not in _DTYPES:
        raise wrong(f"dtype = {config.get('dtype')!r}")
    if not isinstance(config.get("structure"), dict):
        raise wrong(f"structure = {config.get('structure')!r}")
    if any(t.dtype != _DTYPES[config["dtype"]] for name, t in tensors.items() if "." not in name):
        raise wrong("tensors of another dtype")
    # The sizes must be those of tensors that are there, so that no false number allocates memory.
    n, m = config["matrix_size"], config["in_features"]
    readout, generators, embedding = (tensors.get(k) for k in ("readout", "free_generators", "embedding"))
    d = m if config["embedding_size"] is None else config["embedding_size"]
    if readout is None or tuple(readout.shape) != (config["out_features"], n, n):
        raise wrong("a readout that does not fit the sizes")
    if generators is None or generators.dim() < 1 or len(generators) != d:
        raise wrong("generators that do not fit the sizes")
    if config["embedding_size"] is not None and (embedding is None or tuple(embedding.shape) != (d, m)):
        raise wrong("an embedding that does not fit the sizes")


def _build(path: PathLike, config: dict[str, Any], structure: nn.Module | None) -> MLayer:
    saved, size = config["structure"], config["matrix_size"]
    custom, init = saved.get("name") == _CUSTOM, config.get("init")
    if custom and structure is None:
        raise ArgumentError(
            "structure",
            f"given to load {path}, which was saved with the user-given structure {saved.get('class')!r}",
            "None",
            "Files carry no code: use mlayer.load(path, structure=...), "
            "or save a plain copy: mlayer.save(layer.with_structure('full'), path).",
        )
    if not custom and structure is not None:
        raise ArgumentError(
            "structure",
            f"None to load {path}, whose structure is {saved.get('name')!r}",
            type(structure).__name__,
            "Leave it out; convert afterwards with layer.with_structure(...).",
        )
    try:
        built = as_structure(structure, size) if structure is not None else structure_from_config(saved, size)
        return MLayer(
            **{name: config[name] for name in _SIZES + _FLAGS},
            structure=built,
            init=str(init) if init in INITIALISERS else "normal",
            dtype=_DTYPES[config["dtype"]],
        )
    except (MLayerError, KeyError, TypeError) as error:
        if structure is not None:
            raise
        raise FileFormatError(
            path, "consistent", f"a wrong configuration ({error})", "Get it again."
        ) from None


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        raise MissingPackageError(
            "mlayer.save and mlayer.load", "safetensors", "pip install safetensors"
        ) from None
    return safetensors
