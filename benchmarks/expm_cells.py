"""One cell of benchmarks/expm.py: a size, a batch and a dtype, everything measured in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import expm_others
import torch
from measure import Timing, interleaved
from torch import Tensor

import mlayer
from mlayer.exponential.paths import VARIABLE
from mlayer.exponential.schedule import root_of_square_norm, schedule_for

# The released CIFAR-10 model has 2-norms of M between 3 and 4 (the paper, section 4.5).
NORM = 3.5
LARGE_PRODUCT = 2048  # n of the product whose rate is the machine's
Function = Callable[[Tensor], Tensor]
Call = Callable[[], object]


@dataclass
class Cell:
    """Times, errors, and the memory kept for the backward pass."""

    n: int
    batch: int
    dtype: str
    path: str  # of ours: "auto" or "matmul"
    products: float  # k + s, mean over the batch, of our forward pass
    forward: dict[str, Timing] = field(default_factory=dict)
    both: dict[str, Timing] = field(default_factory=dict)
    forward_error: dict[str, float] = field(default_factory=dict)
    gradient_error: dict[str, float] = field(default_factory=dict)
    kept_bytes: dict[str, int] = field(default_factory=dict)
    # Seconds of all products of forward + backward at the rate of one large product, and that rate.
    floor_products: float | None = None
    large_product_rate: float | None = None

    def ratio(self, other: str, kind: str = "both") -> float:
        times: dict[str, Timing] = getattr(self, kind)
        return times[other].median / times["mlayer"].median

    @property
    def floor(self) -> float:
        """Seconds below which no implementation can go: autograd's own work, and the products'."""
        assert self.floor_products is not None
        return self.both["empty"].median + self.floor_products

    @property
    def times_floor(self) -> float:
        return self.both["mlayer"].median / self.floor

    @property
    def rate_fraction(self) -> float:
        """The fraction of the large product's rate, all products of both passes counted."""
        assert self.floor_products is not None
        return self.floor_products / self.both["mlayer"].median


def matrices(n: int, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n * 10007 + batch)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    A = torch.randn(batch, n, n, generator=generator, dtype=wide)
    A *= NORM / torch.linalg.matrix_norm(A, 2)[:, None, None]
    return A.to(dtype), torch.randn(batch, n, n, generator=generator, dtype=wide).to(dtype)


def product_counts(A: Tensor) -> tuple[float, float]:
    """Products of our forward pass and of our backward pass, means over the batch."""
    cost = {2: 1, 4: 2, 8: 3, 16: 4}
    wide = A.to(torch.complex128 if A.is_complex() else torch.float64)
    sizes = root_of_square_norm(wide @ wide).tolist()
    norms = wide.abs().sum(-2).amax(-1).tolist()

    def mean(derivative: bool) -> float:
        schedule = schedule_for(A.dtype, derivative)
        counts = [
            cost[schedule.degree(d, norm)] + (0 if norm <= schedule.norm_theta[-1] else schedule.squarings(d))
            for d, norm in zip(sizes, norms, strict=True)
        ]
        return sum(counts) / len(counts)

    # A product of jets is three products; of the last one the value is not wanted.
    return mean(False), 3 * mean(True) - 1


def gradient(f: Function, A: Tensor, G: Tensor) -> Tensor:
    return torch.autograd.grad(f(A), A, G)[0]


