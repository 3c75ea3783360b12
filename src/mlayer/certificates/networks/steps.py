"""The modules in front of an M-layer, read as affine maps, ReLUs and maxima of windows.

An affine map is a dense float64 matrix whose entries are exact, or right to a known relative error (averages,
batch normalization); large convolutions keep their weights (`convolved.py`), normalizations that stand alone
their diagonals.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlayer.certificates.linalg import UNIT
from mlayer.certificates.networks.convolved import Convolved, Part
from mlayer.certificates.networks.windows import pair, windows
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line

_LARGEST = 64_000_000  # entries of a dense matrix: half a gigabyte
_DENSE = 16_000_000  # entries of the matrix of a convolution, which is cheaper than the convolution if small
# Below it a number may be denormal, or taken as 0: right to no relative error.
_LEAST = 2.0**-1000


@dataclass(frozen=True)
class Affine:
    """A h + b; the true A is within ``relative`` |A| of the stored one, the true b within ``error``."""

    A: Tensor  # (out, in)
    b: Tensor  # (out,)
    relative: float
    error: Tensor  # (out,)

    @property
    def weights(self) -> Tensor:
        """All entries."""
        return self.A

    @property
    def outputs(self) -> int:
        """The number of rows."""
        return self.A.shape[0]

    @property
    def inputs(self) -> int:
        """The number of columns."""
        return self.A.shape[1]

    def ahead(self, h: Tensor, part: Part) -> Tensor:
        """H times the transpose of a part of A.  (rows, in) -> (rows, out)"""
        return h @ part(self.A).mT

    def behind(self, slopes: Tensor, part: Part) -> Tensor:
        """Slopes times a part of A.  (rows, q, out) -> (rows, q, in)"""
        return slopes @ part(self.A)

    def takes(self, scale: Tensor) -> bool:
        """Whether the rows can be multiplied by these numbers."""
        return True

    def scaled(self, scale: Tensor, b: Tensor, error: Tensor, relative: float) -> Affine:
        """The rows times a scale, with another b."""
        return Affine(scale[:, None] * self.A, b, relative, error)


@dataclass(frozen=True)
class Diagonal:
    """weights h + b, entry by entry; errors are stated as for `Affine`."""

    weights: Tensor  # (out,)
    b: Tensor  # (out,)
    relative: float
    error: Tensor  # (out,)

    @property
    def outputs(self) -> int:
        """The number of entries."""
        return len(self.weights)

    @property
    def inputs(self) -> int:
        """The same."""
        return len(self.weights)

    def ahead(self, h: Tensor, part: Part) -> Tensor:
        """H times a part of the weights.  (rows, in) -> (rows, out)"""
        return h * part(self.weights)

    def behind(self, slopes: Tensor, part: Part) -> Tensor:
        """Slopes times a part of the weights.  (rows, q, out) -> (rows, q, in)"""
        return slopes * part(self.weights)

    def takes(self, scale: Tensor) -> bool:
        """Whether the entries can be multiplied by these numbers."""
        return True

    def scaled(self, scale: Tensor, b: Tensor, error: Tensor, relative: float) -> Diagonal:
        """The entries times a scale, with another b."""
        return Diagonal(scale * self.weights, b, relative, error)


@dataclass(frozen=True)
class Relu:
    """max(h, 0), entry by entry."""


@dataclass(frozen=True)
class MaxPool:
    """The maximum over each window; -1 stands for padding.  (out, window)"""

    windows: Tensor


AffineStep = Affine | Diagonal | Convolved
Step = AffineStep | Relu | MaxPool
KNOWN: tuple[type[nn.Module], ...] = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout2d,
    nn.Flatten,
    nn.Unflatten,
    nn.ReLU,
    nn.Linear,
    nn.Conv2d,
    nn.AvgPool2d,
    nn.MaxPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
)


def read_front(front: list[nn.Module], shape: tuple[int, ...], features: int) -> list[Step]:
    """The steps of a front for inputs of this shape."""
    steps: list[Step] = []
    for module in front:
        steps, found = _read(module, steps, shape)
        _check_shape(module, shape, found)
        shape = found
    for step in steps:
        if isinstance(step, AffineStep) and not bool(step.weights.isfinite().all() & step.b.isfinite().all()):
            raise ArgumentError(
                "model",
                "of finite maps",
                "a normalization that divides by 0",
                "Check its running statistics.",
            )
    if shape != (features,):
        raise ArgumentError(
            "model", f"one whose front ends in ({features},), the inputs of the MLayer", f"shape {shape}",
            "Add a Flatten before the MLayer.",
        )  # fmt: skip
    return steps


def _read(module: nn.Module, steps: list[Step], shape: tuple[int, ...]) -> tuple[list[Step], tuple[int, ...]]:
    """The steps with one module more, and the shape behind it."""
    if isinstance(module, nn.Identity | nn.Dropout | nn.Dropout2d):
        return steps, shape
    if isinstance(module, nn.Flatten):
        if module.start_dim != 1 or module.end_dim not in (-1, len(shape)):
            raise _unknown(module, "Flatten() with its default arguments is known.")
        return steps, (int(torch.Size(shape).numel()),)
    if isinstance(module, nn.ReLU):
        return [*steps, Relu()], shape
    if isinstance(module, nn.Linear):
        if len(shape) != 1 or shape[0] != module.in_features:
            numbers = int(torch.Size(shape).numel())
            fits = len(shape) != 1 and numbers == module.in_features
            hint = (
                "Flatten first."
                if fits
                else f"Give x with other rows, or the model a Linear({numbers}, ...)."
            )
            must_be = f"one whose Linear({module.in_features}, ...) gets vectors of that length"
            raise ArgumentError("model", must_be, f"rows of shape {shape}", hint)
        return [*steps, _exact(module.weight, module.bias)], (module.out_features,)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        return _normalized(module, steps, shape), shape
    if isinstance(module, nn.Conv2d | nn.AvgPool2d | nn.MaxPool2d) and len(shape) != 3:
        raise ArgumentError(
            "model",
            "one with images (channels, height, width) before Conv2d and pooling",
            f"rows of shape {shape}",
            "Add nn.Unflatten(1, (channels, height, width)). One image alone: x[None].",
        )
    if isinstance(module, nn.Unflatten) and module.dim == 1:
        return steps, _shape_behind(module, shape)
    if isinstance(module, nn.Conv2d | nn.AvgPool2d | nn.MaxPool2d):
        _shape_behind(module, shape)
    if isinstance(module, nn.Conv2d):
        return _convolution(module, steps, shape)
    if isinstance(module, nn.AvgPool2d):
        return _average(module, steps, shape)
    if isinstance(module, nn.MaxPool2d):
        if module.ceil_mode or module.return_indices:
            raise _unknown(module, "ceil_mode and return_indices are not known.")
        places, size = windows(shape, module.kernel_size, module.stride, module.padding, module.dilation)
        if bool((places < 0).all(1).any()):  # the largest of no number is -inf, without a gradient
            raise _unknown(module, "Each of its windows must hold an input: change its padding or dilation.")
        channels, area = shape[0], shape[1] * shape[2]
        offset = torch.arange(channels)[:, None, None] * area
        found = torch.where(places >= 0, places + offset, torch.full_like(places, -1))  # (c, out, window)
        return [*steps, MaxPool(found.flatten(0, 1))], (channels, *size)
    raise _unknown(module, "Unflatten(1, sizes) is known.")


def _shape_behind(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a module gives for this one, without the batch; an error where it gives none."""
    try:
        found: Tensor = module(torch.zeros(1, *shape, dtype=torch.float64))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ArgumentError(
            "model", f"one whose {type(module).__name__} takes shape {shape}, which the inputs lead to",
            f"{module}, which does not ({in_one_line(error)})",
            _other_inputs(module, shape),
        ) from None  # fmt: skip
    return tuple(found.shape[1:])


