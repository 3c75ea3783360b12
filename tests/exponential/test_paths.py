"""The choice of the implementation and its reason, the case without a kernel, and every error message."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import torch

import mlayer
from cases import random_matrix
from mlayer.errors import ArgumentError, ArgumentTypeError, KernelError, MissingPackageError, MLayerError
from mlayer.exponential import matmul, native, node, paths
from mlayer.exponential.arguments import HALVES

WHY_NOT = "no kernel was built (there was no C++ compiler when mlayer was installed)"

needs_kernel = pytest.mark.skipif(not native.available(), reason="no kernel here")


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a machine without a compiler."""

    def load() -> tuple[ctypes.CDLL | None, str]:
        return None, WHY_NOT

    monkeypatch.delenv(paths.VARIABLE, raising=False)
    monkeypatch.setattr(native, "_load", load)
    remembered = [f for module in (native, node) for f in vars(module).values() if hasattr(f, "cache_clear")]
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the implementations that were called."""
    seen: list[str] = []
    for module, name, value in ((native, "native", "expm"), (matmul, "matmul", "expm_with_plan")):
        for function in (value, "frechet"):
            original = getattr(module, function)

            def spy(*args: object, _original: object = original, _name: str = name, **kw: object) -> object:
                seen.append(_name)
                assert callable(_original)
                return _original(*args, **kw)

            monkeypatch.setattr(module, function, spy)
    through_node = node.expm()

    def spy_node(a: object) -> object:
        result = through_node(a)
        if result is not None:
            seen.append("node")
        return result

    monkeypatch.setattr(node, "expm", lambda: spy_node)
    return seen


@needs_kernel
@pytest.mark.parametrize("wish", [None, "auto", "native", "ctypes"])
def test_kernel_is_the_choice(wish: str | None, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    if wish is not None:
        monkeypatch.setenv(paths.VARIABLE, wish)
    a = random_matrix(4, 1.0).requires_grad_()
    torch.autograd.grad(mlayer.expm(a).sum(), a)
    through_node = node.available() and wish != "ctypes"
    assert calls == (["node"] if through_node else ["native", "native"])
    how = r"C\+\+ autograd node" if through_node else r"through ctypes \(.*\)"
    for path in (mlayer.expm_path(), mlayer.expm_path(a)):
        assert path.name == "native"
        assert re.fullmatch(rf"compiled kernel, \w+ instructions, {how}", path.reason)


def test_matmul_on_request(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.VARIABLE, "matmul")
    a = random_matrix(4, 1.0).requires_grad_()
    torch.autograd.grad(mlayer.expm(a).sum(), a)
    assert calls == ["matmul", "matmul"]
    path = mlayer.expm_path(a)
    assert path == mlayer.expm_path()
    assert path == mlayer.ExpmPath("matmul", "MLAYER_EXPM=matmul asks for torch's own matrix products")


@pytest.mark.parametrize("wish", ["Native", "", "cuda", "kernel "])
def test_bad_wish(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.VARIABLE, wish)
    near = "Did you mean 'native'? " if wish == "Native" else ""
    words = (
        f"the environment variable MLAYER_EXPM must be one of {', '.join(paths._CHOICES)}; "
        f"got {wish!r}. {near}Unset it to let mlayer choose."
    )
    with pytest.raises(ArgumentError, match=f"^{re.escape(words)}$"):
        mlayer.expm(torch.eye(2))
    with pytest.raises(ArgumentError, match=re.escape(words)):
        mlayer.expm_path()


@needs_kernel
def test_complex_matrices_take_the_kernel_up_to_half_its_size(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.setenv(paths.VARIABLE, "ctypes")
    largest = native.LARGEST_SIZE // 2
    for n, name in ((3, "native"), (largest, "native"), (largest + 1, "matmul")):
        a = torch.eye(n, dtype=torch.complex64)
        assert mlayer.expm_path(a).name == name
        calls.clear()
        mlayer.expm(a)
        assert calls == [name]
    words = f"beyond size {largest} torch's own products are as fast; this is {largest + 1}"
    assert mlayer.expm_path(a) == mlayer.ExpmPath("matmul", words)


@needs_kernel
def test_reason_for_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    path = mlayer.expm_path(torch.empty(3, 3, device="meta"))
    assert path.name == "matmul"
    assert path.reason == "the kernel computes on the CPU, not on meta"


@needs_kernel
def test_reason_for_size(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    largest = native.LARGEST_SIZE
    assert mlayer.expm_path(torch.eye(largest)).name == "native"
    path = mlayer.expm_path(torch.eye(largest + 1))
    assert path.name == "matmul"
    words = f"beyond size {largest} torch's own products are as fast; this is {largest + 1}"
    assert path.reason == words
    mlayer.expm(torch.eye(largest))
    mlayer.expm(torch.eye(largest + 1))
    assert calls == ["node" if node.available() else "native", "matmul"]


@needs_kernel
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_path_said_for_half_precision_is_the_one_taken(
    half: torch.dtype, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    a = torch.eye(3, dtype=half)
    mlayer.expm(a)
    assert mlayer.expm_path(a).name == "native"
    assert calls == ["node" if node.available() else "native"]


def test_without_kernel_everything_works_and_says_so(no_kernel: None) -> None:
    assert not native.available()
    assert mlayer.expm_path() == mlayer.ExpmPath("matmul", WHY_NOT)
    a = torch.stack([random_matrix(5, x) for x in (0.0, 0.1, 5.0)])
    assert mlayer.expm_path(a) == mlayer.ExpmPath("matmul", WHY_NOT)
    torch.testing.assert_close(mlayer.expm(a), torch.linalg.matrix_exp(a))
    assert torch.autograd.gradcheck(mlayer.expm, a[1:].clone().requires_grad_())
    assert not native.use_instruction_set("portable")
    assert not native.shares_torch_threads()


def test_without_kernel_asking_for_it_is_an_error(no_kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.VARIABLE, "native")
    words = f"MLAYER_EXPM=native, but {WHY_NOT}; unset it or install with a compiler"
    with pytest.raises(KernelError, match=re.escape(words)):
        mlayer.expm(torch.eye(2))
    with pytest.raises(KernelError, match=re.escape(WHY_NOT)):
        native.expm(torch.eye(2))


def test_kernel_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.available():
        pytest.skip("no kernel here")
    monkeypatch.setattr(native, "KERNEL_VERSION", 999)
    library, why = native._load.__wrapped__()
    assert library is None
    assert re.fullmatch(r"the kernel is of version \d+, this mlayer needs 999: install again", why)


@needs_kernel
def test_the_instruction_set_can_be_held_down(monkeypatch: pytest.MonkeyPatch) -> None:
    before = native.description()
    monkeypatch.setenv(native.ISA_VARIABLE, "portable")
    native._load.__wrapped__()
    try:
        assert native.description() == "compiled kernel, portable instructions"
        monkeypatch.setenv(native.ISA_VARIABLE, "avx1024")
        words = (
            "MLAYER_EXPM_ISA must be one of avx512, avx2, portable that this processor has; got 'avx1024'."
        )
        with pytest.raises(ArgumentError, match=re.escape(words)):
            native._load.__wrapped__()
    finally:
        assert native.use_instruction_set(before.split()[2])


@needs_kernel
def test_unknown_instruction_set_is_refused_and_changes_nothing() -> None:
    before = native.description()
    assert not native.use_instruction_set("avx1024")
    assert native.description() == before


ERRORS = [
    (
        [[1.0]],
        ArgumentTypeError,
        "A must be a torch.Tensor; got list. Convert it with torch.as_tensor(A).",
    ),
    (
        torch.zeros(3),
        ArgumentError,
        "A must be a square matrix or a batch of them, shape (..., n, n); got shape (3,). "
        "The last two dimensions must be equal.",
    ),
    (torch.zeros(()), ArgumentError, "got shape ()."),
    (torch.zeros(2, 3), ArgumentError, "got shape (2, 3)."),
    (torch.zeros(4, 3, 2), ArgumentError, "got shape (4, 3, 2)."),
    (
        torch.eye(3, dtype=torch.int64),
        ArgumentTypeError,
        "A must be of floating point or complex dtype; got torch.int64. "
        "Convert it with A.float() or A.double().",
    ),
    (torch.eye(3, dtype=torch.bool), ArgumentTypeError, "got torch.bool."),
    (
        torch.eye(3).to_sparse(),
        ArgumentTypeError,
        "A must be a dense tensor; got torch.sparse_coo. Convert it with A.to_dense().",
    ),
]


@pytest.mark.parametrize(("argument", "error", "words"), ERRORS, ids=lambda x: str(x)[:30])
def test_errors_at_the_door(argument: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        mlayer.expm(argument)  # type: ignore[arg-type]
    assert isinstance(caught.value, MLayerError)
    assert getattr(caught.value, "argument", None) == "A"


def test_errors_are_also_the_builtin_kind() -> None:
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(ArgumentTypeError, TypeError)
    assert issubclass(KernelError, RuntimeError)


def compiler_works() -> bool:
    """Is there one, and does $CXX, where it is set, not stand for none?"""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        return False
    return subprocess.run([compiler, "--version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not compiler_works(), reason="no C++ compiler here")
def test_with_a_compiler_there_is_a_kernel() -> None:
    assert native.available(), native.description()


@pytest.mark.parametrize("name", ["matmul", "native", "auto"])
def test_an_argument_chooses_the_path_forward_and_backward(
    name: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "native" and not native.available():
        pytest.skip(native.description())
    monkeypatch.setenv(paths.VARIABLE, "matmul" if name == "native" else "auto")
    a = random_matrix(4, 1.0).requires_grad_()
    torch.autograd.grad(mlayer.expm(a, path=name).sum(), a)
    if name != "auto":
        assert calls == [name, name]
    # And only for that call.
    assert mlayer.expm_path().name == ("matmul" if name == "native" or not native.available() else "native")


def test_a_path_that_does_not_exist() -> None:
    with pytest.raises(ArgumentError, match=r"got .trition.\. Did you mean .triton."):
        mlayer.expm(torch.zeros(2, 2), path="trition")


def test_the_triton_path_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlayer.exponential.triton_path.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"Triton path .*pip install 'mlayer\[triton\]'"):
        mlayer.expm(torch.zeros(2, 2), path="triton")
