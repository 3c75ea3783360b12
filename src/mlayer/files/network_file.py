"""A network that ends in an M-layer or a linear map, in one safetensors file.

The metadata have a digest of every byte (`mlayer.tensorfile`) and one entry "mlayer_network", a JSON object:

    format     version of this layout, an integer: 1
    modules    in order: ["Conv2d", stride, padding], ["AvgPool2d", size, stride], ["Linear"], ["ReLU"],
               ["Flatten"], ["MLayer"]
    notes      what the writer wants to keep with the network, a JSON object

Tensors are named by the module's place and their own name. Sizes are those of the tensors, so that no false
number allocates memory. Nothing in a file names code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.checks import brief, file_path
from mlayer.disk import absent, replace_file
from mlayer.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileFormatError,
    MLayerError,
    check_format,
    in_one_line,
)
from mlayer.files.store import notes_as_json
from mlayer.nn.layer import MLayer
from mlayer.tensorfile import DamagedError, Header, check_seal, distinct, read_header, sealed, tensors_in

FORMAT = 1
_KEY = "mlayer_network"
_MUST_BE = "a network written by mlayer"
_OTHER = "Plain modules that share no weights, at most 1000, and strides of at most 1000 can be saved."
_LARGEST_STRIDE = 1000
_MOST_MODULES = 1000
_DTYPES = (torch.float32, torch.float64)
_WEIGHTS = ("generators", "readout", "matrix_bias", "output_bias", "embedding", "embedding_bias")


def save_network(network: nn.Sequential, path: str | os.PathLike[str], notes: Mapping[str, Any]) -> None:
    """Write a network to one file. A crash leaves an old file at ``path`` whole.

    Args:
        network: made of Conv2d, AvgPool2d, Linear, ReLU, Flatten and M-layers.
        path: where to; usually ending in ``.safetensors``.
        notes: a JSON object to keep with it.

    >>> import tempfile, torch, mlayer
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), mlayer.MLayer(3, 2, 3, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_network(network, f"{folder}/n.safetensors", {"eps": 0.1})
    ...     same, notes = load_network(f"{folder}/n.safetensors")
    >>> torch.equal(network(torch.ones(1, 4)), same(torch.ones(1, 4))), notes
    (True, {'eps': 0.1})
    """
    if type(network) is not nn.Sequential:  # a subclass may compute something else
        raise ArgumentTypeError(
            "network", "a torch.nn.Sequential", brief(network), "Put its modules into one, in order."
        )
    target = file_path("path", path)
    modules: list[list[Any]] = []
    tensors: dict[str, Tensor] = {}
    for place, module in enumerate(network):
        modules.append(_described(module))
        for name, tensor in _tensors_of(module).items():
            tensors[f"{place}.{name}"] = _finite(name, tensor)
    header = {"format": FORMAT, "modules": modules, "notes": notes_as_json(notes)}
    data = sealed(tensors, {_KEY: json.dumps(header, sort_keys=True, allow_nan=False)})

    def write(temporary: Path) -> None:
        """Writes the file and reads it back, so that a damaged one does not replace another."""
        temporary.write_bytes(data)
        try:
            same, _ = load_network(temporary)
        except FileFormatError as error:
            reason = str(error).removeprefix(f"the file {temporary} must be {_MUST_BE}; got ")
            raise ArgumentError("network", "one that can be read back", reason, _OTHER) from None
        if str(same) != str(network):
            raise ArgumentError(
                "network", "one that can be read back", "one that is read differently", _OTHER
            )

    replace_file(target, write)


def _finite(name: str, tensor: Tensor) -> Tensor:
    """A copy: tied weights share memory, which the format does not allow."""
    must_be = "of finite numbers in float32 or float64"
    if tensor.is_meta:
        raise ArgumentError("network", must_be, f"{name} without numbers", "Use network.to_empty, and train.")
    if tensor.dtype not in _DTYPES:
        raise ArgumentError("network", must_be, f"{name} of {tensor.dtype}", "Convert it: network.float().")
    if not bool(tensor.isfinite().all()):
        raise ArgumentError("network", must_be, f"{name} with NaN or infinity", "Train it again.")
    return tensor.detach().to("cpu", copy=True).contiguous()


def load_network(path: str | os.PathLike[str]) -> tuple[nn.Sequential, dict[str, Any]]:
    """Read what :func:`save_network` wrote: the network in evaluation mode, and the notes.

    Raises:
        FileFormatError: the file is truncated, changed, not such a file, or of a newer mlayer.
    """
    where = file_path("path", path)
    if not where.is_file():
        raise absent(where, (".safetensors",), "`mlayer reproduce certified_networks` writes such files.")
    try:
        file = read_header(where)
        header = _header(where, file)
        tensors = tensors_in(check_seal(where, file))
        network = nn.Sequential(
            *(
                _built(entry, _below(tensors, place))
                for place, entry in enumerate(_modules(header["modules"]))
            )
        )
        notes = header["notes"]
        if not isinstance(notes, dict):
            raise DamagedError("notes that are not an object")
        _check_names(network, tensors)
    except FileFormatError:
        raise
    except (DamagedError, MLayerError) as error:
        came = f"something else ({in_one_line(error)})"
        raise FileFormatError(where, _MUST_BE, came, "Get it again.") from None
    except (ValueError, KeyError, TypeError, RecursionError, RuntimeError) as error:
        came = f"a damaged header ({type(error).__name__}: {in_one_line(error)})"
        raise FileFormatError(where, _MUST_BE, came, "Get it again.") from None
    return network.eval(), notes


def _header(where: Path, found: Header) -> dict[str, Any]:
    if _KEY not in found.metadata:
        raise FileFormatError(where, _MUST_BE, "another safetensors file", "Load it with mlayer.load.")
    header: dict[str, Any] = json.loads(found.metadata[_KEY], object_pairs_hook=distinct)
    version = header["format"]
    if type(version) is not int or version < 1:
        raise DamagedError(f"format {version!r}")
    check_format(where, version, FORMAT)
    return header


def _described(module: nn.Module) -> list[Any]:
    kind = type(module)
    if isinstance(module, nn.Conv2d) and kind is nn.Conv2d:
        (stride, other), padding = module.stride, module.padding
        simple = stride == other and padding in {(p, p) for p in range(_LARGEST_STRIDE)}
        if not simple or module.dilation != (1, 1) or module.groups != 1 or module.padding_mode != "zeros":
            raise ArgumentError(
                "network", "of plain Conv2d", str(module), "One stride and padding for both directions."
            )
        return ["Conv2d", stride, padding[0]]
    if isinstance(module, nn.AvgPool2d) and kind is nn.AvgPool2d:
        sizes = [module.kernel_size, module.stride, module.padding]
        plain = all(type(n) is int for n in sizes) and module.padding == 0 and not module.ceil_mode
        if not plain or module.divisor_override is not None:
            raise ArgumentError(
                "network", "of plain AvgPool2d", str(module), "One size and one stride, without padding."
            )
        return ["AvgPool2d", *sizes[:2]]
    if isinstance(module, MLayer) and kind is MLayer:
        if module.structure.name != "full":
            raise ArgumentError(
                "network",
                "made of M-layers of full structure",
                f"structure {module.structure.name!r}",
                "Convert it with layer.with_structure('full').",
            )
        return ["MLayer"]
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1):
        raise ArgumentError(
            "network", "made of Flatten() without arguments", str(module), "Leave out its arguments."
        )
    if kind not in (nn.Linear, nn.ReLU, nn.Flatten):
        raise ArgumentTypeError(
            "network",
            "made of Conv2d, AvgPool2d, Linear, ReLU, Flatten, MLayer",
            kind.__name__,
            "Replace it.",
        )
    return [kind.__name__]


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    if isinstance(module, MLayer):
        found = {name: getattr(module, name) for name in _WEIGHTS}
        return {name: tensor for name, tensor in found.items() if tensor is not None}
    return dict(module.named_parameters())


def _below(tensors: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    start = f"{place}."
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}


def _modules(entries: Any) -> list[list[Any]]:
    if not isinstance(entries, list) or not 1 <= len(entries) <= _MOST_MODULES:
        raise DamagedError("no list of modules")
    for entry in entries:
        if not isinstance(entry, list) or not entry:
            raise DamagedError(f"the module {str(entry)[:60]}")
    return entries


def _built(entry: list[Any], tensors: dict[str, Tensor]) -> nn.Module:
    kind, *numbers = entry
    if len(numbers) != (2 if kind in {"Conv2d", "AvgPool2d"} else 0):
        raise DamagedError(f"the module {str(entry)[:60]}")
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES or not bool(tensor.isfinite().all()):
            raise DamagedError(f"{name[:60]} that is not of finite numbers")
    if kind in ("ReLU", "Flatten"):
        return nn.ReLU() if kind == "ReLU" else nn.Flatten()
    if kind == "AvgPool2d":
        if not all(type(n) is int and 1 <= n <= _LARGEST_STRIDE for n in numbers):
            raise DamagedError(f"the module {str(entry)[:60]}")
        return nn.AvgPool2d(*numbers)
    if kind == "MLayer":
        weights = {name: tensors[name] for name in _WEIGHTS if name in tensors}
        generators, readout = weights.pop("generators"), weights.pop("readout")
        return MLayer.from_weights(generators, readout, **weights)  # type: ignore[arg-type]
    if kind not in ("Conv2d", "Linear"):
        raise DamagedError(f"the module {str(kind)[:60]!r}")
    weight, bias = tensors["weight"], tensors.get("bias")
    if weight.dim() != (4 if kind == "Conv2d" else 2) or 0 in weight.shape:
        raise DamagedError(f"{kind} with a weight of shape {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise DamagedError(f"{kind} with a bias of shape {tuple(bias.shape)}")
    outputs, inputs = weight.shape[:2]
    module: nn.Conv2d | nn.Linear
    if kind == "Conv2d":
        stride, padding = numbers
        whole = all(type(n) is int for n in numbers)
        if not (whole and 1 <= stride <= _LARGEST_STRIDE and 0 <= padding < _LARGEST_STRIDE):
            raise DamagedError(f"the module {str(entry)[:60]}")
        size = (int(weight.shape[2]), int(weight.shape[3]))
        module = nn.Conv2d(inputs, outputs, size, stride, padding, bias=bias is not None, device="meta")
    else:
        module = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    module.weight = nn.Parameter(weight)
    if bias is not None:
        module.bias = nn.Parameter(bias)
    return module


def _check_names(network: nn.Sequential, tensors: dict[str, Tensor]) -> None:
    """Every tensor of the file has a place in the network."""
    known = {f"{place}.{name}" for place, module in enumerate(network) for name in _tensors_of(module)}
    if known != set(tensors):
        raise DamagedError(f"tensors without a place: {', '.join(sorted(set(tensors) ^ known))[:120]}")
