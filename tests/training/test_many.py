"""Many runs: in this process, in others, and through joblib's back ends for clusters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import joblib
import pytest
import torch
from problems import layer, product, same_weights

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.training import Settings, Trained, train, train_many
from mlayer.training.many import RunsLostError
from mlayer.training.retry_killed_tasks import Packed, RunFailedError, all_done, check_sendable, sendable

HERE = Path(__file__).parent
SETTINGS = Settings(epochs=3, learning_rate=1e-2)


def build(settings: Settings) -> torch.nn.Module:
    return layer(seed=settings.seed)


def alone(seed: int) -> torch.nn.Module:
    model = layer(seed=seed)
    train(model, product(), Settings(epochs=3, learning_rate=1e-2, seed=seed), validation=product(9))
    return model


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_each_run_is_what_it_would_be_alone(n_jobs: int) -> None:
    done: list[Trained] = []
    threads = torch.get_num_threads()
    runs = train_many(
        build, product(), SETTINGS, seeds=[0, 1, 2], validation=product(9), n_jobs=n_jobs, on_done=done.append
    )
    assert torch.get_num_threads() == threads
    assert [run.settings.seed for run in runs] == [0, 1, 2]
    assert all(same_weights(run.model, alone(run.settings.seed)) for run in runs)
    assert done == runs
    assert not same_weights(runs[0].model, runs[1].model)


def test_settings_may_differ_and_a_diverging_run_does_not_stop_the_others(tmp_path: Path) -> None:
    several = [
        SETTINGS,
        Settings(epochs=300, optimizer="sgd", learning_rate=99.0),
        Settings(epochs=1, learning_rate=1e-3),
    ]
    runs = train_many(build, product(), several, checkpoint=tmp_path)
    assert [run.result.stopped for run in runs] == ["epochs", "diverged", "epochs"]
    assert [len(runs[0].result.history), len(runs[2].result.history)] == [3, 1]
    assert {p.name for p in tmp_path.iterdir()} == {"run-0", "run-1", "run-2"}
    again = train_many(build, product(), several, checkpoint=tmp_path)
    assert again[0].result.resumed_at == 9
    assert all(same_weights(a.model, b.model) for a, b in zip(runs, again, strict=True))


def test_large_data_reach_the_processes() -> None:
    """Beyond joblib's limit arrays are memory maps in the other processes; training must not mind."""
    x = torch.rand(200_000, 2)
    data = (x, x[:, :1] * x[:, 1:])
    settings = Settings(epochs=1, batch_size=20_000, learning_rate=1e-2)
    before = x.clone()
    runs = train_many(build, data, settings, seeds=[0, 1], n_jobs=2)
    assert [run.result.steps for run in runs] == [10, 10]
    assert torch.equal(x, before)


CLUSTER = """
import warnings; warnings.simplefilter("ignore")
import joblib, torch
from problems import layer, product, same_weights
from mlayer.training import Settings, train, train_many
torch.set_num_threads(1)

def build(settings):
    from problems import layer
    return layer(seed=settings.seed)

settings = Settings(epochs=3, learning_rate=1e-2)
def check(runs):
    assert [run.settings.seed for run in runs] == [0, 1]
    for run in runs:
        model = layer(seed=run.settings.seed)
        train(model, product(), Settings(epochs=3, learning_rate=1e-2, seed=run.settings.seed))
        assert same_weights(run.model, model)
"""

RAY = (
    CLUSTER
    + """
import ray
from ray.util.joblib import register_ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
register_ray()
with joblib.parallel_config(backend="ray", n_jobs=2):
    runs = train_many(build, product(), settings, seeds=[0, 1])
check(runs)
ray.shutdown()
print("ran on ray")
"""
)

DASK = (
    CLUSTER
    + """
if __name__ == "__main__":
    from distributed import Client
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False):
        with joblib.parallel_config(backend="dask"):
            runs = train_many(build, product(), settings, seeds=[0, 1])
    check(runs)
    print("ran on dask")
"""
)


@pytest.mark.slow  # Ray and Dask start servers that find each other in their own time
@pytest.mark.parametrize(("package", "script"), [("ray", RAY), ("distributed", DASK)])
def test_the_same_call_runs_on_a_cluster(package: str, script: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"needs {package}: pip install mlayer[cluster]")
    file = tmp_path / "script.py"
    file.write_text(script)
    paths = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    environment: dict[str, Any] = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, env=environment, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"ran on {'dask' if package == 'distributed' else package}" in done.stdout


