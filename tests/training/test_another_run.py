"""A checkpoint of another run is refused, whatever differs; a damaged one is noticed; one run at a time."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import layer, product, same_weights
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from mlayer.errors import ArgumentError, FileFormatError
from mlayer.tensorfile import sealed
from mlayer.training import CheckpointError, CheckpointWarning, Settings, train
from mlayer.training.checkpoints import FORMAT, Checkpoints
from mlayer.training.retry_killed_tasks import RunFailedError, sendable

SETTINGS = Settings(epochs=2, learning_rate=1e-2)


def shifted(by: float) -> Callable[[Tensor, torch.Generator], Tensor]:
    return lambda x, generator: x + by


def loss_one(model: torch.nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    outputs = model(x)
    return outputs, ((outputs - y) ** 2).mean(1)


def loss_two(model: torch.nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    outputs = model(x)
    return outputs, ((outputs - y) ** 4).mean(1)


loss_two.__name__ = loss_two.__qualname__ = "loss_one"


def one_number_changed(rows: int = 5000, row: int = 4321) -> tuple[Tensor, Tensor]:
    x, y = product(rows)
    x = x.clone()
    x[row, 1] = torch.nextafter(x[row, 1], torch.tensor(2.0))
    return x, y


class Rows(Dataset[Any]):
    def __init__(self, seed: int) -> None:
        self.x, self.y = product(64, seed)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


def loader(dataset: Dataset[Any], batch_size: int = 16) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=batch_size, shuffle=True)


def batches(seed: int) -> list[Any]:
    x, y = product(64, seed)
    return list(zip(x.split(16), y.split(16), strict=True))


SGD_TWICE: Any = lambda p: torch.optim.SGD(p, 0.1)  # noqa: E731 - one of two of the same name
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "initial weights": ({"model": layer(seed=0)}, {"model": layer(seed=1)}, "starts from other weights"),
    "one bit of one row": ({"data": product(5000)}, {"data": one_number_changed()}, "the data differ"),
    "targets": ({}, {"data": (product()[0], product()[1] + 1e-7)}, "the data differ"),
    "weights of examples": ({}, {"data": (*product(), torch.ones(96))}, "the data differ"),
    "validation": ({"validation": product(9, 1)}, {"validation": product(9, 2)}, "validation data"),
    "validation added": ({}, {"validation": product(9, 2)}, "validation data"),
    "validation gone": ({"validation": product(9, 2)}, {}, "validation data"),
    "loader of tensors": (
        {"data": loader(TensorDataset(*product(64, 0)))},
        {"data": loader(TensorDataset(*product(64, 1)))},
        "the data differ",
    ),
    "loader of a part": (
        {"data": loader(Subset(TensorDataset(*product(64, 0)), list(range(32))))},
        {"data": loader(Subset(TensorDataset(*product(64, 0)), list(range(32, 64))))},
        "the data differ",
    ),
    "loader of a class": ({"data": loader(Rows(0))}, {"data": loader(Rows(1))}, "the data differ"),
    "batch size of a loader": (
        {"data": loader(Rows(0))},
        {"data": loader(Rows(0), 8)},
        "the data differ",
    ),
    "list of batches": ({"data": batches(0)}, {"data": batches(1)}, "the data differ"),
    "loss of the same name": (
        {"settings": Settings(epochs=2, loss=loss_one)},
        {"settings": Settings(epochs=2, loss=loss_two)},
        "loss has other code",
    ),
    "what a loss holds": (
        {"settings": Settings(epochs=2, loss=partial(loss_one))},
        {"settings": Settings(epochs=2, loss=partial(loss_two))},
        "loss has other code",
    ),
    "schedule": (
        {"settings": Settings(epochs=2, schedule=lambda t: 1 - t)},
        {"settings": Settings(epochs=2, schedule=lambda t: 1 - t / 2)},
        "schedule has other code",
    ),
    "augment added": ({}, {"augment": shifted(0.1)}, "augment was none and is given"),
    "augment gone": ({"augment": shifted(0.1)}, {}, "augment was given and is none"),
    "what augment holds": ({"augment": shifted(0.1)}, {"augment": shifted(0.2)}, "augment has other code"),
    "optimizer": (
        {"settings": Settings(epochs=2, optimizer=SGD_TWICE)},
        {"settings": Settings(epochs=2, optimizer=lambda p: torch.optim.SGD(p, 0.2))},
        "optimizer has other code",
    ),
}


def arguments(change: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"model": layer(), "data": product(), "settings": SETTINGS} | change
    return given | {"model": _copy(given["model"])}


def _copy(model: torch.nn.Module) -> torch.nn.Module:
    import copy

    return copy.deepcopy(model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_another_run_is_refused(kind: str, tmp_path: Path) -> None:
    own, other, words = KINDS[kind]
    train(**arguments(own), checkpoint=tmp_path)
    again = arguments(own)
    assert train(**again, checkpoint=tmp_path).resumed_at, "its own run is resumed"
    before = (tmp_path / "state.safetensors").read_bytes()
    stranger = arguments(other)
    with pytest.raises(ArgumentError, match=words):
        train(**stranger, checkpoint=tmp_path)
    assert (tmp_path / "state.safetensors").read_bytes() == before
    assert same_weights(stranger["model"], arguments(other)["model"]), "the model was touched"


def test_a_loop_over_seeds_with_one_folder_is_refused(tmp_path: Path) -> None:
    train(layer(seed=0), product(), SETTINGS, checkpoint=tmp_path)
    for seed in (1, 2, 3):
        with pytest.raises(ArgumentError, match="other weights"):
            train(layer(seed=seed), product(), SETTINGS, checkpoint=tmp_path)


def test_random_examples_do_not_stand_in_the_way(tmp_path: Path) -> None:
    class Random(Rows):
        def __getitem__(self, index: int) -> Any:
            return self.x[index] + torch.rand(2) * random.random(), self.y[index]

    state, python = torch.get_rng_state(), random.getstate()
    train(layer(), loader(Random(0)), SETTINGS, checkpoint=tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    random.setstate(python)
    assert train(layer(), loader(Random(0)), SETTINGS, checkpoint=tmp_path).resumed_at


# ---- Damage. -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train(layer(), product(), SETTINGS, checkpoint=folder, checkpoint_seconds=0)
    return folder


def copied(folder: Path, to: Path) -> Path:
    for file in folder.glob("*.*"):
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_every_flipped_bit_is_noticed(trained: Path, tmp_path: Path) -> None:
    data = (trained / "state.safetensors").read_bytes()
    good = Checkpoints(trained).read()
    assert good is not None
    chance = random.Random(0)
    places = [*range(0, 400, 7), *(chance.randrange(len(data)) for _ in range(250))]
    (tmp_path / "before.safetensors").write_bytes((trained / "before.safetensors").read_bytes())
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8)
        (tmp_path / "state.safetensors").write_bytes(flipped)
        with pytest.warns(CheckpointWarning, match="damaged"):
            state = Checkpoints(tmp_path).read()
        assert state is not None
        assert (state["stopped"], good["stopped"]) == (None, "epochs"), "the damaged one was taken"


def test_a_damaged_state_falls_back_and_ends_with_the_same_weights(trained: Path, tmp_path: Path) -> None:
    whole, again = layer(), layer()
    train(whole, product(), SETTINGS)
    folder = copied(trained, tmp_path)
    (folder / "state.safetensors").write_bytes(b"half of a file")
    with pytest.warns(CheckpointWarning, match=r"before.safetensors, is used"):
        train(again, product(), SETTINGS, checkpoint=folder)
    assert same_weights(whole, again)
    (folder / "state.safetensors").unlink()  # killed between two renames, where there are no links
    last = layer()
    train(last, product(), SETTINGS, checkpoint=folder)
    assert same_weights(whole, last)


@pytest.mark.parametrize(
    "tree",
    [
        5,
        {"dict": []},
        {"dict": [["about", 3]]},
        {"tensor": "77"},
        {"dict": [["about", {"dict": []}], ["model", {"tensor": "0"}]]},
        {"a": 1, "b": 2},
        {"list": 3},
        {"dict": [[{"x": 1}, 2]]},
    ],
)
def test_whole_files_of_nonsense_are_refused(tree: Any, tmp_path: Path) -> None:
    """Their digest is right: somebody wrote them so."""
    import json

    data = sealed({"0": torch.zeros(2)}, {"mlayer-checkpoint": json.dumps({"format": FORMAT, "tree": tree})})
    (tmp_path / "state.safetensors").write_bytes(data)
    model = layer()
    with pytest.raises(FileFormatError, match="Delete it to start over"):
        train(model, product(), SETTINGS, checkpoint=tmp_path)
    assert same_weights(model, layer())


@pytest.mark.parametrize(
    "part", ["optimizer", "model", "random", "augment", "rate", "best", "history", "step"]
)
def test_a_state_without_a_part_is_refused(part: str, trained: Path, tmp_path: Path) -> None:
    state = Checkpoints(trained).read()
    assert state is not None
    for wrong in ("gone", "another type"):
        changed = dict(state)
        if wrong == "gone":
            del changed[part]
        else:
            changed[part] = "nonsense" if part != "history" else [3]
        folder = tmp_path / wrong
        Checkpoints(folder).write_first({"history": [], **changed} if part == "history" else changed)
        model = layer()
        try:
            train(model, product(), SETTINGS, checkpoint=folder)
        except FileFormatError:
            assert same_weights(model, layer()), "the model was touched"
        else:
            assert part in ("history", "step"), part


# ---- One at a time. --------------------------------------------------------------------------------------


def hold(folder: str, there: Any, ending: Any) -> None:
    with Checkpoints(Path(folder)).alone():
        there.set()
        ending.wait()


def test_two_processes_in_one_folder_are_refused_and_a_dead_one_frees_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    there, ending = context.Event(), context.Event()
    process = context.Process(target=hold, args=(str(tmp_path), there, ending), daemon=True)
    process.start()
    assert there.wait(900), "it did not start"
    with pytest.raises(CheckpointError, match="another process or thread trains there"):
        train(layer(), product(), SETTINGS, checkpoint=tmp_path)
    assert not (tmp_path / "state.safetensors").exists()
    process.kill()  # leaves its lock file behind
    process.join()
    assert train(layer(), product(), SETTINGS, checkpoint=tmp_path).stopped == "epochs"


def test_a_second_run_of_the_same_process_is_refused(tmp_path: Path) -> None:
    def inside(record: object) -> None:
        with pytest.raises(CheckpointError, match="no other run trains"):
            train(layer(), product(), SETTINGS, checkpoint=tmp_path)

    train(layer(), product(), SETTINGS, checkpoint=tmp_path, on_epoch=inside)


# ---- Many. -------------------------------------------------------------------------------------------------


def build(settings: Settings) -> torch.nn.Module:
    return layer(seed=settings.seed)


def kill_once(folder: str, settings: Settings) -> torch.nn.Module:
    """The second run's process is killed the first time."""
    mark = Path(folder) / "killed"
    if settings.seed == 1 and not mark.exists():
        time.sleep(0.5)  # the first run may end
        mark.touch()
        os.kill(os.getpid(), 9)
    return build(settings)


