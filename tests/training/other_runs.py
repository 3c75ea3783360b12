"""Pairs of models, functions and loaders that look alike and compute something else."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from decorated import DECORATED
from hidden import HIDDEN, HIDDEN_LOADERS
from problems import product
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    StackDataset,
    TensorDataset,
    WeightedRandomSampler,
)

import mlayer

X, Y = product(64, 0)
ROWS, OTHER_ROWS = TensorDataset(X, Y), TensorDataset(*product(64, 1))


def written(code: str, name: str = "f", **names: Any) -> Any:
    """The object that a script defines under a name; ``names`` are its other globals."""
    space: dict[str, Any] = {"torch": torch, "np": np, **names}
    exec(code, space)
    return space[name]


def net(activation: nn.Module, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), activation, nn.Dropout(dropout), nn.Linear(4, 1))


class Scaled(nn.Module):
    """Holds a number where no state_dict looks."""

    def __init__(self, scale: float, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 1)
        if how == "buffer":
            self.register_buffer("scale", torch.tensor(scale), persistent=False)
        else:
            self.scale: Any = torch.tensor(scale) if how == "tensor" else scale

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.scale * self.linear(x)
        return outputs


def model_with(forward: str) -> nn.Module:
    code = f"""
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(2, 1)
    def forward(self, x):
        return {forward}