def with_a_lock(settings: Settings) -> torch.nn.Module:
    model = layer(seed=settings.seed)
    model.lock = threading.Lock()
    return model


def ending_its_process(settings: Settings) -> torch.nn.Module:
    if settings.seed == 1:
        os._exit(0)  # as a library may do that gives up
    return layer(seed=settings.seed)


def test_a_model_that_cannot_be_sent_is_refused_before_the_work() -> None:
    with pytest.raises(ArgumentTypeError, match="build must be a callable that returns a model that can be"):
        train_many(with_a_lock, product(), SETTINGS, seeds=[0, 1], n_jobs=2)
    assert len(train_many(with_a_lock, product(), SETTINGS, seeds=[0], n_jobs=1)) == 1


@pytest.mark.slow
def test_a_process_that_ends_itself_is_named_and_the_others_are_kept() -> None:
    with pytest.raises(RunsLostError, match=r"1 \(seed 1\)") as caught:
        train_many(ending_its_process, product(), SETTINGS, seeds=[0, 1, 2], n_jobs=2)
    assert [run.settings.seed for run in caught.value.finished] == [0, 2]
    assert all(same_weights(r.model, layer_trained(r.settings.seed)) for r in caught.value.finished)


class NoWordsError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("error", [SystemExit(0), NoWordsError(), StopIteration("x"), GeneratorExit()])
def test_errors_that_would_end_the_caller_are_told(error: BaseException) -> None:
    """`sys.exit` of a worker ended the program that waited for it, with code 0."""
    told = sendable(error, "run 1 (seed 1)")
    assert isinstance(told, RunFailedError)
    assert f"run 1 (seed 1) ended with {type(error).__name__}" in str(told)
    stopped = KeyboardInterrupt()
    assert sendable(stopped, "run 1") is stopped
    assert stopped.__notes__ == ["run 1"]


def failing(settings: Settings) -> torch.nn.Module:
    if settings.seed == 1:
        raise ZeroDivisionError("in build")
    return layer(seed=settings.seed)


def leaving(settings: Settings) -> torch.nn.Module:
    if settings.seed == 1:
        time.sleep(1)
        sys.exit(0)
    return layer(seed=settings.seed)


def test_an_error_of_one_run_keeps_those_that_have_ended() -> None:
    with pytest.raises(ZeroDivisionError, match="in build") as caught:
        train_many(failing, product(), SETTINGS, seeds=[0, 1, 2], n_jobs=1)
    finished: Any = caught.value.finished  # type: ignore[attr-defined]
    assert [run.settings.seed for run in finished] == [0]
    assert same_weights(finished[0].model, layer_trained(0))
    assert "run 1 (seed 1)" in caught.value.__notes__


