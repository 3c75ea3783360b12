"""Certificates: what `certify` returns, one entry a row."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mlayer.certificates.checks import as_radius
from mlayer.certificates.region import Norm
from mlayer.errors import ArgumentError


@dataclass(frozen=True)
class Certificates:
    """Certificates of a batch. Tensors are float64 or int64 on the CPU, one entry a row.

    Attributes:
        radius: no input nearer than this changes the class. With ``eps`` given: ``eps`` where certified, else
            0. Rows that are misclassified (or tied) have radius 0; ``inf`` where nothing changes the class.
        margin: output of the label's class minus the largest other output.
        runner_up: the class of that largest other output.
        rival: the class whose bound ends the radius, -1 if none does.
        correct: is the label's class the one with the largest output?
        method: the method that settled each row.
        rounding_checked: was the claim checked again in ball arithmetic (``rigorous=True``)?
        norm: "linf" or "l2".
        eps: the radius asked about, or None.

    >>> import torch, mlayer
    >>> from mlayer.certificates import certify
    >>> layer = mlayer.MLayer(3, 2, matrix_size=2, embedding_size=None).double()
    >>> x = torch.ones(4, 3).double()
    >>> found = certify(layer, x, layer(x).argmax(1), method="first_order")
    >>> len(found), bool((found.radius > 0).all())
    (4, True)
    """

    radius: Tensor
    margin: Tensor
    runner_up: Tensor
    rival: Tensor
    correct: Tensor
    method: tuple[str, ...]
    rounding_checked: Tensor
    norm: Norm
    eps: float | None = None

    def __len__(self) -> int:
        return len(self.radius)

    @property
    def certified(self) -> Tensor:
        """Which rows are certified: at ``eps`` if it was given, else at any positive radius."""
        return self.radius >= self.eps if self.eps else self.correct & (self.radius > 0)

    def certified_accuracy(self, eps: float) -> float:
        """The part of all rows that is classified correctly and certified at ``eps``.

        From certificates that were asked for one ``eps``, only that one (or less) can be told.
        """
        eps = as_radius(eps)
        if self.eps is not None and eps > self.eps:
            raise ArgumentError(
                "eps", f"at most {self.eps:g}, which was asked for", f"{eps:g}", "Certify again with it."
            )
        if not len(self):
            return float("nan")
        return float((self.correct & (self.radius >= eps)).double().mean())

    def __str__(self) -> str:
        rows = len(self)
        if not rows:
            return "Certificates of no rows"
        right = int(self.correct.sum())
        finite = self.radius[self.correct & self.radius.isfinite()]
        middle = f", median radius {float(finite.median()):.3g}" if len(finite) else ""
        asked = f", {int(self.certified.sum())} certified at {self.eps:g}" if self.eps else ""
        return f"Certificates ({self.norm}) of {rows} rows: {right} correct{asked}{middle}"
