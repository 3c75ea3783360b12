"""A formula in, a formula out: the 3 x 3 determinant as an M-layer, nothing trained.

A strictly triangular matrix is written down whose exponential holds the determinant. It is checked against
exact integer arithmetic and read back as a polynomial.

    python examples/exact_determinant.py     some seconds; writes out/exact_determinant.png
"""

from __future__ import annotations

from pathlib import Path

import sympy
import torch

import mlayer
from mlayer import symbolic

OUT = Path("out")


def main() -> None:
    plan = symbolic.determinant_plan(3)
    print(plan)
    layer = symbolic.determinant(3, dtype=torch.float64)

    generator = torch.Generator().manual_seed(0)
    matrices = torch.randint(-9, 10, (100, 3, 3), generator=generator)
    exact = torch.tensor([int(sympy.Matrix(m).det()) for m in matrices.tolist()])
    with torch.no_grad():
        outputs = layer(matrices.double().flatten(1))[:, 0]
    assert torch.equal(outputs.round().long(), exact)
    print(f"100 integer matrices: largest error {float((outputs - exact).abs().max()):.1e}")

    formula = mlayer.to_sympy(layer, "a b c d e f g h i")
    print("read back:", formula)
    letters = sympy.symbols("a b c d e f g h i")
    assert sympy.expand(formula - sympy.Matrix(3, 3, letters).det()) == 0

    # Any polynomial can be compiled, and M may be smaller than one would expect.
    product = symbolic.plan("(a + b + 1)*(c + d + 2)*(e + f + 3)", "a b c d e f")
    print(f"(a + b + 1)(c + d + 2)(e + f + 3) has 27 terms and needs n = {product.matrix_size}")

    OUT.mkdir(exist_ok=True)
    file = OUT / "exact_determinant.png"
    symbolic.draw_board(plan).savefig(file, dpi=70)
    print(f"Picture: {file}")


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    main()
