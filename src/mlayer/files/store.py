"""`save` and `load`: one safetensors file, the configuration in its metadata.

The metadata has one entry, "mlayer", a JSON object:

    format    version of this layout, an integer: 1, or 2 where there are notes
    config    the arguments of MLayer
    notes     what the writer wants to keep with the layer, a JSON object; only in format 2
    digest    SHA-256 of config, tensors and notes, so that a changed file is noticed

Reading parses JSON and numbers. Nothing in a file names code: a structure is one of ours, or the caller
provides it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.checks import file_path, flag, instance
from mlayer.disk import absent, replace_bytes
from mlayer.errors import (
    ArgumentError,
    FileFormatError,
    MissingPackageError,
    MLayerError,
    check_format,
    in_one_line,
)
from mlayer.exponential.arguments import HALVES
from mlayer.nn.arguments import check_device, check_stored, check_values
from mlayer.nn.initializers import INITIALIZERS
from mlayer.nn.layer import MLayer, check_layer
from mlayer.nn.structures import STRUCTURES, Structure, as_structure, structure_from_config
from mlayer.tensorfile import MOST_HEADER, DamagedError, Header, distinct, read_header, read_tensors

FORMAT = 2
_PLAIN = 1  # files without notes stay readable for every mlayer
_KEY = "mlayer"
_DTYPES = {str(d).removeprefix("torch."): d for d in (*HALVES, torch.float32, torch.float64)}
_SIZES = ("in_features", "out_features", "matrix_size", "embedding_size")
_FLAGS = ("matrix_bias", "output_bias", "embedding_bias")
_CUSTOM = Structure.name
# Matrices may take this many bytes, or this many times the size of their file.
_SMALL, _LARGEST_RATIO, _ITEM_SIZE = 2**27, 256, 8
_MOST_NOTES = MOST_HEADER - 2**22  # the rest for the configuration and the names of the tensors

PathLike = str | os.PathLike[str]


def save(layer: MLayer, path: PathLike, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write ``layer`` to one safetensors file. A crash leaves an old file at ``path`` whole.

    A layer with a user-given structure is saved with all its numbers; :func:`load` then has to be given
    the structure, because files carry no code.

    Args:
        layer: the layer.
        path: where to; usually ending in ``.safetensors``.
        notes: a JSON object to keep with the layer; :func:`load_with_notes` reads it back.

    >>> import tempfile, torch, mlayer
    >>> layer, x = mlayer.MLayer(4, 2, matrix_size=3), torch.ones(4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mlayer.save(layer, f"{folder}/m.safetensors")
    ...     same = mlayer.load(f"{folder}/m.safetensors")
    >>> torch.equal(layer(x), same(x))
    True
    """
    check_layer(layer, "Save the MLayer inside; rebuild what stands around it.")
    check_stored(layer, "saved")
    check_values(layer)
    layer.check_sizes()
    target = file_path("path", path)
    # Copies: tied weights share memory, which the format does not allow.
    tensors = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in layer.state_dict().items()}
    config = _config_of(layer)
    header: dict[str, Any] = {"format": _PLAIN, "config": config}
    if notes is not None:
        header |= {"format": FORMAT, "notes": notes_as_json(notes)}
    header["digest"] = _digest(config, tensors, header.get("notes"))
    metadata = {_KEY: json.dumps(header, sort_keys=True)}
    data = _safetensors().torch.save(tensors, metadata)
    replace_bytes(target, data)


def load(
    path: PathLike,
    *,
    structure: nn.Module | None = None,
    device: torch.device | str | None = None,
    allow_nonfinite: bool = False,
) -> MLayer:
    """Read a layer that :func:`save` wrote.

    Args:
        path: the file.
        structure: for layers that were saved with a user-given structure, that structure.
        device: where to put the layer.
        allow_nonfinite: take weights that are NaN or infinite, which are refused otherwise.

    Raises:
        FileFormatError: the file is truncated, changed, not written by mlayer, or of a newer one.
    """
    return load_with_notes(path, structure=structure, device=device, allow_nonfinite=allow_nonfinite)[0]


def load_with_notes(
    path: PathLike,
    *,
    structure: nn.Module | None = None,
    device: torch.device | str | None = None,
    allow_nonfinite: bool = False,
) -> tuple[MLayer, dict[str, Any] | None]:
    """The layer as :func:`load` gives it, and the notes of :func:`save`; None for a file without."""
    where = file_path("path", path)
    check_device(device)
    flag("allow_nonfinite", allow_nonfinite)
    header, tensors = _read(where)
    config, notes = header["config"], header.get("notes")
    if header.get("digest") != _digest(config, tensors, notes):
        raise FileFormatError(path, "as it was saved", "a file whose digest does not match", "Get it again.")
    if notes is not None and not isinstance(notes, dict):
        raise FileFormatError(path, "consistent", f"notes of type {type(notes).__name__}", "Get it again.")
    layer = _build(path, config, structure)
    try:
        layer.load_state_dict(tensors)
    except RuntimeError as error:
        raise FileFormatError(
            path, "consistent", f"weights that do not fit: {in_one_line(error)}", "Get it again."
        ) from None
    if not allow_nonfinite:
        bad = [name for name, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
        if bad:
            raise FileFormatError(
                path,
                "a layer with finite weights",
                f"NaN or infinity in {', '.join(bad)}",
                "Pass allow_nonfinite=True to look at it anyway.",
            )
    return layer.to(device=device), notes


def notes_as_json(notes: Mapping[str, Any]) -> dict[str, Any]:
    """The notes as they will be read back; refuses what JSON would lose, and what no reader would take."""
    hint = "Use dicts, lists, strings and numbers."
    instance("notes", notes, Mapping, "a JSON object", hint)
    try:
        text = json.dumps(dict(notes), allow_nan=False)
        result: dict[str, Any] = json.loads(text, object_pairs_hook=distinct)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            "notes", "a JSON object", f"something else ({in_one_line(error)})", hint
        ) from None
    size = len(json.dumps(text))  # as it will stand in the header
    if size > _MOST_NOTES:
        raise ArgumentError(
            "notes",
            f"of at most {_MOST_NOTES:,} bytes as JSON",
            f"{size:,}",
            "Keep the rest in another file.",
        )
    return result


