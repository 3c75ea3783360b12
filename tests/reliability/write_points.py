"""Everything that mlayer writes, each as a function that writes an old (0) or a new (1) version."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

import mlayer
from mlayer.certificates import Certifier
from mlayer.datasets.download import fetch
from mlayer.datasets.local_files import SourceFile
from mlayer.experiments.running.records import write_part
from mlayer.experiments.running.runner import write_json
from mlayer.files.network_file import save_network
from mlayer.report.page import Page
from mlayer.tables import Plan, TableModel, Training, fit_table, open_table
from mlayer.tables.predict import predict_table


@dataclass(frozen=True)
class Point:
    """Attributes:
    files: what is there after a write, below the folder.
    write: writes version 0 or 1 into a folder.
    """

    files: tuple[str, ...]
    write: Callable[[Path, int], None]


_tables = TemporaryDirectory()


@cache
def layer(version: int) -> mlayer.MLayer:
    generator = torch.Generator().manual_seed(version)
    return mlayer.MLayer(3, 2, 3, 2, init="balanced", generator=generator, dtype=torch.float64)


@cache
def constants(version: int) -> Certifier:
    return Certifier(layer(version), fit_steps=0)


@cache
def certificates(version: int) -> Any:
    x = torch.full((2, 3), 0.1, dtype=torch.float64)
    labels = layer(version)(x).argmax(1)
    return mlayer.certify(layer(version), x, labels, rigorous=True, proof=True)


@cache
def table_model(version: int) -> TableModel:
    rows = np.random.default_rng(version).normal(size=(60, 2))
    frame = pd.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "y": rows[:, 0] > 0})
    plan = Plan(target="y", seed=version, training=Training(epochs=1, matrix_size=3, embedding_size=2))
    return fit_table(frame, plan).model


def save_model(folder: Path, version: int) -> None:
    mlayer.save(layer(version), folder / "m.safetensors")


def save_constants(folder: Path, version: int) -> None:
    constants(version).save(folder / "c.npz")


def save_proof(folder: Path, version: int) -> None:
    certificates(version).proof.save(folder / "p.safetensors")


def save_table_model(folder: Path, version: int) -> None:
    table_model(version).save(folder / "t.safetensors")


def save_a_network(folder: Path, version: int) -> None:
    save_network(torch.nn.Sequential(torch.nn.Flatten(), layer(version)), folder / "n.safetensors", {})


def save_a_part(folder: Path, version: int) -> None:
    write_part(folder / "run" / "part.json", {"version": version})


def save_page(folder: Path, version: int) -> None:
    Page(f"version {version}", "words").paragraph("more words").save(folder / "r.html")


def save_results(folder: Path, version: int) -> None:
    write_json(folder / "deep" / "r.json", {"version": version})


def predictions(folder: Path, version: int, *, ending: str) -> None:
    predict_table(table_model(version), open_table(_table(version)), folder / f"p.{ending}", keep=True)


@cache
def _table(version: int) -> Path:
    file = Path(_tables.name) / f"{version}.csv"
    file.write_text("a,b\n" + f"{version},2\n" * 50)
    return file


class _Served(BaseHTTPRequestHandler):
    files: dict[str, bytes] = {}  # noqa: RUF012 - one server for all

    def do_GET(self) -> None:
        content = self.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@cache
def _address() -> str:
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Served)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{http.server_port}"


def _content(version: int) -> bytes:
    return bytes([version]) * 600_000


def download(folder: Path, version: int) -> None:
    _Served.files[f"/{version}"] = content = _content(version)
    digest = hashlib.sha256(content).hexdigest()
    # What is there is not fetched again: each version has its own name, and the new one is fetched anew.
    fetch(folder, [SourceFile(f"{version}.bin", (digest,), f"{_address()}/{version}", ("set",))])


def download_archive(folder: Path, version: int) -> None:
    stream = io.BytesIO()
    names = [f"{version}{letter}.bin" for letter in "ab"]
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 600_000
            tar.addfile(member, io.BytesIO(_content(version)))
    _Served.files[f"/{version}.tar.gz"] = stream.getvalue()
    digest = hashlib.sha256(_content(version)).hexdigest()
    url = f"{_address()}/{version}.tar.gz"
    fetch(folder, [SourceFile(name, (digest,), url, ("set",)) for name in names])


POINTS = {
    "model": Point(("m.safetensors",), save_model),
    "constants": Point(("c.npz",), save_constants),
    "proof": Point(("p.safetensors",), save_proof),
    "table model": Point(("t.safetensors",), save_table_model),
    "network": Point(("n.safetensors",), save_a_network),
    "part": Point(("run/part.json",), save_a_part),
    "report": Point(("r.html",), save_page),
    "results": Point(("deep/r.json",), save_results),
    "predictions": Point(("p.csv",), partial(predictions, ending="csv")),
    "predictions, parquet": Point(("p.parquet",), partial(predictions, ending="parquet")),
    "data set": Point(("set/0.bin", "set/1.bin"), download),
    "archive of a data set": Point(
        ("set/0a.bin", "set/0b.bin", "set/1a.bin", "set/1b.bin"), download_archive
    ),
}
