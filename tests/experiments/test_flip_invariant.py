"""Layers that do not see whether an image is flipped: basis, restriction, training, plain form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor, nn

from mlayer.experiments.shared.flip_invariant import FlipParity
from mlayer.experiments.shared.robust_loss import PixelModel, RobustCrossEntropy
from mlayer.experiments.shared.robust_training import _change_inputs, _plain
from mlayer.nn import MLayer
from mlayer.training import Settings, train

SHAPES = [(3, 4, 2), (2, 5, 1)]


def mirrored(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    return x.view(-1, *shape).flip(2).flatten(1)


def layer_for(inputs: int, seed: int = 0) -> MLayer:
    layer = MLayer(inputs, 3, 5, 7, init="balanced", generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():  # no weight is 0 by its start
        for weight in layer.parameters():
            weight.add_(0.1)
    return layer


@pytest.mark.parametrize("frequencies", [None, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_basis_is_that_of_cosines_sorted_by_parity(
    shape: tuple[int, int, int], frequencies: int | None
) -> None:
    parity = FlipParity(shape, frequencies)
    height, width, colors = shape
    size = height * width * colors
    x = torch.randn(4, size, dtype=torch.float64)
    transformed = dctn(x.view(-1, *shape).numpy(), axes=(1, 2), norm="ortho")[:, :frequencies, :frequencies]
    parts = [np.ascontiguousarray(transformed[:, :, first::2]).reshape(4, -1) for first in (0, 1)]
    torch.testing.assert_close(parity(x), torch.from_numpy(np.concatenate(parts, 1)), rtol=1e-6, atol=1e-6)
    assert (parity.even, parity.features) == (parts[0].shape[1], parts[0].shape[1] + parts[1].shape[1])
    signs = torch.where(torch.arange(parity.features) < parity.even, 1.0, -1.0)
    torch.testing.assert_close(parity(mirrored(x, shape)), parity(x) * signs, rtol=1e-6, atol=1e-6)
    weight = torch.randn(6, parity.features, dtype=torch.float64)
    torch.testing.assert_close(x @ parity.to_pixels(weight).T, parity(x) @ weight.T)


@pytest.mark.parametrize("kind", ["M-layer", "linear"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_trained_layer_does_not_see_flips_and_an_ordinary_one_does(
    shape: tuple[int, int, int], kind: str
) -> None:
    parity = FlipParity(shape, 3)
    inputs = shape[0] * shape[1] * shape[2]
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(48, inputs, generator=generator), torch.arange(48) % 3
    mean, deviation = torch.full((inputs,), 0.4), torch.full((inputs,), 0.3)

    def trained(restricted: bool) -> nn.Module:
        body = layer_for(inputs) if kind == "M-layer" else nn.Linear(inputs, 3)
        if restricted:
            _change_inputs(body, parity)
            parity.restrict(body)
        model = PixelModel(body, mean, deviation, parity if restricted else None)
        loss = RobustCrossEntropy(0.02)
        settings = Settings(
            epochs=3, batch_size=16, loss=loss, optimizer="muon", learning_rate=0.02, weight_decay=0.1
        )
        before = [weight.clone() for weight in body.parameters()]
        train(model, (x, y), settings)
        assert all(not torch.equal(a, b) for a, b in zip(before, body.parameters(), strict=True))
        expected = model(x).detach()
        plain = _plain(body, mean, deviation, parity if restricted else None)
        torch.testing.assert_close(plain(x), expected, rtol=1e-4, atol=1e-4)
        return plain

    invariant, ordinary = trained(True).double(), trained(False).double()
    with torch.no_grad():
        values, flipped = invariant(x.double()), invariant(mirrored(x.double(), shape))
        # The stored weights are rounded to single precision, those of mirrored pixels a little differently.
        torch.testing.assert_close(values, flipped, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(ordinary(x.double()), ordinary(mirrored(x.double(), shape)), atol=1e-2)


def test_masks_forbid_what_changes_the_parity() -> None:
    parity, layer = FlipParity((3, 4, 2)), layer_for(24)
    masks = parity.masks(layer)
    sign = torch.tensor([1.0, 1, 1, -1, -1])
    P = sign[:, None] * sign
    assert torch.equal(masks["free_matrix_bias"], (P > 0).float())
    for feature, mask in enumerate(masks["free_generators"]):
        assert torch.equal(mask, (P > 0).float() if feature < 4 else (P < 0).float())
    assert masks["embedding_bias"].tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert masks["embedding"][0].tolist() == [1] * 12 + [0] * 12
    assert masks["embedding"][6].tolist() == [0] * 12 + [1] * 12
