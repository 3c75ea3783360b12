"""Usual operations on PyTorch modules: meta devices, parametrizations, pruning, tracers, transforms."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import mlayer
from mlayer.errors import ArgumentError, ArgumentTypeError
from structure_cases import CASES


class Symmetric(mlayer.nn.Structure):
    """One of a user, with a table that no file holds."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        places = torch.zeros(size, size, dtype=torch.int64)
        rows, columns = torch.triu_indices(size, size)
        places[rows, columns] = places[columns, rows] = torch.arange(len(rows))
        self.register_buffer("places", places.flatten(), persistent=False)
        self.register_buffer("upper", rows * size + columns, persistent=False)

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return (self.size * (self.size + 1) // 2,)

    def dense(self, free: torch.Tensor) -> torch.Tensor:
        places: torch.Tensor = self.get_buffer("places").to(free.device)
        return free.index_select(-1, places).reshape(*free.shape[:-1], self.size, self.size)

    def _free(self, matrices: torch.Tensor) -> torch.Tensor:
        return matrices.flatten(-2).index_select(-1, self.get_buffer("upper").to(matrices.device))


STRUCTURES = {name: case.structure for name, case in CASES.items()} | {"user's": Symmetric(5)}
structures = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES.keys())
X = torch.linspace(-1, 1, 28).reshape(7, 4)


def make(structure: str | nn.Module = "full", **options: object) -> mlayer.MLayer:
    generator = None if options.get("device") == "meta" else torch.Generator().manual_seed(0)
    return mlayer.MLayer(
        4, 3, 5, 6, structure=structure, init="balanced", generator=generator, **options  # type: ignore[arg-type]
    )  # fmt: skip


@structures
def test_made_on_meta_then_filled(structure: str | nn.Module) -> None:
    """Such layers compute what those do that were made on the CPU, in all three ways of filling them."""
    wanted = make(structure)
    with torch.device("meta"):
        assigned, filled = mlayer.MLayer(4, 3, 5, 6, structure=structure), mlayer.MLayer(
            4, 3, 5, 6, structure=structure, init="balanced"
        )  # fmt: skip
    assert all(parameter.is_meta for parameter in assigned.parameters())
    assert assigned(X.to("meta")).shape == (7, 3)
    assigned.load_state_dict(wanted.state_dict(), assign=True)
    assert torch.equal(assigned(X), wanted(X))
    filled.to_empty(device="cpu")
    filled.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(filled(X), wanted(X))
    explicit = make(structure, device="meta").to_empty(device="cpu")
    explicit.load_state_dict(wanted.state_dict())
    assert torch.equal(explicit(X), wanted(X))


@structures
def test_emptied_and_drawn_again(structure: str | nn.Module) -> None:
    layer, wanted = make(structure), make(structure)
    for buffer in layer.buffers():  # what memory without values may hold
        buffer.fill_(3)
    layer = make(structure)
    nn.Sequential(layer).to_empty(device="cpu")
    layer.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(layer(X), wanted(X))


CHANGES = {
    "parametrization": (
        lambda layer: parametrizations.weight_norm(layer, "free_generators"),
        lambda layer: parametrize.remove_parametrizations(layer, "free_generators"),
    ),
    "orthogonal": (
        lambda layer: parametrizations.orthogonal(layer, "embedding"),
        lambda layer: parametrize.remove_parametrizations(layer, "embedding"),
    ),
    "pruning": (
        lambda layer: prune.l1_unstructured(layer, "readout", 0.5),
        lambda layer: prune.remove(layer, "readout"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_are_computed(change: str, tmp_path: Path) -> None:
    """A file of them could not be read again, and a new draw would not reach them."""
    layer = make()
    apply, remove = CHANGES[change]
    apply(layer)
    file = tmp_path / "m.safetensors"
    with pytest.raises(ArgumentError, match=r"to be saved; got \w+ computed from others.*remove"):
        mlayer.save(layer, file)
    assert not file.exists()
    with pytest.raises(ArgumentError, match=r"to be initialized again; got \w+ computed from others.*remove"):
        layer.reset_parameters()
    wanted = layer(X)
    remove(layer)
    mlayer.save(layer, file)
    assert torch.equal(mlayer.load(file)(X), wanted)


def test_symbolic_trace_says_what_to_do() -> None:
    model = nn.Sequential(nn.Linear(4, 4), make(), nn.ReLU())
    with pytest.raises(ArgumentTypeError, match=r"torch.export, or a torch.fx.Tracer whose is_leaf_module"):
        torch.fx.symbolic_trace(model)

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, mlayer.MLayer) or super().is_leaf_module(m, module_qualified_name)

    traced = torch.fx.GraphModule(model, Tracer().trace(model))
    assert torch.equal(traced(X), model(X))


@pytest.mark.parametrize("choice", ["warn", "raise"])
def test_overflow_option_under_vmap(choice: str) -> None:
    layer = make(on_overflow=choice)
    assert torch.allclose(torch.func.vmap(layer)(X), layer(X))
    assert torch.func.jacrev(layer)(X[0]).shape == torch.func.jacfwd(layer)(X[0]).shape == (3, 4)


def test_options_stay_with_copies_and_files(tmp_path: Path) -> None:
    layer = make(on_overflow="raise")
    mlayer.save(layer, tmp_path / "m.safetensors")
    copies = [
        mlayer.load(tmp_path / "m.safetensors"),
        layer.with_structure("full"),
        mlayer.nn.gauge.transform(layer, matrix=2 * torch.eye(5)),
    ]
    for copy in copies:
        assert copy.on_overflow == "raise"
        assert copy.init == layer.init
        with pytest.raises(mlayer.nn.OverflowedOutputError):
            copy(1e6 * X)


@pytest.mark.slow
def test_strict_export() -> None:
    program = torch.export.export(
        make(), (X,), dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1)}}, strict=True
    )
    assert torch.allclose(program.module()(X[:3]), make()(X[:3]), atol=1e-6)
