"""Claim: the kernel and torch's own threads do not slow each other down.

    python benchmarks/threads.py

A loop that alternates a large torch product with the kernel, against the sum of each alone. Two
thread pools in one process would take each other's cores; the kernel runs on torch's own pool.
About a minute.
"""

from __future__ import annotations

import sys

import torch
from measure import Target, circumstances, interleaved, save, verdict

import mlayer
from mlayer.exponential import native


def main() -> int:
    facts = circumstances() | {"shares_torch_threads": native.shares_torch_threads()}
    print(facts)
    generator = torch.Generator().manual_seed(0)
    large = torch.randn(1024, 1024, generator=generator)
    found = []
    for n, batch in ((12, 2048), (30, 32), (30, 256), (32, 2048)):
        A = torch.randn(batch, n, n, generator=generator) / n**0.5

        def product() -> None:
            large @ large

        def exponential(A: torch.Tensor = A) -> None:
            mlayer.expm(A)

        def alternating(A: torch.Tensor = A) -> None:
            large @ large
            mlayer.expm(A)

        times = interleaved(
            {"product": product, "exponential": exponential, "alternating": alternating}, repetitions=15
        )
        alone = times["product"].median + times["exponential"].median
        medians = {name: round(time.median * 1e6) for name, time in times.items()}
        print(f"n={n} batch={batch}, microseconds: {medians}")
        found.append(
            Target(
                f"alternating / sum, n={n} batch={batch}",
                1.1,
                times["alternating"].median / alone,
                at_most=True,
            )
        )
    save("threads", {"circumstances": facts, "ratios": {t.claim: t.reached for t in found}})
    return verdict(found)


if __name__ == "__main__":
    sys.exit(main())
