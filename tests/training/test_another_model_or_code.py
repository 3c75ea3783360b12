"""A checkpoint is refused where the weights have the same shapes but the run computes something else:
another model, a function that calls others, values held anywhere, a loader that orders or reads otherwise.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from other_runs import KINDS, X, Y
from problems import layer, same_weights
from torch import Tensor, nn

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.fingerprint import plain

ONE: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-2}


def arguments(name: str, value: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"model": layer(), "data": (X, Y), "settings": Settings(**ONE)}
    if name in ("loss", "schedule", "optimizer"):
        return given | {"settings": Settings(**ONE, **{name: value})}
    return given | {name: copy.deepcopy(value) if name == "model" else value}


@pytest.mark.filterwarnings("ignore:resumed from .* without comparing")  # tests/training/test_not_compared.py
@pytest.mark.parametrize("kind", KINDS)
def test_refused(kind: str, tmp_path: Path) -> None:
    name, own, other = KINDS[kind]
    train(**arguments(name, own), checkpoint=tmp_path)
    assert train(**arguments(name, own), checkpoint=tmp_path).resumed_at, "its own run is resumed"
    before = (tmp_path / "state.safetensors").read_bytes()
    stranger = arguments(name, other)
    weights = copy.deepcopy(stranger["model"])
    words = {"model": "the model computes something else", "data": "the data differ"}
    with pytest.raises(ArgumentError, match=words.get(name, f"{name}.*has other code|{name} data differ")):
        train(**stranger, checkpoint=tmp_path)
    assert (tmp_path / "state.safetensors").read_bytes() == before
    assert same_weights(stranger["model"], weights), "the model was touched"


def test_counters_do_not_stand_in_the_way(tmp_path: Path) -> None:
    """Attributes that were seen to change during the run are not compared; the others are."""
    calls: list[int] = []
    counted = {"calls": 0}

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.calls = nn.Linear(2, 1), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            outputs: Tensor = self.linear(x)
            return outputs

    def augment_by(by: float) -> Any:
        def augment(x: Tensor, generator: torch.Generator) -> Tensor:
            calls.append(1)
            counted["calls"] += 1
            return x + by

        return augment

    model = Counting()
    train(model, (X, Y), Settings(**ONE), augment=augment_by(0.1), checkpoint=tmp_path)
    longer = Settings(**ONE | {"epochs": 2})
    assert train(model, (X, Y), longer, augment=augment_by(0.1), checkpoint=tmp_path).resumed_at
    assert train(Counting(), (X, Y), longer, augment=augment_by(0.1), checkpoint=tmp_path).resumed_at
    with pytest.raises(ArgumentError, match="augment has other code or holds other values"):
        train(model, (X, Y), longer, augment=augment_by(0.2), checkpoint=tmp_path)


SCRIPT = """
import json, sys
import numpy as np, torch
sys.path[:0] = {path!r}
import other_runs as cases
from mlayer.training.fingerprint import model_fingerprint, plain
from mlayer.training.loader_fingerprint import loader_fingerprint
found = {{}}
for name, (what, own, _) in cases.KINDS.items():
    read = model_fingerprint if what == "model" else loader_fingerprint if "loader" in name else plain
    found[name] = read(own)
print(json.dumps(found, sort_keys=True))
"""


@pytest.mark.slow
def test_the_same_in_every_process() -> None:
    """Else no run could be resumed. Seeds of Python's hashes put sets in another order."""
    printed = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(path=[str(Path(__file__).parent), *sys.path])],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(json.loads(run.stdout))
    assert len(printed[0]) == len(KINDS)
    assert {k for k in KINDS if printed[0][k] != printed[1][k]} == set()


def test_what_cannot_be_read_is_known_by_its_class(tmp_path: Path) -> None:
    import threading

    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (threading.Lock(), (n for n in (1, 2)), cycle, sys, 1j, ..., memoryview(b"x"), type, print):
        assert plain(value) == plain(value)
        json.dumps(plain(value))
    with (tmp_path / "f").open("w") as file:
        assert plain(file) == plain(file)


@pytest.mark.slow
def test_compiled_functions_count_by_what_they_compile() -> None:
    """The state that torch keeps around them changes when they are called."""

    def compiled(by: float) -> Any:
        return torch.compile(lambda x: x + by, backend="eager")

    one, other = compiled(0.1), compiled(0.2)
    first = plain(one)
    one(torch.ones(2))
    assert plain(one) == first == plain(compiled(0.1))
    assert plain(other) != first
