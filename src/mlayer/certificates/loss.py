"""A differentiable certified loss: cross-entropy on first-order lower bounds of the margins.

docs/theory/certificates.md, theorem 9. The box around x, cut to the data's box, is expanded at its own
center; each margin is bounded below by its value there, minus the exact linear term, minus
||W||_2 e^mu (e^q - 1 - q) with q = delta_F sqrt(sum w_i r_i^2). Every step is differentiable in the layer's
weights and in the weights w of the inputs, which are parameters of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from mlayer.certificates.arguments import as_labels, as_layer, as_radius, check_inputs
from mlayer.certificates.problem.region import make_region
from mlayer.checks import positive_integer
from mlayer.errors import ArgumentError
from mlayer.exponential import expm
from mlayer.exponential.operator import frechet
from mlayer.nn.layer import MLayer


class CertifiedLoss(nn.Module):
    """Upper bound of the cross-entropy anywhere within eps (L-infinity), in exact arithmetic.

    Args:
        in_features: of the layer.
        box: (low, high) of the data, or None.

    Attributes:
        weight_logits: the logarithms of w, to be trained with the layer.

    >>> import torch, mlayer
    >>> from mlayer.certificates import CertifiedLoss
    >>> layer = mlayer.MLayer(4, 3, matrix_size=3, embedding_size=2)
    >>> loss = CertifiedLoss(4, box=(0, 1))
    >>> value = loss(layer, torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1]), eps=0.01)
    >>> value.backward()
    """

    low: Tensor | None
    high: Tensor | None

    def __init__(
        self, in_features: int, box: tuple[Tensor | float, Tensor | float] | None = (0.0, 1.0)
    ) -> None:
        super().__init__()
        positive_integer("in_features", in_features)
        region = make_region(in_features, "linf", None, box)
        self.weight_logits = nn.Parameter(torch.zeros(in_features))
        self.register_buffer("low", region.low)
        self.register_buffer("high", region.high)

    def margins(self, layer: MLayer, x: Tensor, labels: Tensor, eps: float) -> Tensor:
        """Lower bounds of output[label] - output[j] within eps; 0 for j = label.  (rows, classes)"""
        layer = as_layer(layer, hooks=True)  # training may watch it
        check_inputs(layer, x)
        as_labels(layer, labels, len(x))
        eps = as_radius(eps)
        if layer.in_features != len(self.weight_logits):
            raise ArgumentError(
                "layer",
                f"of {len(self.weight_logits)} inputs, as the loss is",
                f"one of {layer.in_features}",
                f"Make the loss with CertifiedLoss({layer.in_features}).",
            )
        lower, upper = x - eps, x + eps
        if self.low is not None and self.high is not None:
            lower = torch.maximum(lower, self.low.to(x))
            upper = torch.minimum(upper, self.high.to(x))
        return self.margins_over(layer, (lower + upper) / 2, (upper - lower) / 2, labels)

    def margins_over(self, layer: MLayer, center: Tensor, reach: Tensor, labels: Tensor) -> Tensor:
        """The same over boxes center +- reach, such as those of the features that reach a last layer.

        Arguments are not checked.
        """
        M = layer.matrix(center)  # (b, n, n)
        S, T = layer.readout, layer.generators
        rows, c = len(center), len(S)
        outputs = linear(expm(M).flatten(1), S.flatten(1), layer.output_bias)  # (b, c)
        value = outputs.gather(1, labels[:, None]) - outputs
        # Gradients of all outputs in the directions T_a: the adjoint derivative of exp at M, applied to S.
        shape = (rows, *S.shape)
        adjoint = frechet(M.mT[:, None].expand(shape), S.expand(shape))  # (b, c, n, n)
        features = adjoint.flatten(2) @ T.flatten(1).mT  # (b, c, d)
        slopes = features[torch.arange(rows), labels][:, None] - features
        U = layer.embedding  # (d, m)
        slopes = slopes if U is None else slopes @ U
        linear_term = (slopes.abs() @ reach[..., None])[..., 0]  # (b, c)
        # ||N||_F <= q for every step of the box.
        w = torch.softmax(self.weight_logits.to(center), 0)
        Q = torch.diag(1 / w) if U is None else (U / w) @ U.mT
        delta_squared = top_of_product(T.flatten(1), Q).clamp_min(0)
        q = (delta_squared * (reach**2 @ w) + 1e-30).sqrt()  # (b,)
        mu = torch.linalg.eigvalsh((M + M.mT) / 2)[:, -1]
        # e^q - 1 - q loses digits for small q; expm1 and the quadratic bound keep the order right.
        tail = torch.where(q < 1e-2, q**2 / 2 * (1 + q / 2), torch.expm1(q) - q)
        bound = value - linear_term - pair_norms(S)[labels] * (mu.exp() * tail)[:, None]
        own = nn.functional.one_hot(labels, c).bool()
        return bound.masked_fill(own, 0.0)

    def forward(self, layer: MLayer, x: Tensor, labels: Tensor, eps: float) -> Tensor:
        """The mean loss: log sum_j exp(-margin_j), with each margin at its lower bound."""
        return torch.logsumexp(-self.margins(layer, x, labels, eps), 1).mean()


def pair_norms(S: Tensor) -> Tensor:
    """||S_i - S_j||_2 for all pairs of classes, each computed once.  (c, n, n) -> (c, c)"""
    c = len(S)
    i, j = torch.triu_indices(c, c, offset=1, device=S.device)
    norms = torch.linalg.matrix_norm(S[i] - S[j], 2)
    table = S.new_zeros(c, c).index_put((i, j), norms)
    return table + table.mT


def top_of_product(flat: Tensor, Q: Tensor) -> Tensor:
    """The largest eigenvalue of flat^T Q flat, for Q positive semidefinite.  (d, k), (d, d) -> scalar

    Of the two matrices with these eigenvalues, flat^T Q flat and (flat flat^T)^(1/2) Q (flat flat^T)^(1/2),
    the smaller is decomposed, without derivatives; the value is the Rayleigh quotient of the eigenvector v,
    whose derivative at fixed v is that of a simple eigenvalue.
    """
    d, k = flat.shape
    if k <= d:
        return torch.linalg.eigvalsh(flat.mT @ Q @ flat)[-1]
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(flat @ flat.mT)
        root = (vectors * values.clamp_min(0).sqrt()) @ vectors.mT
        top = torch.linalg.eigh(root @ Q @ root)[1][:, -1]
        v = flat.mT @ (Q @ (root @ top))
        length = torch.linalg.vector_norm(v)
        if not length > 0:
            v, length = torch.ones_like(v), torch.linalg.vector_norm(torch.ones_like(v))
        v = v / length
    image = flat @ v
    return image @ (Q @ image)
