"""Runs that are stopped, resumed, and refused."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import killed
import pytest
import torch
from problems import layer, product, same_weights
from torch.utils.data import DataLoader, TensorDataset

import mlayer
from hostile import no_hang
from mlayer.errors import ArgumentError, FileFormatError, MLayerError
from mlayer.tensorfile import read_header, read_tensors, sealed
from mlayer.training import CheckpointError, CheckpointWarning, PeriodicLoss, Plateau, Settings, train

HERE = Path(__file__).parent


def start(kind: str, folder: Path, out: Path, *when: str) -> subprocess.Popen[bytes]:
    """A run that, if it is to be killed, writes a checkpoint after every step: kills fall into writes too."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    seconds = "0" if when else "1e9"
    command = [sys.executable, str(HERE / "killed.py"), kind, str(folder), str(out), seconds, *when]
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def _whole(kind: str, folder: Path) -> mlayer.MLayer:
    """The weights of the run that nobody kills."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    killed.main(kind, str(folder / "whole"), str(folder / "whole.safetensors"), 1e9)
    torch.set_num_threads(threads)
    return mlayer.load(folder / "whole.safetensors")


def _ends_like(whole: mlayer.MLayer, kind: str, folder: Path, out: Path) -> None:
    assert start(kind, folder, out).wait() == 0, out.with_suffix(".log").read_text()
    assert same_weights(mlayer.load(out), whole)
    assert not list(folder.glob(".*.tmp")), "left-overs of a killed write"


@pytest.mark.slow
def test_a_killed_run_ends_with_the_very_same_weights(tmp_path: Path) -> None:
    """Killed between two steps, then in the middle of writing a checkpoint."""
    folder, out = tmp_path / "killed", tmp_path / "killed.safetensors"
    steps = []
    for when in ("batch 37", "rename 41"):
        killed_one = start("loader", folder, out, when)
        assert killed_one.wait() == -signal.SIGKILL, out.with_suffix(".log").read_text()
        steps.append(_step(folder))
    assert steps[0] == 36
    assert 36 < steps[1] < 300
    assert list(folder.glob(".*.tmp")), "the second kill was in no write"
    _ends_like(_whole("loader", tmp_path), "loader", folder, out)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("tensors", 2), ("loader", 1), ("momentum", 1), ("rmsprop", 1)])
def test_a_run_killed_at_random_moments_ends_with_the_very_same_weights(
    kind: str, kills: int, tmp_path: Path
) -> None:
    """Slow, because the moments are a matter of time: on another machine they differ."""
    chance = random.Random(kind)
    folder, out = tmp_path / "killed", tmp_path / "killed.safetensors"
    steps = [0]
    for _ in range(kills):
        process = start(kind, folder, out, "never")
        # Wait for a step of this process, then for a random moment more.
        while process.poll() is None and _step(folder) <= steps[-1]:
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, out.with_suffix(".log").read_text()
        steps.append(_step(folder))
    assert 0 < steps[-1] < 300, f"killed after {steps} of 300 steps"
    _ends_like(_whole(kind, tmp_path), kind, folder, out)


def _step(folder: Path) -> int:
    from mlayer.training.checkpoints import Checkpoints

    state = Checkpoints(folder).read() if (folder / "state.safetensors").exists() else None
    return 0 if state is None else int(state["step"])


def test_the_history_is_json_lines(tmp_path: Path) -> None:
    result = train(layer(), product(), Settings(epochs=4), checkpoint=tmp_path / "deep" / "run")
    lines = (tmp_path / "deep" / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.history


def test_a_finished_run_is_not_repeated_and_may_be_prolonged(tmp_path: Path) -> None:
    settings = Settings(epochs=3, learning_rate=1e-2)
    model, again, longer, whole = layer(), layer(), layer(), layer()
    train(model, product(), settings, checkpoint=tmp_path)
    result = train(again, product(), settings, checkpoint=tmp_path)
    assert same_weights(model, again)
    assert (result.resumed_at, len(result.history)) == (9, 3)
    more = Settings(epochs=6, learning_rate=1e-2)
    result = train(longer, product(), more, checkpoint=tmp_path)
    assert [r["epoch"] for r in result.history] == [1, 2, 3, 4, 5, 6]
    train(whole, product(), more)
    assert same_weights(longer, whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": Settings(epochs=3, learning_rate=1e-3)}, "learning_rate was 0.01 and is 0.001"),
        ({"settings": Settings(epochs=3, learning_rate=1e-2, seed=1)}, "seed was 0 and is 1"),
        ({"data": product(96, seed=5)}, "the data differ"),
        ({"model": layer(matrix_bias=False)}, "the model has other parameters"),
    ],
)
def test_another_run_is_not_taken_up(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    settings = Settings(epochs=3, learning_rate=1e-2)
    train(layer(), product(), settings, checkpoint=tmp_path)
    before = (tmp_path / "state.safetensors").read_bytes()
    arguments: dict[str, Any] = {"model": layer(), "data": product(), "settings": settings} | change
    with pytest.raises(ArgumentError, match=words):
        train(**arguments, checkpoint=tmp_path)
    assert (tmp_path / "state.safetensors").read_bytes() == before


def test_a_schedule_made_for_a_length_is_not_prolonged(tmp_path: Path) -> None:
    train(layer(), product(), Settings(epochs=3, schedule="cosine"), checkpoint=tmp_path)
    with pytest.raises(ArgumentError, match="epochs was 3 and is 4"):
        train(layer(), product(), Settings(epochs=4, schedule="cosine"), checkpoint=tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:20] + b"?" + b[21:]]
)
def test_a_damaged_checkpoint_is_said(damage: Any, tmp_path: Path) -> None:
    train(layer(), product(), Settings(epochs=1), checkpoint=tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(FileFormatError, match="Delete it to start over"):
        train(layer(), product(), Settings(epochs=1), checkpoint=tmp_path)


def test_a_file_of_another_origin_is_not_overwritten(tmp_path: Path) -> None:
    mlayer.save(layer(), tmp_path / "state.safetensors")
    with pytest.raises(FileFormatError, match="another safetensors file"):
        train(layer(), product(), Settings(epochs=1), checkpoint=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and there are no pipes")
@pytest.mark.parametrize("name", ["lock", "state.safetensors", "before.safetensors", "history.jsonl"])
def test_links_and_pipes_in_a_folder_of_others_are_refused(name: str, tmp_path: Path) -> None:
    """A link would have its target overwritten, and a pipe would be waited for without end."""
    folder, precious = tmp_path / "run", tmp_path / "precious"
    train(layer(), product(), Settings(epochs=1), checkpoint=folder)
    precious.write_bytes(b"precious")
    makers: list[Callable[[Path], None]] = [lambda file: file.symlink_to(precious), os.mkfifo, Path.mkdir]
    for make in makers:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        with no_hang(), pytest.raises(CheckpointError, match=f"{name} must be a file; got a link"):
            train(layer(), product(), Settings(epochs=1), checkpoint=folder)
        assert precious.read_bytes() == b"precious"


def test_gigabytes_of_nothing_are_not_read(tmp_path: Path) -> None:
    """A file with a hole takes no space on the disk, and all memory where it is read."""
    train(layer(), product(), Settings(epochs=1), checkpoint=tmp_path)
    before = layer()
    train(before, product(), Settings(epochs=2))
    os.truncate(tmp_path / "state.safetensors", 2**42)
    os.truncate(tmp_path / "history.jsonl", 2**42)
    after = layer()
    with no_hang(), pytest.warns(CheckpointWarning, match=r"4398046511104 bytes whose header names \d+"):
        train(after, product(), Settings(epochs=2), checkpoint=tmp_path)
    assert same_weights(before, after)
    assert (tmp_path / "history.jsonl").stat().st_size < 10_000


FORGED: list[Any] = [
    None,
    -1,
    2**70,
    float("nan"),
    "x",
    [],
    {"tensor": "0"},
    {"tensor": "x"},
    {"dict": [["a", 1]]},
]


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_no_entry_of_a_forged_state_makes_a_raw_error(step: int, tmp_path: Path) -> None:
    """Every entry replaced by what does not belong there, under a digest that fits."""
    train(layer(), product(8), Settings(epochs=1, optimizer="adam"), checkpoint=tmp_path)
    file = tmp_path / "state.safetensors"
    tensors, key = read_tensors(file), "mlayer-checkpoint"
    about = read_header(file).metadata[key]
    paths = list(_places(json.loads(about)["tree"]))
    refused = 0
    for number, (path, value) in enumerate((path, value) for path in paths[1:] for value in FORGED):
        if number % step:
            continue
        forged = json.loads(about)
        inner = forged["tree"]
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value
        (tmp_path / "before.safetensors").unlink(missing_ok=True)
        file.write_bytes(sealed(tensors, {key: json.dumps(forged)}))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                train(layer(), product(8), Settings(epochs=2, optimizer="adam"), checkpoint=tmp_path)
        except MLayerError:
            refused += 1
        except Exception as error:
            pytest.fail(f"{path} = {value!r}: {error!r}")
    assert refused > len(paths) // step


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from _places(tree[key], (*path, key))


def test_an_unwritable_place_is_reported_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    model = layer()
    with pytest.raises(CheckpointError, match="Nothing was trained yet"):
        train(model, product(), Settings(epochs=1), checkpoint=tmp_path / "file" / "run")
    assert same_weights(model, layer())


def test_too_little_room_is_reported_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    full = shutil._ntuple_diskusage(1000, 999, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(CheckpointError, match="must have space for"):
        train(layer(), product(), Settings(epochs=1), checkpoint=tmp_path)


FULL_DISK = """
import resource, sys, warnings
from problems import layer, product
from mlayer.training import CheckpointWarning, Settings, train
from mlayer.training.checkpoints import Checkpoints
from pathlib import Path
import torch

