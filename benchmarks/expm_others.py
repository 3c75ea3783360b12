"""The other libraries of benchmarks/expm.py, each where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor

Call = Callable[[], object]
NAMES = ("jax", "tensorflow", "scipy")


def versions() -> dict[str, str]:
    """The installed versions of JAX, TensorFlow and SciPy."""
    return {name: str(import_module(name).__version__) for name in NAMES if find_spec(name)}


def forward(A: Tensor) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    if find_spec("jax"):
        expm, a = _jax()["forward"], _to_jax(A)
        calls["jax"] = lambda: expm(a).block_until_ready()
    if find_spec("tensorflow"):
        tf_expm, tf_a = _tensorflow()["forward"], _to_tensorflow(A)
        calls["tensorflow"] = lambda: tf_expm(tf_a).numpy()
    if find_spec("scipy"):
        import scipy.linalg

        array = A.numpy()
        calls["scipy"] = lambda: scipy.linalg.expm(array)
    return calls


def both(A: Tensor, G: Tensor) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    if find_spec("jax"):
        pull, a, g = _jax()["both"], _to_jax(A), _to_jax(G)
        calls["jax"] = lambda: pull(a, g).block_until_ready()
    if find_spec("tensorflow"):
        tf_pull, tf_a, tf_g = _tensorflow()["both"], _to_tensorflow(A), _to_tensorflow(G)
        calls["tensorflow"] = lambda: tf_pull(tf_a, tf_g).numpy()
    return calls


_compiled: dict[str, dict[str, Any]] = {}


def _jax() -> dict[str, Any]:
    if "jax" not in _compiled:
        import jax
        import jax.scipy.linalg

        expm = jax.vmap(jax.scipy.linalg.expm)
        _compiled["jax"] = {
            "forward": jax.jit(expm),
            "both": jax.jit(lambda a, g: jax.vjp(expm, a)[1](g)[0]),
        }
    return _compiled["jax"]


def _tensorflow() -> dict[str, Any]:
    if "tensorflow" not in _compiled:
        import tensorflow as tf

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def pull(a: Any, g: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(a)
                x = tf.linalg.expm(a)
            return tape.gradient(x, a, output_gradients=g)

        _compiled["tensorflow"] = {"forward": tf.function(tf.linalg.expm), "both": pull}
    return _compiled["tensorflow"]


def _to_jax(A: Tensor) -> Any:
    import jax.numpy

    return jax.numpy.asarray(A.numpy())


def _to_tensorflow(A: Tensor) -> Any:
    import tensorflow as tf

    return tf.constant(A.numpy())
