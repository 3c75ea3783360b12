"""CertifiedLoss against the same bound written out with block exponentials and dense eigenproblems."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import mlayer
from mlayer.certificates import CertifiedLoss
from mlayer.certificates.loss import pair_norms, top_of_product

EPS = 0.1


def written_out(layer: mlayer.MLayer, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Theorem 6, row by row and class by class."""
    low, high = (x - EPS).clamp(min=0), (x + EPS).clamp(max=1)
    center, reach = (low + high) / 2, (high - low) / 2
    T, S, n = layer.generators, layer.readout, layer.matrix_size
    U = torch.eye(x.shape[1], dtype=x.dtype) if layer.embedding is None else layer.embedding.mT
    flat = T.flatten(1)
    delta = torch.linalg.eigvalsh(flat.mT @ U.mT @ (U / w[:, None]) @ flat)[-1].clamp_min(0).sqrt()
    losses = []
    for i in range(len(x)):
        M = layer.matrix(center[i])
        q = delta * (w * reach[i] ** 2).sum().sqrt()
        mu = torch.linalg.eigvalsh((M + M.mT) / 2)[-1]
        margins = []
        for j in range(len(S)):
            if j == y[i]:
                margins.append(torch.zeros((), dtype=x.dtype))
                continue
            W = S[y[i]] - S[j]
            block = torch.cat([torch.cat([M.mT, W], 1), torch.cat([torch.zeros_like(M), M.mT], 1)])
            slopes = U @ (torch.linalg.matrix_exp(block)[:n, n:] * T).sum((1, 2))
            value = (W * torch.linalg.matrix_exp(M)).sum()
            if layer.output_bias is not None:
                value = value + layer.output_bias[y[i]] - layer.output_bias[j]
            rest = torch.linalg.matrix_norm(W, 2) * mu.exp() * (q.exp() - 1 - q)
            margins.append(value - (slopes.abs() * reach[i]).sum() - rest)
        losses.append(torch.logsumexp(-torch.stack(margins), 0))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("inputs", "classes", "n", "d"), [(6, 3, 4, 5), (6, 3, 1, 2), (5, 4, 3, None), (5, 3, 2, 6), (7, 2, 5, 3)]
)
def test_value_and_gradient(inputs: int, classes: int, n: int, d: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    layer = mlayer.MLayer(inputs, classes, n, d, init="balanced", generator=generator).double()
    x = torch.rand(9, inputs, generator=generator).double()
    y = torch.randint(0, classes, (9,), generator=generator)
    loss = CertifiedLoss(inputs, (0, 1)).double()
    with torch.no_grad():
        loss.weight_logits.copy_(torch.linspace(-1, 1, inputs))
    parameters = [*layer.parameters(), loss.weight_logits]
    ours = loss(layer, x, y, EPS)
    reference = written_out(layer, x, y, torch.softmax(loss.weight_logits, 0))
    torch.testing.assert_close(ours, reference, rtol=1e-11, atol=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(ours, parameters), torch.autograd.grad(reference, parameters), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


def test_generators_of_zero_have_a_gradient() -> None:
    layer = mlayer.MLayer(4, 3, 3, 2).double()
    with torch.no_grad():
        layer.free_generators.zero_()
    loss = CertifiedLoss(4).double()
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0)).double()
    loss(layer, x, torch.tensor([0, 1, 2, 0, 1]), EPS).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_pieces() -> None:
    generator = torch.Generator().manual_seed(2)
    S = torch.randn(4, 3, 3, generator=generator, dtype=torch.float64)
    expected = [[float(torch.linalg.matrix_norm(a - b, 2)) for b in S] for a in S]
    torch.testing.assert_close(pair_norms(S), torch.tensor(expected, dtype=torch.float64))
    flat = torch.randn(3, 9, generator=generator, dtype=torch.float64)
    root = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    Q = root @ root.mT
    top = torch.linalg.eigvalsh(flat.mT @ Q @ flat)[-1]
    torch.testing.assert_close(top_of_product(flat, Q), top)
    torch.testing.assert_close(top_of_product(torch.zeros(3, 9), torch.eye(3)), torch.zeros(()))
