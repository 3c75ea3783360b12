"""The digest of data: the same as in exact arithmetic, and no change of a byte goes unnoticed."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from mlayer.training.bulk_digest import _factors, array_digest, bulk_digest, tensor_digest
from mlayer.training.fingerprint import plain, tensors_fingerprint

ROW = 4096


def digest(data: bytes) -> str:
    return bulk_digest(memoryview(data))


def in_integers(data: bytes) -> str:
    """The same by Python's integers."""
    factors = [[int(f) for f in row] for row in _factors()]
    found = hashlib.sha256(f"{len(data)}\n".encode())
    whole = len(data) // ROW * ROW
    for start in range(0, whole, ROW):
        words = struct.unpack("<1024i", data[start : start + ROW])
        for column in zip(*factors, strict=True):
            total = sum(w * f for w, f in zip(words, column, strict=True))
            assert abs(total) < 2**53
            found.update(struct.pack("<d", total))
    found.update(data[whole:])
    return found.hexdigest()


def test_no_factor_is_zero_and_none_ever_changes() -> None:
    """A factor of 0 would hide a word; other factors would take every checkpoint for that of another run."""
    factors = _factors()
    assert (factors >= 1).all()
    assert (factors <= 2047).all()
    directions = {tuple(Fraction(int(f), int(row[0])) for f in row) for row in factors}
    assert len(directions) == 1024, "two rows are multiples of each other: changes of two words may cancel"
    drawn = hashlib.sha256(factors.astype("<i8").tobytes()).hexdigest()
    assert drawn == "3107c94ddbdf49ecd2577a8900d3ccbcde55d78986b0d39e767867e4bbf51547"


