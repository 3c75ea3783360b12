"""Speed of the exponential and of a training step relative to other libraries: ratios measured in one run.

The claims of the README come from the scripts in benchmarks/; this is the short form for the user's own
machine. Contenders take turns, each warmed up, so that what slows the machine slows all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch

from mlayer.errors import ArgumentError
from mlayer.exponential import expm, expm_path
from mlayer.nn import MLayer
from mlayer.nn.arguments import check_device
from mlayer.version import __version__

SIZES = ((6, 256), (12, 256), (30, 256))
_NORM = 3.5  # the paper's trained CIFAR-10 models have 3 to 4

Call = Callable[[], object]


@dataclass(frozen=True)
class SpeedRow:
    """The ratio of the time of ``other`` to that of mlayer: median and quartiles over the turns."""

    what: str
    other: str
    ratio: float
    low: float
    high: float
    milliseconds: float  # of mlayer, median


def bench(
    *,
    turns: int = 7,
    others: bool = True,
    device: str = "cpu",
    on_case: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure and return a JSON object: "rows" and the circumstances.

    Args:
        turns: of each contender.
        others: JAX and TensorFlow too, where installed; on the CPU only.
        device: of torch's tensors, for example "cuda".
        on_case: called with the name of each measurement as it begins.
    """
    check_device(device)
    place = torch.device(device)
    if place.type == "meta":
        raise ArgumentError("device", "one that computes", "'meta', without numbers", "For example 'cpu'.")
    say = on_case or (lambda _: None)
    beside = ("jax", "tensorflow") if others and place.type == "cpu" else ()
    libraries = [name for name in beside if find_spec(name) is not None]
    rows: list[SpeedRow] = []
    for n, batch in SIZES:
        generator = torch.Generator().manual_seed(n)
        A = torch.randn(batch, n, n, generator=generator).to(place)
        A = A * (_NORM / torch.linalg.matrix_norm(A, 2).mean())
        for backward in (False, True):
            name = f"expm {n} x {n}, batch {batch}, {'forward + backward' if backward else 'forward'}"
            say(name)
            calls = {
                "mlayer": _torch_call(expm, A, backward),
                "torch": _torch_call(torch.linalg.matrix_exp, A, backward),
            }
            for library in libraries:
                calls[library] = _OTHERS[library](A, backward)
            rows += _compare(name, calls, turns)
    say("training step")
    rows += _compare("training step, 64 -> 10, n = 30, batch 256", _steps(place), turns)
    return {
        "rows": [asdict(row) for row in rows],
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else str(place),
        "threads": torch.get_num_threads(),
        "kernel": expm_path(torch.zeros(1, 2, 2, device=place)).reason,
        "versions": {
            "mlayer": __version__,
            "torch": torch.__version__,
            **{name: version(name) for name in libraries},
        },
    }


def interleaved_times(calls: Mapping[str, Call], turns: int, block: float = 0.03) -> dict[str, list[float]]:
    """Seconds per call of each contender, one figure for each of its turns.

    A turn is a block of calls of about ``block`` seconds, long enough for the clock and for warm caches, so
    that none pays for what the one before it left behind.
    """
    repeats = {}
    for name, call in calls.items():
        call()  # compile, allocate
        start = time.perf_counter()
        call()
        repeats[name] = max(1, min(2000, round(block / max(1e-9, time.perf_counter() - start))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            call()  # warm again after the others' turns
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return times


def _compare(what: str, calls: Mapping[str, Call], turns: int) -> list[SpeedRow]:
    times = interleaved_times(calls, turns)
    ours = times.pop("mlayer")
    rows = []
    for name, values in times.items():
        ratios = sorted(other / own for other, own in zip(values, ours, strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        rows.append(SpeedRow(what, name, middle, low, high, 1e3 * statistics.median(ours)))
    return rows


def _torch_call(function: Callable[[torch.Tensor], torch.Tensor], A: torch.Tensor, backward: bool) -> Call:
    A = A.clone().requires_grad_(backward)
    weight = torch.ones_like(A)

    def call() -> object:
        if not backward:
            return function(A)
        return torch.autograd.grad(function(A), A, weight)

    return _finished(call, A.device)


def _finished(call: Call, device: torch.device) -> Call:
    """The call and the wait for the device: launches alone are not a result."""
    if device.type == "cpu":
        return call

    def waited() -> None:
        call()
        torch.accelerator.synchronize(device)

    return waited


def _jax_call(A: torch.Tensor, backward: bool) -> Call:
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import expm as other

    a = jnp.asarray(A.numpy())
    function = jax.jit(jax.grad(lambda m: other(m).sum()) if backward else other)
    return lambda: function(a).block_until_ready()


def _tensorflow_call(A: torch.Tensor, backward: bool) -> Call:
    import tensorflow as tf

    a = tf.constant(A.numpy())

    @tf.function  # type: ignore[untyped-decorator]
    def function(m: Any) -> Any:
        if not backward:
            return tf.linalg.expm(m)
        with tf.GradientTape() as tape:
            tape.watch(m)
            total = tf.reduce_sum(tf.linalg.expm(m))
        return tape.gradient(total, m)

    return lambda: function(a).numpy()


_OTHERS: dict[str, Callable[[torch.Tensor, bool], Call]] = {"jax": _jax_call, "tensorflow": _tensorflow_call}


class _OnTorch(MLayer):
    """The same layer on torch's exponential."""

    def exponential(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.matrix_exp(self.matrix(x))


def _steps(device: torch.device) -> dict[str, Call]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 64, generator=generator).to(device)
    labels = torch.randint(0, 10, (256,), generator=generator).to(device)

    def step(model: torch.nn.Module) -> Call:
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def call() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()

        return _finished(call, device)

    relu = torch.nn.Sequential(torch.nn.Linear(64, 430), torch.nn.ReLU(), torch.nn.Linear(430, 10))
    return {
        "mlayer": step(MLayer(64, 10, generator=generator)),
        "the layer on torch's exponential": step(_OnTorch(64, 10, generator=generator)),
        "Linear, ReLU, Linear of about as many parameters": step(relu),
    }
