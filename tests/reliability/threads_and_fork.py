"""Eight threads of expm at once, and fork after use: python threads_and_fork.py threads|fork."""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch

import mlayer

THREADS, ROUNDS = 8, 8


def work(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The exponentials of a batch and their gradient."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(64, 16, 16, dtype=torch.float64, generator=generator).requires_grad_()
    e = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(e.square().sum(), a)
    return e.detach(), gradient


def same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(one, other, strict=True))


def threads() -> int:
    """Threads that found something else than one thread alone does, of all."""
    expected = [work(seed) for seed in range(THREADS)]
    wrong: list[int] = []
    start = threading.Barrier(THREADS)

    def one(seed: int) -> None:
        start.wait()
        wrong.extend(seed for _ in range(ROUNDS) if not same(work(seed), expected[seed]))

    workers = [threading.Thread(target=one, args=(seed,)) for seed in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(wrong)


def fork() -> int:
    """Forked processes that found something else, or hung, after their parent had used its threads."""
    expected = [work(seed) for seed in range(THREADS)]
    wrong = 0
    for seed in range(THREADS):
        child = os.fork()
        if child == 0:
            signal.alarm(900)  # a hang ends in a signal
            os._exit(0 if same(work(seed), expected[seed]) else 1)
        _, status = os.waitpid(child, 0)
        wrong += status != 0
    return wrong


if __name__ == "__main__":
    torch.set_num_threads(4)
    sys.exit({"threads": threads, "fork": fork}[sys.argv[1]]())
