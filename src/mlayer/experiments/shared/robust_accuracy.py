"""Clean, attacked and certified accuracy at one radius of an image classifier on pixels in [0, 1]."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from mlayer.certificates import Certifier
from mlayer.datasets import Split
from mlayer.disk import replace_bytes
from mlayer.experiments.shared.robust_loss import box_of
from mlayer.nn import MLayer

_CHUNK = 250
_REFERENCES = 16
_ROUNDS = 3  # of the attack, for each rival
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Tally:
    """The numbers of correctly classified images of a set: as they are, under attack, and provably."""

    images: int = 0
    clean: int = 0
    attacked: int = 0
    certified: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def percent(self) -> dict[str, float]:
        """Accuracies in percent of the images, and their number."""
        shares = {k: round(100 * v / self.images, 3) for k, v in asdict(self).items() if k != "images"}
        return shares | {"test_images": self.images}


def tally_of(
    model: MLayer | nn.Linear,
    images: Split,
    eps: float,
    references: Tensor,
    *,
    fit_steps: int,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Tally:
    """Attack every image at eps, certify those that withstand.

    Args:
        model: on plain pixels.
        images: to be tested.
        eps: L-infinity radius; only steps inside [0, 1] count.
        references: typical inputs, for the constants of the certificates.
        fit_steps: of these constants.
        folder: keeps finished parts, so that a stopped evaluation can resume.
        progress: called with the part that is done.
    """
    if isinstance(model, nn.Linear):
        return _linear_tally(model, images, eps)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) if folder is None else folder
        constants = place / "constants.npz"
        if constants.exists():
            certifier = Certifier(model, constants=constants)
        else:
            certifier = Certifier(model, references=references[:_REFERENCES], fit_steps=fit_steps)
            certifier.save(constants)
        done = _read(place / "tally.json")
        for begin in range(len(done) * _CHUNK, len(images), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            done.append(_layer_tally(model, images.images(part), images.labels[part], eps, certifier))
            replace_bytes(place / "tally.json", json.dumps([asdict(tally) for tally in done]).encode())
            if progress is not None:
                progress(min(1.0, (begin + _CHUNK) / len(images)))
    return sum(done, Tally())


def _read(path: Path) -> list[Tally]:
    return [Tally(**row) for row in json.loads(path.read_text())] if path.exists() else []


def _layer_tally(model: MLayer, x: Tensor, y: Tensor, eps: float, certifier: Certifier) -> Tally:
    x = x.to(model.generators.dtype)
    with torch.no_grad():
        clean = model(x).argmax(1) == y
    standing = torch.nonzero(clean)[:, 0]
    left = standing[withstands(model, x[standing], y[standing], eps)]
    certified = certified_in_box(certifier, x[left].double(), y[left], eps)
    return Tally(len(x), len(standing), len(left), int(certified.sum()))


def withstands(model: MLayer, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """A mask of the rows that keep their class at every point of a targeted attack within eps and [0, 1].

    For each rival class: from the middle of the box to the corner where the linearized margin is least, and
    again with the gradient at that corner; the fixed point of docs/theory/certificates-attack.md at one eps.
    """
    low, high = box_of(x, eps)
    unbroken = torch.ones(len(x), dtype=torch.bool)
    for rival in range(model.out_features):
        point = (low + high) / 2
        rows = torch.nonzero(unbroken & (y != rival))[:, 0]
        point = point[rows]
        for _ in range(_ROUNDS):
            with torch.enable_grad():
                point.requires_grad_(True)
                outputs = model(point)
                margin = outputs.gather(1, y[rows, None])[:, 0] - outputs[:, rival]
                (gradient,) = torch.autograd.grad(margin.sum(), point)
            unbroken[rows[margin.detach() <= 0]] = False
            point = torch.where(gradient > 0, low[rows], high[rows])
        with torch.no_grad():
            broken = model(point).argmax(1) != y[rows]
        unbroken[rows[broken]] = False
    return unbroken


def certified_in_box(certifier: Certifier, x: Tensor, labels: Tensor, eps: float) -> Tensor:
    """A mask of the rows whose class is proved for all points of [0, 1] within eps of x.

    The box around x, cut to [0, 1], is certified from its own middle: where pixels are black or white, it
    reaches half as far to each side as seen from x.
    """
    low, high = box_of(x, eps)
    # Ends and middle are rounded: a box that is larger by a few roundings holds the true one.
    low, high = torch.nextafter(low, low - 1), torch.nextafter(high, high + 1)
    middle = (low + high) / 2
    return certifier(middle, labels, eps=eps * (1 + 1e-12) + 1e-15, box=(low, high)).certified


@torch.no_grad()
def _linear_tally(model: nn.Linear, images: Split, eps: float) -> Tally:
    """Exact: a linear margin is least at a corner of the box."""
    W, b = model.weight.double(), model.bias.double()
    total = Tally()
    for begin in range(0, len(images), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        x, y = images.images(part).double(), images.labels[part]
        low, high = box_of(x, eps)
        own = torch.nn.functional.one_hot(y, len(b)).bool()
        difference = W[y][:, None] - W  # (rows, c, m)
        constant = b[y][:, None] - b
        at = torch.einsum("rcm,rm->rc", difference, x) + constant
        least = (
            torch.einsum("rcm,rm->rc", difference.clamp(min=0), low)
            + torch.einsum("rcm,rm->rc", difference.clamp(max=0), high)
            + constant
        )
        robust = int((least.masked_fill(own, torch.inf).amin(1) > 0).sum())
        clean = int((at.masked_fill(own, torch.inf).amin(1) > 0).sum())
        total += Tally(len(x), clean, robust, robust)
    return total