def kill_always(settings: Settings) -> torch.nn.Module:
    if settings.seed == 1:
        os.kill(os.getpid(), 9)
    return build(settings)


@pytest.mark.slow
def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    from mlayer.training import train_many

    runs = train_many(partial(kill_once, str(tmp_path)), product(), SETTINGS, seeds=range(4), n_jobs=2)
    assert (tmp_path / "killed").exists(), "nobody was killed"
    alone = train_many(build, product(), SETTINGS, seeds=range(4), n_jobs=1)
    assert [run.settings.seed for run in runs] == [0, 1, 2, 3]
    assert all(same_weights(a.model, b.model) for a, b in zip(runs, alone, strict=True))


@pytest.mark.slow
def test_a_run_that_kills_its_process_is_named_and_the_others_are_kept() -> None:
    from mlayer.training import RunsLostError, train_many

    with pytest.raises(RunsLostError, match=r"runs 1 \(seed 1\) were killed") as caught:
        train_many(kill_always, product(), SETTINGS, seeds=range(3), n_jobs=2)
    assert [run.settings.seed for run in caught.value.finished] == [0, 2]
    assert caught.value.lost == [1]


class NeedsTwoError(Exception):
    """Cannot be built again from its message."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


class HoldsLockError(Exception):
    """Cannot be sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


