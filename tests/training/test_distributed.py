"""One run on two processes under torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import mlayer
from mlayer.training.checkpoints import Checkpoints

HERE = Path(__file__).parent
SCRIPT = HERE / "torchrun_script.py"


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def torchrun(*arguments: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*launcher, str(SCRIPT), *arguments]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=300, check=False
    )


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    one = run([sys.executable, str(SCRIPT), str(tmp_path / "a"), str(tmp_path / "one.json")])
    assert one.returncode == 0, one.stderr[-3000:]
    two = run(torchrun(str(tmp_path / "b"), str(tmp_path / "two.json")))
    assert two.returncode == 0, two.stderr[-3000:]
    losses = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two")]
    assert len(losses[0]) == 6
    for a, b in zip(*losses, strict=True):
        assert a == pytest.approx(b, rel=1e-10)
    layers = [mlayer.load(tmp_path / f"{name}.safetensors") for name in ("one.0", "two.0", "two.1")]
    for p, q, r in zip(*(m.parameters() for m in layers), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)
        assert torch.equal(q, r)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_a_killed_worker_ends_the_job_with_a_message_and_a_checkpoint(tmp_path: Path) -> None:
    folder, out = tmp_path / "run", tmp_path / "out" / "two.json"
    log = tmp_path / "log"
    with log.open("wb") as stream:
        job = subprocess.Popen(
            torchrun(str(folder), str(out), "60", "0.1"), stdout=stream, stderr=stream, env=environment()
        )
    deadline = time.monotonic() + 120
    history = folder / "history.jsonl"
    while not (history.exists() and len(history.read_text().splitlines()) >= 3):
        assert job.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.02)
    os.kill(int((out.parent / "pid-1").read_text()), signal.SIGKILL)
    assert job.wait(timeout=120) != 0
    said = log.read_text()
    assert "WorkerLostError" in said, said[-3000:]
    assert "run the same command again to go on from there" in said
    state = Checkpoints(folder).read()
    assert state is not None
    assert 3 <= state["epoch"] < 60
    # The same command again, with one process this time, ends as if nothing had happened.
    again = run([sys.executable, str(SCRIPT), str(folder), str(out), "8"])
    assert again.returncode == 0, again.stderr[-3000:]
    whole = run([sys.executable, str(SCRIPT), str(tmp_path / "whole"), str(tmp_path / "whole.json"), "8"])
    assert whole.returncode == 0, whole.stderr[-3000:]
    resumed, uninterrupted = json.loads(out.read_text()), json.loads((tmp_path / "whole.json").read_text())
    assert len(resumed) == len(uninterrupted)
    for a, b in zip(resumed, uninterrupted, strict=True):
        assert a == pytest.approx(b, rel=1e-9)