"""
    made: nn.Module = written(code, "M")()
    return made


def frozen(number: int) -> nn.Module:
    model = net(nn.ReLU())
    list(model.parameters())[number].requires_grad_(False)
    return model


def tied(together: bool) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    model[1].load_state_dict(model[0].state_dict())
    if together:
        model[1].weight = model[0].weight
    return model


def hooked(scale: float) -> nn.Module:
    model = net(nn.ReLU())
    model.register_forward_hook(lambda module, inputs, outputs: outputs * scale)
    return model


def holding(value: Any, number: Callable[[Any], float]) -> Any:
    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + number(value)

    return augment


def deep(number: float) -> Any:
    value: Any = number
    for _ in range(12):
        value = (value,)
    return value


def innermost(value: Any) -> float:
    while isinstance(value, tuple):
        value = value[0]
    return float(value)


class Slots:
    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        self.number = number


class Bound:
    def __init__(self, number: float) -> None:
        self.number = number

    def augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.number


def kind_of(**members: Any) -> Any:
    """A class with ``__call__``, as a script might define it, twice under one name."""
    return type("Shift", (), {"__call__": lambda self, x, generator: x + self.by(), **members})


def from_base(by: float) -> Any:
    return type("Sub", (kind_of(by=lambda self: by),), {})()


class Penalty(nn.Module):
    def __init__(self, shape: nn.Module) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model(x)
        return outputs, self.shape(outputs - y).mean(1)


def several_rates(parameters: Any, rate: float) -> torch.optim.Optimizer:
    first, *rest = parameters
    return torch.optim.SGD([{"params": [first]}, {"params": rest, "lr": rate}], lr=0.01)


class Own(Dataset[Any]):
    """640 examples; the sampled ones are the same, another is not."""

    def __init__(self, changed: float = 0.0, factor: float = 1.0, noise: bool = False) -> None:
        self.x, self.y = product(640, 0)
        self.x[333] += changed
        self.factor, self.noise = factor, noise
        self.cache: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        self.cache[index] = index
        return self.x[index] * self.factor + (torch.rand(2) if self.noise else 0), self.y[index]


class Stream(IterableDataset[Any]):
    def __init__(self, seed: int) -> None:
        self.x, self.y = product(64, seed)

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(self.x, self.y, strict=True))


class OwnLoader:
    def __init__(self, seed: int) -> None:
        self.batches = [product(32, seed), product(32, seed + 1)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def stacked(factor: float) -> Any:
    return lambda rows: (factor * torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows]))


def weighted(second_half: float) -> DataLoader[Any]:
    return DataLoader(ROWS, 16, sampler=WeightedRandomSampler([1.0] * 32 + [second_half] * 32, 64))


def in_batches(size: int) -> DataLoader[Any]:
    return DataLoader(ROWS, batch_sampler=BatchSampler(SequentialSampler(ROWS), size, drop_last=False))


def pairs(x: Any) -> Any:
    targets: Any = Y
    return StackDataset(x, targets)


def random_layer(structure: str) -> mlayer.MLayer:
    generator = torch.Generator().manual_seed(0)
    return mlayer.MLayer(2, 1, 4, embedding_size=None, structure=structure, generator=generator)


def frame(value: float) -> Any:
    import pandas

    table = pandas.DataFrame({"a": np.zeros(5000)})
    table.iloc[2500] = value
    return table


SHIFT = "def f(x, generator): return x + {}"
LOSS = "def f(model, x, y):\n    outputs = model(x)\n    return outputs, {}((outputs - y) ** 2).mean(1)"
FIRST, SECOND = types.ModuleType("helpers"), types.ModuleType("helpers")
FIRST.by, SECOND.by = 0.1, 0.2  # type: ignore[attr-defined]

# What differs: how a run of each side is given it, and what it is.
Kind = tuple[str, Any, Any]
MODELS: dict[str, Kind] = {
    "activation": ("model", net(nn.ReLU()), net(nn.Tanh())),
    "slope of an activation": ("model", net(nn.LeakyReLU(0.1)), net(nn.LeakyReLU(0.2))),
    "dropout": ("model", net(nn.ReLU(), 0.1), net(nn.ReLU(), 0.5)),
    "mode": ("model", net(nn.ReLU(), 0.5), net(nn.ReLU(), 0.5).eval()),
    "attribute": ("model", Scaled(1.0, "number"), Scaled(2.0, "number")),
    "tensor attribute": ("model", Scaled(1.0, "tensor"), Scaled(2.0, "tensor")),
    "buffer that is not saved": ("model", Scaled(1.0, "buffer"), Scaled(2.0, "buffer")),
    "code": ("model", model_with("self.linear(x)"), model_with("self.linear(x) ** 2")),
    "structure": ("model", random_layer("nilpotent"), random_layer("skew")),
    "what is frozen": ("model", frozen(0), frozen(3)),
    "tied weights": ("model", tied(True), tied(False)),
    "hook": ("model", hooked(1.0), hooked(2.0)),
}
CALLABLES: dict[str, Kind] = {
    "global number": ("augment", written(SHIFT.format("K"), K=0.1), written(SHIFT.format("K"), K=0.2)),
    "global tensor": (
        "augment",
        written(SHIFT.format("K"), K=torch.zeros(2)),
        written(SHIFT.format("K"), K=torch.ones(2)),
    ),
    "global function": (
        "augment",
        written(SHIFT.format("K()"), K=written("def f(): return 0.1")),
        written(SHIFT.format("K()"), K=written("def f(): return 0.2")),
    ),
    "in a module": (
        "augment",
        written(SHIFT.format("helpers.by"), helpers=FIRST),
        written(SHIFT.format("helpers.by"), helpers=SECOND),
    ),
    "in an inner function": (
        "augment",
        written("def f(x, g): return (lambda q: q + K)(x)", K=0.1),
        written("def f(x, g): return (lambda q: q + K)(x)", K=0.2),
    ),
    "default": (
        "augment",
        written("def f(x, g, k=.1): return x + k"),
        written("def f(x, g, k=.2): return x + k"),
    ),
    "cached": (
        "augment",
        functools.cache(lambda x, generator: x + 0.1),
        functools.cache(lambda x, generator: x + 0.2),
    ),
    "bound": ("augment", Bound(0.1).augment, Bound(0.2).augment),
    "constant of a class": (
        "augment",
        kind_of(by=lambda self: self.k, k=0.1)(),
        kind_of(by=lambda self: self.k, k=0.2)(),
    ),
    "static method": (
        "augment",
        kind_of(by=staticmethod(lambda: 0.1))(),
        kind_of(by=staticmethod(lambda: 0.2))(),
    ),
    "property": (
        "augment",
        kind_of(by=property(lambda self: lambda: 0.1))(),
        kind_of(by=property(lambda self: lambda: 0.2))(),
    ),
    "base class": ("augment", from_base(0.1), from_base(0.2)),
    "built in": (
        "augment",
        functools.partial(lambda f, x, generator: f(x, 2.0), operator.add),
        functools.partial(lambda f, x, generator: f(x, 2.0), operator.mul),
    ),
    "numpy's": (
        "augment",
        functools.partial(lambda f, x, generator: torch.from_numpy(f(x.numpy())), np.sin),
        functools.partial(lambda f, x, generator: torch.from_numpy(f(x.numpy())), np.cos),
    ),
    "loss": (
        "loss",
        written(LOSS.format("h"), h=written("def f(v): return v")),
        written(LOSS.format("h"), h=written("def f(v): return v * v")),
    ),
    "loss module": ("loss", Penalty(nn.ReLU()), Penalty(nn.Softplus())),
    "schedule": (
        "schedule",
        written("def f(t): return K", K=1.0),
        written("def f(t): return K", K=0.5),
    ),
    "optimizer": (
        "optimizer",
        written("def f(p): return make(p, K)", make=several_rates, K=0.1),
        written("def f(p): return make(p, K)", make=several_rates, K=0.2),
    ),
}
HELD: dict[str, tuple[Any, Any, Callable[[Any], float]]] = {
    "dict": ({"k": 0.1}, {"k": 0.2}, lambda v: v["k"]),
    "list": ([0.1], [0.2], lambda v: v[0]),
    "long list": ([0.0] * 5000, [0.0] * 4999 + [1.0], lambda v: v[-1]),
    "set": ({0.1}, {0.2}, min),
    "object": (types.SimpleNamespace(k=0.1), types.SimpleNamespace(k=0.2), lambda v: v.k),
    "object with slots": (Slots(0.1), Slots(0.2), lambda v: v.number),
    "deep": (deep(0.1), deep(0.2), innermost),
    "type of number": (1, 1.0, float),
    "decimal": (Decimal("0.1"), Decimal("0.2"), float),
    "bytes": (b"a", b"b", lambda v: v[0] / 256),
    "numpy number": (np.float32(0.1), np.float32(0.2), float),
    "objects in an array": (np.array([0.1], object), np.array([0.2], object), lambda v: float(v[0])),
    "table": (frame(0.0), frame(1.0), lambda v: float(v.a[2500])),
    "conjugate view": (torch.tensor([1 + 1j]).conj(), torch.tensor([2 + 1j]).conj(), lambda v: v[0].real),
    "sparse tensor": (torch.eye(2).to_sparse(), 2 * torch.eye(2).to_sparse(), lambda v: v.to_dense()[0, 0]),
    "model": (net(nn.ReLU()), net(nn.Tanh()), lambda v: v(torch.ones(2)).item()),
    "seed": (np.random.default_rng(1), np.random.default_rng(2), lambda v: v.random()),
}
LOADERS: dict[str, Kind] = {
    "order": ("data", DataLoader(ROWS, 16, shuffle=True), DataLoader(ROWS, 16)),
    "last batch": ("data", DataLoader(ROWS, 15), DataLoader(ROWS, 15, drop_last=True)),
    "how batches are made": (
        "data",
        DataLoader(ROWS, 16, collate_fn=stacked(1.0)),
        DataLoader(ROWS, 16, collate_fn=stacked(2.0)),
    ),
    "weights of a sampler": ("data", weighted(1.0), weighted(2.0)),
    "batch sampler": ("data", in_batches(16), in_batches(15)),
    "one row": ("data", DataLoader(Own(), 64), DataLoader(Own(1e-7), 64)),
    "attribute": ("data", DataLoader(Own(), 64), DataLoader(Own(factor=2.0), 64)),
    "one row under noise": ("data", DataLoader(Own(noise=True), 64), DataLoader(Own(1e-7, noise=True), 64)),
    "parts in a row": (
        "data",
        DataLoader(ConcatDataset([Own(), ROWS]), 64),
        DataLoader(ConcatDataset([Own(1e-7), ROWS]), 64),
    ),
    "stack": (
        "data",
        DataLoader(pairs(X), 16),
        DataLoader(pairs(X.index_fill(0, torch.tensor(33), 0.0)), 16),
    ),
    "stream": ("data", DataLoader(Stream(0), 16), DataLoader(Stream(1), 16)),
    "own loader": ("data", OwnLoader(0), OwnLoader(5)),
    "validation": ("validation", DataLoader(ROWS, 16), DataLoader(OTHER_ROWS, 16)),
}
for _what, (_one, _other, _number) in (HELD | DECORATED | HIDDEN).items():
    CALLABLES[f"holds: {_what}"] = ("augment", holding(_one, _number), holding(_other, _number))
KINDS = {
    f"{group}: {name}": kind
    for group, kinds in (("model", MODELS), ("code", CALLABLES), ("loader", LOADERS | HIDDEN_LOADERS))
    for name, kind in kinds.items()
}
