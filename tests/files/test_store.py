"""save and load: the same layer comes back, a crash leaves the old file, a bad file gives one clear error."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import mlayer
import structure_cases
from mlayer import MLayer, MLayerError
from mlayer.errors import ArgumentError, FileFormatError, MissingPackageError
from mlayer.files import store
from mlayer.nn import Structure


class Symmetric(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, X: Tensor) -> Tensor:
        return self.scale.to(X) * (X + X.mT)


class Diagonal(Structure):
    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return (self.size,)

    def dense(self, free: Tensor) -> Tensor:
        return torch.diag_embed(free)


def make(**arguments: Any) -> MLayer:
    generator = torch.Generator().manual_seed(0)
    return MLayer(
        **{"in_features": 4, "out_features": 3, "matrix_size": 5, "generator": generator, **arguments}
    )


VARIANTS: list[dict[str, Any]] = [
    {},
    {"embedding_size": None},
    {"matrix_bias": False, "output_bias": False, "embedding_bias": False},
    *({"structure": case.structure} for name, case in structure_cases.CASES.items() if name != "full"),
    {"dtype": torch.float64},
    {"dtype": torch.bfloat16},
    {"dtype": torch.float16},
    {"init": "notebook"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_round_trip(variant: dict[str, Any], tmp_path: Path) -> None:
    layer, file = make(**variant), tmp_path / "m.safetensors"
    mlayer.save(layer, file)
    same = mlayer.load(str(file))
    assert repr(same) == repr(layer)
    assert same.state_dict().keys() == layer.state_dict().keys()
    for name, value in layer.state_dict().items():
        assert torch.equal(same.state_dict()[name], value)
        assert same.state_dict()[name].dtype == value.dtype
    assert same.init == layer.init
    x = torch.ones(2, 4, dtype=layer.readout.dtype)
    assert torch.equal(same(x), layer(x))
    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert {p.device.type for p in mlayer.load(file, device="meta").parameters()} == {"meta"}


@pytest.mark.parametrize("structure", [Symmetric(), Diagonal(5)], ids=["module", "Structure"])
def test_user_given_structures(structure: nn.Module, tmp_path: Path) -> None:
    layer, file = make(structure=structure), tmp_path / "m.safetensors"
    mlayer.save(layer, file)
    with pytest.raises(
        ArgumentError, match=r"user-given structure '(Symmetric|Diagonal)'.*Files carry no code"
    ):
        mlayer.load(file)
    fresh = Symmetric() if isinstance(structure, Symmetric) else Diagonal(5)
    assert torch.equal(mlayer.load(file, structure=fresh)(torch.ones(4)), layer(torch.ones(4)))
    mlayer.save(layer.with_structure("full"), file)
    torch.testing.assert_close(mlayer.load(file)(torch.ones(4)), layer(torch.ones(4)))
    with pytest.raises(ArgumentError, match=r"structure must be None to load .* whose structure is 'full'"):
        mlayer.load(file, structure=fresh)


def test_weights_only_readable_by_others(tmp_path: Path) -> None:
    """Any safetensors reader sees the tensors and the configuration."""
    mlayer.save(make(), tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(make().state_dict())
        header = json.loads(file.metadata()["mlayer"])
    assert header["format"] == 1
    assert header["config"]["matrix_size"] == 5


def test_equal_layers_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        mlayer.save(make(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()  # exact: the same weights


def test_shared_and_strided_weights(tmp_path: Path) -> None:
    layer = make()
    layer.readout = nn.Parameter(layer.readout.detach().mT)
    mlayer.save(layer, tmp_path / "m")
    assert torch.equal(mlayer.load(tmp_path / "m").readout, layer.readout)


# ---- A crash leaves the old file whole. -----------------------------------------------------------


@pytest.mark.parametrize("function", ["os.replace", "os.fsync", "pathlib.Path.write_bytes"])
def test_failure_leaves_the_old_file(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.safetensors"
    mlayer.save(make(), file)
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(function, fail)
    with pytest.raises(OSError, match="the disk is full"):
        mlayer.save(make(dtype=torch.float64), file)
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    mlayer.save(make(), file)
    before = file.read_bytes()
    script = (
        "import os, pathlib, mlayer\n"
        "def half(path, data):\n"
        "    with open(path, 'wb') as f: f.write(data[:len(data) // 2]); f.flush()\n"
        "    os._exit(9)\n"
        "pathlib.Path.write_bytes = half\n"
        f"mlayer.save(mlayer.MLayer(8, 2), {str(file)!r})\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=900, check=False).returncode == 9
    assert file.read_bytes() == before


def test_written_before_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data reach the disk before the name does."""
    events: list[str] = []
    replace, fsync = os.replace, os.fsync

    def watched_replace(a: Path, b: Path) -> None:
        events.append("replace")
        assert a.parent == b.parent
        replace(a, b)

    def watched_fsync(descriptor: int) -> None:
        events.append("fsync")
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    mlayer.save(make(), tmp_path / "m")
    assert events == ["fsync", "replace", "fsync"]