def kept(f: Function, A: Tensor) -> int:
    """Bytes of distinct tensors that the graph holds on to for the backward pass."""
    held: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        held[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        f(A)
    return sum(held.values())


def relative_error(X: Tensor, exact: Tensor) -> float:
    """Largest normwise error of a batch."""
    return float(((X.double() - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)).max())


def reference(A: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """exp(A) and the gradient by Arb balls, from the exponential of the 2n x 2n block matrix."""
    import flint

    n = A.shape[-1]
    block = torch.zeros(len(A), 2 * n, 2 * n, dtype=torch.float64)
    block[:, :n, :n] = block[:, n:, n:] = A.double().mT
    block[:, :n, n:] = G.double()
    flint.ctx.prec = 150
    exact = [flint.arb_mat(matrix.tolist()).exp().tolist() for matrix in block]
    X = torch.tensor(
        [[[float(entry.mid()) for entry in row] for row in m] for m in exact], dtype=torch.float64
    )
    return X[:, :n, :n].mT, X[:, :n, n:]


def measure_cell(n: int, batch: int, dtype: torch.dtype, repetitions: int, path: str = "auto") -> Cell:
    """Ours relative to torch's, and relative to the floors where ours is the kernel."""
    A, G = matrices(n, batch, dtype)
    leaf = A.clone().requires_grad_()
    os.environ[VARIABLE] = path  # a machine without a kernel has no argument to say so either
    contenders: dict[str, Function] = {"mlayer": mlayer.expm, "torch": torch.linalg.matrix_exp}
    both: dict[str, Call] = {name: partial(gradient, f, leaf, G) for name, f in contenders.items()}
    forward_products, backward_products = product_counts(A)
    cell = Cell(n, batch, str(dtype).removeprefix("torch."), path, forward_products)
    cell.forward = interleaved({name: partial(f, A) for name, f in contenders.items()}, repetitions)
    if path == "auto" and not dtype.is_complex:
        # What autograd itself takes for an operator that does nothing, and what the machine multiplies.
        both["empty"] = partial(gradient, lambda a: a.view_as(a), leaf, G)
        large = torch.randn(LARGE_PRODUCT, LARGE_PRODUCT, dtype=dtype)
        both["large product"] = lambda: large @ large
    cell.both = interleaved(both, repetitions)
    if "large product" in cell.both:
        cell.large_product_rate = 2 * LARGE_PRODUCT**3 / cell.both["large product"].median
        operations = (forward_products + backward_products) * 2 * n**3 * batch
        cell.floor_products = operations / cell.large_product_rate
        measure_errors(cell, contenders, A, G)
    return cell


def measure_errors(cell: Cell, contenders: dict[str, Function], A: Tensor, G: Tensor) -> None:
    few = slice(0, 8 if cell.n <= 32 else 1)
    exact, exact_gradient = reference(A[few], G[few])
    for name, f in contenders.items():
        cell.forward_error[name] = relative_error(f(A[few]), exact)
        few_leaf = A[few].clone().requires_grad_()
        cell.gradient_error[name] = relative_error(gradient(f, few_leaf, G[few]), exact_gradient)
        cell.kept_bytes[name] = kept(f, A.clone().requires_grad_())


def measure_others(n: int, batch: int, dtype: torch.dtype, repetitions: int) -> Cell:
    """The other libraries alone: with their thread pools loaded, torch and mlayer would be slower."""
    A, G = matrices(n, batch, dtype)
    cell = Cell(n, batch, str(dtype).removeprefix("torch."), "others", product_counts(A)[0])
    cell.forward = interleaved(expm_others.forward(A), repetitions)
    cell.both = interleaved(expm_others.both(A, G), repetitions)
    return cell


def summary_line(cell: Cell) -> str:
    """Lines for the reader at the screen."""

    def column(kind: str) -> str:
        times: dict[str, Timing] = getattr(cell, kind)
        if "mlayer" not in times:
            return "  ".join(f"{name} {timing.median * 1e3:.3g} ms" for name, timing in times.items())
        ours = times["mlayer"]
        spread = (ours.high - ours.low) / ours.median
        return f"{ours.median * 1e6:9.0f} us (spread {spread:3.0%})  torch {cell.ratio('torch', kind):5.1f}x"

    lines = [
        f"{cell.dtype} n={cell.n:3d} batch={cell.batch:4d} {cell.path}  forward {column('forward')}",
        f"{'':30}  both    {column('both')}",
    ]
    if cell.floor_products is not None:
        lines[-1] += f"  {cell.times_floor:.2f} x the floors, {cell.rate_fraction:.2f} of the large product"
        errors = "  ".join(
            f"{name} {cell.forward_error[name]:.1e}/{cell.gradient_error[name]:.1e}"
            for name in cell.forward_error
        )
        lines.append(f"{'':30}  error of value/gradient: {errors}")
    return "\n".join(lines)
