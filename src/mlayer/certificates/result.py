"""Certificates: what `certify` returns, one entry per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from mlayer.certificates.arguments import as_radius
from mlayer.certificates.problem.region import Norm
from mlayer.errors import ArgumentError

if TYPE_CHECKING:
    from mlayer.certificates.proofs import Proof


@dataclass(frozen=True)
class Certificates:
    """Certificates of a batch. Tensors are float64 or int64 on the CPU, one entry per row.

    Attributes:
        radius: no input nearer than this changes the class. With ``eps`` given: ``eps`` where certified, else
            0. Rows that are misclassified (or tied) have radius 0; ``inf`` where nothing changes the class.
        margin: output of the label's class minus the largest other output.
        runner_up: the class of that largest other output.
        rival: the class whose bound ends the radius, -1 if none does.
        correct: whether the label's class has the largest output.
        certified: which rows are certified: at ``eps`` if it was given, else at any positive radius.
        method: the method that settled each row.
        rounding_checked: whether the independent checker accepted the radius (``rigorous=True``).
        norm: "linf" or "l2".
        eps: the radius asked about, or None.
        proof: what the checker accepted, with ``proof=True``; ``proof.save(path)`` keeps it.

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
    certified: Tensor
    method: tuple[str, ...]
    rounding_checked: Tensor
    norm: Norm
    eps: float | None = None
    proof: Proof | None = None

    def __len__(self) -> int:
        return len(self.radius)

    def certified_accuracy(self, eps: float) -> float:
        """The part of all rows that is classified correctly and certified at ``eps``.

        From certificates that were asked for one ``eps``, only that one (or less) can be answered.
        """
        eps = as_radius(eps)
        if self.eps is not None and eps > self.eps:
            raise ArgumentError(
                "eps", f"at most {self.eps:g}, which was asked for", f"{eps:g}", "Certify again with it."
            )
        if not len(self):
            return float("nan")
        return float((self.certified & (self.radius >= eps)).double().mean())

    def __str__(self) -> str:
        rows = len(self)
        if not rows:
            return "Certificates of no rows"
        right = int(self.correct.sum())
        finite = self.radius[self.correct & self.radius.isfinite()]
        middle = f", median radius {float(finite.median()):.3g}" if len(finite) else ""
        asked = f", {int(self.certified.sum())} certified at {self.eps:g}" if self.eps is not None else ""
        return f"Certificates ({self.norm}) of {rows} rows: {right} correct{asked}{middle}"
