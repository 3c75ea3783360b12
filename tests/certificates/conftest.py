"""What several tests of certificates set up and undo."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def flushing() -> Iterator[Callable[[], None]]:
    """torch.set_flush_denormal(True) within a test, by a call."""

    def on() -> None:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor keeps denormal numbers")

    yield on
    torch.set_flush_denormal(False)