def _other_inputs(module: nn.Module, shape: tuple[int, ...]) -> str:
    """The advice for inputs whose shape does not fit a module."""
    if isinstance(module, nn.Conv2d) and shape[-1] == module.in_channels:
        return "Channels come first: x.permute(0, 3, 1, 2)."
    return "Change its sizes, or the shape of the inputs."


def _check_shape(module: nn.Module, shape: tuple[int, ...], found: tuple[int, ...]) -> None:
    """Raise where a module was read as one of another shape than it has."""
    if _shape_behind(module, shape) != found:
        raise _unknown(module, "Its shapes are not those of its class.")


def check_known(module: nn.Module) -> None:
    """Raise for a module without bounds."""
    if not isinstance(module, KNOWN):
        known = ", ".join(kind.__name__ for kind in KNOWN)
        alone = "Certify the M-layer alone on what reaches it: certify(model[-1], model[:-1](x), labels)."
        raise _unknown(module, f"{alone} Known: {known}.")


def _unknown(module: nn.Module, hint: str) -> ArgumentTypeError:
    return ArgumentTypeError("model", "made of modules with bounds", str(module), hint)


def _exact(weight: Tensor, bias: Tensor | None) -> Affine:
    zero = weight.new_zeros(len(weight))
    return Affine(weight.detach(), zero if bias is None else bias.detach(), 0.0, zero)


def _dense(rows: int, columns: int) -> Tensor:
    if rows * columns > _LARGEST:
        raise ArgumentError(
            "model", f"made of maps of at most {_LARGEST:,} entries", f"one of {rows} x {columns}",
            "Use smaller images, fewer channels, or a stride.",
        )  # fmt: skip
    return torch.zeros(rows, columns, dtype=torch.float64)


