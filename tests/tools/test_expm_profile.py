"""The profile of expm: which part of the kernel a function is, and the products that twofold.h makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import expm_profile
import expm_samples

# Functions as addr2line names them, the innermost first.
CHAINS = [
    (["Simd<float>::broadcast(float)", "void accumulate<float, 4, 3>(float)", "tile"], "products"),
    (["void AfterY<float>::apply<true>(long)", "LaneLayout<float>::tile<4, 3>"], "linear combinations"),
    (["Simd<float>::transpose(float*)", "LaneBlock<float>::load(float const*)", "lane_block"], "layout"),
    (["operator()<int>", "LaneNorms<float> lane_norms<float>(int)", "lane_block"], "norms and schedule"),
    # The name of a product has the function that called it among its arguments.
    (
        ["LaneLayout<double>::part<true, DoubleAndAdd<double, ordinary_block<double>(Job<double>)>>"],
        "products",
    ),
    (["void one_matrix<double, false>(Job<double> const&, long)"], "linear combinations"),
    (["void PlaneLayout<double>::accumulate<8, true>(double)", "PlaneLayout<double>::both<8>"], "products"),
    (["void load_planes<double>(double const*)", "bool complex_matrix<double, false>"], "layout"),
    (["RowNorms<double> plane_norms<double>(PlaneShape<double> const&)"], "norms and schedule"),
    (["bool complex_matrix<double, false>(Job<double> const&, long)"], "linear combinations"),
    (["(anonymous namespace)::work(void*)"], "other"),
    ([], "other"),
]


@pytest.mark.parametrize(("functions", "part"), CHAINS)
def test_part_of_a_function(functions: list[str], part: str) -> None:
    assert expm_samples.part_of(functions) == part


def test_products_in_twice_the_precision() -> None:
    """A multiple of the identity of norm 40, counted by hand after kernel/twofold.h."""
    a = 40j * torch.eye(16, dtype=torch.complex128)
    # The real form has ||A^2|| = 1600 < 2^11, so 2^-7 A; ||B^4|| = (5/16)^4 < 2^-6, so norms below 2^-1.
    # Up to norm 8 are 4 squarings, the first of them 2 Y + Y^2: 3 twofold ones, 3 ordinary ones.
    assert expm_profile.twofold_products(a) == 6 + 7 + 2 * 3
