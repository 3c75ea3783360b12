"""A differentiable certified loss: cross-entropy on first-order lower bounds of the margins.

docs/theory/certificates.md, theorem 6. The box around x, cut to the data's box, is expanded at its own
centre; each margin is bounded below by its value there, minus the exact linear term, minus
||W||_2 e^mu (e^q - 1 - q) with q = delta_F sqrt(sum w_i r_i^2). Every step is differentiable in the layer's
weights and in the weights w of the inputs, which are parameters of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlayer.certificates.checks import as_layer
from mlayer.certificates.region import make_region
from mlayer.errors import ArgumentError
from mlayer.exponential import expm
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
        region = make_region(in_features, "linf", None, box)
        self.weight_logits = nn.Parameter(torch.zeros(in_features))
        self.register_buffer("low", region.low)
        self.register_buffer("high", region.high)

    def margins(self, layer: MLayer, x: Tensor, labels: Tensor, eps: float) -> Tensor:
        """Lower bounds of output[label] - output[j] within eps; 0 for j = label.  (rows, classes)"""
        layer = as_layer(layer)
        if not eps >= 0:
            raise ArgumentError("eps", "not negative", f"{eps}", "For example 2 / 255.")
        lower, upper = x - eps, x + eps
        if self.low is not None and self.high is not None:
            lower = torch.maximum(lower, self.low.to(x))
            upper = torch.minimum(upper, self.high.to(x))
        centre, reach = (lower + upper) / 2, (upper - lower) / 2  # (b, m)
        rows, n = len(x), layer.matrix_size
        M = layer.matrix(centre)
        E = expm(M)
        S = layer.readout
        W = S[labels][:, None] - S[None]  # (b, c, n, n)
        value = (W * E[:, None]).sum((-2, -1))
        if layer.output_bias is not None:
            value = value + layer.output_bias[labels][:, None] - layer.output_bias[None]
        # Gradients of all outputs: the adjoint derivative, by one block exponential each.
        c = len(S)
        Mt = M.mT[:, None].expand(rows, c, n, n)
        top = torch.cat([Mt, S[None].expand(rows, c, n, n)], -1)
        bottom = torch.cat([torch.zeros_like(Mt), Mt], -1)
        adjoint = expm(torch.cat([top, bottom], -2))[..., :n, n:]  # (b, c, n, n)
        T = layer.generators
        features = torch.einsum("bcjk,ajk->bca", adjoint, T)
        U = torch.eye(layer.in_features, dtype=x.dtype, device=x.device)
        if layer.embedding is not None:
            U = layer.embedding.mT  # (m, d)
        slopes = features[torch.arange(rows), labels][:, None] - features  # (b, c, d)
        linear = torch.einsum("bcm,bm->bc", (slopes @ U.mT).abs(), reach)
        # ||N||_F <= q for every step of the box.
        w = torch.softmax(self.weight_logits.to(x), 0)
        Q = U.mT @ (U / w[:, None])
        flat = T.flatten(1)
        delta_squared = torch.linalg.eigvalsh(flat.mT @ Q @ flat)[-1].clamp_min(0)
        q = (delta_squared * (w * reach**2).sum(-1) + 1e-30).sqrt()  # (b,)
        mu = torch.linalg.eigvalsh((M + M.mT) / 2)[:, -1]
        spectral = torch.linalg.matrix_norm(W, 2)  # (b, c)
        # e^q - 1 - q loses digits for small q; expm1 and the quadratic bound keep the order right.
        tail = torch.where(q < 1e-2, q**2 / 2 * (1 + q / 2), torch.expm1(q) - q)
        bound = value - linear - spectral * (mu.exp() * tail)[:, None]
        own = nn.functional.one_hot(labels, c).bool()
        return bound.masked_fill(own, 0.0)

    def forward(self, layer: MLayer, x: Tensor, labels: Tensor, eps: float) -> Tensor:
        """The mean loss: log sum_j exp(-margin_j), with each margin at its lower bound."""
        return torch.logsumexp(-self.margins(layer, x, labels, eps), 1).mean()
