"""Files of data sets that others have made: sizes that overflow, holes of terabytes, endless fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile import no_hang
from mlayer import datasets, memory
from mlayer.datasets import load_by_name, temperatures
from mlayer.datasets.mnist_idx import read_idx
from mlayer.errors import FileFormatError

# The files that each set looks for; the first one that is read is refused.
SETS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    name: (
        getattr(datasets, name),
        tuple(f"{file.folders[0]}/{file.name}".removesuffix(".gz") for file in files),
    )
    for name, files in load_by_name.FILES.items()
    if name != "authors_model"  # tests/files/test_holes_and_pipes.py
}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", SETS)
def test_a_hole_of_terabytes_is_neither_read_nor_summed(
    name: str, verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 10**9)
    load, files = SETS[name]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / file).open("wb") as stream:
            stream.truncate(2**42)
    with no_hang(), pytest.raises(FileFormatError, match="must be smaller than the memory"):
        load(tmp_path, verify=verify)


@pytest.mark.parametrize("sizes", [(2**22, 2**21, 2**21), (2**32 - 1, 2**32 - 1, 2**31), (2**31, 2**31, 4)])
def test_sizes_whose_product_overflows(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """2^64 is 0 in 64 bits, which fits a file without entries."""
    file = tmp_path / "images"
    file.write_bytes(bytes((0, 0, 8, 3)) + b"".join(size.to_bytes(4, "big") for size in sizes))
    with pytest.raises(FileFormatError, match="bytes after its header; got 0 bytes"):
        read_idx(file, 3)


def test_a_field_without_end(tmp_path: Path) -> None:
    (tmp_path / "daily-min-temperatures.csv").write_text("Date,Temp\n" + "9" * 200_000 + ",1\n")
    with pytest.raises(FileFormatError, match=r"must be a table of dates and numbers; got a damaged one"):
        temperatures(tmp_path, verify=False)
