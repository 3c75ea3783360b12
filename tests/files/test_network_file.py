"""Files of networks: what is written is read back, what is not such a file is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mlayer
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError
from mlayer.files.network_file import load_network, save_network
from mlayer.tensorfile import sealed

KEY = "mlayer_network"


def network(**options: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, (4, 3), stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(6, 5),
        mlayer.MLayer(5, 4, 3, **({"embedding_size": 2} | options)),
    )


@pytest.mark.parametrize(
    "options", [{}, {"embedding_size": None}, {"matrix_bias": False, "output_bias": False}]
)
def test_what_is_written_is_read_back(options: dict[str, Any], tmp_path: Path) -> None:
    for model in (network(**options), network(**options).double()):
        save_network(model, tmp_path / "n.safetensors", {"eps": 0.1, "names": ["a"]})
        written = (tmp_path / "n.safetensors").read_bytes()
        for _ in range(9):  # the same bytes: safetensors writes metadata in an order of chance
            save_network(model, tmp_path / "again.safetensors", {"eps": 0.1, "names": ["a"]})
            assert (tmp_path / "again.safetensors").read_bytes() == written  # exact: the same weights
        same, notes = load_network(tmp_path / "n.safetensors")
        assert notes == {"eps": 0.1, "names": ["a"]}
        assert not same.training
        x = torch.rand(6, 2, 4, 5).to(next(model.parameters()))
        assert torch.equal(same(x), model(x))
        assert [str(module) for module in same] == [str(module) for module in model]


def _spoil(module: nn.Module) -> None:
    for weight in module.parameters():
        weight.fill_(torch.inf)


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (nn.Tanh(), ArgumentTypeError),
        (nn.Conv2d(1, 1, 3, padding="same"), ArgumentError),
        (nn.Conv2d(1, 1, 3, stride=(1, 2)), ArgumentError),
        (nn.Conv2d(2, 2, 3, groups=2), ArgumentError),
        (nn.AvgPool2d((2, 3)), ArgumentError),
        (nn.AvgPool2d(2, padding=1), ArgumentError),
        (nn.AvgPool2d(2, divisor_override=3), ArgumentError),
        (nn.Flatten(2), ArgumentError),
        (mlayer.MLayer(2, 2, 3, structure="skew"), ArgumentError),
        (nn.Linear(2, 2).bfloat16(), ArgumentError),
        (nn.Linear(2, 2).requires_grad_(False).apply(_spoil), ArgumentError),
    ],
    ids=[
        "tanh",
        "same",
        "strides",
        "groups",
        "sizes",
        "pool padding",
        "divisor",
        "flatten",
        "skew",
        "bfloat16",
        "infinite",
    ],
)
def test_what_the_file_cannot_hold_is_refused(module: nn.Module, error: Any, tmp_path: Path) -> None:
    with pytest.raises(error, match="network must be"):
        save_network(nn.Sequential(module), tmp_path / "n.safetensors", {})
    assert not list(tmp_path.iterdir())


W, B = torch.ones(2, 3), torch.ones(2)
FORGED: dict[str, tuple[Any, dict[str, torch.Tensor]]] = {
    "no modules": ([], {}),
    "unknown": ([["Tanh"]], {}),
    "no weight": ([["Linear"]], {}),
    "another shape": ([["Linear"]], {"0.weight": B}),
    "another bias": ([["Linear"]], {"0.weight": W, "0.bias": torch.ones(3)}),
    "nothing": ([["Linear"]], {"0.weight": torch.ones(0, 3)}),
    "nan": ([["Linear"]], {"0.weight": W * torch.nan}),
    "integers": ([["Linear"]], {"0.weight": W.long()}),
    "more tensors": ([["Linear"]], {"0.weight": W, "1.weight": W.clone()}),
    "arguments": ([["Linear", 3]], {"0.weight": W}),
    "stride": ([["Conv2d", 0, 0]], {"0.weight": torch.ones(1, 1, 2, 2)}),
    "padding": ([["Conv2d", 1, 10**9]], {"0.weight": torch.ones(1, 1, 2, 2)}),
    "text": ([["Conv2d", "1", 0]], {"0.weight": torch.ones(1, 1, 2, 2)}),
    "pool": ([["AvgPool2d", 2, 0]], {}),
    "pool without a stride": ([["AvgPool2d", 2]], {}),
    "entry": ([7], {}),
    "layer": ([["MLayer"]], {"0.generators": torch.ones(2, 3, 3), "0.readout": torch.ones(2, 4, 4)}),
    "half a layer": ([["MLayer"]], {"0.generators": torch.ones(2, 3, 3)}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused(name: str, tmp_path: Path) -> None:
    modules, tensors = FORGED[name]
    text = json.dumps({"format": 1, "modules": modules, "notes": {}})
    (tmp_path / "n.safetensors").write_bytes(sealed(tensors, {KEY: text}))
    with pytest.raises(FileFormatError, match="must be a network written by mlayer"):
        load_network(tmp_path / "n.safetensors")


@pytest.mark.parametrize("header", ["{", "[]", "{}", '{"format": 2, "modules": [], "notes": {}}', "null"])
def test_a_damaged_header_is_refused(header: str, tmp_path: Path) -> None:
    (tmp_path / "n.safetensors").write_bytes(sealed({"0.weight": W}, {KEY: header}))
    with pytest.raises(FileFormatError, match="newer mlayer" if "2" in header else "must be a network"):
        load_network(tmp_path / "n.safetensors")


def test_other_files_are_refused(tmp_path: Path) -> None:
    mlayer.save(mlayer.MLayer(3, 2, 3), tmp_path / "layer.safetensors")
    with pytest.raises(FileFormatError, match=r"another safetensors file.*mlayer\.load"):
        load_network(tmp_path / "layer.safetensors")
    with pytest.raises(FileNotFoundError, match=r"There are: layer\.safetensors"):
        load_network(tmp_path / "n.safetensors")
    save_network(network(), tmp_path / "n.safetensors", {})
    data = bytearray((tmp_path / "n.safetensors").read_bytes())
    data[-3] ^= 1
    (tmp_path / "n.safetensors").write_bytes(bytes(data))
    with pytest.raises(FileFormatError, match="its digest does not match"):
        load_network(tmp_path / "n.safetensors")


def _with_more(module: nn.Module) -> nn.Module:
    module.register_parameter("more", nn.Parameter(torch.ones(1)))
    return module


def _bias_as_buffer(module: nn.Linear) -> nn.Module:
    bias = module.bias.detach()
    del module.bias
    module.register_buffer("bias", bias)
    return module


class _Tripled(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = 3 * super().forward(x)
        return result


UNREADABLE: dict[str, Any] = {
    "no module": nn.Sequential,
    "too many modules": lambda: nn.Sequential(*(nn.ReLU() for _ in range(1001))),
    "stride": lambda: nn.Sequential(nn.Conv2d(1, 1, 1, 1001)),
    "pool": lambda: nn.Sequential(nn.AvgPool2d(1001)),
    "no inputs": lambda: nn.Sequential(nn.Linear(2, 3).requires_grad_(False).apply(_emptied)),
    "more parameters": lambda: nn.Sequential(_with_more(nn.Linear(2, 2))),
    "bias as a buffer": lambda: nn.Sequential(_bias_as_buffer(nn.Linear(2, 2))),
    "meta": lambda: nn.Sequential(nn.Linear(2, 2, device="meta")),
    "one layer": lambda: mlayer.MLayer(2, 2, 3),
    "list": lambda: [nn.Linear(2, 2)],
    "nothing": lambda: None,
    "own forward": lambda: _Tripled(nn.Linear(2, 2)),
}


def _emptied(module: nn.Module) -> None:
    module.weight = nn.Parameter(torch.ones(3, 0))


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_could_not_be_read_back_replaces_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "n.safetensors").write_bytes(b"old")
    with pytest.raises((ArgumentError, ArgumentTypeError), match="network must be"):
        save_network(UNREADABLE[name](), tmp_path / "n.safetensors", {})
    assert (tmp_path / "n.safetensors").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["n.safetensors"]


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    linear = nn.Linear(3, 3)
    model = nn.Sequential(linear, nn.ReLU(), linear)
    save_network(model, tmp_path / "n.safetensors", {})
    same, _ = load_network(tmp_path / "n.safetensors")
    x = torch.rand(2, 3)
    assert torch.equal(same(x), model(x))


NOTES = [None, 3, "ab", [("a", 1)], {"a": float("nan")}, {"a": torch.ones(1)}, {1: 2, "1": 3}, {(1, 2): 3}]


@pytest.mark.parametrize("notes", NOTES, ids=str)
def test_notes_that_json_would_lose_are_refused(notes: Any, tmp_path: Path) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match="notes must be a JSON object"):
        save_network(nn.Sequential(nn.Linear(2, 2)), tmp_path / "n.safetensors", notes)
    if notes is not None:
        with pytest.raises((ArgumentError, ArgumentTypeError), match="notes must be a JSON object"):
            mlayer.save(mlayer.MLayer(2, 2, 2), tmp_path / "m.safetensors", notes=notes)
    assert not list(tmp_path.iterdir())


def test_notes_larger_than_a_header_are_refused(tmp_path: Path) -> None:
    for text in ("x" * 2**26, '"' * 2**25):  # a quote takes four characters, as JSON in JSON
        with pytest.raises(ArgumentError, match="notes must be of at most"):
            mlayer.save(mlayer.MLayer(2, 2, 2), tmp_path / "m.safetensors", notes={"a": text})
    assert not list(tmp_path.iterdir())
