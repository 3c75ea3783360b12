"""A network or a single M-layer that an experiment kept, certified and attacked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from mlayer import memory
from mlayer.certificates.networks.certifier import EFFORTS
from mlayer.datasets import images as load_images
from mlayer.errors import FileFormatError, in_one_line
from mlayer.experiments.shared.interval_loss import as_images
from mlayer.experiments.shared.network_accuracy import Progress, network_tally
from mlayer.experiments.shared.robust_accuracy import tally_of
from mlayer.files.network_file import load_network
from mlayer.nn import MLayer

_IMAGES_AT_ONCE, _BYTES = 500, 16  # for the memory that is needed: of each number a lower and an upper bound
_REFERENCES = 64  # training images, for the constants of a single layer's certificates
_MOST_STEPS = 1000  # of their fit: more than any experiment takes
_LARGEST_RADIUS = 1e6  # in pixel values, which are in [0, 1]


def certify_again(
    path: Path,
    eps: float | None = None,
    *,
    data: Path | None = None,
    images: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Clean, attacked and certified accuracy in percent on the first ``images`` of the network's test set.

    ``eps`` is an L-infinity radius in pixel values, the one it was trained for if None.
    """
    network, notes = load_network(path)
    name, named = notes.get("set"), notes.get("efforts")
    radius: Any = notes.get("eps") if eps is None else eps
    number = isinstance(radius, float | int) and not isinstance(radius, bool)
    if not isinstance(name, str) or not number or not 0 <= radius <= _LARGEST_RADIUS:
        raise FileFormatError(
            path, "a network of images", "one without the name of its set and its radius", "Use another."
        )
    found = load_images(name, data)
    shape = found.color_shape
    tested = found.test if images is None else found.test.take(slice(0, images))
    facts = {"set": name, "eps": float(radius), "head": notes.get("head")}
    if len(network) == 1:
        layer = _checked_layer(path, network[0], shape, len(found.classes))
        steps = notes.get("fit_steps")
        layer_tally = tally_of(
            layer,
            tested,
            float(radius),
            found.train.images(slice(0, _REFERENCES)),
            fit_steps=steps if type(steps) is int and 0 <= steps <= _MOST_STEPS else 0,
            progress=progress,
        )
        return facts | layer_tally.percent()
    asked = named if isinstance(named, list) else EFFORTS
    efforts = tuple(effort for effort in EFFORTS if effort in asked) or EFFORTS
    _check_shapes(path, network, shape, len(found.classes))
    tally = network_tally(
        network.requires_grad_(False),
        as_images(tested.images(), shape).to(next(network.parameters()).dtype),
        tested.labels,
        float(radius),
        efforts=efforts,
        progress=progress,
    )
    return facts | tally.facts()


def _checked_layer(path: Path, layer: nn.Module, shape: tuple[int, ...], classes: int) -> MLayer:
    """A single M-layer from the pixels, (height, width, colors) in one row, to the classes."""
    pixels = shape[0] * shape[1] * shape[2]
    if isinstance(layer, MLayer) and (layer.in_features, layer.out_features) == (pixels, classes):
        return layer.requires_grad_(False)
    raise FileFormatError(
        path, f"an M-layer from {pixels:,} pixels to {classes} classes", "another module", "Use another."
    )


def _check_shapes(path: Path, network: nn.Sequential, shape: tuple[int, ...], classes: int) -> None:
    """Every module takes what the one before it gives, and all of it fits into the memory."""
    end = network[-1]
    if not isinstance(end, MLayer | nn.Linear) or end.out_features != classes:
        raise FileFormatError(path, f"a network with {classes} outputs", "another", "Use another.")
    height, width, colors = shape
    value, numbers = torch.empty(1, colors, height, width, device="meta"), 0  # shapes only
    for place, module in enumerate(network):
        try:
            value = _shape_after(module, value)
        except (RuntimeError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise FileFormatError(
                path,
                f"a network of images of {height} x {width} pixels and {colors} colors",
                f"a module {place} ({type(module).__name__}) that does not take them ({in_one_line(reason)})",
                "Use another.",
            ) from None
        numbers = max(numbers, value.numel())
    need, free = _IMAGES_AT_ONCE * _BYTES * numbers, memory.available_memory()
    if free is not None and need > free:
        raise FileFormatError(
            path,
            "a network that fits into the memory",
            f"one that needs {memory.readable(need)}, and {memory.readable(free)} of free memory",
            "Use another.",
        )


def _shape_after(module: nn.Module, value: torch.Tensor) -> torch.Tensor:
    if isinstance(module, MLayer):
        if value.shape != (1, module.in_features):
            raise ValueError(f"{module.in_features} inputs, shape {tuple(value.shape[1:])} given")
        return torch.empty(1, module.out_features, device="meta")
    like = {name: parameter.to("meta", value.dtype) for name, parameter in module.named_parameters()}
    result: torch.Tensor = functional_call(module, like, value)
    return result
