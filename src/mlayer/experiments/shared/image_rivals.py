"""The other rows of the paper's table of accuracies: dense nets (Lin et al. 2015), NODE and ANODE.

The dense nets are 3072-1600-1200-1000-10: 8,049,010 parameters with sigmoid or ReLU. PReLU adds one slope per
layer. The table gives maxout the same count. A maxout unit is the larger of two linear maps, so with the
widths above it has 16,088,010 parameters or, if those maps are paired up, 6,484,010. No maxout net of up to
three hidden layers whose widths are hundreds, with two to five maps per unit, has the table's count. Two maps
per unit and the widths 1000-775-225 have it exactly; those are trained here.

NODE and ANODE are those of Dupont et al. 2019, section 5: the derivative is three convolutions, 1 x 1,
3 x 3, 1 x 1, with ReLU between them; ANODE adds channels of zeros at the start. Their numbers of filters give
the table's parameter counts. Theirs are solved by dopri5 to 1e-3, whose number of evaluations grows while
they are trained. A fixed number of steps of rk4 or midpoint costs a few of them; `Solver` says which is used,
and may be changed between training and test.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from mlayer.errors import MissingPackageError
from mlayer.experiments.shared.dense import dense_net, initialized

WIDTHS = (1600, 1200, 1000)
MAXOUT_WIDTHS = (1000, 775, 225)
# Filters and added channels, by set; (height, width, colors) decide the rest.
NODE = {"mnist": (92, 0), "cifar10": (125, 0), "svhn": (125, 0)}
ANODE = {"mnist": (64, 5), "cifar10": (64, 10), "svhn": (64, 10)}
_TOLERANCE = 1e-3


class Maxout(nn.Module):
    """The larger of each pair of neighbors.  (b, 2 k) -> (b, k)"""

    def forward(self, x: Tensor) -> Tensor:
        """Halve the features."""
        return x.unflatten(-1, (-1, 2)).amax(-1)


def check_solver() -> None:
    """Raise if torchdiffeq, which solves the equations of NODE and ANODE, is not installed."""
    if importlib.util.find_spec("torchdiffeq") is None:
        raise MissingPackageError("the NODE baseline", "torchdiffeq", "pip install 'mlayer[experiments]'")


@dataclass(frozen=True)
class Solver:
    """The solver of the equation, by torchdiffeq."""

    method: str = "dopri5"  # "dopri5", whose steps follow its estimate of the error, or "rk4" or "midpoint"
    steps: int = 2  # of the latter two

    @property
    def options(self) -> dict[str, float] | None:
        """The options that torchdiffeq takes."""
        return None if self.method == "dopri5" else {"step_size": 1 / self.steps}


class ODEBlock(nn.Module):
    """h(1) of h' = f(h), h(0) = the image with ``added`` channels of zeros, read out linearly.

    ``shape`` is (height, width, colors). The attribute ``solver`` may be changed later.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        filters: int,
        added: int,
        classes: int,
        generator: torch.Generator,
        *,
        solver: Solver | None = None,
    ) -> None:
        super().__init__()
        check_solver()
        self.shape, self.added, self.solver = shape, added, solver or Solver()
        channels = shape[2] + added
        self.derivative = nn.Sequential(
            _convolution(channels, filters, 1, generator),
            nn.ReLU(),
            _convolution(filters, filters, 3, generator),
            nn.ReLU(),
            _convolution(filters, channels, 1, generator),
        )
        self.derivative.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.readout = dense_net((shape[0] * shape[1] * channels, classes), "relu", generator)

    def forward(self, x: Tensor) -> Tensor:
        """(b, h w c), colors last -> (b, classes)"""
        from torchdiffeq import odeint

        # Channels last in memory, which is how the images come and what convolutions are fastest on.
        start = nn.functional.pad(x.view(-1, *self.shape), (0, self.added)).permute(0, 3, 1, 2)
        times = torch.tensor([0.0, 1.0], dtype=x.dtype, device=x.device)
        end = odeint(
            lambda t, h: self.derivative(h),
            start,
            times,
            method=self.solver.method,
            options=self.solver.options,
            rtol=_TOLERANCE,
            atol=_TOLERANCE,
        )[-1]
        output: Tensor = self.readout(end.flatten(1))
        return output


def _convolution(inputs: int, outputs: int, size: int, generator: torch.Generator) -> nn.Conv2d:
    return initialized(nn.Conv2d(inputs, outputs, size, padding=size // 2, device="meta"), generator)


# Activation, and linear maps for each of its units.
_DENSE: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "sigmoid": (nn.Sigmoid, 1),
    "ReLU": (nn.ReLU, 1),
    "PReLU": (nn.PReLU, 1),
    "maxout": (Maxout, 2),
}
RIVALS = (*_DENSE, "NODE", "ANODE")


def dense_classifier(
    kind: str, inputs: int, widths: Sequence[int], classes: int, generator: torch.Generator
) -> nn.Module:
    """A dense net with these hidden units; without any it is linear."""
    activation, maps = _DENSE[kind]
    layers: list[nn.Module] = []
    for size, units in pairwise((inputs, *widths)):
        layers += [*dense_net((size, maps * units), "relu", generator), activation()]
    return nn.Sequential(*layers, *dense_net(((inputs, *widths)[-1], classes), "relu", generator))


def rival(
    name: str,
    of: str,
    shape: tuple[int, ...],
    classes: int,
    generator: torch.Generator,
    *,
    solver: Solver | None = None,
) -> nn.Module:
    """The net of a row of the table, one of `RIVALS`; the image set decides the filters of NODE and ANODE.

    >>> import torch
    >>> net = rival("ReLU", "cifar10", (32, 32, 3), 10, torch.Generator())
    >>> sum(p.numel() for p in net.parameters())
    8049010
    >>> net = rival("ANODE", "cifar10", (32, 32, 3), 10, torch.Generator())
    >>> sum(p.numel() for p in net.parameters())
    171799
    """
    if name in _DENSE:
        widths = MAXOUT_WIDTHS if name == "maxout" else WIDTHS
        return dense_classifier(name, shape[0] * shape[1] * shape[2], widths, classes, generator)
    filters, added = {"NODE": NODE, "ANODE": ANODE}[name].get(of, (8, 2))
    return ODEBlock(shape, filters, added if name == "ANODE" else 0, classes, generator, solver=solver)