@pytest.mark.parametrize("size", [0, 1, ROW - 1, ROW, 3 * ROW + 7])
@pytest.mark.parametrize("kind", ["random", "largest", "least"])
def test_as_in_exact_arithmetic(size: int, kind: str) -> None:
    data = random.Random(size).randbytes(size)
    if kind != "random":  # the words whose sums are the largest
        data = (b"\xff\xff\xff\x7f" if kind == "largest" else b"\x00\x00\x00\x80") * (size // 4 + 1)
    assert digest(data[:size]) == in_integers(data[:size])


def test_every_byte_counts() -> None:
    chance = random.Random(0)
    data = bytearray(chance.randbytes(2 * ROW + 99))
    whole = digest(bytes(data))
    for place in range(len(data)):
        bit = 1 << chance.randrange(8)
        data[place] ^= bit
        assert digest(bytes(data)) != whole, place
        data[place] ^= bit
    assert digest(bytes(data)) == whole


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "two signs": lambda x: torch.cat([-x[:2], x[2:]]),
    "all signs": lambda x: -x,
    "two rows change places": lambda x: x[[1, 0, *range(2, len(x))]],
    "the last two change places": lambda x: torch.cat([x[:-2], x[-1:], x[-2:-1]]),
    "moved by one": lambda x: x.roll(1, 0),
    "moved by a row of the digest": lambda x: x.flatten().roll(1024).view_as(x),
    "turned around": lambda x: x.flip(0),
    "one up, one down": lambda x: torch.cat([x[:1] + 0.5, x[1:2] - 0.5, x[2:]]),
    "one more": lambda x: torch.cat([x, x[:1]]),
    "one less": lambda x: x[:-1],
    "another shape": lambda x: x.t(),
    "zero of another sign": lambda x: torch.where(x == x[3, 0], -0.0, x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", CHANGES)
def test_other_data_have_other_digests(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[3, 0] = 0.0
    assert tensors_fingerprint([CHANGES[name](x)]) != tensors_fingerprint([x])


def test_where_the_numbers_lie_does_not_count() -> None:
    x = torch.randn(64, 200, generator=torch.Generator().manual_seed(0))
    wide = torch.zeros(64, 500)
    wide[:, 3:203] = x
    turned = torch.empty(200, 64).t()
    turned.copy_(x)
    raw = bytearray(x.nbytes + 1)
    raw[1:] = x.numpy().tobytes()
    same = {tensor_digest(one) for one in (x, wide[:, 3:203], turned, x.clone().requires_grad_())}
    assert same == {bulk_digest(memoryview(raw)[1:]), array_digest(x.numpy())}


def test_every_kind_of_number() -> None:
    for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.complex64, torch.int64):
        one, other = (torch.full((5000,), value).to(dtype) for value in (0, 1))
        assert tensor_digest(one) != tensor_digest(other)
    complex_one = torch.randn(2000, dtype=torch.complex64)
    assert tensor_digest(complex_one.conj()) == tensor_digest(complex_one.conj().resolve_conj())
    assert tensor_digest(complex_one.conj()) != tensor_digest(complex_one)
    assert tensor_digest(torch.zeros(0, 3)) == array_digest(np.zeros((0, 3)))


def test_arrays_of_dates_and_text_are_compared() -> None:
    """Dates have no buffer that numpy gives away."""
    days = np.arange("2020-01-01", "2024-01-01", dtype="datetime64[D]")
    assert plain(days) != plain(days + np.timedelta64(1, "D"))
    assert plain(days) == plain(days.copy())
    assert plain(np.array(["a", "b"])) != plain(np.array(["a", "c"]))


def _rows(*changes: tuple[int, int, Any]) -> list[Any]:
    rows = [[torch.full((3,), float(k)), k, torch.tensor(k)] for k in range(3000)]
    for row, column, value in changes:
        rows[row][column] = value
    return [tuple(row) for row in rows]


def test_of_a_list_of_examples_every_one_counts() -> None:
    """The last of a part that is copied together counts, and one that is not like the others."""
    own = plain(_rows())
    assert own == plain(_rows())
    assert own[:2] == ["tuple", 3000]
    odd = torch.full((3,), 2.0)
    odd.by = 1.0  # type: ignore[attr-defined]
    changed: list[tuple[int, int, Any]] = [
        (0, 0, torch.tensor([0.0, 0.0, 1e-30])),
        (1023, 0, torch.zeros(3)),
        (1024, 2, torch.tensor(0)),
        (2999, 1, 0),
        (2999, 1, 2999.0),
        (2999, 1, True),
        (5, 0, torch.full((3,), 5.0, dtype=torch.float64)),
        (5, 0, torch.full((4,), 5.0)),
        (5, 0, None),
        (2, 0, odd),
        (2, 0, torch.full((3,), 2.0, requires_grad=True)),
        (2, 0, torch.full((3,), 2.0).to_sparse()),
    ]
    found = [json.dumps(plain(_rows(change))) for change in changed]
    assert json.dumps(own) not in found
    assert len(set(found)) == len(found)
    tensors = [row[0] for row in _rows()]
    assert plain(tensors) != plain([*tensors[:-1], torch.zeros(3)])
    assert plain([tensors[0]] * 40) != plain([tensors[0]] * 41)


def _kinds(place: int, by: float) -> dict[str, Any]:
    """Collections of 40 alike things, one of them changed by a number."""
    numbers = [float(k) for k in range(40)]
    numbers[place] += by
    tensors = [torch.full((3,), number) for number in numbers]
    return {
        "dictionary of pairs": {k: (t, t) for k, t in enumerate(tensors)},
        "list of dictionaries": [{"x": t, "y": k} for k, t in enumerate(tensors)],
        "nested rows": [(k, [t, (None, t)]) for k, t in enumerate(tensors)],
        "arrays": [t.numpy() for t in tensors],
        "records": [np.array([(1, n)], [("a", "i1"), ("b", "f8")]) for n in numbers],
        "numbers of numpy": [np.float32(n) for n in numbers],
        "texts": [str(n) for n in numbers],
        "keys": {n: torch.zeros(1) for n in numbers},
        "names": [{f"x{n}": torch.zeros(1)} for n in numbers],
    }


@pytest.mark.parametrize("kind", _kinds(0, 0.0))
def test_of_alike_things_every_one_counts(kind: str) -> None:
    own = plain(_kinds(0, 0.0)[kind])
    assert own == plain(_kinds(0, 0.0)[kind])
    assert all(plain(_kinds(place, 0.5)[kind]) != own for place in (0, 20, 39))


def test_many_small_tensors_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest for each of 100,000 takes seconds before a run begins."""
    taken: list[int] = []

    def counted(data: memoryview) -> str:
        taken.append(1)
        return bulk_digest(data)

    monkeypatch.setattr("mlayer.training.bulk_digest.bulk_digest", counted)
    for kind in ("dictionary of pairs", "list of dictionaries", "nested rows", "arrays", "numbers of numpy"):
        taken.clear()
        plain(_kinds(0, 0.0)[kind])
        assert len(taken) <= 2, kind
