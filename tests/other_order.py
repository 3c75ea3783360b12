"""A pytest plugin: the tests in another order, file by file and within each file.

    MLAYER_TEST_ORDER=7 python -m pytest -p other_order tests/cli

A test that needs what an earlier one left behind fails. The number chooses the order; the tests of a file
stay together, so that what they share is built once.
"""

from __future__ import annotations

import os
import random

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(str(item.path), []).append(item)
    chance = random.Random(os.environ.get("MLAYER_TEST_ORDER", "1"))
    groups = list(files.values())
    chance.shuffle(groups)
    for group in groups:
        chance.shuffle(group)
    items[:] = [item for group in groups for item in group]