@pytest.mark.parametrize("error", [NeedsTwoError("the", "reason"), HoldsLockError("the reason")])
def test_an_error_that_cannot_be_sent_is_told(error: Exception) -> None:
    """A process that cannot send its error would be taken for one that was killed."""
    told = sendable(error, "run 1")
    assert isinstance(told, RunFailedError)
    assert f"run 1 ended with {type(error).__name__}: the reason" in str(told)
    for same in (ValueError("x"), ArgumentError("n", "1", "2", "Use 1.")):
        assert sendable(same, "run 1") is same


@pytest.mark.slow
def test_an_error_that_cannot_be_sent_is_no_killed_worker() -> None:
    from mlayer.training import train_many

    def broken(settings: Settings) -> torch.nn.Module:
        raise NeedsTwoError("the", "reason")

    with pytest.raises(RunFailedError, match=r"run 0 \(seed 0\) ended with NeedsTwoError: the reason"):
        train_many(broken, product(), SETTINGS, seeds=range(2), n_jobs=2)


@pytest.mark.slow
def test_an_error_of_the_work_itself_is_passed_on() -> None:
    from mlayer.training import train_many

    def broken(settings: Settings) -> torch.nn.Module:
        raise ZeroDivisionError("in build")

    with pytest.raises(ZeroDivisionError, match="in build"):
        train_many(broken, product(), SETTINGS, seeds=range(2), n_jobs=2)
