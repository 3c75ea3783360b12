"""A sweep of four runs; one of its workers is killed halfway: python killed_sweep.py BACKEND FOLDER."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import joblib
import torch

from mlayer.training import Settings, train, train_many

SETTINGS = Settings(epochs=4, batch_size=16, learning_rate=1e-2)
SEEDS = [0, 1, 2, 3]


def build(settings: Settings) -> torch.nn.Module:
    """The model; the first worker that gets seed 1 is killed when it begins to train."""
    from problems import layer

    model = layer(seed=settings.seed)
    mark = Path(os.environ["MLAYER_TEST_MARK"])
    if settings.seed == 1 and not mark.exists():
        mark.touch()
        model.register_forward_hook(kill_at_the_tenth_step())
    return model


def kill_at_the_tenth_step() -> Any:
    calls = 0

    def hook(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def main(backend: str, folder: Path) -> None:
    from problems import product, same_weights

    os.environ["MLAYER_TEST_MARK"] = str(folder / "mark")
    with ExitStack() as stack:
        if backend == "ray":
            import ray
            from ray.util.joblib import register_ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(ray.shutdown)
            register_ray()
        if backend == "distributed":
            from distributed import Client

            stack.enter_context(Client(n_workers=2, threads_per_worker=1, dashboard_address=None))
        name = "dask" if backend == "distributed" else backend
        stack.enter_context(joblib.parallel_config(backend=name, n_jobs=2))
        runs = train_many(build, product(), SETTINGS, seeds=SEEDS)
    wrong = [run.settings.seed for run in runs if not same_weights(run.model, alone(run.settings.seed))]
    killed = int((folder / "mark").exists())
    sys.stdout.write(f"{len(runs)} runs, {killed} worker killed, {len(wrong)} wrong\n")


def alone(seed: int) -> torch.nn.Module:
    from dataclasses import replace

    from problems import layer, product

    model = layer(seed=seed)
    train(model, product(), replace(SETTINGS, seed=seed))
    return model


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(sys.argv[1], Path(sys.argv[2]))
