"""ONNX: exported once, run by onnxruntime on other batch sizes and sizes of input."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mlayer
from mlayer import MLayer
from mlayer.errors import ArgumentError, MissingPackageError


def make(**arguments: Any) -> MLayer:
    generator = torch.Generator().manual_seed(0)
    return MLayer(
        **{"in_features": 5, "out_features": 3, "matrix_size": 6, "generator": generator, **arguments}
    )


def session(path: Path) -> Callable[[Tensor], Tensor]:
    onnxruntime = pytest.importorskip("onnxruntime")
    run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in run.get_inputs()] == ["x"]
    assert [o.name for o in run.get_outputs()] == ["p"]
    return lambda x: torch.from_numpy(run.run(None, {"x": x.numpy()})[0])


# The libraries of the exporter warn about their own deprecations while they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize(
    "variant", [{}, {"dtype": torch.float64, "structure": "skew", "matrix_bias": False}], ids=str
)
def test_against_torch(variant: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxscript")
    layer, file = make(**variant), tmp_path / "m.onnx"
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    mlayer.export_onnx(layer, file)
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == ["m.onnx"]
    run = session(file)
    assert capfd.readouterr() == ("", "")  # onnxruntime has nothing to warn of
    dtype = layer.readout.dtype
    for count, size in ((1, 1.0), (2, 1.0), (7, 10.0), (64, 100.0), (3, 400.0), (5, 0.0)):
        generator = torch.Generator().manual_seed(count)
        x = size * torch.randn(count, 5, generator=generator, dtype=torch.float64).to(dtype)
        expected = layer(x).detach()
        norm = torch.linalg.matrix_norm(layer.matrix(x), 1).detach()
        # Both are right to eps ||M|| relative to ||exp(M)||, no better.
        scale = torch.linalg.matrix_norm(layer.exponential(x)).detach() * layer.readout.abs().sum().item()
        bound = 100 * torch.finfo(dtype).eps * (1 + norm) * scale + torch.finfo(dtype).eps
        assert run(x).shape == (count, 3)
        assert ((run(x) - expected).abs() <= bound[:, None]).all()
        assert expected.isfinite().all()
    assert norm.max() < 1e3
    assert {p.requires_grad for p in layer.parameters()} == {True}
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


def test_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"old")

    def save(_: object, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", save)
    with pytest.raises(OSError, match="the disk is full"):
        mlayer.export_onnx(make(), file)
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_warnings_of_the_user_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.onnx, "export", lambda *_, **__: warnings.warn("inside", UserWarning, stacklevel=1)
    )
    with pytest.raises(AssertionError):
        mlayer.export_onnx(make(), tmp_path / "m.onnx")
    with pytest.warns(UserWarning, match="outside"):
        warnings.warn("outside", UserWarning, stacklevel=1)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_extra(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingPackageError, match=rf"export_onnx needs the package {package},.*'mlayer\[onnx\]'"
    ):
        mlayer.export_onnx(make(), tmp_path / "m.onnx")


def test_only_layers(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"layer must be an MLayer; got Sequential"):
        mlayer.export_onnx(nn.Sequential(make()), tmp_path / "m.onnx")  # type: ignore[arg-type]


def test_no_half_precision(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"layer must be float32 or float64; got torch.bfloat16"):
        mlayer.export_onnx(make(dtype=torch.bfloat16), tmp_path / "m.onnx")


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.onnx, "export", None)
    for place, words in ((tmp_path, "the folder"), (tmp_path / "none" / "m.onnx", "no folder")):
        with pytest.raises((ArgumentError, FileNotFoundError), match=words):
            mlayer.export_onnx(make(), place)


def test_names_that_the_graph_has_inside(tmp_path: Path) -> None:
    """Names of weights and of steps, with which files could not be loaded or run."""
    pytest.importorskip("onnxscript")
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    layer, x = make(embedding_size=2), torch.rand(4, 5)
    mlayer.export_onnx(layer, tmp_path / "plain.onnx")
    graph = onnx.load(tmp_path / "plain.onnx").graph
    weight, step = "embedding", graph.node[0].output[0]
    assert weight in {value.name for value in graph.initializer}
    mlayer.export_onnx(layer, tmp_path / "m.onnx", input_name=weight, output_name=step)
    onnx.checker.check_model(str(tmp_path / "m.onnx"))
    run = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (found,) = run.run([step], {weight: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), layer(x).detach())
