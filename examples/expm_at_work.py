"""The exponential at work: accuracy and speed compared with torch.

The ratios are a first look, measured in seconds on whatever else the machine does; benchmarks/expm.py
measures them with care. `MLAYER_EXPM=matmul` shows the path without the compiled kernel.

    python examples/expm_at_work.py          some seconds; writes out/expm_at_work.png
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import mlayer

OUT = Path("out")


def seconds(call: Callable[[], object], block: float = 0.008) -> float:
    """Seconds per call, over a block of calls long enough to measure."""
    call()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < block:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


def faster(n: int, batch: int) -> tuple[float, float]:
    """The factor of speed over torch: forward, forward and backward. Both sides in turn, medians."""
    generator = torch.Generator().manual_seed(n)
    A = torch.randn(batch, n, n, generator=generator) * 1.75 / n**0.5
    G = torch.randn(batch, n, n, generator=generator)
    leaf = A.clone().requires_grad_()

    def both(f: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.autograd.grad(f(leaf), leaf, G)[0]

    def ratio(run: Callable[[Callable[[Tensor], Tensor]], object]) -> float:
        pairs = [
            (seconds(lambda: run(torch.linalg.matrix_exp)), seconds(lambda: run(mlayer.expm)))
            for _ in range(3)
        ]
        return statistics.median(theirs / ours for theirs, ours in pairs)

    return ratio(lambda f: f(A)), ratio(both)


def error(f: Callable[[Tensor], Tensor], A: Tensor, exact: Tensor) -> float:
    return float((f(A).double() - exact).norm() / exact.norm())


def far_from_normal(s: float) -> tuple[Tensor, Tensor]:
    """[[1, s], [0, -1]] and its exponential, which is known: A^2 = I."""
    e = torch.e
    exact = torch.tensor([[e, s * (e - 1 / e) / 2], [0, 1 / e]], dtype=torch.float64)
    return torch.tensor([[1.0, s], [0.0, -1.0]]), exact


def main() -> None:
    path = mlayer.expm_path()
    print(f"mlayer {mlayer.__version__}: {path.name} path, {path.reason}; torch {torch.__version__}\n")

    print("Accuracy in float32: [[1, s], [0, -1]], relative error against the closed form")
    print(f"{'s':>10} {'mlayer':>10} {'torch':>10}")
    sizes = [10.0**k for k in range(0, 13, 2)]
    errors: dict[str, list[float]] = {"mlayer": [], "torch": []}
    for s in sizes:
        A, exact = far_from_normal(s)
        errors["mlayer"].append(error(mlayer.expm, A, exact))
        errors["torch"].append(error(torch.linalg.matrix_exp, A, exact))
        print(f"{s:10.0e} {errors['mlayer'][-1]:10.1e} {errors['torch'][-1]:10.1e}")

    print("\nSpeed in float32: times faster than torch.linalg.matrix_exp")
    print(f"{'n':>4} {'batch':>6} {'forward':>9} {'with gradient':>14}")
    cells = [(n, batch) for n in (6, 12, 32, 64) for batch in (32, 256)]
    ratios = []
    for n, batch in cells:
        ratios.append(faster(n, batch))
        print(f"{n:4d} {batch:6d} {ratios[-1][0]:8.1f}x {ratios[-1][1]:13.1f}x", flush=True)
    print(f"\nPicture: {picture(sizes, errors, cells, ratios)}")


def picture(
    sizes: list[float],
    errors: dict[str, list[float]],
    cells: list[tuple[int, int]],
    ratios: list[tuple[float, float]],
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    colors = {"mlayer": "#0072B2", "torch": "#D55E00"}

    # What an exponential does: a spiral sink, the orbit of one point under exp(tA).
    A = torch.tensor([[-0.15, -1.0], [1.0, -0.15]])
    t = torch.linspace(0, 22, 600)
    orbit = mlayer.expm(t[:, None, None] * A)[:, :, 0]
    left.plot(orbit[:, 0], orbit[:, 1], color=colors["mlayer"])
    left.plot(*orbit[0], "o", color="0.2")
    left.set_aspect("equal")
    left.set_title("one matrix, 600 exponentials: exp(tA) x", loc="left")

    for name, values in errors.items():
        middle.loglog(sizes, values, "o-", color=colors[name], label=name)
    middle.axhline(torch.finfo(torch.float32).eps, color="0.5", linestyle=":", label="float32 epsilon")
    middle.set_xlabel("s")
    middle.set_title("relative error, [[1, s], [0, -1]]", loc="left")
    middle.legend(loc="best", frameon=False)

    place = range(len(cells))
    right.bar([p - 0.2 for p in place], [r[0] for r in ratios], 0.4, color="#56B4E9", label="forward")
    right.bar([p + 0.2 for p in place], [r[1] for r in ratios], 0.4, color="#0072B2", label="with gradient")
    right.axhline(1, color="0.3", linewidth=0.8)
    right.set_xticks(list(place), [f"{n}\n{batch}" for n, batch in cells])
    right.set_xlabel("matrix size n (above), batch (below)")
    right.set_title("times faster than torch", loc="left")
    right.legend(loc="best", frameon=False)

    OUT.mkdir(exist_ok=True)
    file = OUT / "expm_at_work.png"
    figure.savefig(file, dpi=90)
    return file


if __name__ == "__main__":
    main()
