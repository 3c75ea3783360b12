"""Weights of the paper's authors: their released model, and dumps of models built on their Keras class."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mlayer.arrayfile import read_array, read_arrays
from mlayer.checks import file_path, flag, one_of
from mlayer.disk import absent
from mlayer.errors import ArgumentError, FileFormatError, in_one_line
from mlayer.files.store import PathLike
from mlayer.nn.arguments import as_dtype, check_device
from mlayer.nn.layer import MLayer
from mlayer.tensorfile import DamagedError

# The released CIFAR-10 model: one vector of these pieces, in this order.
LAYOUT = {
    "matrix_bias": (20, 20),
    "generators": (35, 20, 20),
    "output_bias": (10,),
    "readout": (20, 20, 10),
    "embedding_bias": (35,),
    "embedding": (32, 32, 3, 35),  # height, width, channel, feature
}
SHA256 = "abe15f55bffd5f26df664c87bd9a4db2d2cbc05dd086bc39c860cc66b7dc1d25"


def load_authors_model(
    path: PathLike, *, verify: bool = True, dtype: torch.dtype = torch.float32, device: str | None = None
) -> MLayer:
    """The authors' released CIFAR-10 model (``cifar10_model.npy``; n = 20, d = 35).

    Its inputs are images of height x width x channel in [0, 1], flattened to 3072 numbers.

    Args:
        path: the ``.npy`` file.
        verify: refuse a file whose SHA-256 is not that of the release.
        dtype: of the layer; the file has float64.
        device: of the layer.
    """
    _check_file(path)
    check_device(device)
    as_dtype(dtype)
    flag("verify", verify)
    try:
        vector = read_array(Path(path))
    except DamagedError as error:
        raise FileFormatError(
            path, "a .npy file of one float vector", f"something else ({in_one_line(error)})", _GET
        ) from None
    total = sum(math.prod(shape) for shape in LAYOUT.values())
    if vector.dtype.kind != "f" or vector.shape != (total,):
        came = f"{vector.dtype} of shape {vector.shape}"
        raise FileFormatError(path, f"a vector of {total} floats", came, _GET)
    if verify and hashlib.sha256(Path(path).read_bytes()).hexdigest() != SHA256:
        raise FileFormatError(
            path,
            f"the released model, SHA-256 {SHA256[:8]}...{SHA256[-4:]}",
            "another file of its layout",
            "Pass verify=False to read it anyway.",
        )
    pieces: dict[str, Tensor] = {}
    start = 0
    for name, shape in LAYOUT.items():
        stop = start + math.prod(shape)
        pieces[name] = torch.from_numpy(vector[start:stop].astype(np.float64)).reshape(shape)
        start = stop
    if not np.isfinite(vector).all():
        raise FileFormatError(path, "a vector of finite numbers", "NaN or infinity", _GET)
    layer = MLayer.from_weights(
        pieces["generators"],
        pieces["readout"].permute(2, 0, 1),
        matrix_bias=pieces["matrix_bias"],
        output_bias=pieces["output_bias"],
        embedding=pieces["embedding"].reshape(-1, LAYOUT["embedding"][-1]).mT,
        embedding_bias=pieces["embedding_bias"],
    )
    return _converted(path, layer, dtype).to(device=device)


_LEAVES = ("rep_to_exp_tensor", "matrix_bias", "kernel", "bias")  # what a dump is read for
_SHOWN = 20  # names in a message
_GET = "Get cifar10_model.npy from the authors' release."


def load_keras_npz(
    path: PathLike,
    *,
    embedding: str | None = None,
    readout: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> MLayer:
    """A model of the authors' Keras class between two Dense layers, from an ``.npz`` dump of its weights.

    Write the dump where the Keras model is, names of any prefix, for example
    ``np.savez("m.npz", **{w.name: w.numpy() for w in model.weights})``. The M-layer is recognized by
    ``rep_to_exp_tensor`` and ``matrix_bias``; of the Dense layers (``kernel``, ``bias``) the one with
    n^2 inputs is the readout, the one with d outputs the embedding. An embedding may be missing.

    Args:
        path: the ``.npz`` file.
        embedding: name of the embedding's Dense layer, if the sizes do not decide.
        readout: name of the readout's Dense layer, if the sizes do not decide.
        dtype: of the layer.
    """
    as_dtype(dtype)
    arrays = _npz(path)
    generators = _one(path, arrays, "rep_to_exp_tensor")
    if generators is None or generators.dim() != 3 or generators.shape[1] != generators.shape[2]:
        raise FileFormatError(
            path,
            "a dump with one rep_to_exp_tensor of shape (d, n, n)",
            f"the names {_listed(arrays) or 'of no arrays'}",
            "Dump all of model.weights, with their names.",
        )
    d, n = generators.shape[:2]
    matrix_bias = _one(path, arrays, "matrix_bias")
    if matrix_bias is not None and matrix_bias.numel() != n * n:
        raise FileFormatError(
            path,
            f"a dump with a matrix_bias of {n * n} entries",
            f"shape {tuple(matrix_bias.shape)}",
            "Dump the weights of one M-layer and its neighbors.",
        )
    kernels = _by_owner(path, arrays, "kernel")
    biases = _by_owner(path, arrays, "bias")
    read = _choose(
        "readout", readout, [k for k, a in kernels.items() if a.dim() == 2 and len(a) == n * n], kernels
    )
    if read is None:
        raise FileFormatError(
            path, f"a dump with a Dense kernel of {n * n} rows", "none", "Dump all of model.weights."
        )
    rest = [k for k, a in kernels.items() if k != read and a.dim() == 2 and a.shape[1] == d]
    embed = _choose("embedding", embedding, rest, kernels)
    unused = [
        name
        for name in arrays
        if _leaf(name) not in ("rep_to_exp_tensor", "matrix_bias")
        and (_leaf(name) not in ("kernel", "bias") or _owner(name) not in (read, embed))
    ]
    if unused:
        raise FileFormatError(
            path,
            "a dump of one M-layer between two Dense layers",
            f"other weights too: {_listed(unused)}",
            "Dump those layers only; what comes before or after is not part of an M-layer.",
        )
    if not all(array.isfinite().all() for array in arrays.values()):
        raise FileFormatError(path, "a dump of finite numbers", "NaN or infinity", "Train it again.")
    try:
        layer = MLayer.from_weights(
            generators,
            kernels[read].mT.reshape(-1, n, n),
            matrix_bias=None if matrix_bias is None else matrix_bias.reshape(n, n),
            output_bias=biases.get(read),
            embedding=None if embed is None else kernels[embed].mT,
            embedding_bias=None if embed is None else biases.get(embed),
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise FileFormatError(
            path, "a dump whose arrays fit each other", f"others ({in_one_line(error)})", "Dump all weights."
        ) from None
    return _converted(path, layer, dtype)


def _converted(path: PathLike, layer: MLayer, dtype: torch.dtype) -> MLayer:
    """The layer in this dtype; numbers of the file may lie beyond its range."""
    layer = layer.to(dtype)
    if not all(bool(parameter.isfinite().all()) for parameter in layer.parameters()):
        most = f"numbers within the range of {str(dtype).removeprefix('torch.')}"
        raise FileFormatError(path, f"of {most}", "larger ones", "Pass dtype=torch.float64.")
    return layer


def _check_file(path: PathLike) -> None:
    if not file_path("path", path).is_file():
        raise absent(Path(path), (".npy", ".npz"), "Check the path.")


def _npz(path: PathLike) -> dict[str, Tensor]:
    _check_file(path)
    try:
        arrays = read_arrays(Path(path))
    except DamagedError as error:
        raise FileFormatError(
            path, "an .npz archive", f"something else ({in_one_line(error)})", "Write it with numpy.savez."
        ) from None
    other = [n for n, a in arrays.items() if a.dtype.kind != "f" and _leaf(n) in _LEAVES]
    if other:  # such as bfloat16, which numpy stores as bytes
        raise FileFormatError(
            path,
            "a dump of floating point weights",
            f"{in_one_line(other[0])} of {in_one_line(arrays[other[0]].dtype)}",
            "Convert each: w.numpy().astype('float32').",
        )
    return {n: torch.from_numpy(a.astype(np.float64)) for n, a in arrays.items() if a.dtype.kind == "f"}


def _listed(names: Iterable[str]) -> str:
    """Names of a file, for a message: the first ones, without characters that steer a terminal."""
    shown = sorted(map(in_one_line, names))
    return ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")


def _by_owner(path: PathLike, arrays: dict[str, Tensor], leaf: str) -> dict[str, Tensor]:
    """The arrays of this name, by the name of their layer."""
    found: dict[str, Tensor] = {}
    for name, array in arrays.items():
        if _leaf(name) == leaf:
            if _owner(name) in found:
                came = f"several of {in_one_line(_owner(name)) or 'a layer without a name'}"
                raise FileFormatError(path, f"a dump with one {leaf} a layer", came, "Name the layers apart.")
            found[_owner(name)] = array
    return found


def _leaf(name: str) -> str:
    """Last part of a Keras weight name: "dense/kernel:0" -> "kernel"."""
    return name.rpartition("/")[2].partition(":")[0]


def _owner(name: str) -> str:
    return name.rpartition("/")[0]


def _one(path: PathLike, arrays: dict[str, Tensor], leaf: str) -> Tensor | None:
    found = [array for name, array in arrays.items() if _leaf(name) == leaf]
    if len(found) > 1:
        raise FileFormatError(
            path,
            f"a dump with one {leaf}",
            f"{len(found)}",
            "Dump the weights of one M-layer and its neighbors.",
        )
    return found[0] if found else None


def _choose(argument: str, wish: str | None, fitting: list[str], kernels: dict[str, Tensor]) -> str | None:
    if wish is not None:
        one_of(argument, wish, sorted(fitting), f"The file has the Dense layers {_listed(kernels)}.")
        return wish
    if len(fitting) > 1:
        raise ArgumentError(
            argument,
            "given, because several Dense layers fit",
            ", ".join(map(repr, sorted(fitting))),
            f"Pass {argument}=, the name of the layer.",
        )
    return fitting[0] if fitting else None
