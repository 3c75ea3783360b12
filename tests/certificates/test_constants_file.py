"""The constants' file: damage is refused, and what a forger can write makes no radius false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from certificate_layers import random_layer
from mlayer import MLayer
from mlayer.certificates import Certifier, attack
from mlayer.certificates.problem.constants import FORMAT, _digest, owner_of
from mlayer.errors import FileFormatError

METHODS: tuple[Any, ...] = ("paper", "first_order", "second_order", "best")


def write(path: Path, belongs_to: str, **arrays: Any) -> None:
    """A file as `Constants.save` writes it, with a digest that fits."""
    np.savez(
        path,
        format=np.array(FORMAT),
        belongs_to=np.array(belongs_to),
        digest=np.array(_digest(belongs_to, arrays)),
        **arrays,
    )


@pytest.fixture(scope="module")
def case() -> Any:
    layer, x, labels = random_layer("full", 5)
    return layer, x, labels, Certifier(layer, fit_steps=5)


def forgeries(constants: Any) -> dict[str, dict[str, Any]]:
    """The attempts of a forger: each changes one of the stored arrays."""
    n, m = len(constants.P), len(constants.w)
    random = np.random.default_rng(0)
    wide = np.diag(10.0 ** np.linspace(-7, 7, n))
    return {
        "tiny weight": {"w": np.r_[1e-9, np.ones(m - 1)]},
        "large weights": {"w": constants.w * 1e3},
        "an inverse that is none": {"P_inverse": np.zeros((n, n))},
        "an inverse that is half": {"P_inverse": constants.P_inverse / 2},
        "no gauge at all": {"P": np.zeros((n, n))},
        "a wide gauge": {"P": wide, "P_inverse": np.diag(1 / np.diag(wide))},
        "a wide gauge, almost inverted": {"P": wide, "P_inverse": np.diag(0.99 / np.diag(wide))},
        "a random multiplier": {"Y": random.standard_normal((n * n, n * n)) * 1e3},
        "a large multiplier": {"Y": np.eye(n * n) * -1e9},
    }


@pytest.mark.parametrize("name", forgeries(Certifier(random_layer("full", 5)[0], fit_steps=0).constants))
def test_forged_constants_make_no_radius_false(case: Any, name: str, tmp_path: Path) -> None:
    layer, x, labels, certifier = case
    constants = certifier.constants
    arrays = {key: getattr(constants, key) for key in ("w", "P", "P_inverse", "Y")}
    owner = owner_of(certifier._model.weights, "linf")
    write(tmp_path / "forged.npz", owner, **{**arrays, **forgeries(constants)[name]})
    upper = attack(layer, x, labels).radius
    try:
        forged = Certifier(layer, constants=tmp_path / "forged.npz")
    except FileFormatError:
        return  # refused is as good
    for method in METHODS:
        assert bool((forged(x, labels, method=method).radius <= upper).all())


def test_numbers_that_proofs_rest_on_are_not_in_the_file(case: Any, tmp_path: Path) -> None:
    certifier = case[3]
    certifier.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as file:
        assert sorted(file.files) == ["P", "P_inverse", "Y", "belongs_to", "digest", "format", "w"]


@pytest.mark.parametrize("name", ["w", "P", "P_inverse", "Y"])
def test_changed_numbers_do_not_match_the_digest(case: Any, name: str, tmp_path: Path) -> None:
    layer, _, _, certifier = case
    certifier.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as file:
        content = dict(file)
    content[name] = content[name] + 1e-9
    np.savez(tmp_path / "d.npz", **content)
    with pytest.raises(FileFormatError, match="digest does not match"):
        Certifier(layer, constants=tmp_path / "d.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"w": np.array([np.nan])},
        {"w": np.zeros(1)},
        {"P": np.full((2, 2), np.inf)},
        {"P": np.eye(3)},
        {"Y": np.zeros((4, 4), np.float32)},
        {"w": np.array([-1.0])},
        {"Y": np.full((4, 4), 1.7e308)},
        {"Y": np.full((4, 4), np.nan)},
    ],
)
def test_numbers_that_cannot_be_computed_with_are_refused(change: dict[str, Any], tmp_path: Path) -> None:

    layer = MLayer(1, 2, matrix_size=2, embedding_size=None, dtype=torch.float64)
    certifier = Certifier(layer, fit_steps=0)
    arrays = {key: getattr(certifier.constants, key) for key in ("w", "P", "P_inverse", "Y")}
    write(tmp_path / "c.npz", owner_of(certifier._model.weights, "linf"), **{**arrays, **change})
    with pytest.raises(FileFormatError, match="Compute them again"):
        Certifier(layer, constants=tmp_path / "c.npz")


def test_every_damaged_byte_is_refused_or_harmless(case: Any, tmp_path: Path) -> None:
    layer, _, _, certifier = case
    certifier.save(tmp_path / "c.npz")
    data = bytearray((tmp_path / "c.npz").read_bytes())
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(data)
        damaged[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        (tmp_path / "d.npz").write_bytes(damaged)
        try:
            again = Certifier(layer, constants=tmp_path / "d.npz")
        except FileFormatError:
            continue
        assert again.constants.delta_2 == certifier.constants.delta_2  # a byte that nothing reads


def test_saving_leaves_the_old_file_whole(case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certifier = case[3]
    certifier.save(tmp_path / "c.npz")
    before = (tmp_path / "c.npz").read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("mlayer.disk.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        certifier.save(tmp_path / "c.npz")
    assert (tmp_path / "c.npz").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