# ---- Bad files. -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("good") / "m.safetensors"
    mlayer.save(make(), file)
    return file.read_bytes()


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def rebuilt(data: bytes, change: Callable[[dict[str, Any]], None], resign: bool = True) -> bytes:
    """The file with its mlayer header changed; with ``resign``, by somebody who makes the digest fit."""
    header, body = header_of(data)
    ours = json.loads(header["__metadata__"]["mlayer"])
    change(ours)
    if resign:
        tensors = {}
        for name, info in header.items():
            if name != "__metadata__":
                start, stop = info["data_offsets"]
                tensors[name] = torch.frombuffer(bytearray(body[start:stop]), dtype=torch.float32).reshape(
                    info["shape"]
                )
        ours["digest"] = store._digest(ours["config"], tensors)
    header["__metadata__"]["mlayer"] = json.dumps(ours)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def load_bytes(data: bytes, folder: Path) -> MLayer:
    file = folder / "m.safetensors"
    file.write_bytes(data)
    return mlayer.load(file)


@given(data=st.data())
def test_truncated(good: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(FileFormatError, match=r"must be a safetensors file written by mlayer.save; got"):
        load_bytes(good[:cut], tmp_path_factory.mktemp("cut"))


@given(data=st.data())
def test_one_changed_byte(good: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(good) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = bytearray(good)
    changed[place] ^= bit
    with pytest.raises(FileFormatError):
        load_bytes(bytes(changed), tmp_path_factory.mktemp("flip"))


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with pytest.raises(FileFormatError):
        load_bytes(data, tmp_path_factory.mktemp("bytes"))


def test_foreign_safetensors(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "m")
    with pytest.raises(FileFormatError, match=r"got a safetensors file that mlayer did not write"):
        mlayer.load(tmp_path / "m")


def test_too_new(good: bytes, tmp_path: Path) -> None:
    newer = rebuilt(good, lambda h: h.update(format=3))
    with pytest.raises(
        FileFormatError, match=r"of format 2 or older; got format 3, written by a newer mlayer"
    ):
        load_bytes(newer, tmp_path)


@pytest.mark.parametrize("version", [0, "1", None, 1.5])
def test_nonsense_version(version: object, good: bytes, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"got format "):
        load_bytes(rebuilt(good, lambda h: h.update(format=version)), tmp_path)


def test_changed_configuration(good: bytes, tmp_path: Path) -> None:
    changed = rebuilt(good, lambda h: h["config"].update(init="notebook"), resign=False)
    with pytest.raises(FileFormatError, match=r"as it was saved; got a file whose digest does not match"):
        load_bytes(changed, tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"matrix_size": 10**9}, r"a readout that does not fit the sizes"),
        ({"in_features": 10**12}, r"an embedding that does not fit"),
        ({"embedding_size": 10**12}, r"generators that do not fit"),
        ({"out_features": "3"}, r"out_features = '3'"),
        ({"out_features": True}, r"out_features = True"),
        ({"in_features": None}, r"in_features = None"),
        ({"matrix_bias": 1}, r"matrix_bias = 1"),
        ({"matrix_bias": False}, r"weights that do not fit"),
        ({"dtype": "int8"}, r"dtype = 'int8'"),
        ({"dtype": "float64"}, r"tensors of another dtype"),
        ({"structure": "os.system"}, r"structure = 'os.system'"),
        ({"structure": {"name": "os.system"}}, r"a wrong configuration .*structure must be one of"),
        ({"structure": {}}, r"a wrong configuration"),
        ({"structure": {"name": ["full"]}}, r"a wrong configuration"),
        ({"structure": {"name": "block_diagonal"}}, r"a wrong configuration"),
        ({"structure": {"name": "block_diagonal", "blocks": [10**9]}}, r"a wrong configuration"),
        ({"structure": {"name": "block_diagonal", "blocks": "abc"}}, r"a wrong configuration"),
        ({"structure": {"name": "nilpotent"}}, r"weights that do not fit"),
        ({"init": ["normal"]}, r"a wrong configuration"),
    ],
    ids=str,
)
def test_hostile_configuration(config: dict[str, Any], words: str, good: bytes, tmp_path: Path) -> None:
    """A forger who can compute the digest is refused before memory is allocated, and no code runs."""
    with pytest.raises(FileFormatError, match=words):
        load_bytes(rebuilt(good, lambda h: h["config"].update(config)), tmp_path)


