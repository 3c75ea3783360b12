"""The functions of matrices of a DTensor: by batch where it is sharded so, replicated otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import mlayer
from cases import random_matrix
from mlayer.errors import ArgumentError, ArgumentTypeError

# The package of DTensors takes seconds to import.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available(), reason="torch has no distributed"),
]


@pytest.fixture
def mesh() -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    store: Any = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def derivatives(f: Callable[[Tensor], Tensor], a: Tensor) -> list[Tensor]:
    """The value, a gradient, and a gradient of the gradient."""
    x = f(a)
    (first,) = torch.autograd.grad(x.pow(3).sum(), a, create_graph=True)
    return [x, first, torch.autograd.grad(first.square().sum(), a)[0]]


@pytest.mark.parametrize("f", [mlayer.expm, mlayer.logm, mlayer.sqrtm])
def test_values_and_derivatives(f: Callable[[Tensor], Tensor], mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    a = torch.stack([torch.eye(3) + random_matrix(3, 0.5, seed=k) for k in range(2)])
    expected = derivatives(f, a.clone().requires_grad_())
    # A matrix cannot be computed in parts: sharded along its rows it is gathered.
    for place, kept in ((Replicate(), Replicate()), (Shard(0), Shard(0)), (Shard(1), Replicate())):
        found: Any = derivatives(f, distribute_tensor(a, mesh, [place]).requires_grad_())
        assert found[0].placements == (kept,)
        for got, exact in zip(found, expected, strict=True):
            assert torch.allclose(got.full_tensor(), exact, rtol=1e-13)


def test_the_action_refuses_them_in_words(mesh: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    a = distribute_tensor(torch.eye(3).expand(2, 3, 3).clone(), mesh, [Shard(0)])
    with pytest.raises(ArgumentTypeError, match=r"^A must be an ordinary tensor; got a DTensor\. .*to_local"):
        mlayer.expm_action(a, torch.ones(3))


def test_a_layer_under_fully_shard(mesh: Any, tmp_path: Path) -> None:
    """It trains as an ordinary one, its penalty too; saving it gave an error of torch about .numpy()."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    def trained(layer: mlayer.MLayer) -> mlayer.MLayer:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            with mlayer.nn.watch_activity(layer) as penalties:
                output = layer(torch.linspace(-1, 1, 12).reshape(4, 3))
            (output.square().mean() + 1e-2 * sum(penalties)).backward()
            optimizer.step()
        return layer

    plain = mlayer.MLayer(3, 2, matrix_size=4, embedding_size=5)
    sharded = deepcopy(plain)
    fully_shard(sharded, mesh=mesh)
    trained(plain)
    trained(sharded)
    with pytest.raises(ArgumentError, match=r"embedding as a DTensor.*full_state_dict=True"):
        mlayer.save(sharded, tmp_path / "layer.safetensors")
    state = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-6, atol=1e-7)
