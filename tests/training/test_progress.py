from __future__ import annotations

import io
import sys

import pytest
from problems import layer, product
from rich.console import Console

from mlayer.training import Bar, Settings, train
from mlayer.training.progress import Silent, as_progress


def test_a_bar_shows_loss_metric_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlayer.training import loop

    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_UPDATES", 0.0)
    stream = io.StringIO()
    bar = Bar(console=Console(file=stream, force_terminal=True, width=160))
    train(layer(), product(), Settings(epochs=4, batch_size=4), validation=product(9), progress=bar)
    bar._bars.refresh()
    shown = stream.getvalue()
    for part in ("epoch", "loss", "val. loss", "steps/s", "left"):
        assert part in shown, part


def test_nothing_is_printed_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    train(layer(), product(), Settings(epochs=2), progress=True)  # pytest's stderr is no terminal
    train(layer(), product(), Settings(epochs=2))
    assert capfd.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(as_progress(True), Bar)
    assert isinstance(as_progress(False), Silent)


def test_progress_is_told_the_end_of_a_failed_run_too() -> None:
    calls: list[str] = []

    class Watch(Silent):
        def start(self, total_steps: int | None, done: int) -> None:
            calls.append(f"start {total_steps} {done}")

        def stop(self) -> None:
            calls.append("stop")

    with pytest.raises(ArithmeticError):
        train(layer(), product(), Settings(epochs=300, optimizer="sgd", learning_rate=99.0), progress=Watch())
    assert calls == ["start 900 0", "stop"]