def _config_of(layer: MLayer) -> dict[str, Any]:
    name = type(layer.structure).name
    built_in = STRUCTURES.get(name) is type(layer.structure)
    given = type(getattr(layer.structure, "module", layer.structure)).__qualname__
    init = getattr(layer.init, "name", None)
    known = init in INITIALIZERS and layer.init == INITIALIZERS[init]()
    return {
        **{size: getattr(layer, size) for size in _SIZES},
        "matrix_bias": layer.free_matrix_bias is not None,
        "output_bias": layer.output_bias is not None,
        "embedding_bias": layer.embedding_bias is not None,
        "structure": layer.structure.config() if built_in else {"name": _CUSTOM, "class": given},
        "init": init if known else None,
        "dtype": str(layer.readout.dtype).removeprefix("torch."),
        **({} if layer.on_overflow == "ignore" else {"on_overflow": layer.on_overflow}),
    }


def _digest(config: dict[str, Any], tensors: dict[str, Tensor], notes: Any = None) -> str:
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    if notes is not None:
        digest.update(json.dumps(notes, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors; shapes are checked against the configuration before the tensors are read."""
    must_be = "a safetensors file written by mlayer.save"
    _safetensors()
    if not path.is_file():
        hint = "Check the path: a model is what mlayer.save or `mlayer fit` wrote."
        raise absent(path, (".safetensors",), hint)
    try:
        file = read_header(path)
        if _KEY not in file.metadata:
            raise FileFormatError(
                path, must_be, "a safetensors file that mlayer did not write", "Load it with its own program."
            )
        # JSON has no NaN and no infinity; `save` writes none, and what is read may be written as JSON again.
        header = json.loads(
            file.metadata[_KEY], parse_constant=_finite, parse_float=_finite, object_pairs_hook=distinct
        )
        version = header["format"]
        if type(version) is not int or version < 1:
            raise FileFormatError(path, must_be, f"format {version!r}", "Get it again.")
        check_format(path, version, FORMAT)
        config = header["config"]
        if not isinstance(config, dict):
            raise FileFormatError(path, must_be, "no configuration", "Get it again.")
        _check_config(path, config, file)
        tensors = read_tensors(path)
        if any(t.dtype != _DTYPES[config["dtype"]] for name, t in tensors.items() if "." not in name):
            raise FileFormatError(path, "consistent", "tensors of another dtype", "Get it again.")
        return header, tensors
    except DamagedError as error:
        raise FileFormatError(
            path,
            must_be,
            f"something else, or an incomplete file ({in_one_line(error)})",
            "Get it again." if path.suffix == ".safetensors" else "Models end in .safetensors.",
        ) from None
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(
            path, must_be, f"a damaged header ({type(error).__name__}: {in_one_line(error)})", "Get it again."
        ) from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:60]} for a number")
    return number


def _check_config(path: PathLike, config: dict[str, Any], file: Header) -> None:
    """Types and sizes, before a number is read or anything is built from them."""

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
    # The sizes must be those of tensors that are there, so that no false number allocates memory.
    n, m = config["matrix_size"], config["in_features"]
    readout, generators, embedding = (file.shapes.get(k) for k in ("readout", "free_generators", "embedding"))
    d = m if config["embedding_size"] is None else config["embedding_size"]
    if readout != (config["out_features"], n, n):
        raise wrong("a readout that does not fit the sizes")
    if not generators or generators[0] != d:
        raise wrong("generators that do not fit the sizes")
    if config["embedding_size"] is not None and embedding != (d, m):
        raise wrong("an embedding that does not fit the sizes")
    # Structures keep fewer numbers than their matrices have, a nilpotent one of size 1 none at all.
    if d * n * n * _ITEM_SIZE > max(_SMALL, _LARGEST_RATIO * file.size):
        raise wrong(f"{d} matrices of size {n} in a file of {file.size} bytes")


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
            "Leave it out; convert afterward with layer.with_structure(...).",
        )
    try:
        built = as_structure(structure, size) if structure is not None else structure_from_config(saved, size)
        return MLayer(
            **{name: config[name] for name in _SIZES + _FLAGS},
            structure=built,
            init=str(init) if init in INITIALIZERS else "normal",
            on_overflow=config.get("on_overflow", "ignore"),
            dtype=_DTYPES[config["dtype"]],
        )
    except (MLayerError, KeyError, TypeError) as error:
        if structure is not None:
            raise
        raise FileFormatError(
            path, "consistent", f"a wrong configuration ({in_one_line(error)})", "Get it again."
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