@pytest.mark.parametrize("config", [None, [], "x"])
def test_no_configuration(config: object, good: bytes, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"got no configuration"):
        load_bytes(rebuilt(good, lambda h: h.update(config=config), resign=False), tmp_path)


def test_damaged_header(good: bytes, tmp_path: Path) -> None:
    for change in (lambda h: h.pop("format"), lambda h: h.clear()):
        with pytest.raises(FileFormatError, match=r"got a damaged header"):
            load_bytes(rebuilt(good, change, resign=False), tmp_path)
    save_file({"readout": torch.ones(2)}, tmp_path / "n", {"mlayer": "[" * 100_000})
    with pytest.raises(FileFormatError, match=r"got a damaged header"):
        mlayer.load(tmp_path / "n")
    save_file({"readout": torch.ones(2)}, tmp_path / "n", {"mlayer": "[1]"})
    with pytest.raises(FileFormatError, match=r"got a damaged header"):
        mlayer.load(tmp_path / "n")


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "boom"),)

    file = tmp_path / "m.safetensors"
    file.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileFormatError):
        mlayer.load(file)
    torch.save({"a": torch.ones(1)}, file)
    with pytest.raises(FileFormatError):
        mlayer.load(file)
    assert not (tmp_path / "boom").exists()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing"):
        mlayer.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        mlayer.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        mlayer.save(make(), tmp_path / "no" / "folder")


def test_only_layers_are_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"layer must be an MLayer; got Sequential"):
        mlayer.save(nn.Sequential(make()), tmp_path / "m")  # type: ignore[arg-type]


def test_without_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingPackageError, match=r"needs the package safetensors.*pip install safetensors"):
        mlayer.save(make(), tmp_path / "m")


def test_the_digest_is_a_sha256_of_everything() -> None:
    """Computed again by hand."""
    config, tensors = {"b": 1, "a": None}, {"w": torch.tensor([1.5, -2.0])}
    expected = hashlib.sha256(
        b'{"a": null, "b": 1}' + b"w torch.float32 (2,)\n" + struct.pack("<2f", 1.5, -2.0)
    )
    assert store._digest(config, tensors) == expected.hexdigest()


def test_one_error_family() -> None:
    assert issubclass(FileFormatError, MLayerError)
    assert issubclass(FileFormatError, ValueError)
    assert issubclass(MissingPackageError, ImportError)


def test_weights_that_share_memory_are_saved(tmp_path: Path) -> None:
    layer = mlayer.MLayer(3, 2, 3, 2)
    layer.output_bias = layer.embedding_bias  # tied: one parameter twice
    mlayer.save(layer, tmp_path / "m.safetensors")
    same = mlayer.load(tmp_path / "m.safetensors")
    x = torch.rand(2, 3)
    assert torch.equal(layer(x), same(x))
