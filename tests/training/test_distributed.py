"""One run on two processes: started as torchrun starts them, and by torchrun itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchrun_script

import mlayer
from mlayer.training.checkpoints import Checkpoints

HERE = Path(__file__).parent
SCRIPT = HERE / "torchrun_script.py"
DIES = 30  # the call of the model at which rank 1 dies, in one of the epochs before the last
HANGS = 900  # seconds: for ever, to the processes of these tests

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def pair(*arguments: object) -> list[tuple[int, str]]:
    """The results of two processes that meet as those of torchrun do, at a store of their parent."""
    store = torch.distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment() | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=HANGS)[1] for process in processes]
    return [(process.returncode, words) for process, words in zip(processes, said, strict=True)]


def alone(folder: Path, epochs: int = 6) -> list[list[float]]:
    """The losses of the run in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torchrun_script.main(folder / "one", folder / "one.json", epochs)
    torch.set_num_threads(threads)
    return losses(folder / "one.json")


def losses(file: Path) -> list[list[float]]:
    found: list[list[float]] = json.loads(file.read_text())
    return found


def assert_same_losses(some: list[list[float]], others: list[list[float]], rel: float) -> None:
    assert len(some) == len(others)
    for a, b in zip(some, others, strict=True):
        assert a == pytest.approx(b, rel=rel)


def assert_same_run(folder: Path) -> None:
    """The run of two processes, in two.json, is the one of this process; both have the same weights."""
    assert_same_losses(alone(folder), losses(folder / "two.json"), rel=1e-10)
    layers = [mlayer.load(folder / f"{name}.safetensors") for name in ("one.0", "two.0", "two.1")]
    for p, q, r in zip(*(m.parameters() for m in layers), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)
        assert torch.equal(q, r)


def assert_goes_on(folder: Path, said: str) -> None:
    """The survivor said what to do; a run of one process goes on and ends as if nothing had happened."""
    assert "WorkerLostError" in said, said[-3000:]
    assert "run the same command again to resume from there" in said
    state = Checkpoints(folder / "two").read()
    assert state is not None
    assert 1 <= state["epoch"] < 6
    torchrun_script.main(folder / "two", folder / "two.json", 6)
    assert_same_losses(losses(folder / "two.json"), alone(folder), rel=1e-9)


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    for code, said in pair(tmp_path / "two", tmp_path / "two.json"):
        assert code == 0, said[-3000:]
    assert_same_run(tmp_path)


@pytest.mark.slow
def test_a_killed_worker_ends_the_other_with_a_message_and_a_checkpoint(tmp_path: Path) -> None:
    (code, said), (killed, _) = pair(tmp_path / "two", tmp_path / "two.json", 6, DIES)
    assert killed == -signal.SIGKILL
    assert code > 0
    assert_goes_on(tmp_path, said)


def torchrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=HANGS, check=False
    )


@pytest.mark.slow
def test_torchrun(tmp_path: Path) -> None:
    done = torchrun(tmp_path / "two", tmp_path / "two.json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert_same_run(tmp_path)


@pytest.mark.slow
def test_torchrun_with_a_killed_worker(tmp_path: Path) -> None:
    """Slow too because what the survivor sees first, the closed connection or the launcher, is luck."""
    done = torchrun(tmp_path / "two", tmp_path / "two.json", 6, DIES)
    assert done.returncode != 0
    assert_goes_on(tmp_path, done.stderr)