class OwnEnd(BaseException):
    """The error of a library that ends its tasks by it."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, OwnEnd])
def test_whatever_ends_the_call_keeps_the_runs_that_have_ended(error: type[BaseException]) -> None:
    def build_two(settings: Settings) -> torch.nn.Module:
        if settings.seed == 2:
            raise error
        return layer(seed=settings.seed)

    with pytest.raises(error) as caught:
        train_many(build_two, product(), SETTINGS, seeds=[0, 1, 2, 3], n_jobs=1)
    finished: Any = caught.value.finished  # type: ignore[attr-defined]
    assert [run.settings.seed for run in finished] == [0, 1]
    assert "run 2 (seed 2)" in caught.value.__notes__


class Unpackable:
    """Cannot be pickled, or not be made again, by an error or by an exit."""

    def __init__(self, reduced: Any) -> None:
        self.reduced = reduced

    def __call__(self, *arguments: Any) -> Any:
        return layer()

    def __reduce__(self) -> Any:
        return self.reduced() if callable(self.reduced) else self.reduced


UNPACKABLE = {
    "error": lambda: 1 // 0,
    "exit": lambda: sys.exit(5),
    "cannot be made": (int, ("no number",)),
    "exits when made": (sys.exit, (3,)),
}


@pytest.mark.parametrize("kind", UNPACKABLE)
def test_what_cannot_go_to_another_process_is_named(kind: str) -> None:
    """It was a raw error of pickle, or the process that could not make it again looked like a killed one."""
    value = Unpackable(UNPACKABLE[kind])
    with pytest.raises(ArgumentTypeError, match=r"build must be an object that can be pickled"):
        Packed(build=value)()
    with pytest.raises(ArgumentTypeError, match=r"build must be a callable that returns a model"):
        check_sendable("build", value, "a model that")


def test_arguments_that_cannot_be_packed_are_refused_before_any_process_starts() -> None:
    lock = threading.Lock()
    data = product()
    with pytest.raises(ArgumentTypeError, match=r"build must be .*cannot pickle '_thread.lock'.*n_jobs=1"):
        train_many(lambda settings: (layer(), lock)[0], data, SETTINGS, seeds=[0, 1], n_jobs=2)
    with pytest.raises(ArgumentTypeError, match=r"augment must be .*cannot pickle '_thread.lock'"):
        train_many(build, data, SETTINGS, seeds=[0, 1], n_jobs=2, augment=lambda x, g: (x, lock)[0])
    one, other = Packed(build=build, settings=SETTINGS)()
    assert (one, other) == (build, SETTINGS)


@pytest.mark.parametrize(
    "name", ["WorkerCrashedError", "OwnerDiedError", "LocalRayletDiedError", "KilledWorker"]
)
def test_a_machine_that_is_lost_is_no_error_of_the_run(name: str) -> None:
    """Names of Ray's and Dask's errors: a result that was lost with its machine ended the whole sweep."""
    base: Any = type("ObjectLostError", (Exception,), {}) if name == "OwnerDiedError" else Exception
    lost: Any = type(name, (base,), {})
    calls: list[int] = []

    def task(number: int) -> tuple[int, int]:
        calls.append(number)
        if calls == [0, 1]:
            raise lost
        return number, 10 * number

    found: dict[int, int] = {}
    all_done([joblib.delayed(task)(number) for number in range(3)], 1, found)
    assert found == {0: 0, 1: 10, 2: 20}
    assert calls == [0, 1, 1, 2]


@pytest.mark.parametrize("accidents", [3, 4])
def test_a_run_that_dies_alone_is_tried_once_more(accidents: int) -> None:
    """One that was lost with its neighbors twice, then killed for the first time itself, was given up."""
    calls: list[int] = []

    def task(number: int) -> tuple[int, int]:
        calls.append(number)
        if number == 1 and calls.count(1) <= accidents:
            raise BrokenExecutor
        return number, 10 * number

    found: dict[int, int] = {}
    all_done([joblib.delayed(task)(number) for number in range(3)], 1, found)
    assert found == ({0: 0, 1: 10, 2: 20} if accidents == 3 else {0: 0, 2: 20})
    assert calls == [0, 1, 1, 1, 1, 2]


def test_a_back_end_that_would_wait_for_a_killed_process_is_refused() -> None:
    with (
        joblib.parallel_config(backend="multiprocessing", n_jobs=2),
        pytest.raises(ArgumentError, match=r"back end of joblib must be .*got 'multiprocessing'"),
    ):
        train_many(build, product(), SETTINGS, seeds=[0, 1])


@pytest.mark.slow
def test_a_worker_that_leaves_is_named() -> None:
    with pytest.raises(RunFailedError, match=r"run 1 \(seed 1\) ended with SystemExit: 0"):
        train_many(leaving, product(), SETTINGS, seeds=[0, 1, 2], n_jobs=2)


def layer_trained(seed: int) -> torch.nn.Module:
    model = layer(seed=seed)
    train(model, product(), Settings(epochs=3, learning_rate=1e-2, seed=seed))
    return model


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["gradients", "bfloat16", "a view"])
def test_every_tensor_that_train_takes_reaches_the_runs(kind: str, n_jobs: int) -> None:
    """Data that numpy cannot take unchanged ended in an error of torch."""
    x, y = product()
    change: Any = {
        "gradients": lambda one: one.clone().requires_grad_(),
        "bfloat16": lambda one: one.bfloat16(),
        "a view": lambda one: torch.complex(one, -one).conj().imag,
    }[kind]
    loss: Any = lambda model, x, y: (p := model(x.float()), (p - y.float()).square().mean(1))  # noqa: E731
    settings = Settings(epochs=1, loss=loss)
    model = layer()
    train(model, (change(x), change(y)), settings)
    (run,) = train_many(build, (change(x), change(y)), settings, seeds=[0], n_jobs=n_jobs)
    assert same_weights(run.model, model)


def test_a_relative_folder_is_that_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of an earlier call are still where that call was."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        train_many(build, product(), SETTINGS, seeds=[0, 1], n_jobs=2, checkpoint="runs")
        assert {path.name for path in (tmp_path / name / "runs").iterdir()} == {"run-0", "run-1"}
