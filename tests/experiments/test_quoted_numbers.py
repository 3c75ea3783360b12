"""Figures quoted from the paper are the paper's: read from its LaTeX source, if that is next to the project.

Without ../shared/paper the test of the text is skipped.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlayer.experiments import baselines, determinant, determinant5, images, periodic, timing
from mlayer.experiments.shared.pictures import SET_TITLES

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "paper" / "intelligent_matrix_exponentiation.tex"
NAMES = {title: name for name, title in SET_TITLES.items()}
NETS = {
    "M-LAYER": "M-layer",
    "SIGMOID (f.c.)": "sigmoid",
    "ReLU (f.c.)": "ReLU",
    "PReLU (f.c.)": "PReLU",
    "Maxout (f.c.)": "maxout",
    "NODE": "NODE",
    "ANODE": "ANODE",
}


@pytest.fixture(scope="module")
def paper() -> str:
    if not SOURCE.is_file():
        pytest.skip("needs the paper's LaTeX source in ../shared/paper")
    return SOURCE.read_text()


def table_1(paper: str) -> dict[tuple[str, str], tuple[float, float | None, int]]:
    """(image set, net) -> mean, deviation, parameters."""
    rows = {}
    for line in paper.splitlines():
        cells = [cell.strip() for cell in line.split("&")]
        if len(cells) == 6 and cells[0] in NETS and cells[2] in NAMES:
            accuracy = re.sub(r"\\phantom\{[^}]*\}", "", cells[3])
            numbers = [float(number) for number in re.findall(r"\d+\.\d+", accuracy)]
            parameters = int(re.search(r"\\num\{(\d+)\}", cells[4])[1])  # type: ignore[index]
            rows[NAMES[cells[2]], NETS[cells[0]]] = (numbers[0], [*numbers, None][1], parameters)
    return rows


def test_table_1(paper: str) -> None:
    quoted = {
        (name, net): row
        for table in (baselines.EXPECTED, images.EXPECTED)
        for name, nets in table.items()
        for net, row in nets.items()
    }
    assert quoted == table_1(paper)
    assert len(quoted) == 13


def test_table_2(paper: str) -> None:
    seconds = dict(re.findall(r"^(M-Layer|ReLU DNN) +& \$\d+\$ & \$([\d.]+)s", paper, re.MULTILINE))
    ratio = float(seconds["M-Layer"]) / float(seconds["ReLU DNN"])
    assert round(ratio, 1) == timing.EXPECTED["ratio"]


def test_numbers_of_the_text(paper: str) -> None:
    words = " ".join(paper.split())
    assert r"mean squared error of $\approx2\cdot10^{-4}$ with $811$~parameters" in words
    assert (determinant.EXPECTED["m_layer_mse"], determinant.EXPECTED["m_layer_parameters"]) == (2e-4, 811)
    assert r"a mean squared error of $\approx0.003$ with $3121$~parameters" in words
    assert (determinant.EXPECTED["dnn_mse"], determinant.EXPECTED["dnn_parameters"]) == (0.003, 3121)
    assert (
        "An M-layer with $14977$ parameters outperformed a DNN with $43101$ parameters, achieving a MSE of "
        in words
    )
    assert "$0.279$ compared to $0.0012$" in words  # swapped in the text: the M-layer's is the smaller one
    assert {determinant5.EXPECTED["m_layer_mse"], determinant5.EXPECTED["dnn_mse"]} == {0.0012, 0.279}
    assert "trainable parameter count of $3221$" in words
    assert periodic.EXPECTED["dnn_parameters"] == 3221
