"""A checkpoint is refused where runs differ in hooks of parameters, modules imported on the way, or what
torch was told for the whole process; and is resumed where they do not.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hidden import HOOKED, X, Y
from problems import layer, product
from torch import nn

from mlayer.errors import ArgumentError
from mlayer.training import Settings, train

ONE = Settings(epochs=1, learning_rate=1e-2)


@pytest.mark.parametrize("kind", HOOKED)
def test_what_is_tied_to_a_parameter_counts(kind: str, tmp_path: Path) -> None:
    make = HOOKED[kind]
    train(make(1.0), (X, Y), ONE, checkpoint=tmp_path)
    assert train(make(1.0), (X, Y), ONE, checkpoint=tmp_path).resumed_at
    for other in (make(0.5), nn.Linear(2, 1)):
        other.load_state_dict(make(1.0).state_dict())
        with pytest.raises(ArgumentError, match=r"the model computes something else|starts from other"):
            train(other, (X, Y), ONE, checkpoint=tmp_path)


@pytest.mark.parametrize(
    "line", ["import {m}", "from {m} import by", "import {m} as other", "from . import {m}"]
)
def test_modules_that_a_function_imports_count(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count too if they were not imported yet when the run began."""
    package, name = tmp_path / "hidden_package", "hidden_import"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for place in (tmp_path, package):
        monkeypatch.syspath_prepend(str(place))
    line = line.format(m=name)
    used = "by" if line.endswith(" by") else f"{line.rpartition(' ')[2]}.by"
    space: dict[str, Any] = {"__package__": "hidden_package", "__name__": "hidden_package.user"}
    exec(f"def augment(x, generator):\n    {line}\n    return x + {used}()", space)

    def run(by: float) -> Any:
        (package / f"{name}.py").write_text(f"K = {by}\ndef by():\n    return K\n")
        for loaded in [each for each in sys.modules if each.startswith("hidden_package") or each == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return train(layer(), product(), ONE, augment=space["augment"], checkpoint=tmp_path / "run")

    run(0.1)
    assert run(0.1).resumed_at
    with pytest.raises(ArgumentError, match="augment has other code or holds other values"):
        run(0.25)


def test_what_torch_was_told_for_the_whole_process_counts(tmp_path: Path) -> None:
    def run() -> Any:
        return train(layer(), product(), ONE, checkpoint=tmp_path)

    run()
    assert run().resumed_at
    words = r"torch computed with .* without autocast and does with .*bfloat16"
    with pytest.raises(ArgumentError, match=words), torch.autocast("cpu", dtype=torch.bfloat16):
        run()
    with contextlib.ExitStack() as stack:
        before = torch.get_default_dtype()
        stack.callback(torch.set_default_dtype, before)
        model = layer()
        torch.set_default_dtype(torch.float64)
        with pytest.raises(ArgumentError, match=r"float32, without autocast and does with .*float64"):
            train(model, product(), ONE, checkpoint=tmp_path)
    assert run().resumed_at
