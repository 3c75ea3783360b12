"""Random tables and models: what is certified of a row holds for the cells that a user changes.

Dates as times and as text, days of a spreadsheet, amounts of money, missing cells and a number that stands
for them, numbers that are clipped, categories; forecasts whose growth slows down, values that are limited.
The layer is evaluated in float64 at the numbers that cells become: the claim is about its exact function.

make fuzz                                             all of it
python -m pytest -m fuzz -k "certified_tables and 3"  one block
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from mlayer import MLayer
from mlayer.tables import TableModel, Target, learn_schema
from mlayer.tables.certify.certify_table import certify_table
from mlayer.tables.certify.intervals import interval_table
from mlayer.tables.horizon import slowed

Random = np.random.Generator
ROWS, CERTIFIED, ABSENT = 24, 6, -999.0
KINDS, TRUTHS = ["red", "blue", "green", "once", "never seen"], ["yes", "no"]
_WITHIN = 1 - 1e-9  # of a step, for its rounding
_ROUNDED = 1e-9  # of a value


def table(random: Random) -> pd.DataFrame:
    """A table with columns of many kinds."""
    start = str(random.choice(["1970-01-01", "2024-01-31 06:00", "1999-12-31"]))
    days = pd.Series(pd.date_range(start, periods=ROWS, freq=str(random.choice(["37h", "D", "7D", "MS"]))))
    size, shift = 10.0 ** random.uniform(-3, 5), float(random.choice([0, 1e4, -3]))
    gaps = np.where(random.random(ROWS) < 0.2, np.nan, random.normal(0, size, ROWS) + shift)
    codes = np.round(random.uniform(0, 50, ROWS), 1)
    codes[random.integers(0, ROWS, 3)] = ABSENT
    far, kinds = random.normal(0, 1, ROWS), random.choice(KINDS[:3], ROWS)
    far[3], kinds[5], codes[1] = 1e6, "once", ABSENT
    columns: dict[str, Any] = {
        "day": days.astype(str) if random.random() < 0.5 else days,
        "gaps": gaps,
        "codes": codes,
        "far": far,
        "kind": kinds,
        "truth": np.where(random.random(ROWS) < 0.1, None, random.choice(TRUTHS, ROWS)),  # type: ignore[call-overload]
    }
    if random.random() < 0.5:
        columns["money"] = [f"£{amount:,.2f}" for amount in random.uniform(100, 9000, ROWS)]
    if random.random() < 0.5:
        columns["spreadsheet date"] = np.round(45000 + random.uniform(0, 900, ROWS), 3)
    return pd.DataFrame(columns)


def fitted(random: Random, frame: pd.DataFrame, outputs: int) -> TableModel:
    """A model of random weights for the sizes of the columns."""
    schema, _ = learn_schema(frame)
    numbers = schema.encode(frame).numbers
    dtype = torch.float64 if random.random() < 0.5 else torch.float32
    layer = MLayer(numbers.shape[1], outputs, matrix_size=3, embedding_size=4, dtype=dtype)
    assert layer.embedding is not None
    assert layer.embedding_bias is not None
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.from_numpy(random.standard_normal(parameter.shape) * 0.4))
        layer.embedding.div_(torch.from_numpy(numbers.std(0) + 1e-12))
        layer.embedding_bias.sub_(layer.embedding @ torch.from_numpy(numbers.mean(0)).to(dtype))
    facts: dict[str, Any] = {}
    if outputs > 1:
        threshold = float(random.uniform(0.05, 0.95)) if outputs == 2 else None
        target = Target("y", "classification", tuple("abc"[:outputs]))
        return TableModel(layer, schema, target, facts, threshold)
    if random.random() < 0.6:
        facts["range"] = sorted(random.normal(0, 2, 2).tolist())
    date = next(column.date for column in schema.columns if column.date is not None)
    if random.random() < 0.7:
        last = np.datetime64(round((date.low + date.origin) * 86400), "s")  # the other rows are forecasts
        slows = {"rate": float(random.normal(0, 0.05)), "after": float(random.uniform(0.1, 9))}
        errors = {"growth": [1, 0, 0], "scores": [1.0, 2.0], "span": 10.0, "relative": 0.0}
        facts["horizon"] = {"column": date.name, "last": str(last), **errors, "slows": slows}
    return TableModel(layer, schema, Target("y", "regression", ()), facts)


def moved(frame: pd.DataFrame, name: str, step: Any) -> Any:
    """The cells of a column, changed by steps in its own unit; those that stand for a missing one stay."""
    cells = frame[name]
    if name == "day":
        days = pd.to_datetime(cells) + pd.to_timedelta(np.trunc(step * 86400e9), "ns")
        return days if pd.api.types.is_datetime64_any_dtype(cells.dtype) else days.astype(str)
    if name == "money":
        amounts = [float(cell[1:].replace(",", "")) for cell in cells]
        return [f"£{amount + more:,.12f}" for amount, more in zip(amounts, step, strict=True)]
    numbers = cells.to_numpy(float)
    return np.where(numbers == ABSENT, ABSENT, numbers + step)


def outputs(model: TableModel, frame: pd.DataFrame) -> Any:
    """The outputs of the layer in float64, at the numbers that the cells become."""
    with torch.no_grad():
        found = deepcopy(model.layer).double()(model.encode(frame)[0].double()).numpy()
    if model.target.classifies:
        return found
    values = slowed(model.facts.get("horizon", {}), model.schema, frame, found[:, 0])
    return model.limited(values, model.schema.beyond(model.encode(frame)[0].double().numpy()))


def steps(random: Random, count: int, norm: str = "linf") -> Any:
    """Steps of size 1, corners half of the time."""
    found = random.choice([-1.0, 1.0], (count, CERTIFIED))
    if random.random() < 0.5:
        found = found * random.random(found.shape)
    return found / np.linalg.norm(found, axis=0) if norm == "l2" else found


def false_intervals(seed: int) -> list[str]:
    random = np.random.default_rng([seed, 1])
    frame = table(random)
    model, frame = fitted(random, frame, 1), frame[:CERTIFIED]
    varied = [name for name in ("kind", "truth") if random.random() < 0.4]
    eps = float(10.0 ** random.uniform(-4, -0.5))
    found = interval_table(model, frame, eps=eps, vary=varied)
    low, high = (found.frame[end].to_numpy() for end in ("lower", "upper"))
    moving, wrong = [name for name, unit in found.units.items() if unit > 0], []
    for _ in range(6):
        changed = frame.copy()
        for name, step in zip(moving, steps(random, len(moving)), strict=True):
            changed[name] = moved(frame, name, step * eps * found.units[name] * _WITHIN)
        for name in varied:
            changed[name] = random.choice(KINDS if name == "kind" else TRUTHS, CERTIFIED)
        values = outputs(model, changed)
        slack = _ROUNDED * (1 + np.abs(values))
        off = (values < low - slack) | (values > high + slack)
        wrong += [f"row {k}: {values[k]} not in [{low[k]}, {high[k]}]" for k in np.flatnonzero(off)]
    return wrong


def false_classes(seed: int) -> list[str]:
    random = np.random.default_rng([seed, 2])
    frame, norm = table(random), str(random.choice(["linf", "l2"]))
    model, frame = fitted(random, frame, int(random.integers(2, 4))), frame[:CERTIFIED]
    found = certify_table(model, frame, norm=norm, method="second_order")
    radius, threshold = found.certificates.radius.numpy(), model.threshold
    reach = np.where(np.isfinite(radius), radius, 1.0) * _WITHIN
    shift = 0.0 if threshold is None else np.log(threshold / (1 - threshold))
    moving, wrong = [name for name, unit in found.units.items() if unit > 0], []
    for _ in range(6):
        changed = frame.copy()
        for name, step in zip(moving, steps(random, len(moving), norm), strict=True):
            changed[name] = moved(frame, name, step * reach * found.units[name])
        logits = [outputs(model, rows) for rows in (frame, changed)]
        for each in logits:
            each[:, 1] -= shift
        first, now = (each.argmax(1) for each in logits)
        off = (first != now) & (radius > 0)
        wrong += [f"row {k}: {first[k]} becomes {now[k]} within {radius[k]}" for k in np.flatnonzero(off)]
    return wrong


def test_certified_tables() -> None:
    assert false_intervals(3) == []
    assert false_classes(0) == []


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(10))
def test_certified_tables_of_many(block: int) -> None:
    for seed in range(100 + 20 * block, 120 + 20 * block):
        assert false_intervals(seed) == [], seed
        assert false_classes(seed) == [], seed