def _convolution(
    module: nn.Conv2d, steps: list[Step], shape: tuple[int, ...]
) -> tuple[list[Step], tuple[int, ...]]:
    """Weights written into a dense matrix, one by one, if it is small: no arithmetic, no rounding."""
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise _unknown(module, "Padding by zeros, given as numbers, is known.")
    channels, area = shape[0], shape[1] * shape[2]
    if channels != module.in_channels:
        raise ArgumentError(
            "model", f"one with {module.in_channels} channels before {module}", f"{channels}", "Check it."
        )
    places, size = windows(shape, module.kernel_size, module.stride, module.padding, module.dilation)
    count = size[0] * size[1]
    bias = module.weight.new_zeros(module.out_channels) if module.bias is None else module.bias.detach()
    b = bias.repeat_interleave(count)
    if module.out_channels * count * channels * area > _DENSE:
        found = Convolved.of(module, b, shape, size)
        return [*steps, found], (module.out_channels, *size)
    A = _dense(module.out_channels * count, channels * area)
    own, group = channels // module.groups, module.out_channels // module.groups
    weight = module.weight.detach().flatten(2)  # (out, own channels, window)
    here = torch.arange(count)
    for out in range(module.out_channels):
        for c in range(own):
            source = (out // group * own + c) * area
            for k in range(weight.shape[2]):
                place = places[:, k]
                inside = place >= 0
                A[out * count + here[inside], source + place[inside]] = weight[out, c, k]
    step = Affine(A, b, 0.0, torch.zeros(len(A), dtype=torch.float64))
    return [*steps, step], (module.out_channels, *size)


def _average(
    module: nn.AvgPool2d, steps: list[Step], shape: tuple[int, ...]
) -> tuple[list[Step], tuple[int, ...]]:
    if module.ceil_mode or module.divisor_override is not None:
        raise _unknown(module, "ceil_mode and divisor_override are not known.")
    places, size = windows(shape, module.kernel_size, module.stride, module.padding, 1)
    channels, area, count = shape[0], shape[1] * shape[2], size[0] * size[1]
    equal = module.count_include_pad or not any(pair(module.padding))  # divisors
    if channels**2 * count * area > _DENSE and equal:
        return [*steps, Convolved.averaging(module, shape, size)], (channels, *size)
    A = _dense(channels * count, channels * area)
    inside = places >= 0
    width, height = pair(module.kernel_size)
    divisor = torch.full((count,), float(width * height), dtype=torch.float64)
    if not module.count_include_pad:
        divisor = inside.sum(1).double()
    out, _ = torch.nonzero(inside, as_tuple=True)
    for c in range(channels):
        A[c * count + out, c * area + places[inside]] = 1 / divisor[out]
    zero = torch.zeros(len(A), dtype=torch.float64)
    return [*steps, Affine(A, zero, 2 * UNIT, zero)], (channels, *size)


def _normalized(
    module: nn.BatchNorm1d | nn.BatchNorm2d, steps: list[Step], shape: tuple[int, ...]
) -> list[Step]:
    """Folded into the affine map before it, where there is one."""
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        raise _unknown(module, "Batch normalization needs its running statistics.")
    if len(shape) not in (1, 3) or shape[0] != module.num_features:
        raise ArgumentError(
            "model", f"one with {module.num_features} features before {module}", f"shape {shape}", "Check it."
        )
    one = torch.ones_like(mean)
    gain = one if module.weight is None else module.weight.detach()
    shift = torch.zeros_like(mean) if module.bias is None else module.bias.detach()
    scale = gain / torch.sqrt(variance + module.eps)
    if bool(((gain != 0) & (scale.abs() < _LEAST)).any()):
        raise ArgumentError(
            "model", f"one whose normalizations multiply by at least {_LEAST:.0e}",
            f"one that multiplies by {float(scale[gain != 0].abs().min()):.3g}",
            "Check its weight and running variance.",
        )  # fmt: skip
    moved = mean * scale
    # A sum, a root, a quotient, each right to half a unit: 3 units at most, and one more of the product.
    b, error = shift - moved, 8 * UNIT * (moved.abs() + shift.abs())
    area = int(torch.Size(shape[1:]).numel())
    scale, b, error = (v.repeat_interleave(area) for v in (scale, b, error))
    before = steps[-1] if steps else None
    if isinstance(before, AffineStep) and before.takes(scale) and not _vanishes(scale, before):
        old = scale * before.b
        error = (error + scale.abs() * before.error + 8 * UNIT * (old.abs() + b.abs())) * (1 + 1e-9) + 1e-300
        return [*steps[:-1], before.scaled(scale, old + b, error, before.relative + 8 * UNIT)]
    return [*steps, Diagonal(scale, b, 8 * UNIT, error + 1e-300)]


def _vanishes(scale: Tensor, before: AffineStep) -> bool:
    """Whether a product of the two is too small for its relative error to be known."""
    product = before.scaled(scale, before.b, before.error, 0.0).weights
    unscaled = before.scaled((scale != 0).to(scale), before.b, before.error, 0.0).weights
    return bool(((product.abs() < _LEAST) & (unscaled != 0)).any())