folder = Path(sys.argv[1])
size = [0]
def fill(record):  # after the second epoch no file may grow beyond a few bytes, as on a full disk
    if record["epoch"] == 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
warnings.simplefilter("always")
model = layer()
with warnings.catch_warnings(record=True) as caught:
    settings = Settings(epochs=5)
    result = train(model, product(), settings, checkpoint=folder, checkpoint_seconds=0, on_epoch=fill)
assert len(result.history) == 5, "training went on"
assert any(w.category is CheckpointWarning and "training continues" in str(w.message) for w in caught), caught
state = Checkpoints(folder).read()
assert state["epoch"] in (1, 2), state["epoch"]
print("kept epoch", state["epoch"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files by Linux' means")
def test_a_disk_that_fills_up_costs_neither_the_training_nor_the_last_checkpoint(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "kept epoch" in done.stdout


def test_a_failed_write_in_between_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlayer import disk
    from mlayer.training import checkpoints

    real, calls = disk.replace_bytes, [0]

    def sometimes(path: Path, data: bytes, **options: Any) -> None:
        calls[0] += 1
        if calls[0] in (3, 4, 5):
            raise OSError(28, "No space left on device")
        real(path, data, **options)

    monkeypatch.setattr(checkpoints, "replace_bytes", sometimes)
    model = layer()
    with pytest.warns(CheckpointWarning, match="No space left"):
        train(model, product(), Settings(epochs=4), checkpoint=tmp_path, checkpoint_seconds=0)
    again = layer()
    assert train(again, product(), Settings(epochs=4), checkpoint=tmp_path).resumed_at == 12
    assert same_weights(model, again)


def test_numbers_in_checkpoints_are_exact(tmp_path: Path) -> None:
    from mlayer.training.checkpoints import Checkpoints

    tree = {
        "history": [],
        "floats": [0.1, 1e-320, float("inf"), -0.0, 1 / 3],
        "by number": {0: {"step": torch.tensor(3.0)}, 1: ()},
        "pair": (0.9, 0.999),
        "none": None,
        "bytes": torch.arange(256, dtype=torch.uint8),
        "transposed": torch.arange(6.0).view(2, 3).T,
    }
    place = Checkpoints(tmp_path)
    place.write_first(tree)
    back = place.read()
    assert back is not None
    assert back["floats"] == tree["floats"]
    assert back["pair"] == (0.9, 0.999)
    assert back["by number"][1] == ()
    assert torch.equal(back["by number"][0]["step"], torch.tensor(3.0))
    assert torch.equal(back["bytes"], torch.arange(256, dtype=torch.uint8))
    assert torch.equal(back["transposed"], torch.arange(6.0).view(2, 3).T)
    with pytest.raises(TypeError, match="cannot hold object"):
        place.write_first({"history": [], "odd": object()})


def test_the_plateau_is_remembered(tmp_path: Path) -> None:
    def settings(epochs: int) -> Settings:
        plateau = Plateau(0.1, 2)
        return Settings(epochs=epochs, optimizer="sgd", learning_rate=1.0, loss=_flat, plateau=plateau)

    train(layer(), product(), settings(4), checkpoint=tmp_path)
    resumed = train(layer(), product(), settings(9), checkpoint=tmp_path)
    rates = [r["learning_rate"] for r in resumed.history]
    assert rates == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def _flat(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = model(x)
    return outputs, 0 * outputs[:, 0] + 1.0


def test_a_loader_with_a_generator_of_its_own_is_taken_up(tmp_path: Path) -> None:
    def loader() -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(3)
        return DataLoader(TensorDataset(*product()), batch_size=8, shuffle=True, generator=generator)

    whole, parts = layer(), layer()
    train(whole, loader(), Settings(epochs=3, learning_rate=1e-2))
    train(parts, loader(), Settings(epochs=2, learning_rate=1e-2), checkpoint=tmp_path)
    train(parts, loader(), Settings(epochs=3, learning_rate=1e-2), checkpoint=tmp_path)
    assert same_weights(whole, parts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"loss": PeriodicLoss(bound=100)}, {"loss": PeriodicLoss(bound=1)}),
        ({"optimizer": lambda p: torch.optim.SGD(p, 0.1)}, {"optimizer": lambda p: torch.optim.SGD(p, 99.0)}),
        ({"optimizer": partial(torch.optim.SGD, lr=0.1)}, {"optimizer": partial(torch.optim.SGD, lr=0.2)}),
    ],
)
def test_callables_that_hold_something_else_are_another_run(
    one: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    train(layer(), product(), Settings(epochs=1, **one), checkpoint=tmp_path)
    train(layer(), product(), Settings(epochs=1, **one), checkpoint=tmp_path)  # itself, again
    with pytest.raises(ArgumentError, match="of this run"):
        train(layer(), product(), Settings(epochs=1, **other), checkpoint=tmp_path)
