"""torch's optimizers without the import of its compiler: the same results, and no such import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlayer.numerics.light_optimizers import light
from mlayer.training.optimizers import OPTIMIZERS, optimizer_class

# What trains, certifies and loads digits in the demo, at its smallest; the names of modules are its output.
TRAINED = """
import sys, torch
from mlayer.certificates.problem.fit import fit
from mlayer.datasets import digits
from mlayer.experiments.shared.dense import dense_net
from mlayer.training import Settings, train
data = torch.ones(4, 2), torch.zeros(4, dtype=torch.int64)
for optimizer in ("rmsprop", "adam"):
    model = dense_net((2, 3, 2), "relu", torch.Generator().manual_seed(0))
    train(model, data, Settings(epochs=1, loss="cross_entropy", optimizer=optimizer, schedule="cosine"))
one = torch.eye(2, dtype=torch.float64)[None].numpy()
fit(one[0], one.repeat(2, 0), None, one, one.repeat(2, 0), steps=2)
assert len(digits().train) == 1437
print(*sorted(sys.modules))
"""


def test_training_imports_neither_torchs_compiler_nor_scikit_learn() -> None:
    """Each takes longer than the demo's trainings."""
    done = subprocess.run([sys.executable, "-c", TRAINED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    assert "torch.optim.adam" in modules
    assert not {"torch._dynamo", "sympy", "sklearn", "pandas"} & set(modules)


def trained(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> tuple[list[Tensor], Any]:
    generator = torch.Generator().manual_seed(3)
    weights = [nn.Parameter(torch.randn(4, 3, generator=generator)) for _ in range(2)]
    optimizer = kind(weights[:1], **options)
    optimizer.add_param_group({"params": weights[1:], "lr": 0.02})
    x = torch.randn(5, 4, generator=generator)

    for step in range(5):
        if step == 3:  # through what a checkpoint keeps
            state = optimizer.state_dict()
            optimizer = kind(weights[:1], **options)
            optimizer.add_param_group({"params": weights[1:], "lr": 0.02})
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        torch.stack([((x @ weight).tanh() - 0.3).square().sum() for weight in weights]).sum().backward()
        optimizer.step()
    return [weight.detach() for weight in weights], optimizer.state_dict()


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"lbfgs"}))
def test_same_weights_and_same_state_to_the_bit(name: str) -> None:
    kind = optimizer_class(name)
    weights, state = trained(kind, {"lr": 0.1})
    ours, ours_state = trained(light(kind), {"lr": 0.1})
    for expected, got in zip(weights, ours, strict=True):
        assert torch.equal(expected, got)
        assert not got.requires_grad
    assert repr(state) == repr(ours_state)
    assert light(kind).__name__ == kind.__name__


def test_one_group_of_lbfgs() -> None:
    found = []
    for kind in (torch.optim.LBFGS, light(torch.optim.LBFGS)):
        weight = nn.Parameter(torch.tensor([1.0, 2.0, -3.0]))
        optimizer = kind([weight], lr=0.5)

        def loss(weight: nn.Parameter = weight, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            value = weight.cosh().sum()
            value.backward()
            return value

        optimizer.step(loss)
        found.append(weight.detach())
    assert torch.equal(*found)
    assert found[0].abs().max() < 3


def test_hooks_of_steps_are_called() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = light(torch.optim.Adam)([weight], lr=0.1)
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    weight.sum().backward()
    optimizer.step()
    assert called == ["before", "after"]
