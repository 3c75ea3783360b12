"""`mlayer reproduce --download`, from a server on this machine and without one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlayer.cli import main
from mlayer.datasets import load_by_name, melbourne
from mlayer.datasets.local_files import SourceFile
from mlayer.experiments import temperatures
from mlayer.experiments.running.registry import EXPERIMENTS, needed_sets

NAME = "daily-min-temperatures.csv"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a server that stands for the place where the temperatures are published."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    folder = tmp_path / "served"
    folder.mkdir()
    days = [f"19{81 + k // 365}-01-{1 + k % 28:02},{10 + (k % 365) / 50}" for k in range(3650)]
    content = "\n".join(["Date,Temp", *days, ""]).encode()
    (folder / NAME).write_bytes(content)
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{http.server_port}/{NAME}"
    file = SourceFile(NAME, (hashlib.sha256(content).hexdigest(),), url, (".",))
    monkeypatch.setattr(melbourne, "FILE", file)
    monkeypatch.setitem(load_by_name.FILES, "temperatures", (file,))
    small = temperatures.Config(waves=(1,), origins=(5,), notebook_epochs=1, dnn_epochs=1)
    monkeypatch.setitem(temperatures.SCALES, "default", small)
    yield folder
    http.shutdown()
    thread.join()
    http.server_close()


def test_what_is_missing_is_fetched_and_read(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "temperatures", "--data", "new/data", "-o", "r", "--json"]
    assert main(command) == 2
    assert "there is no folder new/data" in capsys.readouterr().err
    Path("new/data").mkdir(parents=True)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "--download" in said
    assert str(Path("new/data") / NAME) in said
    Path("new/data").rmdir()
    assert main([*command, "--download"]) == 0
    out, err = capsys.readouterr()
    assert "temperatures: all files are in new/data" in err
    assert json.loads(out)["temperatures"]["temperatures.rmse"] > 0
    assert [p.name for p in Path("new/data").iterdir()] == [NAME]
    assert json.loads(Path("r/temperatures.json").read_text())["results"]["source"] == NAME


def test_a_failed_download_stops_before_the_work(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "temperatures", "--data", "data", "--download", "-o", "r"]
    (served / NAME).write_text("something else")
    assert main(command) == 2
    assert "the published file, SHA-256" in capsys.readouterr().err
    (served / NAME).unlink()
    assert main(command) == 2
    assert "The download failed" in capsys.readouterr().err
    assert [*Path("data").iterdir()] == []
    assert not Path("r").exists()
    assert main(["reproduce", "temperatures", "--download"]) == 2
    assert "Name the folder to download into" in capsys.readouterr().err


def test_without_a_network(
    monkeypatch: pytest.MonkeyPatch, served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = SourceFile(NAME, ("0",), f"http://nowhere.invalid/{NAME}", (".",))
    monkeypatch.setitem(load_by_name.FILES, "temperatures", (nowhere,))
    assert main(["reproduce", "temperatures", "--data", "data", "--download", "-o", "r"]) == 2
    said = capsys.readouterr().err
    assert "The download failed (" in said
    assert f"Get it from http://nowhere.invalid/{NAME} and put it at data/{NAME}" in said


def test_an_experiment_without_data(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "timing", "--smoke", "--download", "-o", "r"]) == 0
    assert "nothing to download" in capsys.readouterr().err


def test_every_need_can_be_met() -> None:
    for name in EXPERIMENTS:
        assert set(needed_sets(name, "full")) <= set(load_by_name.FILES)
        assert needed_sets(name, "smoke") == ()
    assert set(needed_sets("all")) == {one for name in EXPERIMENTS for one in needed_sets(name, "full")}
