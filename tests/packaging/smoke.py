"""Tries an installed mlayer from another folder; run by test_package.py in empty environments.

Takes the path that expm should have: "native" or "matmul".
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import torch

import mlayer

HERE = Path.cwd()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def library(path: str) -> None:
    installed = Path(mlayer.__file__)
    assert installed.is_relative_to(sys.prefix), f"{installed} is not the installed one"
    assert (installed.parent / "py.typed").exists()
    assert mlayer.expm_path().name == path, mlayer.expm_path()

    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(7, 5, 5, generator=generator, dtype=torch.float64)
    assert torch.allclose(mlayer.expm(matrices), torch.linalg.matrix_exp(matrices), rtol=1e-12)

    layer = mlayer.MLayer(3, 2, matrix_size=4, embedding_size=5)
    x = torch.randn(10, 3, generator=generator)
    layer(x).square().sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())
    mlayer.save(layer, HERE / "layer.safetensors")
    assert torch.equal(mlayer.load(HERE / "layer.safetensors")(x), layer(x))
    radius = mlayer.certify(layer, x, layer(x).argmax(1), norm="linf").radius
    assert bool((radius > 0).all())


def says_what_is_missing() -> None:
    """Check that an error about a missing package names it and the command that installs it."""
    for package, extra, call in (
        ("sympy", "symbolic", lambda: mlayer.from_polynomial("x*y", "x y")),
        ("sklearn", "estimators", lambda: mlayer.MLayerClassifier(matrix_size=3)),
        ("onnx", "onnx", lambda: mlayer.export_onnx(mlayer.MLayer(2, 2, 3), HERE / "m.onnx")),
    ):
        if importlib.util.find_spec(package) is None:
            said = ""
            try:
                call()
            except ImportError as error:
                said = str(error)
            assert f"pip install 'mlayer[{extra}]'" in said, (package, said)
    if importlib.util.find_spec("click") is None:
        done = subprocess.run(
            [str(Path(sys.prefix) / "bin" / "mlayer"), "fit"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, done
        assert "pip install 'mlayer[cli]'" in done.stderr, done


def command_line() -> None:
    mlayer_command = str(Path(sys.prefix) / "bin" / "mlayer")
    assert run(mlayer_command, "--version").strip() == f"mlayer {mlayer.__version__}"
    assert run(sys.executable, "-m", "mlayer", "--version").strip() == f"mlayer {mlayer.__version__}"
    rows = [f"{a},{b},{'high' if a * b > 6 else 'low'}" for a in range(8) for b in range(8)]
    (HERE / "table.csv").write_text("a,b,size\n" + "\n".join(rows) + "\n")
    run(mlayer_command, "fit", "table.csv", "--target", "size", "--epochs", "20", "-o", "m.safetensors", "-q")
    run(mlayer_command, "predict", "m.safetensors", "table.csv", "-o", "out.csv", "-q")
    assert len((HERE / "out.csv").read_text().splitlines()) == 65
    run(mlayer_command, "demo", "--smoke", "-o", "demo.html", "-q")
    assert (HERE / "demo.html").read_text().rstrip().endswith("</html>")


if __name__ == "__main__":
    library(sys.argv[1])
    says_what_is_missing()
    if importlib.util.find_spec("click") is not None:
        command_line()
